package algorithms

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Identity names whom a limit counts: a prefix for every key of the service
// and the escaped domain and descriptor. Neither is retained.
type Identity struct {
	Prefix string
	ID     []byte
	// ByStart, of limits that are [Limit.Clocked], makes the key Prefix, ID and the
	// second since the epoch at which the window starts, as other programs write it.
	ByStart bool
	// OneSlot makes ID the hash tag of the key, so that the keys of all limits of one
	// descriptor share a Redis Cluster slot. ByStart goes before it.
	OneSlot bool
	// Longest, above 0, is the longest TTL of a Charge in µs: callers may hold hits of every
	// limit that can ([Limit.CheckHold]). It needs OneSlot.
	Longest int64
}

// Clocked reports whether the limit counts in windows that start on the clock,
// in one cell each.
func (l *Limit) Clocked() bool { return l.bucketed && l.calendar == nil }

// bucket is the number at the end of the keys of cells that count at now: the window's, or the
// second since the epoch at which a period of the calendar begins. It is -1 if there is none.
func (l *Limit) bucket(now int64) int64 {
	switch {
	case !l.bucketed:
		return -1
	case l.calendar != nil:
		_, start, _ := l.calendar.period(now)
		return start / 1_000_000
	}
	return now / l.window
}

// period returns the number of the window of the clock or the calendar in which now lies, and its end in µs
// since the epoch.
func (l *Limit) period(now int64) (number, end int64) {
	if l.calendar != nil {
		number, _, end = l.calendar.period(now)
		return number, end
	}
	number = now / l.window
	return number, l.startOf(number + 1)
}

// startOf is the start of the window of that number, in µs since the epoch.
func (l *Limit) startOf(number int64) int64 {
	if l.calendar != nil {
		return l.calendar.startOf(number)
	}
	return number * l.window
}

// key builds the name of a cell: prefix id|tag|bucket, without a bucket when it
// is negative. The braces of a hash tag stand where keys have to share a Redis
// Cluster slot: prefix{id}|tag|bucket for the keys of a descriptor with several limits. The
// bytes before stem are the same for all buckets, and for no other limit; with a mark,
// which ends the key, stem is 0.
func (l *Limit) key(id Identity, bucket int64) (key string, stem int) {
	buf := make([]byte, 0, 192)
	buf = append(buf, id.Prefix...)
	if id.OneSlot && !id.ByStart {
		buf = append(buf, '{')
	}
	buf = append(buf, id.ID...)
	if id.ByStart {
		bucket *= l.window / 1_000_000
	} else {
		if id.OneSlot {
			buf = append(buf, '}')
		}
		if buf = append(buf, l.tag...); bucket >= 0 {
			buf = append(buf, '|')
		}
	}
	stem = len(buf)
	if bucket >= 0 {
		buf = strconv.AppendInt(buf, bucket, 10)
	}
	if l.Mark != "" {
		buf, stem = append(buf, l.Mark...), 0
	}
	return string(buf), stem
}

// Counter names the limit's counter among the limits of a rule, whatever the amounts of a window are: the
// part of the key after the caller, without the number of a window.
func (l *Limit) Counter() string { return l.tag + l.Mark }

// Alike reports whether two keys are of one cell, but for the amounts of a bucket: one is a key of l, and
// the other perhaps of an override, or of the limit before a change.
func (l *Limit) Alike(own, other string) bool {
	other, marked := strings.CutSuffix(other, l.Mark)
	if own = strings.TrimSuffix(own, l.Mark); l.row.burst != nil {
		own, other = withoutTerms(own), withoutTerms(other)
	}
	return marked && own == other
}

// formatWindow writes a window in the largest unit that divides it: 15m, 7d.
func formatWindow(w time.Duration) string {
	for _, u := range []struct {
		d    time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if w%u.d == 0 {
			return strconv.FormatInt(int64(w/u.d), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(w/time.Second), 10) + "s"
}

// terms are what makes one bucket differ from another of the same strategy and window:
// requests, burst and, of a queue, max_delay in µs. They are part of the cell's key,
// so that a limit finds in its bucket only what limits like itself have charged.
func (l *Limit) terms() string {
	terms := fmt.Sprintf(":%d:%d", l.Requests, l.Burst)
	if l.MaxDelay > 0 {
		terms += fmt.Sprintf(":%d", l.MaxDelay.Microseconds())
	}
	return terms
}

// withoutTerms is the key of a bucket, or its end, without the terms. Before them
// stands the letter of the window's unit.
func withoutTerms(key string) string { return strings.TrimRight(key, ":0123456789") }
