package xds_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/descriptors"
	language "example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/sources"
	"example.org/rls/pkg/sources/xds"
)

const (
	node = "envoy-gateway-ratelimit"
	soon = 30 * time.Second
)

// quickly is a back-off that does not make tests wait.
var quickly = xds.Backoff{Unreachable: 20 * time.Millisecond, Ended: 20 * time.Millisecond, Max: 100 * time.Millisecond, Jitter: true}

// observed has the rules in force and the outcomes of the loads of a source.
type observed struct {
	t    *testing.T
	tree atomic.Pointer[descriptors.Tree] // in force
	mu   sync.Mutex
	errs []error // outcome of each load
}

// run runs a source until the test ends.
func run(t *testing.T, s *xds.Source) *observed {
	t.Helper()
	prepare(s)
	return observe(t, s, s.Log)
}

// prepare sets what a source needs besides the server.
func prepare(s *xds.Source) {
	s.NodeID = node
	s.Connected = func(bool) {}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Backoff.Max == 0 {
		s.Backoff = quickly
	}
}

// observe runs a source until the test ends.
func observe(t *testing.T, s sources.Source, log *slog.Logger) *observed {
	t.Helper()
	return observing(t, s, &sources.Rules{Log: log})
}

// observing is observe for a loader whose other fields are set.
func observing(t *testing.T, s sources.Source, rules *sources.Rules) *observed {
	o := &observed{t: t}
	rules.Loaded = o.loaded
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- rules.Run(ctx, s, rules.Publish) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return o
}

func (o *observed) loaded(l sources.Load) {
	if l.Tree != nil {
		o.tree.Store(l.Tree)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.errs = append(o.errs, l.Err)
}

func (o *observed) outcomes() []error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.errs)
}

// become waits until exactly these domains are in force.
func (o *observed) become(domains string) {
	o.t.Helper()
	testenv.Eventually(o.t, soon, func() bool { return o.now() == domains }, "in force: "+domains)
}

// now has the domains in force.
func (o *observed) now() string {
	tree := o.tree.Load()
	if tree == nil {
		return "none yet"
	}
	var names []string
	for _, d := range tree.Domains() {
		names = append(names, d.Name)
	}
	return strings.Join(names, " ")
}

// dump lists the limits in force as /rlconfig does.
func (o *observed) dump() string { return language.Dump(o.tree.Load()) }

func (o *observed) loads() int { return len(o.outcomes()) }

// refused waits for a refused load, not among the first so many loads, and
// counts its problems.
func (o *observed) refused(after int) int {
	o.t.Helper()
	var problems language.Problems
	testenv.Eventually(o.t, soon, func() bool {
		outcomes := o.outcomes()
		return slices.ContainsFunc(outcomes[min(after, len(outcomes)):], func(err error) bool { return errors.As(err, &problems) })
	}, "rules are refused")
	return len(problems)
}

// rules is a resource with one limit per minute for each user.
func rules(name, domain string, perMinute uint32) *ratelimit.RateLimitConfig {
	return &ratelimit.RateLimitConfig{Name: name, Domain: domain, Descriptors: []*ratelimit.RateLimitDescriptor{{
		Key:       "user",
		RateLimit: &ratelimit.RateLimitPolicy{Unit: ratelimit.RateLimitUnit_MINUTE, RequestsPerUnit: perMinute},
	}}}
}

// wrong is a resource with a limit that has no unit.
func wrong(name, domain string) *ratelimit.RateLimitConfig {
	c := rules(name, domain, 1)
	c.Descriptors[0].RateLimit.Unit = ratelimit.RateLimitUnit_UNKNOWN
	return c
}
