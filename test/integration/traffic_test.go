package integration

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"example.org/rls/internal/testenv"
)

// traffic is a stream of checks at a fixed rate: each is sent when it is due,
// whether the checks before it were answered or not.
type traffic struct {
	halt   func()
	stalls *testenv.Stalls // of this process and of the program

	mu  sync.Mutex
	got samples
}

// sample is the end of one check.
type sample struct {
	user string // the value of the check's first entry
	sent time.Time
	took time.Duration
	code codes.Code                // OK if there is a verdict
	is   pb.RateLimitResponse_Code // the verdict
}

type samples []sample

// pass sends each descriptor in turn to domain d, rate times a second, with a
// deadline, until the traffic is ended.
func (s *service) pass(rate int, deadline time.Duration, descs ...*descriptor) *traffic {
	began, stop, ended := time.Now(), make(chan struct{}), make(chan struct{})
	f := &traffic{stalls: testenv.WatchStalls(s.t, s.cmd.Process.Pid), halt: sync.OnceFunc(func() {
		close(stop)
		<-ended
	})}
	client := s.dial()
	go func() {
		defer close(ended)
		var calls sync.WaitGroup
		defer calls.Wait()
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for sent := 0; ; {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			for ; sent < int(time.Since(began).Seconds()*float64(rate)); sent++ {
				d := descs[sent%len(descs)]
				calls.Go(func() { f.add(check(client, deadline, "d", d)) })
			}
		}
	}()
	s.t.Cleanup(f.halt)
	return f
}

// together has callers do something at the same time, each so many times one after the
// other.
func together(callers, times int, do func(caller, n int) sample) samples {
	all := make(samples, callers*times)
	var running sync.WaitGroup
	for caller := range callers {
		running.Go(func() {
			for n := range times {
				all[caller*times+n] = do(caller, n)
			}
		})
	}
	running.Wait()
	return all
}

func check(client pb.RateLimitServiceClient, deadline time.Duration, domain string, descs ...*descriptor) sample {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	a := sample{user: descs[0].Entries[0].Value, sent: time.Now()}
	resp, err := client.ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: domain, Descriptors: descs})
	a.took, a.code, a.is = time.Since(a.sent), grpcstatus.Code(err), resp.GetOverallCode()
	return a
}

func (f *traffic) add(a sample) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.got = append(f.got, a)
}

// since returns the samples so far of the checks that were sent after a moment. It
// looks at no others: a test that asks again and again leaves the processor to what
// it measures.
func (f *traffic) since(moment time.Time) samples {
	f.mu.Lock()
	defer f.mu.Unlock()
	// The samples are in the order in which the checks ended, give or take the time
	// that a goroutine takes to add one.
	const order = 100 * time.Millisecond
	first, _ := slices.BinarySearchFunc(f.got, moment.Add(-order), func(a sample, t time.Time) int {
		return a.sent.Add(a.took).Compare(t)
	})
	return f.got[first:].only(sentAfter(moment))
}

// end stops the traffic and returns the samples of all checks.
func (f *traffic) end() samples {
	f.halt()
	return f.got
}

// calm reports whether nothing stalled while a check was under way. A check that
// was not answered in time may be late because of a stall.
func (f *traffic) calm(a sample) bool { return f.stalls.Calm(a.sent, a.sent.Add(a.took)) }

// stalled is how much time was lost while a check was under way.
func (f *traffic) stalled(a sample) time.Duration {
	return f.stalls.Between(a.sent, a.sent.Add(a.took))
}

// busy is the share of checks during stalls above which a measurement says more about
// the machine than about the program.
const busy = 0.1

// atLeast fails the test if less than a share of some checks ended as they should.
// Checks during a stall are left out. Stalls that are too short to be seen come with
// those that are seen, so as many more checks may end otherwise as are left out. If the
// machine was busy, nothing is measured, which the log of the test then says.
func (f *traffic) atLeast(t *testing.T, share float64, right func(sample) bool, of samples, what string) {
	t.Helper()
	calm := of.only(f.calm)
	n, left := len(calm.only(right)), len(of)-len(calm)
	switch {
	case len(of) == 0:
		t.Errorf("no %s", what)
	case float64(left) > busy*float64(len(of)):
		t.Logf("not measured, because the machine stalled during %d of %d: %d of the others %s", left, len(of), n, what)
	case float64(n) < share*float64(len(calm))-float64(left):
		t.Errorf("%d of %d %s, want %.1f %%; %v, %d left out", n, len(calm), what, share*100, calm.ends(), left)
	}
}

// only returns the samples that fulfil all conditions.
func (a samples) only(conditions ...func(sample) bool) samples {
	var found samples
	for _, one := range a {
		if !slices.ContainsFunc(conditions, func(c func(sample) bool) bool { return !c(one) }) {
			found = append(found, one)
		}
	}
	return found
}

// ends counts the ways in which checks ended.
func (a samples) ends() map[string]int {
	how := map[string]int{}
	for _, one := range a {
		if one.code == codes.OK {
			how[one.is.String()]++
		} else {
			how[one.code.String()]++
		}
	}
	return how
}

func verdict(is pb.RateLimitResponse_Code) func(sample) bool {
	return func(a sample) bool { return a.code == codes.OK && a.is == is }
}

func failed(a sample) bool { return a.code != codes.OK }

func sentBetween(from, to time.Time) func(sample) bool {
	return func(a sample) bool { return !a.sent.Before(from) && a.sent.Before(to) }
}

func sentAfter(from time.Time) func(sample) bool {
	return func(a sample) bool { return a.sent.After(from) }
}

func of(users []string) func(sample) bool {
	return func(a sample) bool { return slices.Contains(users, a.user) }
}

// users are descriptors of n users.
func users(n int) []*descriptor {
	list := make([]*descriptor, n)
	for i := range list {
		list[i] = desc("user", "u"+string(rune('a'+i%26))+string(rune('a'+i/26)))
	}
	return list
}
