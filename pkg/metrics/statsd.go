package metrics

import (
	"context"
	"time"

	"example.org/rls/internal/pace"
	"example.org/rls/pkg/metrics/statsd"
)

// Statsd sends the metrics that have a path to a [statsd.Sink]: a counter as its growth, a gauge as
// its value.
type Statsd struct {
	metrics *Metrics
	sink    statsd.Sink
	every   time.Duration
}

// Statsd returns a Statsd that sends to sink at the interval every, > 0, and owns
// sink. It must be called once at most.
func (m *Metrics) Statsd(sink statsd.Sink, every time.Duration) *Statsd {
	return &Statsd{m, sink, every}
}

// Run sends until ctx ends. It returns nil.
func (s *Statsd) Run(ctx context.Context) error {
	for i := range pace.Every(ctx, s.every) {
		if i > 0 {
			s.Send()
		}
	}
	return nil
}

// Close sends the counts since the last Send and closes the sink. Run must have returned.
func (s *Statsd) Close() {
	s.Send()
	s.sink.Close()
}

// Send sends the counts since the last Send. Counts that no server could be reached for wait
// for the next Send; the counts of a write that fails are lost. Send must not be called
// while Run runs.
func (s *Statsd) Send() {
	ok := true
	for _, c := range s.metrics.counters() {
		n := c.value()
		if c.gauge {
			ok = s.sink.Send(statsd.Level, c.path, n, 1)
		} else if n != c.sent {
			ok = s.sink.Send(statsd.Growth, statsd.Name(c.path), n-c.sent, 1)
		}
		if !ok {
			return
		}
		c.sent = n
	}
	for _, m := range *s.metrics.methods.byName.Load() {
		m.timer.take(func(ms, calls uint64) { ok = ok && s.sink.Send(statsd.Timing, m.path, ms, calls) })
	}
	s.sink.Flush()
	s.metrics.clean()
}
