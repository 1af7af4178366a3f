package denials

import (
	"bytes"
	"cmp"
	"container/list"
	"encoding/binary"
	"encoding/json"
	"hash/maphash"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service"
)

// Group is the denials of a descriptor by one limit.
type Group struct {
	Denied
	Window   explain.Duration `json:"window"`
	Calendar string           `json:"calendar,omitempty"`
	First    time.Time        `json:"first"`
	Last     time.Time        `json:"last"`
	Count    int64            `json:"count"` // above 2,000 denials a second an estimate
	// Earlier are those of Count that the store remembers of other processes, which each replica knows.
	Earlier int64            `json:"earlier,omitempty"`
	Wait    explain.Duration `json:"wait"` // of the last one
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
	key     string
	last    row
	first   int64 // µs since the epoch
	count   int64
	earlier int64 // as of Group
}

// maxGroups bounds the groups, through all of which an answer looks while denials wait.
const maxGroups = 10_000

func newGroups(most int) groups {
	return groups{max: most, by: map[string]*list.Element{}, recent: list.New()}
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
	if of.first = min(of.first, o.At); of.count == int64(stands) || o.At >= of.last.At {
		of.last.set(o, v, stands, text, cut)
	}
}

// Groups returns, of the groups that q wants, the n that were denied last.
func (d *Denials) Groups(q Query, n int) List {
	q = d.hashed(q)
	d.mu.Lock()
	defer d.mu.Unlock()
	g := List{Groups: []Group{}, Sampled: int64(d.sample.Largest()), Kept: d.groups.recent.Len(), Remembered: d.began}
	for e := d.groups.recent.Front(); e != nil; e = e.Next() {
		of := e.Value.(*grouped)
		if first := time.UnixMicro(of.first).UTC(); g.From == nil || first.Before(*g.From) {
			g.From = &first
		}
		if len(g.Groups) < n && d.wants(&q, &of.last) {
			g.Groups = append(g.Groups, of.group())
		}
	}
	slices.SortStableFunc(g.Groups, func(a, b Group) int { return b.Last.Compare(a.Last) })
	return g
}

func (of *grouped) group() Group {
	last := of.last.denial()
	return Group{
		Denied: last.Denied, Window: last.Window, Calendar: last.Calendar,
		First: time.UnixMicro(of.first).UTC(), Last: last.Time, Count: of.count, Earlier: of.earlier, Wait: last.RetryAfter,
	}
}

// kept is a group as Save writes it.
type kept struct {
	Key          []byte
	First, Count int64
	fact         // of the last denial
}

// saved is the groups as Save writes them, the one that was denied last first, and since when they
// are remembered.
type saved struct {
	Began  time.Time
	Groups []kept
}

// saved is the groups as they are now.
func (d *Denials) saved() saved {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := saved{d.began, make([]kept, 0, d.groups.recent.Len())}
	for e := d.groups.recent.Front(); e != nil; e = e.Next() {
		of := e.Value.(*grouped)
		k := kept{[]byte(of.key), of.first, of.count, of.last.fact}
		k.Text = slices.Clone(k.Text) // whose memory is used again
		all.Groups = append(all.Groups, k)
	}
	return all
}

// Save writes the groups, as Load reads them.
func (d *Denials) Save(w io.Writer) error { return json.NewEncoder(w).Encode(d.saved()) }

// Load adds groups of an earlier process behind those of this one. A group that both have begins
// with the earlier one.
func (d *Denials) Load(r io.Reader) error {
	var all saved
	if err := json.NewDecoder(r).Decode(&all); err != nil {
		return err
	}
	d.add(all, func(of *grouped, k *kept) { of.count += k.Count })
	return nil
}

// add adds groups of other processes. count adds one to the denials of a group.
func (d *Denials) add(all saved, count func(of *grouped, k *kept)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !all.Began.IsZero() && all.Began.Before(d.began) {
		d.began = all.Began
	}
	for i := range all.Groups {
		k := &all.Groups[i]
		e := d.groups.by[string(k.Key)]
		switch {
		case e != nil:
		case d.groups.recent.Len() == d.groups.max:
			continue
		default:
			e = d.groups.recent.PushBack(&grouped{key: string(k.Key), first: k.First})
			d.groups.by[string(k.Key)] = e
		}
		of := e.Value.(*grouped)
		if of.first = min(of.first, k.First); of.count == 0 || k.At > of.last.At {
			of.last = row{fact: k.fact}
		}
		count(of, k)
	}
}

// Recall adds the groups that Merge has kept. What is not of its form is left out.
func (d *Denials) Recall(text []byte) {
	d.add(groupsIn(text), func(of *grouped, k *kept) {
		of.count, of.earlier = of.count+k.Count-of.earlier, k.Count
	})
}

// Merge returns the groups of this process and those that text has kept of others, the n that were
// denied last. Of two replicas the first denial, the last one and the larger number of denials count, so
// that a process may merge again and again.
func (d *Denials) Merge(text []byte, n int) []byte {
	ours, theirs := d.saved(), groupsIn(text)
	both := Denials{began: ours.Began, groups: newGroups(len(ours.Groups) + len(theirs.Groups))}
	for _, all := range []saved{ours, theirs} {
		both.add(all, func(of *grouped, k *kept) { of.count = max(of.count, k.Count) })
	}
	all := both.saved()
	slices.SortFunc(all.Groups, func(a, b kept) int { return cmp.Or(cmp.Compare(b.At, a.At), bytes.Compare(a.Key, b.Key)) })
	all.Groups = all.Groups[:min(len(all.Groups), n, maxGroups)]
	merged, _ := json.Marshal(all) // of numbers and texts
	return merged
}

// Changes counts what has changed the groups.
func (d *Denials) Changes() uint64 { return d.changes.Load() }

// maxKey bounds the key of a group, in bytes.
const maxKey = maxText + 4<<10

// groupsIn reads what Merge has kept. It leaves out what no Denials has written.
func groupsIn(text []byte) (all saved) {
	if json.Unmarshal(text, &all) != nil {
		return saved{}
	}
	all.Groups = slices.DeleteFunc(all.Groups, func(k kept) bool {
		return len(k.Key) > maxKey || len(k.Text) > maxText || !isText(k.Text) ||
			k.First > k.At || k.Count < 1 || k.Window < 0 || k.Wait < 0
	})
	all.Groups = all.Groups[:min(len(all.Groups), maxGroups)]
	return all
}

// isText reports whether text has the form of a row's.
func isText(text []byte) bool {
	fields := 0
	for ; len(text) > 0; fields++ {
		n := 1 + int(text[0])
		if n > len(text) {
			return false
		}
		text = text[n:]
	}
	return fields%2 == 1
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
