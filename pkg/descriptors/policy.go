package descriptors

import "slices"

// Policy says how a limit is decided while the store cannot decide it: the field
// on_error of the rules.
type Policy uint8

const (
	// PolicyError leaves the limit undecided: the request fails unless another
	// limit denies it.
	PolicyError Policy = iota
	// PolicyAllow lets the hits pass.
	PolicyAllow
	// PolicyDeny denies the hits.
	PolicyDeny
	// PolicyLocal counts the hits in this process, against its share of the limit.
	PolicyLocal

	// Policies is the number of policies.
	Policies = int(iota)
)

var policyNames = [Policies]string{"error", "allow", "deny", "local"}

// String is the policy's name in the rules.
func (p Policy) String() string { return policyNames[p] }

// PolicyNames lists the names of the policies in the order of their constants.
func PolicyNames() []string { return policyNames[:] }

// ParsePolicy finds a policy by its name in the rules. It returns false if no
// policy has that name.
func ParsePolicy(name string) (Policy, bool) {
	i := slices.Index(policyNames[:], name)
	return Policy(max(i, 0)), i >= 0
}
