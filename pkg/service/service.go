// Package service is Envoy's RateLimitService (v3): it finds the limits of the
// descriptors of a request, lets the store decide them in one batch, and writes
// the outcome into statuses, headers, a body and metadata.
//
// Shadow mode, quota mode and failure policies apply here and nowhere else.
// Messages are read from the wire in decode.go and written in encode.go; everything
// between works on plain types. [Server] is the way in for gRPC.
// The package leaves matching to pkg/descriptors, arithmetic to pkg/algorithms,
// and time and atomicity to a backends.Store.
package service

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/status"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

// Config configures a Service.
type Config struct {
	Store backends.Store
	// Local decides limits with the policy local while Store cannot. Without it
	// they have the policy error.
	Local Local
	// KeyPrefix begins every key in the store.
	KeyPrefix string
	// RatelimitKeys gives the keys of envoyproxy/ratelimit to limits that it can
	// have, too, so that both programs count in the same cells. Other limits
	// keep their keys.
	RatelimitKeys bool
	// KeySecret, if it is not empty, puts an HMAC with this secret in place of
	// each value of a descriptor in keys. It excludes RatelimitKeys.
	KeySecret []byte
	// StoredKey is the name under which Store keeps a key, such as
	// redis.StoredKey; nil says that it keeps every key as it is. Only
	// [Service.Inspect] calls it, to show the name.
	StoredKey func(key string) string
	Caps      Caps
	// ShadowMode answers every request OK. The statuses still show the decisions.
	ShadowMode bool
	// QuotaMode treats every descriptor as if its rule were in quota_mode.
	QuotaMode bool
	Reply     Reply
	Observers []Observer
}

// Caps bounds one request; 0 is no bound. A request beyond them gets the error
// InvalidArgument.
type Caps struct {
	Descriptors int // per request
	Entries     int // per descriptor
	EntryBytes  int // key and value of one entry
}

// Service is the Decider of the rules. It is safe for concurrent use.
type Service struct {
	cfg    Config
	values *valueHash // nil: keys have values in clear text
	epoch  time.Time  // time.Since(epoch) reads one clock, time.Now reads two
	tree   atomic.Pointer[descriptors.Tree]
}

// New returns a service without rules: it answers Unavailable until the first
// SetTree. Its error says which part of cfg is wrong.
func New(cfg Config) (*Service, error) {
	if cfg.Store == nil {
		return nil, errors.New("service: Config.Store is missing")
	}
	if err := cfg.Reply.check(); err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, epoch: time.Now()}
	if len(cfg.KeySecret) > 0 {
		if cfg.RatelimitKeys {
			return nil, errors.New("service: Config has both KeySecret and RatelimitKeys; keys of envoyproxy/ratelimit cannot have hashed values")
		}
		s.values = newValueHash(cfg.KeySecret)
	}
	return s, nil
}

// SetTree puts rules into force and tells the observers first. Counters stay:
// their keys depend on domain, entries, strategy and window only.
func (s *Service) SetTree(t *descriptors.Tree) {
	for _, o := range s.cfg.Observers {
		o.Rules(t)
	}
	s.tree.Store(t)
}

// Tree is the rules in force, nil before the first SetTree.
func (s *Service) Tree() *descriptors.Tree { return s.tree.Load() }

// Decide decides one request. A request that is allowed but has to queue is held
// until its turn.
//
// Its errors are InvalidArgument for a request that is wrong, Unavailable if no
// rules are loaded or if a limit that could deny the request was decided neither
// by the store nor by its policy, and the context's error if ctx ends first. A
// failure of the store is an OVER_LIMIT only where the policy of a limit denies.
func (s *Service) Decide(ctx context.Context, r *Request) (Answer, error) {
	d := s.begin(r)
	defer d.release()
	err := d.decide(ctx)
	var answer Answer
	if err == nil {
		answer = Answer{Over: d.over, Message: d.encode()}
	}
	if d.observed() {
		d.tell(err)
	}
	if err == nil {
		err = d.wait(ctx)
	}
	if err != nil {
		return Answer{}, err
	}
	return answer, nil
}

// begin returns a decision of r, which the caller releases.
func (s *Service) begin(r *Request) *decision {
	d := decisions.Get().(*decision)
	d.service, d.request = s, r
	if d.observed() {
		d.start = time.Since(s.epoch)
	}
	return d
}

// observed reports whether there is an observer to tell.
func (d *decision) observed() bool { return len(d.service.cfg.Observers) > 0 }

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

// patience is how long a caller can wait for its turn, in µs: until a margin
// before its deadline, which leaves time for the answer to travel.
func patience(ctx context.Context) int64 {
	deadline, ok := ctx.Deadline()
	if !ok {
		return math.MaxInt64
	}
	left := time.Until(deadline)
	return max(0, (left - backends.Margin(left)).Microseconds())
}
