package rules

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"example.org/rls/internal/document"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

// borrowed is a limit that borrows, until all files are read.
type borrowed struct {
	*descriptors.Borrow
	mark, path string          // of the limit
	from       *document.Value // its mapping
	domain     string
	wrong      *bool       // of the descriptor or plan that has the limit
	of         *descriptor // nil of a plan
}

// amounts are the fields of a limit that a pool has, too.
var amounts = []string{
	"unit", "requests_per_unit", "unit_multiplier", "strategy", "burst", "precision",
	"window", "extend", "timezone", "week_starts", "month_starts", "year_starts",
}

var poolNames = naming{one: "pool", read: (*reader).readPool, of: func(r *reader) *[]*named { return &r.pools }}

var pools = poolNames.field(Schema{"$ref": "#/$defs/pool"}, func(b []byte, t target) []byte {
	for _, name := range slices.Sorted(maps.Keys(t.file.pools)) {
		pool := t.file.pools[name]
		b = appendLimit(fmt.Appendf(b, "%q", name), pool, &pool.Limits[0])
	}
	return b
})

func (r *reader) readPool(n *named, v *document.Value) {
	l, before := newLimit(), len(r.Problems)
	r.readLimit(v, l)
	for i := 0; v.Kind == document.Map && i < len(v.Content); i += 2 {
		key := &v.Content[i]
		if id, known := lookup(key.Text, inLimit); known && table[id].in == inLimit && !slices.Contains(amounts, key.Text) {
			l.wrong = true
			r.ProblemOf(key.Text, key.At, "has no meaning in a pool, which has only %s", strings.Join(amounts, ", "))
		}
	}
	l.spec.Mark = descriptors.PoolMark
	r.Detached(func() {
		limit, ok := r.compile(l, nil)
		if ok && limit.Strategy == algorithms.Concurrency {
			r.problemOf(l, "strategy", "concurrency lends nothing: slots come back by refunds, which go to the limit that borrows")
		}
		if len(r.Problems) == before {
			n.rule = &descriptors.Rule{Limits: []descriptors.Limit{limit}}
		}
	})
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

// lend gives each limit that borrows its pool, and reports limits whose pool is unknown.
func (c *compiler) lend(borrows []borrowed) {
	for domain, pools := range c.pools {
		for name, pool := range pools {
			if pool.rule != nil {
				pool.rule = descriptors.NewPool(domain, name, pool.rule.Limits[0], pool.at)
			}
		}
	}
	for i := range borrows {
		b := &borrows[i]
		pool, problems := c.pools[b.domain][b.From], len(c.problems)
		var wrong *algorithms.SpecError
		switch {
		case b.domain == everyDomain && b.of == nil:
			b.problem(c, "borrow_from", "has no meaning in a plan beside overlays, which is for every domain, while a pool is of one; write the plan in the rules of the domain")
		case len(c.pools[b.domain]) == 0:
			b.problem(c, "borrow_from", "unknown pool %q: the domain has no pools; add the pool to pools, which stands at the top of a file, and over xDS in metadata.rls", b.From)
		case pool == nil:
			b.problem(c, "borrow_from", "unknown pool %q%s", b.From, c.pools.suggest(b.domain, b.From))
		case pool.rule == nil: // reported
		case errors.As(b.Lend(pool.rule, b.mark), &wrong):
			b.problem(c, "max_borrow", "%s of pool %q has a wrong %s: %s", b.Most, b.From, wrong.Field, wrong.Message)
		}
		if pool != nil {
			pool.used = true
		}
		*b.wrong = *b.wrong || b.Pool == nil || len(c.problems) > problems
	}
}

// poolsOf are the pools of a domain by name, without those that have a problem.
func (c *compiler) poolsOf(domain string) map[string]*descriptors.Rule {
	pools := map[string]*descriptors.Rule{}
	for name, pool := range c.pools[domain] {
		if pool.rule != nil {
			pools[name] = pool.rule
		}
	}
	return pools
}

// problem reports a fault of a field of the limit.
func (b *borrowed) problem(c *compiler, name, format string, args ...any) {
	c.problems.Add(b.from.Position(name), join(b.path, name), format, args...)
	if p := &c.problems[len(c.problems)-1]; b.of != nil && c.over.files[p.File] {
		p.Message = fmt.Sprintf("%s (laid over the rule at %s)", p.Message, b.of.Pos)
	}
}
