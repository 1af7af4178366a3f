package match

import (
	"fmt"
	"math/bits"
	"slices"
)

// members finds the first of many descriptors of one key whose match takes a value.
type members struct {
	rest    []member   // without a literal, in the order of the rules
	literal [2]windows // of those that mind the case, and of those that ignore it
}

// windows finds literals in texts. Each literal has a window, 1, 2, 4 or 8 neighbouring bytes
// of it, which as few others as possible have. One walk over a text looks for the windows of
// all, so that the number of literals makes little difference.
type windows struct {
	masks    []uint64            // of the sizes of windows
	literals map[uint64][]member // by window, in the order of the rules
	// filter has one bit, of eight or more, for each window: most windows of a text need no
	// further look-up.
	filter []uint64
	count  int // of members
}

// member is a descriptor with a match. Its literal, if it is found by that, has a window that
// ends at the byte end of it.
type member struct {
	*Match
	order, end int
	number     int // among those of its windows, from 0
}

// add takes a descriptor that comes after the others in the order of the rules.
func (ms *members) add(m *Match, order int) {
	switch {
	case m.literal.text == "" || m.negated:
		ms.rest = append(ms.rest, member{m, order, 0, 0})
	case m.Fold:
		ms.literal[1].add(m, order)
	default:
		ms.literal[0].add(m, order)
	}
}

func (ws *windows) add(m *Match, order int) {
	text := m.literal.text
	if ws.literals == nil {
		ws.literals = make(map[uint64][]member)
	}
	size := min(8, 1<<(bits.Len(uint(len(text)))-1))
	mask := ^uint64(0) >> (64 - 8*size)
	if !slices.Contains(ws.masks, mask) {
		ws.masks = append(ws.masks, mask)
	}
	var window, rarest uint64
	var end int
	for i := range len(text) {
		window = (window<<8 | uint64(text[i])) & mask
		if i == size-1 || i >= size && len(ws.literals[window]) < len(ws.literals[rarest]) {
			rarest, end = window, i
		}
	}
	ws.literals[rarest] = append(ws.literals[rarest], member{m, order, end, ws.count})
	ws.count++
	if len(ws.literals) > 8*len(ws.filter) {
		ws.filter = make([]uint64, max(1, 2*len(ws.filter)))
		for w := range ws.literals {
			ws.mark(w)
		}
	}
	ws.mark(rarest)
}

func (ws *windows) mark(window uint64) {
	word, bit := ws.bit(window)
	*word |= bit
}

// bit is the place of a window in the filter, whose length is a power of 2.
func (ws *windows) bit(window uint64) (word *uint64, bit uint64) {
	hash := window * 0x9e3779b97f4a7c15 >> 32
	return &ws.filter[hash>>6&uint64(len(ws.filter)-1)], 1 << (hash & 63)
}

// find returns the order of the first descriptor that takes a value, or before if none does that
// comes before it. folded is the value as appendFolded has it if one ignores case. Only those
// are asked whose literal decides, if plain is true.
func (ms *members) find(w *Work, value string, folded []byte, before int, plain bool) (first int) {
	first = before
	if ms.literal[0].masks != nil {
		first = search(w, &ms.literal[0], value, value, first, plain)
	}
	if ms.literal[1].masks != nil {
		first = search(w, &ms.literal[1], folded, value, first, plain)
	}
	for i := range ms.rest {
		switch m := &ms.rest[i]; {
		case m.order >= first:
			return first
		case plain && !m.Plain():
		case m.takes(value, folded, w):
			return m.order
		}
	}
	return first
}

// search is find for the descriptors with a literal, which stands in text.
func search[T string | []byte](w *Work, ws *windows, text T, value string, first int, plain bool) int {
	a := asked{work: w, value: value, plain: plain}
	var last uint64
	for i := range len(text) {
		last = last<<8 | uint64(text[i])
		for _, mask := range ws.masks {
			window := last & mask
			if word, bit := ws.bit(window); *word&bit != 0 {
				first = ask(&a, ws.literals[window], text, i, first)
			}
		}
	}
	return first
}

// asked is what is known of a value while its text is searched.
type asked struct {
	work    *Work
	value   string
	plain   bool
	refused numbers // of the members that do not take the value, wherever their literals stand
}

// ask returns the order of the first of the members whose window ends at the byte i of a text and that
// takes the value, or first if none does that comes before it. It keeps the search small, whose loop
// has few registers to spare.
//
//go:noinline
func ask[T string | []byte](a *asked, members []member, text T, i, first int) int {
	for _, m := range members {
		switch {
		case m.order >= first:
			return first
		case !standsAt(m.literal, text, i-m.end), a.refused.has(m.number):
		case m.verify == nil, !a.plain && m.verify(a.value, a.work):
			first = m.order
		default:
			a.refused.add(m.number)
		}
	}
	return first
}

// numbers is a set of numbers, a bit for each; it allocates for numbers above 255.
type numbers struct {
	few  [4]uint64
	more []uint64
}

func (ns *numbers) has(n int) bool {
	word := n / 64
	if word < len(ns.few) {
		return ns.few[word]>>(n%64)&1 != 0
	}
	word -= len(ns.few)
	return word < len(ns.more) && ns.more[word]>>(n%64)&1 != 0
}

func (ns *numbers) add(n int) {
	word, all := n/64, ns.few[:]
	if word >= len(all) {
		for word -= len(all); word >= len(ns.more); {
			ns.more = append(ns.more, 0)
		}
		all = ns.more
	}
	all[word] |= 1 << (n % 64)
}

// compileValues makes the match of several values.
func compileValues(m *Match, texts []string) (wrong []Wrong) {
	first := make(map[string]int, len(texts))
	for i, text := range texts {
		if m.Fold {
			text = foldText(text)
		}
		if before, again := first[text]; again {
			wrong = append(wrong, Wrong{i, fmt.Errorf("%q is the same value as %q before it; write it once", texts[i], texts[before])})
			continue
		}
		first[text] = i
		m.Values = append(m.Values, text)
	}
	m.verify = func(value string, _ *Work) (found bool) {
		if !m.Fold {
			_, found = first[value]
			return found
		}
		var room [foldRoom]byte
		_, found = first[string(appendFolded(room[:0], value))]
		return found
	}
	return wrong
}
