package replay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

const (
	// maxNewlyTop is the number of keys of the result.
	maxNewlyTop = 20
	// maxNewlyKeys is the number of keys that are counted at a time.
	maxNewlyKeys = 1 << 16
)

// NewKey is a descriptor that the other rules deny in requests that only they deny.
type NewKey struct {
	Rule string `json:"rule"` // of the other rules
	Key         // Denied counts requests

	last int64 // the newly denied request that was counted last, from 1
}

// newlyDenied counts the keys of newly denied requests. It is a Misra-Gries summary: a new key
// that finds no room takes one from each count, and a key whose count is 0 leaves. So memory is
// bounded, no count is too high, and none is too low by more than uncounted, which is at most
// 1/maxNewlyKeys of all that was counted.
type newlyDenied struct {
	keys      map[string]*NewKey // by rule and entries
	requests  int64
	uncounted int64
}

// count counts the descriptors that are denied in a newly denied request, each key once. All
// limits are those of rules: requests of a log bring none.
func (n *newlyDenied) count(r *request, o *service.Outcome) {
	n.requests++
	for i := range o.Statuses {
		st := &o.Statuses[i]
		if !st.Denied {
			continue
		}
		var buffer [128]byte
		id := descriptors.AppendID(buffer[:0], st.Rule.Path, r.ask.Descriptors[i].Entries, st.Rule.Shared)
		known := n.keys[string(id)]
		switch {
		case known == nil && len(n.keys) == maxNewlyKeys:
			n.lower()
			continue
		case known == nil:
			known = &NewKey{}
			known.Rule, known.Entries, _ = descriptors.ParseID(string(id))
			n.keys[string(id)] = known
		}
		if known.last != n.requests {
			known.last = n.requests
			known.Denied++
		}
	}
}

func (n *newlyDenied) lower() {
	n.uncounted++
	maps.DeleteFunc(n.keys, func(_ string, k *NewKey) bool {
		k.Denied--
		return k.Denied == 0
	})
}

// top returns the keys denied most.
func (n *newlyDenied) top() []*NewKey {
	keys := slices.SortedFunc(maps.Values(n.keys), func(a, b *NewKey) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Rule, b.Rule), compareEntries(a.Entries, b.Entries))
	})
	return append([]*NewKey{}, keys[:min(len(keys), maxNewlyTop)]...)
}

func writeNewlyDenied(b *strings.Builder, keys []*NewKey) {
	if len(keys) == 0 {
		return
	}
	b.WriteString("newly denied most\n")
	for _, k := range keys {
		fmt.Fprintf(b, "%10d  %s: %s\n", k.Denied, terminal.Visible(k.Rule), terminal.Visible(descriptors.Argument(k.Entries)))
	}
	b.WriteByte('\n')
}
