package standin

import (
	"strings"

	"example.org/rls/pkg/backends"
)

// entry is one cell: as the store last reported it, and as it was decided here
// since.
type entry struct {
	name   string
	known  backends.Cell
	prev   int64 // the count of the previous window's cell, as last reported
	at     int64 // when the store decided its last operation
	denied bool  // that operation did not fit
	alone  *alone
	queued bool // the slot is in table.queue
}

// ended reports whether the cell is as good as absent at now.
func (e *entry) ended(now int64) bool {
	return now >= e.known.Until && (e.alone == nil || now >= e.alone.own.Until && now >= e.alone.share.Until)
}

// rank orders entries for eviction: those that matter least first.
func (e *entry) rank(now int64) int {
	switch {
	case e.ended(now):
		return 0
	case e.alone != nil:
		return 3
	case e.denied:
		return 2
	}
	return 1
}

// table holds at most max entries, in slots that are used again.
type table struct {
	max   int
	slots map[string]uint32
	all   []entry // name is "" in a free slot
	free  []uint32
	hand  uint32   // the next slot that is looked at for removal
	queue []uint32 // slots that were charged here, in the order of their first charge
	lost  int      // entries that were evicted from the queue
}

// candidates is how many entries an eviction chooses from.
const candidates = 8

func (t *table) find(name string) *entry {
	if slot, ok := t.slots[name]; ok {
		return &t.all[slot]
	}
	return nil
}

// forget removes the entry of that name, if there is one.
func (t *table) forget(name string) {
	if slot, ok := t.slots[name]; ok {
		t.remove(slot)
	}
}

// add makes an entry and room for it. It copies the name.
func (t *table) add(name string, now int64) *entry {
	if len(t.free) == 0 && len(t.all) == t.max {
		t.evict(now)
	} else {
		t.sweep(now, 2) // so that entries that have ended go sooner than new ones come
	}
	name = strings.Clone(name)
	var slot uint32
	if n := len(t.free); n > 0 {
		slot, t.free = t.free[n-1], t.free[:n-1]
	} else {
		slot = uint32(len(t.all))
		t.all = append(t.all, entry{})
	}
	t.slots[name] = slot
	e := &t.all[slot]
	e.name = name
	return e
}

// sweep looks at the next n slots and removes the entries that have ended.
func (t *table) sweep(now int64, n int) {
	for range min(n, len(t.all)) {
		slot := t.next()
		if e := &t.all[slot]; e.name != "" && e.ended(now) {
			t.remove(slot)
		}
	}
}

// evict removes one of the next entries of a full table, and goes on after it.
func (t *table) evict(now int64) {
	worst, rank := uint32(0), 4
	for range candidates {
		slot := t.next()
		if r := t.all[slot].rank(now); r < rank {
			worst, rank = slot, r
		}
	}
	if e := &t.all[worst]; e.alone != nil && e.queued {
		t.lost++
	}
	t.remove(worst)
	t.hand = (worst + 1) % uint32(len(t.all))
}

func (t *table) next() uint32 {
	slot := t.hand
	if t.hand++; int(t.hand) >= len(t.all) {
		t.hand = 0
	}
	return slot
}

// remove frees a slot. It stays in the queue if it is there.
func (t *table) remove(slot uint32) {
	e := &t.all[slot]
	delete(t.slots, e.name)
	*e = entry{queued: e.queued}
	t.free = append(t.free, slot)
}

// enqueue puts e, which was charged here, at the end of the queue.
func (t *table) enqueue(e *entry) {
	if !e.queued {
		e.queued = true
		t.queue = append(t.queue, t.slots[e.name])
	}
}

// dequeue takes up to n entries off the queue's front and returns those whose hits
// can be charged to the store: another entry may have the slot by now. The entries
// are valid until the next add.
func (t *table) dequeue(n int) (charged []*entry) {
	n = min(n, len(t.queue))
	for _, slot := range t.queue[:n] {
		e := &t.all[slot]
		e.queued = false
		if e.alone != nil && e.alone.key != "" {
			charged = append(charged, e)
		}
	}
	t.queue = t.queue[:copy(t.queue, t.queue[n:])]
	return charged
}
