package metrics

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Sink sends to a server of statsd or DogStatsD.
type Sink interface {
	// Open connects to the server where needed, and reports whether it can be sent to.
	Open() bool
	// Send sends a value at once or with Flush, and reports whether the server can still be
	// sent to. A timing stands for so many calls, otherwise calls is 1.
	Send(of kind, path string, value, calls uint64) bool
	Flush()
	Close()
}

// kind says what a value is, by its name in statsd.
type kind string

const (
	growth kind = "c" // by how much a counter grew
	gauge  kind = "g"
	timing kind = "ms" // the milliseconds that a call took
)

// Statsd sends the metrics that have a path to a Sink: a counter as its growth, a gauge as
// its value.
type Statsd struct {
	metrics *Metrics
	sink    Sink
	every   time.Duration
}

// Statsd returns a Statsd that sends to sink at the interval every, > 0, and owns
// sink. With a nil sink it does nothing. It must be called once at most.
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

// Close sends the counts since the last Send and closes the sink. Run must have returned.
func (s *Statsd) Close() {
	if s.sink == nil {
		return
	}
	s.Send()
	s.sink.Close()
}

// Send sends the counts since the last Send. Counts that no server could be reached for wait
// for the next Send; the counts of a write that fails are lost. Send must not be called
// while Run runs.
func (s *Statsd) Send() {
	if !s.sink.Open() {
		return
	}
	for _, c := range s.metrics.paths.counters() {
		n, ok := c.value(), true
		if c.gauge {
			ok = s.sink.Send(gauge, c.path, n, 1)
		} else if n != c.sent {
			ok = s.sink.Send(growth, lineName(c.path), n-c.sent, 1)
		}
		if !ok {
			return
		}
		c.sent = n
	}
	for _, m := range *s.metrics.calls.methods.Load() {
		m.timer.take(func(ms, calls uint64) { s.sink.Send(timing, m.path, ms, calls) })
	}
	s.sink.Flush()
	s.metrics.decisions.forget()
}

// lineName is path as a name that a server reads whole: see lineText. The dot of ".__",
// which starts a tag in the format of envoyproxy/ratelimit, becomes _ as well.
func lineName(path string) string { return strings.ReplaceAll(lineText(path), ".__", "___") }

// lineText is s with _ for every character that could end a name or a line, or
// start a tag: white space, control characters, and the separators of statsd
// (: |), of its sampling rate (@) and of the tag formats of DogStatsD, InfluxDB,
// Librato, SignalFx and Graphite (# , ; [ ]).
func lineText(s string) string {
	return replaced(s, func(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(":|@#,;[]", r) })
}

// tagPart is a tag's key or value as envoyproxy/ratelimit writes it: without the
// separators of statsd and without dots.
func tagPart(s string) string {
	return replaced(s, func(r rune) bool { return strings.ContainsRune(".:|,#", r) })
}

// dogTag is a tag's value for DogStatsD, which allows dots and colons in it.
func dogTag(s string) string {
	return replaced(s, func(r rune) bool { return strings.ContainsRune("|,#", r) })
}

// replaced is s with _ for control characters and for separators.
func replaced(s string, separates func(rune) bool) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || separates(r) {
			return '_'
		}
		return r
	}, s)
}

// sortedTags calls add for each tag that has a name and a value, in the order
// of the names.
func sortedTags(tags map[string]string, add func(key, value string)) {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if key != "" && tags[key] != "" {
			add(tagPart(key), tagPart(tags[key]))
		}
	}
}
