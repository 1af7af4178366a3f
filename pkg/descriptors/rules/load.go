// Package rules is the rule language as data.
//
// A [File] holds rules as values with their positions. Package yaml makes Files
// from text and pkg/sources/xds makes them from messages. [Load] checks Files
// and compiles them into a [descriptors.Tree]; [Dump] prints one. The package
// promises that every problem is reported with its position and with what would
// be right, and that rules mean the same wherever they come from.
//
// A key of the language is one row of the table in fields.go. Reading, messages,
// suggestions, [Dump], hashes, [NewSchema] and docs/rules.md follow from that row.
package rules

import (
	"slices"
	"strconv"
	"time"

	"example.org/rls/internal/document"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

// Options changes how rules are loaded.
type Options struct {
	// MergeDomains lets several files add descriptors to one domain.
	MergeDomains bool
	// Charge is the charge of domains whose rules have none.
	Charge descriptors.Charge
	// SkipWrong leaves out every descriptor that has a problem, with the
	// descriptors below it, and every file that has a problem outside of its
	// descriptors. The other rules stay.
	SkipWrong bool
	// Strategy and Burst are those of limits without a strategy, and of
	// overrides that no rule matches. Burst is left out where it is 0. A limit
	// that cannot have them gets a warning; they never make a rule wrong.
	Strategy algorithms.Strategy
	Burst    uint32
	// OnError is the policy of limits that have none and whose domain has none.
	OnError descriptors.Policy
	// ReplicasUnknown says that several processes may share the store and that
	// nothing tells how many. Limits with the policy local then get a warning.
	ReplicasUnknown bool
	// Share is the part of every limit that this process and its store decide:
	// requests_per_unit and bursts are multiplied by it, and so are overrides. 0
	// stands for all of them.
	Share algorithms.Percent
	// Fetched, if not nil, returns the table at an address, which is wanted again and again at that
	// interval. It returns nil for a table whose rows are unknown here: rules that name it, and those
	// for whose table there is an error, then have their own limits.
	Fetched func(url string, every time.Duration) (*Table, error)
	// Lint makes Load also return the warnings that have the name of a [Lint]. They take time,
	// and are for the author of rules.
	Lint bool
	// ForRatelimit makes Load also return a warning, [ForRatelimit], of each field and value that
	// envoyproxy/ratelimit refuses or ignores.
	ForRatelimit bool
}

// Load compiles the rules of files and does not change the files.
//
// Its error is [Problems], all problems of all files, and then there is no tree:
// half of a set of rules would admit requests that the other half denies. With
// Options.SkipWrong there is a tree as well, of the rules without problems,
// unless no domain is left. Warnings are of things that are odd and have a
// meaning. Without files the tree has no domains. Options.SkipWrong leaves out rules that cannot have
// the fields of an overlay. An overlay that is wrong itself refuses all files.
func Load(files []*File, opts Options) (*descriptors.Tree, []Problem, error) {
	opts.Burst = opts.Share.Of(opts.Burst)
	r := reader{
		opts: &opts, over: &overlays{files: map[string]bool{}, laid: map[string]descriptors.Laid{}},
		limits: limitCache{}, domains: map[string]*domain{}, gathered: map[*document.Value]Problems{},
		tables: map[string]read{},
	}
	all := r.splitOverlays(files)
	wrongOverlays := len(r.Problems) > 0
	collection{}.add(&r, &planNames, r.over.plans)
	for i := range all {
		r.readTop(&all[i])
	}
	r.completePlans(all)
	for i := range all {
		r.readDescriptors(&all[i])
		all[i] = file{} // the tree does not keep it
	}
	for i := range r.Problems {
		r.over.own(&r.Problems[i])
	}
	r.Problems.Sort()
	r.Problems = slices.CompactFunc(r.Problems, func(a, b Problem) bool { // of a table or an overlay of many rules
		return a == b || a.Position == b.Position && a.Field == b.Field && r.over.files[a.File]
	})
	if len(r.Problems) > 0 && !(opts.SkipWrong && len(r.domains) > 0 && !wrongOverlays) {
		return nil, nil, r.Problems
	}
	tree := r.tree()
	r.lintTree()
	r.warnings.Sort()
	r.warnings = slices.Compact(r.warnings) // of values that aliases repeat
	if len(r.Problems) > 0 {
		return tree, r.warnings, r.Problems
	}
	return tree, r.warnings, nil
}

// domain is a domain of the tree, with what its files say of it.
type domain struct {
	*descriptors.Domain // a part of the tree, which keeps nothing else
	pos                 document.Position
	charge              stated[descriptors.Charge] // Charge, if a file says it
	onError             stated[descriptors.Policy] // Default.OnError, if a file says it
	pools, plans        collection
	written             []*limit // of all files, with Options.Lint
}

func (r *reader) tree() *descriptors.Tree {
	domains := make([]*descriptors.Domain, 0, len(r.domains))
	for _, d := range r.domains {
		d.Pools = make(map[string]*descriptors.Rule, len(d.pools))
		for name, pool := range d.pools {
			if pool.rule != nil {
				pool.rule.Limits[0].OnError = d.Default.OnError
				d.Pools[name] = pool.rule
			}
		}
		domains = append(domains, d.Domain)
	}
	return descriptors.NewTree(contents, domains...)
}

// join gives the domain of a file what its top says.
func (r *reader) join(f *file) {
	d := r.domains[f.domain]
	first := d == nil
	if first {
		d = &domain{
			Domain: &descriptors.Domain{Name: f.domain, Charge: r.opts.Charge, Default: r.opts.unmatched()},
			pos:    f.domainPos, pools: collection{}, plans: collection{},
		}
		if f.domain != "" {
			r.domains[f.domain] = d
		}
	}
	f.in = d
	for _, pool := range f.pools {
		if pool.rule != nil {
			pool.rule = descriptors.NewPool(d.Name, pool.name, pool.rule.Limits[0], pool.at)
		}
	}
	d.pools.add(r, &poolNames, f.pools)
	d.plans.add(r, &planNames, f.plans)
	if !first && !r.opts.MergeDomains {
		r.Problems.Add(f.domainPos, "domain", "%q is already in %s; put the descriptors together, or allow domains to be merged", f.domain, d.pos)
		return
	}
	agree(r, "charge", &d.Charge, &d.charge, f.charge)
	agree(r, "on_error", &d.Default.OnError, &d.onError, f.onError)
}

// agree gives a field of a domain the value of a file that states it.
func agree[V comparable](r *reader, field string, of *V, known *stated[V], says stated[V]) {
	switch none := (document.Position{}); {
	case says.at == none:
	case known.at != none && known.value != says.value:
		r.Problems.Add(says.at, field, "differs from that of the same domain in %s", known.at)
	default:
		*of, *known = says.value, says
	}
}

// completePlans gives the plans of the domains, which all files have joined, what they have of their
// domain. It adds the plans of overlays.
func (r *reader) completePlans(all []file) {
	for i := range all {
		for _, plan := range all[i].plans {
			if d := all[i].in; d != nil {
				*plan = *plan.of(r, d)
			}
		}
	}
	for _, d := range r.domains {
		for _, plan := range r.over.plans {
			if d.plans[plan.name] == nil {
				d.plans[plan.name] = plan.of(r, d)
			}
		}
	}
}

// add adds d below a node, and returns the node of d. It returns nil if the tree does not get d.
func (r *reader) add(parent *descriptors.Node, d *descriptor) *descriptors.Node {
	if parent == nil || d.Key == "" || d.wrong && r.opts.SkipWrong || d.match != nil && d.Match == nil {
		return nil // reported
	}
	n, first, item := parent.Add(d.Descriptor)
	switch {
	case first != nil:
		r.repeats(d, first, item)
	case r.opts.ReplicasUnknown && d.Rule != nil && slices.ContainsFunc(d.Rule.Variants(), local):
		r.local = append(r.local, d.Pos)
	}
	return n
}

// repeats reports that first has the key and value of d, or the text of d's match with that
// index.
func (r *reader) repeats(d *descriptor, first *descriptors.Node, item int) {
	const taken = "%q is taken by %s of %s already; write it in one of the two"
	switch {
	case d.Match == nil && first.Match == nil, d.Match != nil && first.Match != nil && d.Match.Sum == first.Match.Sum:
		r.Problems.Add(d.Pos, "", "repeats %s of %s; a descriptor may be listed once", name(&d.Descriptor), first.Pos)
	case d.Match == nil:
		r.Problems.Add(d.Pos, "value", taken, d.Value, name(&first.Descriptor), first.Pos)
	default:
		at, field := d.match.text(item)
		r.Problems.Add(at.At, field, taken, at.Text, name(&first.Descriptor), first.Pos)
	}
}

// name is a descriptor in a message.
func name(d *descriptors.Descriptor) string {
	s := "key " + strconv.Quote(d.Key)
	if d.Match != nil {
		s += ", match " + strconv.Quote(d.Match.Text())
	} else if d.Value != "" {
		s += ", value " + strconv.Quote(d.Value)
	}
	return s
}

// unmatched is the limit of an override without a rule.
func (o *Options) unmatched() descriptors.Limit {
	// It stays nil, for a fixed_window, if the strategy cannot have the burst.
	limit, _ := algorithms.New(algorithms.Spec{Strategy: o.Strategy, Requests: algorithms.MaxLogRequests, Window: descriptors.Second.Duration(), Burst: o.Burst})
	return descriptors.Limit{Limit: limit, Unit: descriptors.Second, Multiplier: 1, WrittenBurst: o.Burst, GivesWay: true, OnError: o.OnError, Share: o.Share}
}

// local reports whether a limit of rule has the policy local.
func local(rule *descriptors.Rule) bool {
	return slices.ContainsFunc(rule.Limits, func(l descriptors.Limit) bool { return l.OnError == descriptors.PolicyLocal })
}
