// Package rlqs is Envoy's RateLimitQuotaService (v3) on top of package service. Envoy decides
// requests by itself, within assignments, and reports them on a stream; [Server.Report]
// charges them and says what each bucket's share of the limits is. This package has the streams,
// and makes assignments of shares that do what is meant in Envoy 1.40.
package rlqs

import (
	"context"
	"errors"
	"maps"
	"slices"
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
	// MaxBytes bounds the buckets that a stream keeps, in bytes of a report that has them all; 0 is
	// no bound.
	MaxBytes int
}

// Server serves the streams.
type Server struct {
	pb.UnimplementedRateLimitQuotaServiceServer
	Options

	kept    atomic.Int64  // weights of the buckets in memory
	refused atomic.Uint64 // reports of buckets that no answer can name

	mu   sync.Mutex
	open map[*stream]struct{}
	// ended has the buckets of streams that ended less than two intervals ago, by id.
	ended map[string][]*bucket
}

// New returns a server without streams.
func New(o Options) *Server {
	return &Server{Options: o, open: map[*stream]struct{}{}, ended: map[string][]*bucket{}}
}

// Register registers the service.
func (s *Server) Register(to grpc.ServiceRegistrar) { pb.RegisterRateLimitQuotaServiceServer(to, s) }

// Counts returns the numbers of streams and of buckets, and the hits per second that the
// buckets of each rule, by its path, are assigned together.
func (s *Server) Counts() (streams, buckets int, assigned map[string]float64) {
	assigned = map[string]float64{}
	s.each(func(st *stream) {
		streams++
		buckets += len(st.buckets)
		for _, b := range st.buckets {
			if b.rule != nil {
				assigned[b.rule.Path] += b.perSecond
			}
		}
	})
	return streams, buckets, assigned
}

// Assigned returns the buckets of a descriptor, and the hits per second that they are assigned
// together.
func (s *Server) Assigned(domain string, entries []descriptors.Entry) (buckets int64, perSecond float64) {
	id := descriptors.AppendID(nil, domain, sorted(slices.Clone(entries)), nil)
	s.each(func(st *stream) {
		if b := st.buckets[string(id)]; b != nil {
			buckets++
			perSecond += b.perSecond
		}
	})
	return buckets, perSecond
}

// Refused returns how often buckets were reported that no answer can name.
func (s *Server) Refused() uint64 { return s.refused.Load() }

// weight is what b counts of maxKept: 1, and 1 more for each KiB.
func (b *bucket) weight() int64 { return 1 + int64(b.size>>10) }

// hasRoom takes room for a bucket, if there is some.
func (s *Server) hasRoom(b *bucket) bool {
	has := s.kept.Add(b.weight()) <= maxKept
	if !has {
		s.kept.Add(-b.weight())
	}
	return has
}

// each calls look with each open stream, whose buckets do not change meanwhile.
func (s *Server) each(look func(*stream)) {
	s.mu.Lock()
	open := slices.Collect(maps.Keys(s.open))
	s.mu.Unlock()
	for _, st := range open {
		st.mu.Lock()
		look(st)
		st.mu.Unlock()
	}
}

// StreamRateLimitQuotas answers the reports of one Envoy with assignments. Its error is
// InvalidArgument after a report that is wrong.
func (s *Server) StreamRateLimitQuotas(to pb.RateLimitQuotaService_StreamRateLimitQuotasServer) error {
	ctx, cancel := context.WithCancel(to.Context())
	defer cancel()
	st := &stream{server: s, to: to, buckets: map[string]*bucket{}, timer: time.NewTimer(time.Hour)}
	s.mu.Lock()
	s.open[st] = struct{}{}
	s.mu.Unlock()
	defer s.end(st)
	defer st.timer.Stop()
	return st.serve(ctx)
}

// end keeps the buckets of a stream that ended: who reports one anew has its share. If nobody
// does, or the process ends, it gives them back.
func (s *Server) end(st *stream) {
	now := s.Now()
	s.mu.Lock()
	delete(s.open, st)
	for id, b := range st.buckets {
		b.ended = now
		s.ended[id] = append(s.ended[id], b)
	}
	s.mu.Unlock()
	giveBack := func() {
		var quotas []*Quota
		s.mu.Lock()
		for id, b := range st.buckets {
			if i := slices.Index(s.ended[id], b); i >= 0 {
				s.forget(id, i)
				s.kept.Add(-b.weight())
				quotas = append(quotas, &b.Quota)
			}
		}
		s.mu.Unlock()
		s.release(quotas)
	}
	if ctx := st.to.Context(); ctx.Err() != nil && !errors.Is(context.Cause(ctx), ctx.Err()) { // the process ends
		giveBack()
	} else if len(st.buckets) > 0 {
		time.AfterFunc(2*QuotaInterval-time.Second, giveBack)
	}
}

// forget removes a bucket of that id from ended. s.mu is held.
func (s *Server) forget(id string, i int) {
	if s.ended[id] = slices.Delete(s.ended[id], i, i+1); len(s.ended[id]) == 0 {
		delete(s.ended, id)
	}
}

// take returns the bucket of a stream that ended before a time in µs, or nil.
func (s *Server) take(id string, before int64) *bucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, b := range s.ended[id] {
		if b.ended <= before {
			s.forget(id, i)
			return b
		}
	}
	return nil
}
