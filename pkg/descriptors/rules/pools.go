package rules

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"example.org/rls/internal/document"
	"example.org/rls/internal/fields"
	"example.org/rls/internal/spelling"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

// pool is one item of pools, as written.
type pool struct {
	name  string
	at    descriptors.Position
	path  string
	limit descriptors.Limit // without an algorithms.Limit if it has a problem
}

// borrowed is a limit that borrows, until all files are read.
type borrowed struct {
	*descriptors.Borrow
	mark, path string          // of the limit
	from       *document.Value // its mapping
	domain     string
	descriptor *descriptor
}

// amounts are the fields of a limit that a pool has, too.
var amounts = []string{
	"unit", "requests_per_unit", "unit_multiplier", "strategy", "burst", "precision",
	"window", "extend", "timezone", "week_starts", "month_starts", "year_starts",
}

var pools = fields.Type[target]{
	Name: "a mapping of limits", Schema: Schema{"type": []string{"object", "null"}, "additionalProperties": Schema{"$ref": "#/$defs/pool"}, "propertyNames": Schema{"minLength": 1}},
	Set: func(_ *fields.Reader, t target, v *document.Value) { t.readPools(v) },
	Append: func(b []byte, t target) []byte {
		for _, name := range slices.Sorted(maps.Keys(t.file.pools)) {
			b = appendLimit(fmt.Appendf(b, "%q", name), &t.file.pools[name].Limits[0])
		}
		return b
	},
}

// readPools reads the value of pools.
func (r *reader) readPools(v *document.Value) {
	switch v.Kind {
	case document.Null:
		return
	case document.Wrong:
		r.Problem(v.At, "%s", v.Text)
		return
	case document.Map:
	default:
		r.Problem(v.At, "must be a mapping of names and limits, not %s", v.Describe())
		return
	}
	for i := 0; i < len(v.Content); i += 2 {
		name, value := &v.Content[i], &v.Content[i+1]
		if last, _ := v.Pair(name.Text); v.Merged(name) && last != nil && last != name {
			continue // a key of the mapping takes the place of the merged one
		}
		if name.Kind != document.String || name.Text == "" {
			r.Problem(name.At, "the name of a pool must be a string that is not empty, not %s", name.Describe())
			continue
		}
		r.Enter(name.Text)
		r.readPool(name, value)
		r.Leave()
	}
}

func (r *reader) readPool(name, v *document.Value) {
	l := newLimit()
	r.readLimit(v, l)
	for i := 0; v.Kind == document.Map && i < len(v.Content); i += 2 {
		key := &v.Content[i]
		if id, known := lookup(key.Text, inLimit); known && table[id].in == inLimit && !slices.Contains(amounts, key.Text) {
			l.wrong = true
			r.ProblemOf(key.Text, key.At, "has no meaning in a pool, which has only %s", strings.Join(amounts, ", "))
		}
	}
	l.spec.Mark = descriptors.PoolMark
	p := pool{name: name.Text, at: name.At, path: l.path}
	r.Detached(func() {
		if p.limit, _ = r.compile(l, nil); p.limit.Limit != nil && p.limit.Strategy == algorithms.Concurrency {
			r.problemOf(l, "strategy", "concurrency lends nothing: slots come back by refunds, which go to the limit that borrows")
		}
	})
	r.pools = append(r.pools, p)
}

// borrow notes what l, which was compiled to a limit, borrows.
func (r *reader) borrow(l *limit, compiled *descriptors.Limit) {
	switch {
	case l.lender == "":
	case compiled.Strategy == algorithms.Concurrency:
		r.problemOf(l, "borrow_from", "has no meaning with strategy concurrency: a refund would give back a slot that was not borrowed")
	case compiled.Overdraft > 0:
		r.problemOf(l, "borrow_from", "has no meaning with overdraft, which charges the limit itself with what is beyond it")
	case compiled.Reserve != algorithms.Reserve{}:
		r.problemOf(l, "borrow_from", "has no meaning with reserve, which settles what the limit itself was charged")
	default:
		compiled.Borrow = &descriptors.Borrow{From: string(l.lender), Most: l.maxBorrow}
		r.borrows = append(r.borrows, borrowed{Borrow: compiled.Borrow, mark: l.spec.Mark, path: l.path, from: l.from})
	}
	if l.lender == "" && l.from.Has("max_borrow") {
		r.problemOf(l, "max_borrow", "needs borrow_from, the name of a pool")
	}
}

// addPools adds the pools of a file to those of its domain.
func (c *compiler) addPools(domain string, read []pool) {
	for i := range read {
		p := &read[i]
		all := c.pools[domain]
		if all == nil {
			all = map[string]*descriptors.Rule{}
			c.pools[domain] = all
		}
		if first := all[p.name]; first != nil {
			c.problems.Add(p.at, p.path, "%q is already a pool of the domain in %s; give it another name", p.name, first.Pos)
			continue
		}
		all[p.name] = descriptors.NewPool(domain, p.name, p.limit, p.at)
	}
}

// lend gives each limit that borrows its pool, and reports limits whose pool is unknown.
func (c *compiler) lend(borrows []borrowed) {
	for i := range borrows {
		b := &borrows[i]
		pools, problems := c.pools[b.domain], len(c.problems)
		pool := pools[b.From]
		var wrong *algorithms.SpecError
		switch {
		case len(pools) == 0:
			b.problem(c, "borrow_from", "unknown pool %q: the domain has no pools; add the pool to pools at the top of the file", b.From)
		case pool == nil:
			b.problem(c, "borrow_from", "unknown pool %q%s", b.From, spelling.Suggest(b.From, slices.Sorted(maps.Keys(pools))))
		case pool.Limits[0].Limit == nil: // reported
		case errors.As(b.Lend(pool, b.mark), &wrong):
			b.problem(c, "max_borrow", "%s of pool %q has a wrong %s: %s", b.Most, b.From, wrong.Field, wrong.Message)
		}
		c.lent[pool] = true
		b.descriptor.wrong = b.descriptor.wrong || b.Pool == nil || len(c.problems) > problems
	}
	for _, pools := range c.pools {
		maps.DeleteFunc(pools, func(_ string, pool *descriptors.Rule) bool { return pool.Limits[0].Limit == nil })
	}
}

// problem reports a fault of a field of the limit.
func (b *borrowed) problem(c *compiler, name, format string, args ...any) {
	c.problems.Add(b.from.Position(name), join(b.path, name), format, args...)
}
