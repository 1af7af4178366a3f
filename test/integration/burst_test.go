package integration

import (
	"fmt"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"example.org/rls/internal/testenv"
)

// TestBurst: 5,000 callers who can wait 30 s come at once while the store is frozen, on
// as many keys or on one key. Each gets the verdict of its policy, and they leave
// next to nothing behind.
func TestBurst(t *testing.T) {
	const callers = 5000
	for _, remote := range remotes {
		for name, user := range map[string]func(i int) string{
			"many keys": func(i int) string { return fmt.Sprint("burst ", i) },
			"a hot key": func(int) string { return "burst" },
		} {
			t.Run(remote.name+", "+name, func(t *testing.T) {
				server, settings := remote.open(t)
				s := serve(t, outageRules, settings...)
				var clients []pb.RateLimitServiceClient // a connection has room for 1,024 calls
				for range 8 {
					clients = append(clients, s.dial())
				}
				burst := func() samples {
					return together(callers, 1, func(i, _ int) sample {
						return check(clients[i%len(clients)], 30*time.Second, "d", desc("allow", user(i)))
					})
				}
				burst() // memory grows to the size that load needs
				burst()
				before := s.footprint()
				server.Pause()
				var got samples
				start := time.Now()
				s.within(5*time.Second, func() bool { got = burst(); return true }, "the last caller is answered")
				took := time.Since(start)
				testenv.Eventually(t, patience, func() bool { return s.stat("go_goroutines") <= before.goroutines+100 }, "at most 100 goroutines more than before")
				after := s.footprint()
				t.Logf("%d callers in %v; goroutines %v then %v, MiB %.1f then %.1f", callers, took, before.goroutines, after.goroutines, before.bytes/(1<<20), after.bytes/(1<<20))
				if n := len(got.only(verdict(ok))); n != callers {
					t.Errorf("%d of %d callers have the verdict of on_error: allow: %v", n, callers, got.ends())
				}
				if after.bytes > before.bytes+64<<20 {
					t.Errorf("%.1f MiB, %.1f before", after.bytes/(1<<20), before.bytes/(1<<20))
				}
				server.Resume()
			})
		}
	}
}
