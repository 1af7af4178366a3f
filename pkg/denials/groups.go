package denials

import (
	"container/list"
	"encoding/binary"
	"encoding/json"
	"hash/maphash"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/explain"
	"example.org/rls/pkg/service"
)

// Group is the denials of a descriptor by one limit.
type Group struct {
	Domain   string              `json:"domain"`
	Entries  []descriptors.Entry `json:"entries"` // as of Denial
	Rule     string              `json:"rule"`
	Words    string              `json:"words"` // as of Denial
	Limit    uint32              `json:"limit"` // hits a window
	Name     string              `json:"name"`
	Plan     string              `json:"plan,omitempty"` // of the last denial
	Window   explain.Duration    `json:"window"`
	Calendar string              `json:"calendar,omitempty"`
	First    time.Time           `json:"first"`
	Last     time.Time           `json:"last"`
	Count    int64               `json:"count"` // above 2,000 denials a second an estimate
	Wait     explain.Duration    `json:"wait"`  // of the last one
}

// Same reports whether both are of one counter.
func (g *Group) Same(other *Group) bool {
	return g.Domain == other.Domain && g.Rule == other.Rule && g.Name == other.Name && g.Limit == other.Limit &&
		g.Window == other.Window && slices.Equal(g.Entries, other.Entries)
}

// groups has the denials by descriptor and limit. When it is full, the one that was denied least
// recently goes.
type groups struct {
	max    int
	by     map[string]*list.Element // by the text of a row, and the limit
	recent *list.List               // of *grouped, the newest first
	key    []byte                   // room for a key
}

type grouped struct {
	key   string
	last  row
	first int64 // µs since the epoch
	count int64
}

// maxGroups bounds the groups, through all of which an answer looks while denials wait.
const maxGroups = 10_000

func newGroups(most int) groups {
	return groups{max: min(most, maxGroups), by: map[string]*list.Element{}, recent: list.New()}
}

// add adds a denial that stands for some.
func (g *groups) add(o *service.Observation, v *service.Verdict, stands uint32, text []byte, cut bool) {
	key := append(append(g.key[:0], text...), v.Limit.Name...)
	key = binary.LittleEndian.AppendUint32(key, v.Limit.Requests)
	key = binary.LittleEndian.AppendUint64(key, uint64(v.Limit.Window))
	if v.Rule != nil {
		key = append(key, v.Rule.Path...)
	}
	g.key = key
	e := g.by[string(key)]
	switch {
	case e != nil:
		g.recent.MoveToFront(e)
	case g.recent.Len() < g.max:
		e = g.recent.PushFront(&grouped{key: string(key), first: o.At})
		g.by[string(key)] = e
	default: // the memory of the oldest one is used again
		e = g.recent.Back()
		g.recent.MoveToFront(e)
		oldest := e.Value.(*grouped)
		delete(g.by, oldest.key)
		*oldest = grouped{key: string(key), last: oldest.last, first: o.At}
		g.by[oldest.key] = e
	}
	of := e.Value.(*grouped)
	of.count += int64(stands)
	if of.first = min(of.first, o.At); of.count == int64(stands) || o.At >= of.last.at {
		of.last.set(o, v, stands, text, cut)
	}
}

// Groups returns, of the groups that q wants, the n that were denied last.
func (d *Denials) Groups(q Query, n int) List {
	d.mu.Lock()
	defer d.mu.Unlock()
	g := List{Groups: []Group{}, Sampled: int64(d.sample.Largest()), Kept: d.groups.recent.Len(), Remembered: d.began}
	for e := d.groups.recent.Front(); e != nil; e = e.Next() {
		of := e.Value.(*grouped)
		if first := time.UnixMicro(of.first).UTC(); g.From == nil || first.Before(*g.From) {
			g.From = &first
		}
		if len(g.Groups) < n && q.wants(&of.last) {
			g.Groups = append(g.Groups, of.group())
		}
	}
	slices.SortStableFunc(g.Groups, func(a, b Group) int { return b.Last.Compare(a.Last) })
	return g
}

func (of *grouped) group() Group {
	last := of.last.denial()
	return Group{
		Domain: last.Domain, Entries: last.Entries, Rule: last.Rule, Words: last.Words, Limit: last.Limit, Name: last.Name, Plan: last.Plan, Window: last.Window, Calendar: last.Calendar,
		First: time.UnixMicro(of.first).UTC(), Last: last.Time, Count: of.count, Wait: last.RetryAfter,
	}
}

// kept is a group as Save writes it.
type kept struct {
	Key, Text     []byte
	First, Count  int64
	At            int64
	Rule, Name    string
	Plan          string `json:",omitempty"`
	Limit         uint32
	Window, Wait  time.Duration
	Calendar, Cut bool
}

// saved is the groups as Save writes them, and since when they are remembered.
type saved struct {
	Began  time.Time
	Groups []kept
}

// Save writes the groups, as Load reads them.
func (d *Denials) Save(w io.Writer) error {
	d.mu.Lock()
	all, began := make([]kept, 0, d.groups.recent.Len()), d.began
	for e := d.groups.recent.Front(); e != nil; e = e.Next() {
		of := e.Value.(*grouped)
		r := &of.last
		all = append(all, kept{
			Key: []byte(of.key), Text: slices.Clone(r.text), First: of.first, Count: of.count, At: r.at, Rule: r.rule, Name: r.name, Plan: r.plan,
			Limit: r.limit, Window: r.window, Wait: r.retryAfter, Calendar: r.calendar, Cut: r.cut,
		})
	}
	d.mu.Unlock()
	return json.NewEncoder(w).Encode(saved{began, all})
}

// Load adds groups of an earlier process behind those of this one. A group that both have begins
// with the earlier one.
func (d *Denials) Load(r io.Reader) error {
	var all saved
	if err := json.NewDecoder(r).Decode(&all); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.began = all.Began
	for _, k := range all.Groups {
		if e := d.groups.by[string(k.Key)]; e != nil {
			of := e.Value.(*grouped)
			of.first, of.count = min(of.first, k.First), of.count+k.Count
			continue
		}
		if d.groups.recent.Len() == d.groups.max {
			break
		}
		of := &grouped{key: string(k.Key), first: k.First, count: k.Count, last: row{
			at: k.At, window: k.Window, calendar: k.Calendar, retryAfter: k.Wait, rule: k.Rule, name: k.Name, plan: k.Plan, limit: k.Limit, cut: k.Cut, text: k.Text,
		}}
		d.groups.by[of.key] = d.groups.recent.PushBack(of)
	}
	return nil
}

// recently tells the first denial of a counter in a second from others. Now and then it takes
// another one for the first.
type recently struct {
	seed maphash.Seed
	sums []atomic.Uint64
}

func newRecently() recently { return recently{maphash.MakeSeed(), make([]atomic.Uint64, 4096)} }

func (r *recently) first(key string, second int64) bool {
	sum := maphash.Comparable(r.seed, struct {
		key    string
		second int64
	}{key, second})
	return r.sums[sum%uint64(len(r.sums))].Swap(sum) != sum
}
