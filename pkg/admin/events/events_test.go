package events_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/pkg/admin/events"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/descriptors"
)

var errRefused = errors.New("connection refused")

// process is a Log, the breakers that tell it, and the decisions of policies.
type process struct {
	*events.Log
	decided [descriptors.Policies]uint64
}

func newProcess() *process {
	p := &process{}
	p.Log = events.New(func() [descriptors.Policies]uint64 { return p.decided })
	return p
}

func (p *process) server(role string) *breaker.Breaker {
	w := &breaker.Watch{Role: role, Failing: func(address string) breaker.Outage {
		return p.Failing(events.Server{Address: address, Role: role})
	}}
	return w.Server("10.0.0.1:6379")
}

// call makes a call that ends with err, if the breaker allows it.
func call(b *breaker.Breaker, err error) {
	if c, refused := b.Allow(); refused == nil {
		c.Done(0, err)
	}
}

func pass(d time.Duration) { <-time.After(d) } // of the bubble's fake clock

// kinds are the kinds of all events, the oldest first.
func (p *process) kinds() string {
	var all []string
	for _, e := range slices.Backward(p.Newest(time.Time{}, events.Kept)) {
		all = append(all, e.Kind)
	}
	return strings.Join(all, " ")
}

func (p *process) newest() events.Event { return p.Newest(time.Time{}, 1)[0] }

// Each server's decisions count from its own start, and the first failure is part of them.
func TestOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess()
		main, second := p.server("main"), p.server("per-second")
		call(main, nil)
		call(second, nil)
		p.decided[descriptors.PolicyAllow] = 3 // an earlier outage
		p.Loaded(events.InForce{Policies: map[string][descriptors.Policies]int{"main": {descriptors.PolicyError: 2, descriptors.PolicyDeny: 1}}}, nil)
		began := time.Now()
		for range 20 {
			call(main, errRefused)
			p.decided[descriptors.PolicyAllow]++
			pass(10 * time.Millisecond)
		}
		away := p.newest()
		if e := away; e.Kind != events.StoreAway || *e.Server != (events.Server{Address: "10.0.0.1:6379", Role: "main"}) || e.Error != "connection refused" ||
			e.Time.Sub(began) != 30*time.Millisecond || !strings.Contains(e.Text, "10.0.0.1:6379 of the store (main) does not answer (connection refused). Until it is back, for its keys 2 rules answer an error, 1 rule denies.") {
			t.Errorf("got %+v", e)
		}
		for range 20 {
			call(second, errRefused)
			p.decided[descriptors.PolicyDeny]++
			pass(10 * time.Millisecond)
		}
		pass(time.Second)
		call(main, nil)
		if e := p.newest(); e.Kind != events.StoreBack || e.Role != "main" || e.Seconds != time.Since(away.Time).Seconds() ||
			e.Decisions != (events.Decisions{Allow: 20, Deny: 20}) || !strings.Contains(e.Text, "20 by allow, 20 by deny") {
			t.Errorf("got %+v %+v", e, e.Return)
		}
		p.decided[descriptors.PolicyError] = 2
		call(second, nil)
		if e := p.newest(); e.Kind != events.StoreBack || e.Role != "per-second" || e.Decisions != (events.Decisions{Deny: 20, Error: 2}) {
			t.Errorf("got %+v %+v", e, e.Return)
		}
	})
}

// A server that is away at the start went away.
func TestAwayAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess()
		b := p.server("main")
		call(b, errRefused)
		pass(10 * time.Second)
		call(b, nil)
		if got := p.kinds(); got != "store-away store-back" || p.newest().Seconds != 10 {
			t.Errorf("got %s after %v", got, p.newest().Seconds)
		}
	})
}

// Several breakers before one server tell of one outage, which lasts until all are back.
func TestSeveralBreakersOfAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess()
		a, b := p.server("main"), p.server("main")
		call(a, errRefused)
		pass(time.Second)
		call(b, errRefused)
		pass(time.Second)
		call(a, nil)
		if got := p.kinds(); got != "store-away" {
			t.Errorf("got %s", got)
		}
		pass(time.Second)
		b.Left()
		call(b, nil)
		if got := p.newest(); p.kinds() != "store-away store-back" || got.Seconds != 3 || !strings.Contains(got.Text, "has left the store after 3s") {
			t.Errorf("got %s, %+v", p.kinds(), got)
		}
	})
}

// A server that flaps makes at most two events a second, in pairs, in the order of time.
func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess()
		b := p.server("main")
		call(b, errRefused)
		for i := range 100 { // 10 s
			pass(100 * time.Millisecond)
			call(b, map[bool]error{true: errRefused}[i%2 == 0])
			for range 10 {
				call(b, errRefused)
			}
		}
		pass(time.Second)
		call(b, nil)
		all := p.Newest(time.Time{}, events.Kept)
		if len(all) > 22 || len(all)%2 != 0 {
			t.Errorf("%d events in 11 s", len(all))
		}
		for i, e := range slices.Backward(all) {
			if want := []string{events.StoreBack, events.StoreAway}[i%2]; e.Kind != want || i > 0 && all[i-1].Time.Before(e.Time) {
				t.Errorf("event %d is %s at %v", i, e.Kind, e.Time)
			}
		}
	})
}

func TestNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess()
		p.Started("v1", "redis")
		pass(time.Hour)
		p.Loaded(events.InForce{Hash: "abc", Domains: 1, Rules: 2}, nil)
		if e := p.newest(); e.Text != "Rules came into force: 2 rules in 1 domain, with the hash abc." {
			t.Error(e.Text)
		}
		pass(time.Hour)
		p.Drains()
		if got := p.kinds(); got != "start rules-loaded drain" {
			t.Errorf("got %s", got)
		}
		if got := p.Newest(time.Now().Add(-90*time.Minute), events.Kept); len(got) != 2 || got[0].Kind != events.Drain {
			t.Errorf("of 90 minutes: %+v", got)
		}
		for range 2 * events.Kept {
			p.Drains()
		}
		if got := p.Newest(time.Time{}, 10*events.Kept); len(got) != events.Kept {
			t.Errorf("%d events are kept", len(got))
		}
	})
}

func TestRefused(t *testing.T) {
	p := newProcess()
	p.Refused([]string{"a.yaml:1:1: wrong"})
	if e := p.newest(); e.Kind != events.RulesRefused || e.Text != "The newest rules were refused: a.yaml:1:1: wrong" {
		t.Errorf("got %+v", e)
	}
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprint(i, strings.Repeat("x", 10_000)))
	}
	p.Refused(many)
	e := p.newest()
	if len(e.Problems) != 11 || e.Problems[10] != "and 90 more problems" || len(e.Problems[0]) > 310 || !strings.HasSuffix(e.Text, "…, and 99 more problems") {
		t.Errorf("%d problems, %q … %q", len(e.Problems), e.Text, e.Problems[10])
	}
}

// Parts of the process that share a certificate have one event for each renewal.
func TestRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess()
		until := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
		for _, use := range []string{"gRPC", "REDIS_TLS_*", "REDIS_TLS_*"} {
			p.Renewed(use, "CN=rls", until)
		}
		pass(time.Minute)
		p.Renewed("gRPC", "CN=rls", until)
		p.Renewed("admin", "", time.Time{})
		if got := p.kinds(); got != "certificate certificate certificate certificate" {
			t.Errorf("got %s", got)
		}
		all := p.Newest(time.Time{}, 9)
		if all[0].Text != "The CAs of admin were renewed." || all[1].Text != "The certificate of gRPC (CN=rls) was renewed; it is valid until 2030-01-02 03:04 UTC." {
			t.Errorf("got %q and %q", all[0].Text, all[1].Text)
		}
	})
}

// TestDistinct: two replicas may have the same event in the same microsecond; what the store remembers of it
// is told no more.
func TestDistinct(t *testing.T) {
	e := events.Event{Time: time.Unix(1, 0), Text: "x"}
	earlier := e
	earlier.Earlier = true
	if got := events.Distinct([]events.Event{e, e, earlier, earlier}); len(got) != 2 || got[1].Earlier {
		t.Errorf("got %+v", got)
	}
	if got := events.Distinct([]events.Event{earlier, earlier}); len(got) != 1 {
		t.Errorf("got %+v", got)
	}
}
