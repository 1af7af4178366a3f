// Package load sends requests to a service, as many at once or as many a second as
// is asked for, and measures how long the answers take.
//
// With a rate the latency of a request counts from the moment at which the request
// was due, and not from the moment at which it could be sent. If the service stalls,
// the requests that have to wait behind the stall show it: the measurement has no
// coordinated omission. Without a rate each worker sends its next request after the
// answer to the one before; then a stall shows only in the requests under way.
package load

import (
	"context"
	"sync"
	"time"

	"example.org/rls/internal/latency"
)

// Options say which load a [Load] is. The fields with a help are flags. Requests or Duration bounds the load;
// without both it goes on until its context ends.
type Options struct {
	Requests    int           `name:"n" placeholder:"N" min:"1" help:"Send N requests, and print a summary instead of the answers."`
	Duration    time.Duration `placeholder:"TIME" min:"1ms" help:"Send requests for so long, such as 30s, and print a summary. With --n it ends with what comes first."`
	Rate        float64       `placeholder:"R" min:"0.001" max:"1000000" help:"Send R requests a second, evenly. Latency counts from the moment at which a request was due, also if it had to wait for others (no coordinated omission). Without --rate a request follows the answer to the one before, and latency counts from its sending."`
	Concurrency int           `placeholder:"C" min:"1" max:"100000" help:"Send up to C requests at once; by default 1, and 1024 with --rate."`

	// Send sends request i, counted from 0, and reports whether the service
	// answered that it is over the limit. It bounds its own wait. Its context does
	// not end with that of the load. Several goroutines call it.
	Send func(ctx context.Context, i int) (overLimit bool, err error) `kong:"-"`
}

// Load is one load. It can run once.
type Load struct {
	Options
	// nap sleeps for a short time with a precision of a few dozen microseconds.
	nap func(time.Duration)

	mu     sync.Mutex
	sum    Summary // its counts, and of the latency the maximum
	took   *latency.Histogram
	errors map[string]Failure
}

// New returns a load that is yet to run.
func New(o Options) *Load {
	return &Load{Options: o, nap: nap, took: latency.NewHistogram(scale), errors: map[string]Failure{}}
}

// turn is a request that is to be sent: its number, and the time at which it was due,
// or zero without a rate.
type turn struct {
	i   int
	due time.Time
}

// Run sends the requests and waits for the answers to all that were sent. When the
// context ends no more are sent.
func (l *Load) Run(ctx context.Context) Summary {
	start := time.Now()
	sending, stop := ctx, context.CancelFunc(func() {})
	if l.Duration > 0 {
		sending, stop = context.WithDeadline(ctx, start.Add(l.Duration))
	}
	defer stop()
	turns := make(chan turn)
	var workers sync.WaitGroup
	working := 0
	for i := 0; l.Requests == 0 || i < l.Requests; i++ {
		next := turn{i: i}
		if l.Rate > 0 {
			next.due = start.Add(time.Duration(float64(i) / l.Rate * float64(time.Second)))
			l.sleepUntil(sending, next.due)
		}
		if sending.Err() != nil || l.Duration > 0 && next.due.Sub(start) >= l.Duration {
			break
		}
		select {
		case turns <- next:
			continue
		default:
		}
		if working < l.Concurrency {
			working++
			workers.Go(func() { l.work(context.WithoutCancel(ctx), turns) })
		}
		select {
		case turns <- next:
		case <-sending.Done():
		}
	}
	ended := time.Since(start)
	close(turns)
	workers.Wait()
	s := l.summary()
	s.Elapsed = time.Since(start)
	if seconds := s.Elapsed.Seconds(); seconds > 0 {
		s.Seconds, s.Rate = round(seconds), round(float64(s.Requests)/seconds)
	}
	due := int64(min(ended, l.Duration).Seconds() * l.Rate) // none without a rate
	if l.Requests > 0 {
		due = min(due, int64(l.Requests))
	}
	s.Unsent = max(0, due-s.Requests)
	return s
}

func (l *Load) work(ctx context.Context, turns <-chan turn) {
	for turn := range turns {
		if turn.due.IsZero() {
			turn.due = time.Now()
		}
		overLimit, err := l.Send(ctx, turn.i)
		l.record(time.Since(turn.due), overLimit, err)
	}
}

// sleepUntil returns at the given time, or when ctx ends. Timers of the runtime are up
// to a millisecond late, which would count as latency of the service; therefore the
// last two milliseconds are left to nap.
func (l *Load) sleepUntil(ctx context.Context, at time.Time) {
	const last = 2 * time.Millisecond
	if early := time.Until(at) - last; early > 0 {
		select {
		case <-time.After(early):
		case <-ctx.Done():
			return
		}
	}
	if rest := time.Until(at); rest > 0 {
		l.nap(rest)
	}
}
