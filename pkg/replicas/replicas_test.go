package replicas_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/pkg/replicas"
)

// pass has the fake clock of the synctest bubble go on, and waits for the goroutines.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// TestReplicasOfName: the number of replicas follows DNS every 10 s; the last
// answer stays while DNS does not answer.
func TestReplicasOfName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		type answer struct {
			addresses map[string][]string // by network
			err       error
		}
		var dns atomic.Pointer[answer]
		dns.Store(&answer{addresses: map[string][]string{"ip4": {"10.0.0.1", "10.0.0.2", "10.0.0.2"}, "ip6": {"fd00::1"}}})
		lookUp := func(_ context.Context, network, host string) (found []netip.Addr, err error) {
			if host != "rls-headless" {
				t.Errorf("looked up %q", host)
			}
			now := dns.Load()
			for _, a := range now.addresses[network] {
				found = append(found, netip.MustParseAddr(a))
			}
			return found, now.err
		}
		var log bytes.Buffer
		r := replicas.New(5, "rls-headless", lookUp, slog.New(slog.NewTextHandler(&log, nil)))
		if r.Count() != 5 {
			t.Errorf("%d replicas before the first answer, want 5", r.Count())
		}
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		expect := func(when string, want int) {
			t.Helper()
			synctest.Wait()
			if r.Count() != want {
				t.Errorf("%s: %d replicas, want %d", when, r.Count(), want)
			}
		}
		expect("at the start", 2)
		dns.Store(&answer{addresses: map[string][]string{"ip6": {"fd00::1", "fd00::2", "fd00::3"}}})
		pass(9 * time.Second)
		expect("after 9 s", 2)
		pass(time.Second)
		expect("after 10 s", 3)
		dns.Store(&answer{err: errors.New("no answer")})
		pass(30 * time.Second)
		expect("without an answer", 3)
		dns.Store(&answer{})
		pass(10 * time.Second)
		expect("without an address", 3)
		if got := fmt.Sprint(r.Addresses()); got != "[fd00::1 fd00::2 fd00::3]" {
			t.Errorf("the addresses are %s", got)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 1 {
			t.Errorf("%d warnings, want 1:\n%s", n, &log)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestFixedReplicas(t *testing.T) {
	r := replicas.New(0, "", nil, slog.Default())
	if err := r.Run(t.Context()); err != nil || r.Count() != 1 {
		t.Errorf("%d replicas (%v), want 1", r.Count(), err)
	}
}
