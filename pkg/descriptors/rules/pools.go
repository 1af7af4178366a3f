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

// amounts are the fields of a limit that a pool has, too.
var amounts = []string{
	"unit", "requests_per_unit", "unit_multiplier", "strategy", "burst", "precision",
	"window", "extend", "timezone", "week_starts", "month_starts", "year_starts",
}

var poolNames = naming{one: "pool", read: (*reader).readPool}

var pools = poolNames.field(Schema{"$ref": "#/$defs/pool"}, func(b []byte, t target) []byte {
	for _, name := range slices.Sorted(maps.Keys(t.file.lenders)) {
		pool := t.file.lenders[name]
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
	r.file.pools = append(r.file.pools, n)
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
	case r.file.source.Overlay:
		r.problemOf(l, "borrow_from", "has no meaning in a plan beside overlays, which is for every domain, while a pool is of one; write the plan in the rules of the domain")
	default:
		compiled.Borrow = &descriptors.Borrow{From: string(l.lender), Most: l.maxBorrow}
	}
	if l.lender == "" && l.from.Has("max_borrow") {
		r.problemOf(l, "max_borrow", "needs borrow_from, the name of a pool")
	}
}

// complete sets the pool and the policy that limits have from their domain; written[i] is limits[i] before it
// was compiled. It returns false if a limit cannot borrow from its pool, which is reported.
func (r *reader) complete(d *domain, written []*limit, limits []descriptors.Limit) bool {
	before, right := len(r.Problems), true
	for i, l := range written {
		limit := &limits[i]
		if !l.from.Has("on_error") {
			limit.OnError = d.Default.OnError
		}
		b := limit.Borrow
		if b == nil {
			continue
		}
		switch pool := d.pools[b.From]; {
		case len(d.pools) == 0:
			r.problemOf(l, "borrow_from", "unknown pool %q: the domain has no pools; add the pool to pools, which stands at the top of a file, and over xDS in metadata.rls", b.From)
		case pool == nil:
			r.problemOf(l, "borrow_from", "unknown pool %q%s", b.From, d.pools.suggest(b.From))
		case pool.rule == nil: // reported
			pool.used, right = true, false
		default:
			pool.used = true
			var fault *algorithms.SpecError
			if errors.As(b.Lend(pool.rule, l.spec.Mark), &fault) {
				r.problemOf(l, "max_borrow", "%s of pool %q has a wrong %s: %s", b.Most, b.From, fault.Field, fault.Message)
			}
			b.Cell.OnError = limit.OnError
		}
	}
	return right && len(r.Problems) == before
}
