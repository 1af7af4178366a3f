// Package rlqs is Envoy's RateLimitQuotaService (v3) on top of package service. Envoy decides
// requests by itself, within assignments, and reports them on a stream; [service.Service.Report]
// charges them and says what each bucket's share of the limits is. This package has the streams,
// and makes assignments of shares that do what is meant in Envoy 1.40.
package rlqs

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// Options are those of a [Server].
type Options struct {
	Service *service.Service
	// Now is the clock of the service's store, in µs since the epoch.
	Now func() int64
	// TTL is how long an assignment holds; Envoy cuts it to whole seconds. At least 1s.
	TTL time.Duration
}

// Server serves the streams.
type Server struct {
	pb.UnimplementedRateLimitQuotaServiceServer
	Options

	streams, buckets atomic.Int64

	mu    sync.Mutex
	open  map[*stream]struct{}
	rules map[string]*assigned // by path
	// ended has the buckets of streams that ended less than two intervals ago, by id.
	ended map[string]*bucket
}

// assigned is what the streams' buckets of one rule are assigned.
type assigned struct {
	rule    string
	buckets int          // guarded by Server.mu
	hits    atomic.Int64 // per interval
}

// New returns a server without streams.
func New(o Options) *Server {
	return &Server{Options: o, open: map[*stream]struct{}{}, rules: map[string]*assigned{}, ended: map[string]*bucket{}}
}

// Register registers the service.
func (s *Server) Register(to grpc.ServiceRegistrar) { pb.RegisterRateLimitQuotaServiceServer(to, s) }

// Counts returns the numbers of streams and of buckets, and the hits per second that the
// buckets of each rule, by its path, are assigned together.
func (s *Server) Counts() (streams, buckets int64, assigned map[string]float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	assigned = make(map[string]float64, len(s.rules))
	for _, a := range s.rules {
		assigned[a.rule] = float64(a.hits.Load()) / service.QuotaInterval.Seconds()
	}
	return s.streams.Load(), s.buckets.Load(), assigned
}

// count counts b among the buckets of rule, nil for none, instead of those of the rule before.
func (s *Server) count(b *bucket, rule *descriptors.Rule) {
	if rule != nil && len(rule.Limits) == 0 {
		rule = nil
	}
	if a := b.of; a == nil && rule == nil || a != nil && rule != nil && a.rule == rule.Path {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := b.of; a != nil {
		a.hits.Add(-b.counted)
		if a.buckets--; a.buckets == 0 {
			delete(s.rules, a.rule)
		}
	}
	if b.of, b.counted = nil, 0; rule == nil {
		return
	}
	if b.of = s.rules[rule.Path]; b.of == nil {
		b.of = &assigned{rule: rule.Path}
		s.rules[rule.Path] = b.of
	}
	b.of.buckets++
}

// StreamRateLimitQuotas answers the reports of one Envoy with assignments. Its error is
// InvalidArgument after a report that is wrong.
func (s *Server) StreamRateLimitQuotas(to pb.RateLimitQuotaService_StreamRateLimitQuotasServer) error {
	s.streams.Add(1)
	defer s.streams.Add(-1)
	st := &stream{server: s, to: to, buckets: map[string]*bucket{}}
	st.timer = time.AfterFunc(time.Hour, st.fire)
	s.mu.Lock()
	s.open[st] = struct{}{}
	s.mu.Unlock()
	done := make(chan error, 1)
	go func() { done <- st.receive() }()
	var err error
	select {
	case err = <-done:
	case <-to.Context().Done(): // the client has left, or the process ends
	}
	buckets := st.end()
	s.mu.Lock()
	delete(s.open, st)
	s.mu.Unlock()
	if ctx := to.Context(); ctx.Err() != nil && !errors.Is(context.Cause(ctx), ctx.Err()) { // the process ends
		var quotas []*service.Quota
		for _, b := range buckets {
			quotas = append(quotas, &b.Quota)
		}
		s.release(quotas)
	} else if len(buckets) > 0 {
		s.keep(buckets)
	}
	return err
}

// keep keeps the buckets of a stream that ended: who reports them anew has their shares.
func (s *Server) keep(buckets map[string]*bucket) {
	s.mu.Lock()
	for id, b := range buckets {
		s.ended[id] = b
	}
	s.mu.Unlock()
	time.AfterFunc(2*service.QuotaInterval-time.Second, func() {
		var quotas []*service.Quota
		s.mu.Lock()
		for id, b := range buckets {
			if s.ended[id] == b {
				delete(s.ended, id)
				quotas = append(quotas, &b.Quota)
			}
		}
		s.mu.Unlock()
		s.release(quotas)
	})
}

// release gives back the shares of quotas.
func (s *Server) release(quotas []*service.Quota) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.Service.Release(ctx, s.TTL, quotas)
}

// take returns the bucket of a stream that ended before a time in µs, or nil.
func (s *Server) take(id string, before int64) *bucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.ended[id]
	if b == nil || b.ended > before {
		return nil
	}
	delete(s.ended, id)
	return b
}
