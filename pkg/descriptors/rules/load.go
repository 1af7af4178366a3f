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
	c := compiler{opts: opts, domains: make(map[string]*domain), unmatched: opts.unmatched(), tables: map[string]read{}}
	cache, every := limitCache{}, map[string]time.Duration{}
	over, ruleFiles, warnings := splitOverlays(files, &opts)
	c.over, c.problems, c.plans = over, over.problems, collection{}
	c.plans.add(&c.problems, &planNames, over.plans)
	readers := make([]*reader, len(ruleFiles))
	for i, f := range ruleFiles {
		readers[i] = &reader{opts: &opts, source: f, limits: cache, over: over, every: every}
		readers[i].readTop()
		c.join(readers[i])
	}
	for _, d := range c.domains {
		c.complete(d)
	}
	// An address of a table is fetched at the shortest interval of all rules, so all are read first.
	for _, r := range readers {
		r.readDescriptors()
		c.problems, warnings = append(c.problems, r.Problems...), append(warnings, r.warnings...)
	}
	c.every = every
	for i, r := range readers {
		if d := r.domain; d != nil {
			c.add(d, d.Root(), r.file.descriptors)
			if opts.Lint {
				d.written = append(d.written, r.file.descriptors...)
			}
		}
		readers[i] = nil // the tree does not keep it
	}
	for i := range c.problems {
		over.own(&c.problems[i])
	}
	c.problems.Sort()
	c.problems = slices.CompactFunc(c.problems, func(a, b Problem) bool { // of a table or an overlay of many rules
		return a == b || a.Position == b.Position && a.Field == b.Field && over.files[a.File]
	})
	if len(c.problems) > 0 && !(opts.SkipWrong && len(c.domains) > 0 && len(over.problems) == 0) {
		return nil, nil, c.problems
	}
	tree := c.tree()
	warnings = append(warnings, c.decidedAlone(tree)...)
	warnings = append(warnings, c.lintTree()...)
	warnings = append(warnings, over.unused()...)
	warnings = append(warnings, c.warnings...)
	warnings.Sort()
	warnings = slices.Compact(warnings) // of values that aliases repeat
	if len(c.problems) > 0 {
		return tree, warnings, c.problems
	}
	return tree, warnings, nil
}

// compiler adds the rules of files to domains.
type compiler struct {
	turns     descriptors.Turns
	opts      Options
	domains   map[string]*domain
	unmatched descriptors.Limit
	problems  Problems
	warnings  Problems
	nodes     []*descriptors.Node      // of all descriptors, with Options.Lint
	plans     collection               // of every domain, which overlays have
	tables    map[string]read          // by path
	every     map[string]time.Duration // by the address of a table, the shortest of all rules
	over      *overlays
}

// domain is a domain of the tree, with the positions of its name, charge and
// policy.
type domain struct {
	descriptors.Domain
	pos        document.Position
	chargePos  document.Position // of Charge, unless no file gives a charge
	onErrorPos document.Position // of Default.OnError, unless no file gives one
	pools      collection
	plans      collection
	written    []descriptor // of all files, with Options.Lint
}

func (c *compiler) tree() *descriptors.Tree {
	domains := make([]*descriptors.Domain, 0, len(c.domains))
	for _, d := range c.domains {
		domains = append(domains, &d.Domain)
	}
	return descriptors.NewTree(contents, domains...)
}

// join gives the domain of a file what its top says. The file then belongs to that domain, unless it
// has none, or is left out.
func (c *compiler) join(r *reader) {
	f := &r.file
	if f.domain == "" || f.wrong && c.opts.SkipWrong {
		return // reported, or not readable
	}
	d := c.domains[f.domain]
	if d == nil {
		d = &domain{
			Domain: descriptors.Domain{Name: f.domain, Charge: c.opts.Charge, Default: c.unmatched},
			pos:    f.domainPos, pools: collection{}, plans: collection{},
		}
		c.domains[f.domain] = d
	} else if !c.opts.MergeDomains {
		c.problems.Add(f.domainPos, "domain", "%q is already in %s; put the descriptors together, or allow domains to be merged", f.domain, d.pos)
		return
	}
	none := document.Position{}
	switch {
	case f.chargePos == none:
	case d.chargePos != none && d.Charge != f.charge:
		c.problems.Add(f.chargePos, "charge", "differs from that of the same domain in %s", d.chargePos)
	default:
		d.Charge, d.chargePos = f.charge, f.chargePos
	}
	switch own := &d.Default.OnError; {
	case f.onErrorPos == none:
	case d.onErrorPos != none && *own != f.onError:
		c.problems.Add(f.onErrorPos, "on_error", "differs from that of the same domain in %s", d.onErrorPos)
	default:
		*own, d.onErrorPos = f.onError, f.onErrorPos
	}
	d.pools.add(&c.problems, &poolNames, f.pools)
	d.plans.add(&c.problems, &planNames, f.plans)
	r.domain = d
}

// complete gives the pools and plans of a domain, all of whose files have joined it, what they have
// of the domain and of each other. It adds the plans of every domain.
func (c *compiler) complete(d *domain) {
	d.Pools = map[string]*descriptors.Rule{}
	for name, pool := range d.pools {
		if pool.rule != nil {
			limit := pool.rule.Limits[0]
			limit.OnError = d.Default.OnError
			pool.rule = descriptors.NewPool(d.Name, name, limit, pool.at)
			d.Pools[name] = pool.rule
		}
	}
	for name, plan := range c.plans {
		if d.plans[name] == nil {
			d.plans[name] = plan
		}
	}
	for name, plan := range d.plans {
		d.plans[name] = plan.in(d, &c.problems)
	}
}

// add adds a list of descriptors of a domain below a node.
func (c *compiler) add(domain *domain, parent *descriptors.Node, list []descriptor) {
	parent.Grow(len(list))
	for i := range list {
		c.turns.Next()
		d := &list[i]
		if d.in != nil && d.Rule != nil {
			before := len(c.problems)
			d.wrong = !c.addTable(domain, parent, d) || d.wrong
			c.over.blame(d, c.problems[before:])
		}
		if d.Key == "" || d.wrong && c.opts.SkipWrong || d.match != nil && d.Match == nil {
			continue // reported
		}
		n, first, item := parent.Add(d.Descriptor)
		if first != nil {
			c.repeats(d, first, item)
			continue
		}
		if c.opts.Lint {
			c.nodes = append(c.nodes, n)
		}
		c.add(domain, n, d.below)
	}
}

// repeats reports that first has the key and value of d, or the text of d's match with that
// index.
func (c *compiler) repeats(d *descriptor, first *descriptors.Node, item int) {
	const taken = "%q is taken by %s of %s already; write it in one of the two"
	switch {
	case d.Match == nil && first.Match == nil, d.Match != nil && first.Match != nil && d.Match.Sum == first.Match.Sum:
		c.problems.Add(d.Pos, "", "repeats %s of %s; a descriptor may be listed once", name(&d.Descriptor), first.Pos)
	case d.Match == nil:
		c.problems.Add(d.Pos, "value", taken, d.Value, name(&first.Descriptor), first.Pos)
	default:
		at, field := d.match.text(item)
		c.problems.Add(at.At, field, taken, at.Text, name(&first.Descriptor), first.Pos)
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

// decidedAlone warns of the first limit that every process would decide on its own as if it were
// alone.
func (c *compiler) decidedAlone(tree *descriptors.Tree) (warnings []Problem) {
	if !c.opts.ReplicasUnknown {
		return nil
	}
	var first *descriptors.Rule // with the policy local
	tree.Each(func(_ *descriptors.Domain, r *descriptors.Rule) {
		c.turns.Next()
		for _, r := range r.Variants() {
			local := func(l descriptors.Limit) bool { return l.OnError == descriptors.PolicyLocal }
			if slices.ContainsFunc(r.Limits, local) && (first == nil || r.Pos.Compare(first.Pos) < 0) {
				first = r
			}
		}
	})
	if first != nil {
		warnings = append(warnings, Problem{Position: first.Pos, Field: "on_error",
			Message: "local gives this limit, and every other limit with that policy, to each process in full while the store is away; set REPLICAS or REPLICAS_DNS, so that processes that share the store divide it"})
	}
	return warnings
}
