package load

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// run runs a load in the time of a bubble of synctest.
func run(ctx context.Context, o Options) Summary {
	l := New(o)
	l.nap = func(d time.Duration) { <-time.After(d) }
	return l.Run(ctx)
}

// answersAfter is a service that answers OK after a time.
func answersAfter(d time.Duration) func(context.Context, int) (bool, error) {
	return func(context.Context, int) (bool, error) {
		<-time.After(d)
		return false, nil
	}
}

func TestOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t.Context(), Options{Requests: 10, Concurrency: 1, Send: answersAfter(20 * time.Millisecond)})
		if s.OK != 10 || s.Elapsed != 200*time.Millisecond || s.Rate != 50 || s.Latency.P50 != Duration(20*time.Millisecond) || s.Latency.Max != Duration(20*time.Millisecond) {
			t.Errorf("%+v", s)
		}
	})
}

func TestConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		s := run(t.Context(), Options{Requests: 12, Concurrency: 4, Send: func(context.Context, int) (bool, error) {
			most.Store(max(most.Load(), now.Add(1)))
			<-time.After(time.Second)
			now.Add(-1)
			return false, nil
		}})
		if s.OK != 12 || s.Elapsed != 3*time.Second || most.Load() != 4 {
			t.Errorf("%+v, %d at once", s, most.Load())
		}
	})
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t.Context(), Options{Duration: 2 * time.Second, Rate: 100, Concurrency: 10, Send: answersAfter(time.Millisecond)})
		if s.OK != 200 || s.Unsent != 0 || s.Elapsed != 2*time.Second || s.Latency.Max != Duration(time.Millisecond) {
			t.Errorf("%+v", s)
		}
	})
}

// A service that stalls for a second delays all requests that are due meanwhile: the
// one that meets the stall takes a second, and those behind it each the rest of it.
func TestStallShowsInEveryRequestDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t.Context(), Options{Duration: 2 * time.Second, Rate: 100, Concurrency: 1, Send: func(_ context.Context, i int) (bool, error) {
			if i == 50 {
				<-time.After(time.Second)
			}
			return false, nil
		}})
		var late int64 // longer than half a second
		for _, bucket := range s.Histogram {
			if bucket.To > Duration(500*time.Millisecond) {
				late += bucket.Count
			}
		}
		if s.OK != 200 || s.Latency.Max != Duration(time.Second) || late != 50 {
			t.Errorf("%d were late: %+v", late, s)
		}
	})
}

// What could not be sent within the duration is told.
func TestUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t.Context(), Options{Duration: time.Second, Rate: 100, Concurrency: 2, Send: answersAfter(100 * time.Millisecond)})
		if s.OK+s.Unsent != 100 || s.OK < 19 || s.OK > 22 {
			t.Errorf("%+v", s)
		}
	})
}

func TestEndOfContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		defer cancel()
		s := run(ctx, Options{Concurrency: 1, Send: func(ctx context.Context, _ int) (bool, error) {
			<-time.After(100 * time.Millisecond)
			return false, ctx.Err()
		}})
		if s.OK != 3 || s.Failed != 0 || s.Elapsed != 300*time.Millisecond {
			t.Errorf("the answer that was under way should count: %+v", s)
		}
	})
}

func TestCountsAndErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t.Context(), Options{Requests: 100, Concurrency: 1, Send: func(_ context.Context, i int) (bool, error) {
			switch {
			case i < 50:
				return i >= 20, nil
			case i < 80:
				return false, errors.New("away")
			}
			return false, fmt.Errorf("error %d", i)
		}})
		if s.OK != 20 || s.OverLimit != 30 || s.Failed != 50 || s.Requests != 100 {
			t.Errorf("%+v", s)
		}
		if len(s.Errors) != maxErrors || s.Errors[0].Err.Error() != "away" || s.Errors[0].Count != 30 {
			t.Errorf("errors %v", s.Errors)
		}
	})
}

// The buckets have all answers, and none is empty at the ends.
func TestHistogram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := run(t.Context(), Options{Requests: 100, Concurrency: 1, Send: func(_ context.Context, i int) (bool, error) {
			<-time.After(time.Duration(i+1) * time.Millisecond)
			return false, nil
		}})
		want := []Bucket{
			{Duration(1 * time.Millisecond), 1}, {Duration(1500 * time.Microsecond), 0}, {Duration(2 * time.Millisecond), 1}, {Duration(3 * time.Millisecond), 1},
			{Duration(5 * time.Millisecond), 2}, {Duration(7 * time.Millisecond), 2}, {Duration(10 * time.Millisecond), 3}, {Duration(15 * time.Millisecond), 5},
			{Duration(20 * time.Millisecond), 5}, {Duration(30 * time.Millisecond), 10}, {Duration(50 * time.Millisecond), 20}, {Duration(70 * time.Millisecond), 20}, {Duration(100 * time.Millisecond), 30},
		}
		if fmt.Sprint(s.Histogram) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", s.Histogram, want)
		}
		for _, test := range []struct{ got, want Duration }{
			{s.Latency.P50, Duration(50 * time.Millisecond)}, {s.Latency.P90, Duration(90 * time.Millisecond)},
			{s.Latency.P99, Duration(99 * time.Millisecond)}, {s.Latency.Max, Duration(100 * time.Millisecond)},
		} {
			if diff := test.got - test.want; diff < -test.want/500 || diff > test.want/500 {
				t.Errorf("got %v, want %v", test.got, test.want)
			}
		}
	})
}

// nap sleeps at least as long as it is told.
func TestNap(t *testing.T) {
	begun := time.Now()
	nap(3 * time.Millisecond)
	if d := time.Since(begun); d < 3*time.Millisecond {
		t.Errorf("slept %v", d)
	}
}
