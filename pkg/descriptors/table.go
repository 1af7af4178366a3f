package descriptors

import (
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

	rule  *Rule
	plans []*Rule // by number, of rows with plans
	// like has the limit whose amounts other rows change: rule, or of an unlimited one a copy.
	like *Rule
	made []atomic.Pointer[Rule] // variants of amounts, by number modulo the length
}

// SetTable gives r, which is in no tree yet, a table: with rows of plans, one variant for each of
// Rows.Plans, or with amounts in place of those of like, which is nil for those of r's limit.
func (r *Rule) SetTable(t Table, plans []*Rule, like *Limit) {
	t.rule, t.plans, t.like = r, plans, r
	r.Table = &t
	for _, plan := range plans {
		if plan != r {
			plan.base = r
		}
	}
	if like != nil {
		t.like = &Rule{Limits: []Limit{*like}, base: r}
	}
	if len(t.Amounts) > 0 {
		// A variant is more than ten times as large as a row.
		t.made = make([]atomic.Pointer[Rule], min(len(t.Amounts), max(1<<10, t.Len/20)))
	}
}

// Row is the place of the row that says the limits of a descriptor that r limits; zero if none
// does.
func (r *Rule) Row(entries []Entry) document.Position {
	if t := r.Base().Table; t != nil {
		if _, line, found := t.Find(entries[t.Entry].Value); found {
			return document.Position{File: t.File, Line: int(line)}
		}
	}
	return document.Position{}
}

// of is r, which may be nil, in the variant for the entries.
func (r *Rule) of(entries []Entry) *Rule {
	if r == nil || r.Table == nil {
		return r
	}
	return r.Table.of(entries)
}

// of is the rule in the variant for the entries.
func (t *Table) of(entries []Entry) *Rule {
	number, _, found := t.Find(entries[t.Entry].Value)
	switch {
	case !found:
		return t.rule
	case t.plans != nil:
		return t.plans[number]
	}
	slot := &t.made[int(number)%len(t.made)]
	if made := slot.Load(); made != nil && made.number == number {
		return made
	}
	made := t.make(number)
	slot.Store(made)
	return made
}

// make makes the variant with the amounts of that number.
func (t *Table) make(number uint32) *Rule {
	v := new(Rule)
	*v = *t.rule
	l, err := t.like.Limits[0].With(t.Amounts[number])
	if err != nil {
		return t.rule // the row was reported, and is left out
	}
	if t.like != t.rule {
		l.Name, l.Replaces = t.rule.Name, t.rule.Replaces
	}
	l.As = &t.like.Limits[0]
	v.Limits, v.Unlimited, v.Table, v.base, v.number = []Limit{l}, false, nil, t.rule, number
	return v
}
