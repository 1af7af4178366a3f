package descriptors

import (
	"slices"
	"sync/atomic"

	"example.org/rls/internal/document"
)

// Table gives values of an entry limits of their own: to each the rule in the variant that
// the row of the value says.
type Table struct {
	*Rows
	Name  string // of the file, as written
	Key   string // of the entry whose value is looked up
	Entry int    // the index of the entry

	plans []*Rule // by index of Rows.Plans; the rule itself for "" and for plans that are wrong
	// likes have the limits whose amounts rows change: the rules of plans, or a copy of one that is
	// unlimited; nil if no row may change them.
	likes []*Rule
	made  []atomic.Pointer[Rule] // variants of amounts, by number modulo the length
}

// SetTable gives r, which is in no tree yet, a table, with a variant for each of Rows.Plans: r itself
// for "" and for one that is wrong. Rows with amounts have them in place of those of likes, with
// nil for a plan without a limit whose amounts can change.
func (r *Rule) SetTable(t Table, plans []*Rule, likes []*Limit) {
	t.plans, t.likes = plans, make([]*Rule, len(plans))
	r.Table = &t
	for i, plan := range plans {
		if plan != r {
			plan.base, plan.RowPlan = r, t.Plans[i]
		}
		switch like := likes[i]; {
		case like == nil || plan == r && t.Plans[i] != "":
		case like == plan.Main():
			t.likes[i] = plan
		default:
			t.likes[i] = &Rule{Limits: []Limit{*like}, Plan: plan.Plan, base: r, RowPlan: plan.RowPlan}
		}
	}
	if slices.ContainsFunc(t.Says, func(s Says) bool { return s.Amounts != Amounts{} }) {
		// A variant is more than ten times as large as a row.
		t.made = make([]atomic.Pointer[Rule], min(len(t.Says), max(1<<10, t.Len/20)))
	}
}

// Parts are r, and a variant for each plan that rows of its table give.
func (r *Rule) Parts() []*Rule {
	all := []*Rule{r}
	if t := r.Table; t != nil {
		for _, plan := range t.plans {
			if plan != r {
				all = append(all, plan)
			}
		}
	}
	return all
}

// PathOfPart is the path of r, and for a rule with a table of plans which of its values r limits: "d.k plan
// pro", or "d.k no row".
func (r *Rule) PathOfPart() string {
	switch t := r.Base().Table; {
	case r.RowPlan != "":
		return r.Path + " plan " + r.RowPlan
	case t != nil && t.Planned:
		return r.Path + " no row"
	}
	return r.Path
}

// Row is the place of the row that says the limits of a descriptor that r limits; zero if none
// does.
func (r *Rule) Row(entries []Entry) document.Position {
	if t := r.Base().Table; t != nil {
		return t.place(entries[t.Entry].Value)
	}
	return document.Position{}
}

// place is the place of the row of a value; zero without one.
func (t *Table) place(value string) (at document.Position) {
	if _, line, found := t.Find(value); found {
		at = document.Position{File: t.File, Line: int(line)}
	}
	return at
}

// of is r, which may be nil, in the variant for the entries.
func (r *Rule) of(entries []Entry) *Rule {
	if r == nil || r.Table == nil {
		return r
	}
	t := r.Table
	number, _, found := t.Find(entries[t.Entry].Value)
	if !found {
		return r
	}
	says := &t.Says[number]
	if says.Amounts == (Amounts{}) {
		return t.plans[says.Plan]
	}
	slot := &t.made[int(number)%len(t.made)]
	if made := slot.Load(); made != nil && made.number == number {
		return made
	}
	made := t.make(r, number)
	slot.Store(made)
	return made
}

// make makes the variant of r with what the number says.
func (t *Table) make(r *Rule, number uint32) *Rule {
	says := &t.Says[number]
	plan, like := t.plans[says.Plan], t.likes[says.Plan]
	if like == nil {
		return r // the row was reported, and is left out
	}
	l, err := like.Limits[0].With(says.Amounts)
	if err != nil {
		return r // as above
	}
	if like != plan {
		l.Name, l.Replaces = plan.Name, plan.Replaces
	}
	l.As = &like.Limits[0]
	v := new(Rule)
	*v = *plan
	v.Limits, v.Unlimited, v.Table, v.base, v.number = []Limit{l}, false, nil, r, number
	return v
}
