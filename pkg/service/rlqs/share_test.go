package rlqs_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"example.org/rls/internal/testenv"
)

// proxy is an Envoy 1.40 with the filter rate_limit_quota: what it does with assignments, and
// when it reports.
type proxy struct {
	w       *world
	stream  *stream // nil while it has none
	replica int
	buckets map[string]*quota
	known   []string // the buckets in the order of their first requests
	ticked  time.Time
	allowed int // requests since the beginning
}

// quota is a bucket of a proxy.
type quota struct {
	key, value      string
	allowed, denied uint64 // since the last report
	reported        time.Time
	what            string // "" (denies: no_assignment_behavior), allow, deny, tokens
	tokens          float64
	max, perFill    uint32
	rate            float64 // tokens per second
	filled, ends    time.Time
}

func (w *world) proxy(replica int) *proxy {
	p := &proxy{w: w, replica: replica, buckets: map[string]*quota{}, ticked: time.Now()}
	p.stream = w.stream(replica)
	return p
}

// request asks for n requests at this moment, and returns how many pass.
func (p *proxy) request(n int, key, value string) (passed int) {
	q := p.buckets[key+"="+value]
	if q == nil {
		q = &quota{key: key, value: value, reported: time.Now()}
		p.buckets[key+"="+value] = q
		p.known = append(p.known, key+"="+value)
		q.allowed, passed, n = 1, 1, n-1
		p.report([]*quota{q}, true)
	}
	for range n {
		if q.passes(time.Now()) {
			passed++
			q.allowed++
		} else {
			q.denied++
		}
	}
	p.allowed += passed
	return passed
}

func (q *quota) passes(now time.Time) bool {
	if q.what == "allow" && now.Before(q.ends) {
		return true
	}
	if q.what != "tokens" || !now.Before(q.ends) {
		return false
	}
	q.tokens = min(float64(q.max), q.tokens+q.rate*now.Sub(q.filled).Seconds())
	q.filled = now
	if q.tokens < 1 {
		return false
	}
	q.tokens--
	return true
}

// tick reports if it is time, and takes in what the server has sent.
func (p *proxy) tick() {
	p.take()
	if time.Since(p.ticked) < 5*time.Second {
		return
	}
	p.ticked = time.Now()
	if p.stream == nil {
		p.stream = p.w.stream(p.replica)
	}
	var all []*quota
	for _, id := range p.known {
		all = append(all, p.buckets[id])
	}
	if len(all) > 0 {
		p.report(all, false)
	}
}

// report reports buckets, and takes in the answer.
func (p *proxy) report(all []*quota, first bool) {
	var usages []*pb.RateLimitQuotaUsageReports_BucketQuotaUsage
	for _, q := range all {
		elapsed := time.Since(q.reported).Truncate(time.Second)
		if first {
			elapsed = 0
		}
		usages = append(usages, usage(elapsed, q.allowed, q.denied, q.key, q.value))
		q.allowed, q.denied, q.reported = 0, 0, time.Now()
	}
	if p.stream == nil {
		return
	}
	if err := p.stream.Send(reports("d", usages...)); err != nil {
		p.lose()
		return
	}
	synctest.Wait()
	p.take()
}

// lose ends the stream; the proxy opens another one at its next report.
func (p *proxy) lose() {
	if p.stream != nil {
		p.stream.cancel()
	}
	p.stream = nil
}

// take takes in what the server has sent.
func (p *proxy) take() {
	for p.stream != nil {
		select {
		case m := <-p.stream.replies:
			for _, a := range m.BucketAction {
				p.apply(a)
			}
			continue
		case err := <-p.stream.err:
			p.w.t.Log("a stream has ended:", err)
			p.lose()
		default:
		}
		return
	}
}

func (p *proxy) apply(a *pb.RateLimitQuotaResponse_BucketAction) {
	now := time.Now()
	for key, value := range a.BucketId.Bucket {
		id := key + "=" + value
		q := p.buckets[id]
		if q == nil {
			return
		}
		assigned := a.GetQuotaAssignmentAction()
		if assigned == nil {
			delete(p.buckets, id)
			p.known = slices.DeleteFunc(p.known, func(k string) bool { return k == id })
			return
		}
		q.ends = now.Add(assigned.AssignmentTimeToLive.AsDuration().Truncate(time.Second))
		b := assigned.RateLimitStrategy.GetTokenBucket()
		switch {
		case b == nil && assigned.RateLimitStrategy.GetBlanketRule() == typev3.RateLimitStrategy_DENY_ALL:
			q.what = "deny"
		case b == nil:
			q.what = "allow"
		case q.what == "tokens" && q.max == b.MaxTokens && q.perFill == b.TokensPerFill.GetValue():
		default:
			if q.tokens = 0; q.what != "tokens" {
				q.tokens = float64(b.MaxTokens)
			}
			q.what, q.max, q.perFill, q.filled = "tokens", b.MaxTokens, b.TokensPerFill.GetValue(), now
			q.rate = float64(q.perFill) / float64(b.FillInterval.Seconds)
		}
	}
}

// sizes has the requests per second of each proxy.
type sizes []int

// run has proxies ask for the bucket key=v for a time, and returns how many requests of each have
// passed in each second.
func (w *world) run(proxies []*proxy, d time.Duration, key string, demand func(second int) sizes) (passed [][]int) {
	const steps = 10
	for second := range int(d / time.Second) {
		now := demand(second)
		one := make([]int, len(proxies))
		for step := range steps {
			for i, p := range proxies {
				if p == nil {
					continue
				}
				p.tick()
				if n := now[i]*(step+1)/steps - now[i]*step/steps; n > 0 {
					one[i] += p.request(n, key, "v")
				}
			}
			pass(time.Second / steps)
		}
		passed = append(passed, one)
	}
	return passed
}

func sum(passed [][]int, proxy int) (n int) {
	for _, one := range passed {
		for i, m := range one {
			if proxy < 0 || i == proxy {
				n += m
			}
		}
	}
	return n
}

// TestShares: shares follow the demand, over replicas, and one alone has all.
func TestShares(t *testing.T) {
	for _, c := range []struct {
		key  string
		want float64 // in a minute
	}{{"second", 6000}, {"minute", 1000}, {"bucket", 60}} {
		t.Run(c.key, func(t *testing.T) {
			in(t, func(t *testing.T) {
				pass(40 * time.Second)
				w := start(t, 2, rules)
				all := []*proxy{w.proxy(0), w.proxy(1)}
				w.run(all, time.Minute, c.key, func(int) sizes { return sizes{300, 100} })
				passed := w.run(all, time.Minute, c.key, func(int) sizes { return sizes{300, 100} })
				a, b := float64(sum(passed, 0)), float64(sum(passed, 1))
				t.Logf("%v and %v", a, b)
				if a+b > c.want*1.05 || a+b < c.want*0.95 {
					t.Errorf("%v passed, want %v", a+b, c.want)
				}
				if part := a / (a + b); part < 0.65 || part > 0.85 {
					t.Errorf("the one with 75%% of the demand has %v %%", 100*part)
				}
				passed = w.run(all, time.Minute, c.key, func(int) sizes { return sizes{0, 400} })
				if b = float64(sum(passed, 1)); b > c.want*1.05 || b < c.want*0.85 {
					t.Errorf("alone, %v passed, want %v", b, c.want)
				}
			})
		})
	}
}

// TestStarts: Envoys that begin at the same moment, with more demand than remains, let pass what
// remains, and each at most a request before its assignment and one that everybody gets.
func TestStarts(t *testing.T) {
	for _, limits := range []string{
		"{unit: minute, requests_per_unit: 300}",
		"{unit: hour, requests_per_unit: 300, strategy: token_bucket}",
		"{unit: second, requests_per_unit: 50}, {unit: minute, requests_per_unit: 300}",
		"{unit: second, requests_per_unit: 150}, {unit: hour, requests_per_unit: 300}",
		"{unit: second, requests_per_unit: 150}, {unit: hour, requests_per_unit: 300, strategy: token_bucket}",
	} {
		for _, n := range []int{1, 2, 4} {
			in(t, func(t *testing.T) {
				pass(40 * time.Second) // a minute begins
				w := start(t, 2, rules+"  - {key: start, rate_limits: ["+limits+"]}\n")
				all, demand := make([]*proxy, n), make(sizes, n)
				for i := range all {
					all[i], demand[i] = w.proxy(i%2), 400
				}
				passed := sum(w.run(all, 30*time.Second, "start", func(int) sizes { return demand }), -1)
				if passed < 300 || passed > 303+2*n { // 3 more are in the bucket of an hour by then
					t.Errorf("%s: %d of 300 passed through %d Envoys", limits, passed, n)
				}
			})
		}
	}
}

// TestJumps: 3 replicas and 15 Envoys, whose demand jumps, which crash and lose their streams.
// What passes in 30 s, or in a longer window, is within 5 % of the limit.
func TestJumps(t *testing.T) {
	for key, c := range map[string]struct {
		span    int // s
		limit   float64
		aligned bool // spans are the windows
	}{"second": {30, 3000, false}, "minute": {60, 1000, true}, "bucket": {30, 130, false},
		// two Envoys that lose their streams at once are now and then taken for each other
		"slow": {60, 10300, true}} {
		t.Run(key, func(t *testing.T) {
			in(t, func(t *testing.T) {
				pass(39900 * time.Millisecond)
				rnd := testenv.Random(t)
				w := start(t, 3, rules+"  - {key: slow, rate_limit: {unit: minute, requests_per_unit: 10000}}\n")
				passed := jumps(w, rnd, key)
				most, step := 0, 1
				if c.aligned {
					step = c.span
				}
				for from := c.span; from+c.span <= len(passed); from += step {
					n := sum(passed[from:from+c.span], -1)
					for s := range c.span {
						n -= w.lost[from+s]
					}
					most = max(most, n)
				}
				t.Logf("at most %d in %d s of %v, %d in all", most, c.span, c.limit, sum(passed, -1))
				if float64(most) > 1.05*c.limit {
					t.Errorf("%d passed in %d s, the limit is %v", most, c.span, c.limit)
				}
			})
		})
	}
}

func jumps(w *world, rnd *rand.Rand, key string) (passed [][]int) {
	all := make([]*proxy, 15)
	for i := range all {
		all[i] = w.proxy(i % 3)
		all[i].ticked = time.Now().Add(-time.Duration(rnd.IntN(5000)) * time.Millisecond)
	}
	now := make(sizes, len(all))
	return w.run(all, 5*time.Minute, key, func(second int) sizes {
		for i := range all {
			switch {
			case second%7 == 0 && rnd.IntN(3) == 0:
				now[i] = int(math.Pow(10, 3*rnd.Float64())) - 1
			case rnd.IntN(200) == 0: // loses its stream, and goes to another replica
				all[i].lose()
				all[i].replica = rnd.IntN(3)
			case rnd.IntN(400) == 0: // crashes: what it has not reported nobody can know
				for _, q := range all[i].buckets {
					w.lost[second] += int(q.allowed)
				}
				all[i].lose()
				all[i] = w.proxy(rnd.IntN(3))
			}
		}
		return now
	})
}
