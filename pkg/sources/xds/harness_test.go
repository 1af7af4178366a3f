package xds_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
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
	t       *testing.T
	mu      sync.Mutex
	tree    *descriptors.Tree
	domains string
	errs    []error // outcome of each load
}

// run runs a source until the test ends.
func run(t *testing.T, s *xds.Source) *observed {
	t.Helper()
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.NodeID == "" {
		s.NodeID = node
	}
	s.Connected = func(bool) {}
	if s.Backoff.Max == 0 {
		s.Backoff = quickly
	}
	o := &observed{t: t, domains: "none yet"}
	rules := &sources.Rules{
		Use: func(tree *descriptors.Tree) {
			var names []string
			for _, d := range tree.Domains() {
				names = append(names, d.Name)
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			o.tree, o.domains = tree, strings.Join(names, " ")
		},
		Loaded: func(err error) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.errs = append(o.errs, err)
		},
		Log: s.Log,
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx, rules.Publish) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return o
}

// become waits until exactly these domains are in force.
func (o *observed) become(domains string) {
	o.t.Helper()
	testenv.Eventually(o.t, soon, func() bool { return o.now() == domains }, "in force: "+domains)
}

func (o *observed) now() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.domains
}

// dump lists the limits in force as /rlconfig does.
func (o *observed) dump() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return language.Dump(o.tree)
}

func (o *observed) loads() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.errs)
}

// refused waits for a refused load, not among the first so many loads, and
// counts its problems.
func (o *observed) refused(after int) int {
	o.t.Helper()
	var problems language.Problems
	testenv.Eventually(o.t, soon, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, err := range o.errs[min(after, len(o.errs)):] {
			if errors.As(err, &problems) {
				return true
			}
		}
		return false
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
