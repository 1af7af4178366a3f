// Package service is Envoy's RateLimitService (v3): it finds the limits of a
// request's descriptors, asks the store to decide them in one batch, and says
// the outcome in statuses, headers, a body and metadata.
//
// It is where shadow mode and quota mode apply, and the only package besides
// the servers that knows protobuf. It leaves matching to pkg/descriptors,
// arithmetic to pkg/algorithms, and time and atomicity to a backends.Store.
package service

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

// Config is what a Service needs to know.
type Config struct {
	Store backends.Store
	// KeyPrefix begins every key in the store.
	KeyPrefix string
	// RatelimitKeys gives the limits that envoyproxy/ratelimit has, too, its
	// keys, so that both programs count in the same cells. Others keep theirs.
	RatelimitKeys bool
	Caps          Caps
	// ShadowMode answers OK whatever was decided; statuses keep the decision.
	ShadowMode bool
	// QuotaMode treats every descriptor as one in quota_mode.
	QuotaMode bool
	Reply     Reply
	Observers []Observer
}

// Caps bounds one request. A request beyond them is an InvalidArgument.
// 0 does not bound.
type Caps struct {
	Descriptors int // per request
	Entries     int // per descriptor
	EntryBytes  int // key and value of one entry
}

// Service implements the RateLimitService. It is safe for concurrent use.
type Service struct {
	pb.UnimplementedRateLimitServiceServer

	cfg   Config
	epoch time.Time // time.Since it reads one clock, where time.Now reads two
	tree  atomic.Pointer[descriptors.Tree]
}

// New returns a service that has no rules yet: it answers Unavailable until
// the first SetTree.
func New(cfg Config) (*Service, error) {
	if cfg.Store == nil {
		return nil, errors.New("service: Config.Store is missing")
	}
	if err := cfg.Reply.check(); err != nil {
		return nil, err
	}
	return &Service{cfg: cfg, epoch: time.Now()}, nil
}

// SetTree puts rules in force. Counters are kept: they belong to names, not to
// rules.
func (s *Service) SetTree(t *descriptors.Tree) {
	for _, o := range s.cfg.Observers {
		o.Rules(t)
	}
	s.tree.Store(t)
}

// Tree is the rules in force, nil before the first SetTree.
func (s *Service) Tree() *descriptors.Tree { return s.tree.Load() }

// ShouldRateLimit decides one request. Its errors are InvalidArgument for a
// request that makes no sense, and Unavailable when there are no rules or the
// store cannot decide in time; a store's failure is never an OVER_LIMIT.
func (s *Service) ShouldRateLimit(ctx context.Context, req *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	d := decisions.Get().(*decision)
	defer d.release()
	d.service = s
	observed := len(s.cfg.Observers) > 0
	if observed {
		d.start = time.Since(s.epoch)
	}
	d.request.decode(req)
	err := d.decide(ctx)
	var resp *pb.RateLimitResponse
	if err == nil {
		resp = d.encode()
	}
	if observed {
		d.tell(err)
	}
	if err == nil {
		err = d.wait(ctx)
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// wait holds a request that passes until its turn in a leaky bucket's queue. It
// returns early, with an error, when ctx ends.
func (d *decision) wait(ctx context.Context) error {
	if d.delay <= 0 || d.over {
		return nil
	}
	turn := time.NewTimer(d.delay)
	defer turn.Stop()
	select {
	case <-turn.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// patience is how long, in µs, a caller can wait for its turn: until a margin
// before its deadline.
func patience(ctx context.Context) int64 {
	deadline, ok := ctx.Deadline()
	if !ok {
		return math.MaxInt64
	}
	left := time.Until(deadline)
	return max(0, (left - backends.Margin(left)).Microseconds())
}
