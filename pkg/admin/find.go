package admin

import (
	"cmp"
	"context"
	"slices"
	"time"

	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/operate"
)

// Found is the document of /v1/find.
type Found struct {
	// Places are the rules in which the text can be the whole value of an entry, those
	// that fit it better first.
	Places []descriptors.Place `json:"places"`
	// Keys are the descriptors of requests that have the text in a key or a value.
	Keys     []FoundKey       `json:"keys"`
	Replicas []client.Replica `json:"replicas,omitempty"` // only of a fleet
}

// FoundKey is a descriptor that the process remembers, with its counters now.
type FoundKey struct {
	service.Remembered
	// Limits is empty if nothing limits the descriptor any more, and if it was so long
	// that only a part of it is remembered.
	Limits []explain.Limit `json:"limits"`
}

// maxFound bounds the places and the keys of a Found, each.
const maxFound = 100

func (a *API) find(ctx context.Context, q *Query) (any, error) {
	if q.Q == "" {
		return nil, invalid("q is empty: want the value to find, such as the name of a customer")
	}
	n := q.N
	found := Found{Places: a.options.Limits.Tree().Places(q.Q, n), Keys: []FoundKey{}}
	b := callerOf(ctx).bound
	for _, m := range a.remembered(q.Q, n, func(m *service.Remembered) bool { return a.wanted(b, m) }) {
		key := FoundKey{m, []explain.Limit{}}
		if !m.Cut {
			var err error
			if key.Limits, err = a.limitsOf(ctx, m.Domain, m.Entries); err != nil {
				return nil, err
			}
		}
		found.Keys = append(found.Keys, key)
	}
	return found, nil
}

// limitsOf are the limits of one descriptor with their counters now. In a request of several the rules
// of some would replace limits of others.
func (a *API) limitsOf(ctx context.Context, domain string, entries []descriptors.Entry) ([]explain.Limit, error) {
	q := operate.About(domain, service.Descriptor{Entries: entries})
	document, err := a.inspect(ctx, &q, operate.Look)
	if err != nil {
		return nil, err
	}
	return document.Descriptors[0].Limits, nil
}

// reserves reports whether the value of m's last entry is the id of a reservation.
func (a *API) reserves(m *service.Remembered) bool {
	d := a.options.Limits.Tree().Domain(m.Domain)
	if d == nil || m.Cut || len(m.Entries) == 0 {
		return false
	}
	rule := d.Match(m.Entries)
	return rule != nil && rule.Reserves()
}

// remembered returns at most n wanted descriptors of the memories that have text in a key or a
// value, each once. Those with the text as a whole value come first, and then those that
// are denied most.
func (a *API) remembered(text string, n int, wanted func(*service.Remembered) bool) []service.Remembered {
	var all []service.Remembered
	for _, memory := range a.options.Memories {
		all = append(all, memory.Find(text, wanted)...)
	}
	for i := range all {
		m := &all[i]
		if last := len(m.Entries) - 1; a.reserves(m) && !m.Entries[last].Contains(text) {
			m.Entries = slices.Clone(m.Entries) // all reservations are one counter
			m.Entries[last].Value = ""
		}
	}
	id := func(m *service.Remembered) string { return idOf(m.Domain, m.Entries) }
	all = client.Join(all, id, func(one, more *service.Remembered) {
		one.Rule, one.Denied = cmp.Or(one.Rule, more.Rule), max(one.Denied, more.Denied)
		one.LastDenial = later(one.LastDenial, more.LastDenial)
	})
	slices.SortFunc(all, func(k, l service.Remembered) int { return fits(text, &k, &l) })
	return all[:min(n, len(all))]
}

// fits compares descriptors that have text: descriptors of which it is a whole value come first, then
// the descriptors that are denied most.
func fits(text string, k, l *service.Remembered) int {
	parts := func(m *service.Remembered) int { // 0 if it is a whole value
		if slices.ContainsFunc(m.Entries, func(e descriptors.Entry) bool { return e.Is(text) }) {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(parts(k), parts(l)), cmp.Compare(l.Denied, k.Denied), l.LastDenial.Compare(k.LastDenial),
		cmp.Compare(k.Domain, l.Domain), cmp.Compare(descriptors.Pairs(k.Entries), descriptors.Pairs(l.Entries)),
	)
}

// mergeFound has each rule and each key once. A key has the counters that the first replica tells of
// it, and the denials of all.
func mergeFound(q *Query, all []client.Answer[Found], replicas []client.Replica) Found {
	rule := func(p *descriptors.Place) [2]string { return [2]string{p.Domain, p.Rule} }
	places := client.Rows(all, func(f *Found) []descriptors.Place { return f.Places })
	places = client.Join(places, rule, func(_, _ *descriptors.Place) {})
	id := func(k *FoundKey) string { return idOf(k.Domain, k.Entries) }
	keys := client.Join(client.Rows(all, func(f *Found) []FoundKey { return f.Keys }), id, func(one, more *FoundKey) {
		one.Denied, one.LastDenial = one.Denied+more.Denied, later(one.LastDenial, more.LastDenial)
	})
	slices.SortStableFunc(keys, func(k, l FoundKey) int { return fits(q.Q, &k.Remembered, &l.Remembered) })
	return Found{places[:min(q.N, len(places))], keys[:min(q.N, len(keys))], replicas}
}

// idOf is equal for equal entries in the same domain.
func idOf(domain string, entries []descriptors.Entry) string {
	return string(descriptors.AppendID(nil, domain, entries, nil))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
