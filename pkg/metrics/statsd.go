package metrics

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"
)

// Sink is a server of statsd or DogStatsD.
type Sink interface {
	// Open says whether the server can be sent to, after it tried.
	Open() bool
	// Count sends how much a counter grew. It may hold that back until there is
	// more, and says whether the server can still be sent to.
	Count(path string, n uint64) bool
	// Time sends that so many calls took so many milliseconds.
	Time(path string, ms int64, calls uint64)
	// Flush sends what is held back.
	Flush()
	Close()
}

// Statsd tells a Sink what was counted, as differences, under the reference's
// paths.
type Statsd struct {
	metrics *Metrics
	sink    Sink
	every   time.Duration
}

// Statsd sends to sink, which it closes in the end, as often as every > 0
// says. A nil sink is sent nothing. Once at most.
func (m *Metrics) Statsd(sink Sink, every time.Duration) *Statsd { return &Statsd{m, sink, every} }

// Run sends until ctx ends. It returns nil.
func (s *Statsd) Run(ctx context.Context) error {
	if s.sink == nil {
		return nil
	}
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.Send()
		}
	}
}

// Close sends the rest. Not while Run runs.
func (s *Statsd) Close() {
	if s.sink == nil {
		return
	}
	s.Send()
	s.sink.Close()
}

// Send sends what was counted since the last time. Without a server, or
// once one fails, it is kept for later. Not while Run runs.
func (s *Statsd) Send() {
	if !s.sink.Open() {
		return
	}
	for _, c := range s.metrics.paths.counters() {
		if n := c.n.Load(); n != c.sent {
			if !s.sink.Count(lineName(c.path), n-c.sent) {
				return
			}
			c.sent = n
		}
	}
	for _, m := range *s.metrics.calls.methods.Load() {
		path := m.timePath()
		m.timer.take(func(ms int64, calls uint64) { s.sink.Time(path, ms, calls) })
	}
	s.sink.Flush()
}

// lineName is a path that cannot end its line, nor begin a tag: control bytes
// become _, and so does the dot before the two underscores that mark a tag.
func lineName(path string) string {
	path = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '_'
		}
		return r
	}, path)
	return strings.ReplaceAll(path, ".__", "___")
}

// tagPart is a tag's key or value as the reference writes it.
func tagPart(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || strings.ContainsRune(".:|,#\x7f", r) {
			return '_'
		}
		return r
	}, s)
}

// dogTag is a tag's value of DogStatsD, which may have dots and colons.
func dogTag(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || strings.ContainsRune("|,#\x7f", r) {
			return '_'
		}
		return r
	}, s)
}

// sortedTags calls add for each tag, by its name.
func sortedTags(tags map[string]string, add func(key, value string)) {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if key != "" && tags[key] != "" {
			add(tagPart(key), tagPart(tags[key]))
		}
	}
}
