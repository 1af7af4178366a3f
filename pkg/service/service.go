// Package service decides requests: it finds the limits of a request's descriptors,
// lets the store decide them in one batch, and makes an outcome of the replies.
//
// Shadow mode, quota mode and failure policies apply here and nowhere else. The
// package knows no protocol: package envoy, below it, reads and writes the messages of
// Envoy's RateLimitService. It leaves matching to pkg/descriptors, arithmetic to
// pkg/algorithms, and time and atomicity to a backends.Store.
package service

import (
	"context"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

// Config configures a Service.
type Config struct {
	Store backends.Store // not nil
	// Local: Store decides operations on this process's copies of their cells where it
	// cannot ask for them (package near). Without it the policy local is the policy
	// error.
	Local bool
	// KeyPrefix begins every key in the store.
	KeyPrefix string
	// RatelimitKeys gives a limit the key of envoyproxy/ratelimit if that program can
	// have the limit, too, so that both count in the same cell.
	RatelimitKeys bool
	// Values puts hashes in place of the values of descriptors in keys; nil keeps the values. It excludes
	// RatelimitKeys, because keys of envoyproxy/ratelimit cannot have hashed values.
	Values *ValueHash
	Caps   Caps
	// ShadowMode answers every request OK. The statuses still show the decisions.
	ShadowMode bool
	// MaxHold, above 0, lets requests have a Call: it is the longest time for which hits are
	// held. All keys of a descriptor share a Redis Cluster slot then. It excludes RatelimitKeys.
	MaxHold time.Duration
	// QuotaMode treats every descriptor as if its rule were in quota_mode.
	QuotaMode bool
	Observers []Observer
}

// Service is the Decider of the rules. It is safe for concurrent use.
type Service struct {
	planner
	epoch time.Time // time.Since(epoch) reads one clock, time.Now reads two
	tree  atomic.Pointer[descriptors.Tree]
}

// New returns a service without rules: it decides nothing before the first SetTree.
func New(cfg Config) *Service { return &Service{planner: planner{cfg: cfg}, epoch: time.Now()} }

// Config is the configuration of the service, which nobody changes.
func (s *Service) Config() *Config { return &s.cfg }

// Plan is a plan without descriptors for a domain of the rules in force, which may be nil.
func (s *Service) Plan(domain *descriptors.Domain) *Plan {
	return &Plan{planner: &s.planner, Domain: domain}
}

// SetTree puts rules into force. Cells stay if domain, entries, strategy and window stay; a
// bucket's amounts must stay, too.
func (s *Service) SetTree(t *descriptors.Tree) { s.tree.Store(t) }

// Tree is the rules in force, nil before the first SetTree.
func (s *Service) Tree() *descriptors.Tree { return s.tree.Load() }

// SetGrants puts grants to callers into force, nil for none.
func (s *Service) SetGrants(m *descriptors.Grants) { s.grants.Store(m) }

// Grants are the grants in force, nil if there are none.
func (s *Service) Grants() *descriptors.Grants { return s.grants.Load() }

// Decider decides requests. [Service] is one, and so is a decorator of it. It is
// called by many goroutines at once and must not keep the request.
type Decider interface {
	// Decide decides one request. The caller may release the outcome.
	Decide(context.Context, *Request) (*Outcome, error)
}

// Decide decides one request. A request that is allowed but has to queue, or reaches a
// threshold with a delay, is held for Outcome.Delay.
//
// Its errors are the context's if ctx ends first, and an [Error]: InvalidArgument for a
// request that is wrong, Unavailable if no rules are loaded or if a limit that could
// deny the request was decided neither by the store nor by its policy. A failure of
// the store is a denial only where the policy of a limit denies.
func (s *Service) Decide(ctx context.Context, r *Request) (*Outcome, error) {
	o, err := s.Evaluate(ctx, r)
	if err != nil || o.Delay == 0 {
		return o, err
	}
	turn := time.NewTimer(o.Delay)
	defer turn.Stop()
	select {
	case <-turn.C:
		return o, nil
	case <-ctx.Done():
		o.Release()
		return nil, ctx.Err()
	}
}

// Evaluate decides like [Service.Decide] and returns the same errors, but does not
// wait for Outcome.Delay.
func (s *Service) Evaluate(ctx context.Context, r *Request) (*Outcome, error) {
	o := outcomes.Get().(*Outcome)
	o.plan.planner, o.Headline = &s.planner, -1
	observed := len(s.cfg.Observers) > 0
	var start time.Duration
	if observed {
		start = time.Since(s.epoch)
	}
	err := s.decide(ctx, r, o)
	if observed {
		s.tell(r, o, err, start)
	}
	if err != nil {
		o.Release()
		return nil, err
	}
	return o, nil
}

// decide fills in o. Its errors are those of [Service.Decide].
func (s *Service) decide(ctx context.Context, r *Request, o *Outcome) error {
	if err := r.Validate(); err != nil {
		return err
	}
	tree := s.tree.Load()
	if tree == nil {
		return ErrNoRules
	}
	o.Statuses = resized(o.Statuses, len(r.Descriptors))
	p := &o.plan
	if p.Domain = tree.Domain(r.Domain); p.Domain == nil { // then overrides do not count, as in envoyproxy/ratelimit
		o.seen.Unknown = true
		return nil
	}
	if r.Beyond != "" {
		return o.exceed(r)
	}
	if err := p.Match(ctx, r, false); err != nil {
		return err
	}
	if p.call = r.Call; p.call != nil && p.call.Kind == Reserve {
		if err := p.checkHolds(); err != nil {
			return err
		}
	}
	if len(p.Verdicts) > 0 {
		p.fill(ctx)
		if p.call != nil {
			p.ask(ctx)
		} else {
			p.apply(ctx)
		}
		if p.borrows {
			p.borrow(ctx)
		}
	}
	o.judge(ctx)
	if o.gone {
		return ctx.Err()
	}
	err := o.conclude()
	if p.call != nil {
		err = p.call.conclude(o, err)
	}
	if p.warns && err == nil && !o.Over {
		o.reach(ctx)
	}
	return err
}

// tell tells the observers how the request ended. err is the error of decide.
func (s *Service) tell(r *Request, o *Outcome, err error, start time.Duration) {
	seen := &o.seen
	seen.Domain, seen.Descriptors, seen.Request = r.Domain, len(r.Descriptors)+len(r.Charges), r
	seen.Result, seen.Err, seen.Partial = o.result(err), err, err == nil && o.partial
	seen.ShadowMode, seen.Verdicts, seen.At = s.cfg.ShadowMode, o.charges(), o.At
	seen.Took = time.Since(s.epoch) - start
	for _, observer := range s.cfg.Observers {
		observer.Observe(seen)
	}
}
