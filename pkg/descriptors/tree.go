// Package descriptors finds the limits that a request's descriptors are
// subject to.
//
// [Load] reads rules in YAML, the language of envoyproxy/ratelimit and a little
// more, reports every problem with file, line and column, and compiles them
// into an immutable [Tree]. [Domain.Match] finds the rule of one descriptor
// without allocating and without looking at rules that cannot match.
// [AppendID] names whom a limit counts.
//
// The package does not read files, does not know when rules change, and does
// not decide: that is left to pkg/sources, pkg/service and pkg/algorithms.
package descriptors

// File is one file of rules.
type File struct {
	Name    string // for messages
	Content []byte // YAML; only the first document counts
}

// Options changes how rules are loaded.
type Options struct {
	// MergeDomains lets several files add descriptors to one domain.
	MergeDomains bool
	// Charge is that of domains that do not say.
	Charge Charge
}

// Tree is a compiled set of rules, immutable and safe for concurrent use. A
// nil Tree has no domains.
type Tree struct {
	domains map[string]*Domain
	sorted  []*Domain
}

// Domain is the rules of one domain.
type Domain struct {
	Name   string
	Charge Charge
}

// Domain finds a domain by its name; nil when there is none.
func (t *Tree) Domain(name string) *Domain {
	if t == nil {
		return nil
	}
	return t.domains[name]
}

// Domains lists the domains by name.
func (t *Tree) Domains() []*Domain {
	if t == nil {
		return nil
	}
	return t.sorted
}

// Load compiles the rules of the files. Its error is [Problems]: all there
// are; then there is no tree. Warnings come with a good load.
func Load(files []File, opts Options) (*Tree, []Problem, error) {
	panic("coming")
}

// Match finds the rule for a request's descriptor, nil when no limit applies.
func (d *Domain) Match(entries []Entry) *Rule { panic("coming") }

// Dump is the text of /rlconfig.
func (t *Tree) Dump() string { panic("coming") }
