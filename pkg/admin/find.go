package admin

import (
	"cmp"
	"context"
	"slices"
	"time"

	pb "example.org/rls/pkg/admin/adminpb"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/explain"
	"example.org/rls/pkg/service"
)

// Found is the document of /v1/find.
type Found struct {
	// Places are the rules in which the text can be the whole value of an entry, those
	// that fit it better first.
	Places []Place `json:"places"`
	// Keys are the descriptors of requests that have the text in a key or a value.
	Keys []FoundKey `json:"keys"`
}

// Place is a rule in which a value can stand.
type Place struct {
	Domain string              `json:"domain"`
	Rule   string              `json:"rule"`
	Path   []descriptors.Entry `json:"path"` // as written
	// Match is exact, wildcard, or any for a key without a value: of the entry that fits best.
	Match string `json:"match"`
	File  string `json:"file"`
	Line  int    `json:"line"`
}

// FoundKey is a descriptor that the process remembers, with its counters now.
type FoundKey struct {
	Domain  string              `json:"domain"`
	Entries []descriptors.Entry `json:"entries"`
	Rule    string              `json:"rule"`
	// Limits is empty if nothing limits the descriptor any more, and if it was so long
	// that only a part of it is remembered.
	Limits     []explain.Limit `json:"limits"`
	LastDenial *time.Time      `json:"last_denial,omitempty"`
	Denied     int64           `json:"denied"` // requests in the last minute
}

// MaxFound bounds the places and the keys of a Found, each.
const MaxFound = 100

const defaultFound = 20

func (a *API) find(ctx context.Context, r *pb.FindRequest) (any, error) {
	n := cmp.Or(int(r.GetN()), defaultFound)
	switch {
	case r.GetQ() == "":
		return nil, invalid("q is empty: want the value to find, such as the name of a customer")
	case n < 1 || n > MaxFound:
		return nil, invalid("n is %d: want 1 to %d", n, MaxFound)
	}
	found := Found{Places: []Place{}, Keys: []FoundKey{}}
	for _, p := range a.options.Limits.Tree().Places(r.GetQ(), n) {
		match := string(p.By)
		if p.By == descriptors.Key {
			match = "any"
		}
		found.Places = append(found.Places, Place{p.Domain, p.Rule.Path, p.Path, match, p.Rule.Pos.File, p.Rule.Pos.Line})
	}
	for _, m := range a.remembered(r.GetQ(), n) {
		key := FoundKey{Domain: m.Domain, Entries: m.Entries, Rule: m.Rule, Limits: []explain.Limit{}, Denied: m.Denied}
		if !m.LastDenial.IsZero() {
			key.LastDenial = &m.LastDenial
		}
		if !m.Cut {
			// In a request of all keys the rules of some would replace limits of others.
			in, err := a.inspect(ctx, lookAt(m.Domain, m.Entries), service.Look)
			if err != nil {
				return nil, err
			}
			key.Limits = explain.New(in).Descriptors[0].Limits
		}
		found.Keys = append(found.Keys, key)
	}
	return found, nil
}

// remembered returns at most n descriptors of the memories that have text in a key or a
// value, each once. Those with the text as a whole value come first, and then those that
// are denied most.
func (a *API) remembered(text string, n int) []service.Remembered {
	var all []service.Remembered
	known := map[string]int{}
	for _, memory := range a.options.Memories {
		for _, m := range memory.Find(text) {
			id := string(descriptors.AppendID(nil, m.Domain, m.Entries, nil))
			i, again := known[id]
			if !again {
				known[id] = len(all)
				all = append(all, m)
				continue
			}
			one := &all[i]
			one.Rule, one.Denied = cmp.Or(one.Rule, m.Rule), max(one.Denied, m.Denied)
			if m.LastDenial.After(one.LastDenial) {
				one.LastDenial = m.LastDenial
			}
		}
	}
	is := func(e descriptors.Entry) bool { return e.Value == text }
	slices.SortFunc(all, func(k, l service.Remembered) int {
		switch whole := slices.ContainsFunc(k.Entries, is); {
		case whole == slices.ContainsFunc(l.Entries, is):
		case whole:
			return -1
		default:
			return 1
		}
		return cmp.Or(
			cmp.Compare(l.Denied, k.Denied), l.LastDenial.Compare(k.LastDenial),
			cmp.Compare(k.Domain, l.Domain), cmp.Compare(descriptors.Pairs(k.Entries), descriptors.Pairs(l.Entries)),
		)
	})
	return all[:min(n, len(all))]
}

// lookAt is a request of one descriptor.
func lookAt(domain string, entries []descriptors.Entry) *pb.LookRequest {
	d := new(pb.Descriptor)
	for _, e := range entries {
		d.Entries = append(d.Entries, &pb.Entry{Key: e.Key, Value: e.Value})
	}
	return &pb.LookRequest{Domain: domain, Descriptors: []*pb.Descriptor{d}}
}
