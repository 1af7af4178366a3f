package rules

import "example.org/rls/pkg/descriptors"

// inherited marks, until all files are read, a limit or a domain without a policy
// of its own. No limit of a loaded tree has it.
const inherited = descriptors.Policy(descriptors.Policies)

// policies gives each limit of the tree the nearest policy: its own, else its
// domain's, else that of the options. It returns a warning about the first limit
// that every process would decide on its own as if it were alone.
func (c *compiler) policies(tree *descriptors.Tree) (warnings []Problem) {
	for _, d := range tree.Domains() {
		inherit(&d.Default.OnError, c.opts.OnError)
	}
	var first *descriptors.Rule // with the policy local
	tree.Each(func(d *descriptors.Domain, r *descriptors.Rule) {
		c.turns.Next()
		for i := range r.Limits {
			l := &r.Limits[i]
			inherit(&l.OnError, d.Default.OnError)
			if l.OnError == descriptors.PolicyLocal && (first == nil || r.Pos.Compare(first.Pos) < 0) {
				first = r
			}
		}
	})
	if c.opts.ReplicasUnknown && first != nil {
		warnings = append(warnings, Problem{Position: first.Pos, Field: "on_error",
			Message: "local gives this limit, and every other limit with that policy, to each process in full while the store is away; set REPLICAS or REPLICAS_DNS, so that processes that share the store divide it"})
	}
	return warnings
}

// inherit sets a policy that is inherited.
func inherit(p *descriptors.Policy, from descriptors.Policy) {
	if *p == inherited {
		*p = from
	}
}
