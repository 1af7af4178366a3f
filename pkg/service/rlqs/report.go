package rlqs

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// NewQuota returns the quota of a descriptor. Its error is InvalidArgument if the descriptor has
// no entries, an entry without a key, or more than Caps allows.
func (s *Server) NewQuota(domain string, entries []descriptors.Entry) (Quota, error) {
	if len(entries) == 0 {
		return Quota{}, service.Wrong("bucket_id.bucket must not be empty; set at least one key and value")
	}
	if slices.ContainsFunc(entries, func(e descriptors.Entry) bool { return e.Key == "" }) {
		return Quota{}, service.Wrong("bucket_id.bucket has an empty key; every entry needs a key")
	}
	if err := s.Service.Config().Caps.Check(entries); err != nil {
		return Quota{}, service.Wrong("bucket_id.bucket: %v", err)
	}
	return Quota{Domain: domain, Entries: entries}, nil
}

// quotaScratches holds memory for reuse.
var quotaScratches = sync.Pool{New: func() any { return new(quotaScratch) }}

// quotaScratch has the memory of a Report.
type quotaScratch struct {
	first, second backends.Batch
	seen          service.Observation
}

func (q *quotaScratch) release() {
	for _, b := range []*backends.Batch{&q.first, &q.second} {
		clear(b.Ops)
		clear(b.Replies)
		*b = backends.Batch{Ops: b.Ops[:0], Replies: b.Replies[:0]}
	}
	clear(q.seen.Verdicts)
	q.seen = service.Observation{Verdicts: q.seen.Verdicts[:0]}
	quotaScratches.Put(q)
}

// maxUsages bounds the usages of one batch for the store.
const maxUsages = 32

// Report charges what callers have let pass, whatever remains, and assigns new shares: the
// usages' Share. A caller that does not report within Options.TTL has given its share back. Where a
// window is shorter than Usage.Elapsed, the window's part of the hits is charged.
//
// Its error is Unavailable without rules. A store that fails is no error: then the policies of
// the limits decide.
func (s *Server) Report(ctx context.Context, usages []Usage) error {
	tree := s.Service.Tree()
	if tree == nil {
		return service.ErrNoRules
	}
	for some := range slices.Chunk(usages, maxUsages) {
		s.report(ctx, tree, some)
	}
	return nil
}

func (s *Server) report(ctx context.Context, tree *descriptors.Tree, usages []Usage) {
	scratch := quotaScratches.Get().(*quotaScratch)
	defer scratch.release()
	cfg, window := s.Service.Config(), s.TTL.Microseconds()
	b, again, now, start := &scratch.first, &scratch.second, cfg.Store.Now(), time.Now()
	granted := s.Service.Grants()
	for i := range usages {
		u := &usages[i]
		if u.tree != tree || u.granted != granted {
			u.granted = granted
			s.find(u.Quota, tree)
		}
		u.plan(cfg, b, now, window)
	}
	s.applyQuotas(ctx, b)
	for i := range usages {
		u := &usages[i]
		u.assign(cfg, b)
		if u.lent = -1; u.holds > 0 && b.Replies[u.holds].Err != nil {
			u.demand, u.held = u.had[0], u.had[1]
		} else if u.holds > 0 && u.Share.Kind != Unchanged && u.weight|u.demand.hits > 0 {
			u.lend(again, now, window)
		}
		if len(cfg.Observers) > 0 && u.Allowed > 0 && len(u.limits) > 0 {
			s.observe(u, b, &scratch.seen, service.Observation{At: now, Took: time.Since(start)})
		}
	}
	s.applyQuotas(ctx, again)
	for i := range usages {
		if u := &usages[i]; u.lent >= 0 {
			u.settle(&again.Replies[u.lent])
		}
	}
}

func (s *Server) applyQuotas(ctx context.Context, b *backends.Batch) {
	if len(b.Ops) > 0 {
		b.Replies = append(b.Replies, make([]backends.Reply, len(b.Ops))...)
		_ = s.Service.Config().Store.Apply(ctx, b) // its error is in the replies
	}
}

// release gives back the shares of quotas, whose callers report no more.
func (s *Server) release(quotas []*Quota) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	now, window := s.Now(), s.TTL.Microseconds()
	for some := range slices.Chunk(quotas, maxUsages) {
		var b backends.Batch
		for _, q := range some {
			if q.demand.hits > 0 {
				q.replace(&b, demandList, &q.demand, listed{}, now, window)
				q.replace(&b, heldList, &q.held, listed{}, now, window)
			}
		}
		s.applyQuotas(ctx, &b)
	}
}

// find finds the limits of q in tree.
func (s *Server) find(q *Quota, tree *descriptors.Tree) {
	before, stem, known := q.limits[:q.enforced], q.stem, q.known
	q.tree, q.Rule, q.limits, q.enforced, q.longest, q.stem, q.known = tree, nil, nil, 0, 0, "", false
	defer func() {
		if q.stem == stem && slices.EqualFunc(before, q.limits[:q.enforced], alike) {
			q.known = known
		} else {
			q.changed = true
		}
	}()
	p := s.Service.Plan(tree.Domain(q.Domain))
	if p.Domain == nil {
		return
	}
	_ = p.Match(context.Background(), &service.Request{Descriptors: []service.Descriptor{{Entries: q.Entries}}}, false) // only overrides are wrong
	t := &p.Targets[0]
	if q.Rule = t.Rule; q.Rule == nil {
		return
	}
	for i := range p.Verdicts {
		if q.limits = append(q.limits, p.Verdicts[i].Limit); !p.Verdicts[i].Watched {
			q.enforced++
		}
	}
	if len(q.limits) == 0 {
		return
	}
	for i, l := range q.limits[:q.enforced] {
		if l.Window > q.limits[q.longest].Window {
			q.longest = i
		}
	}
	q.id = p.Identity(nil, t)
	q.stem = q.id.Prefix + string(q.id.ID) + "|rlqs="
}

// alike reports whether two limits let the same hits pass.
func alike(a, b *descriptors.Limit) bool {
	return a.Strategy == b.Strategy && a.Requests == b.Requests && a.Window == b.Window && a.Capacity() == b.Capacity()
}

// plan adds the operations of u: for each limit the charge of the hits; the same charge to a cell
// beside the limit with the longest window, which has only what is reported; and those of the lists.
func (u *Usage) plan(cfg *service.Config, b *backends.Batch, now, window int64) {
	u.charges = len(b.Ops)
	for _, l := range u.limits {
		var op backends.Op
		l.Plan(&op, service.OfLimit(u.id, l), algorithms.Charge{Now: now, Cost: u.cost(l), Beyond: true})
		op.IfUndecided = cfg.IfUndecided(l, false)
		b.Ops = append(b.Ops, op)
	}
	if u.Refused || u.free(cfg) {
		return
	}
	own := b.Ops[u.charges+u.longest]
	own.Key += "|rlqs"
	own.Stem, own.Hold = 0, nil
	b.Ops = append(b.Ops, own)
	u.had = [2]listed{u.demand, u.held}
	asks, held := u.demand, u.held
	if !u.Unasked {
		u.weigh()
		asks = listed{now, demand{u.weight, 1}.cost()}
	} else if now-u.demand.at > window { // the caller has not reported for a whole ttl
		u.weight = 0
	}
	if left := u.left(); left != held.hits || now-held.at > window/15 {
		held = listed{now, left}
	}
	u.demands = u.replace(b, demandList, &u.demand, asks, now, window)
	u.holds = u.replace(b, heldList, &u.held, held, now, window)
}

// cost is what u charges to l.
func (u *Usage) cost(l *descriptors.Limit) uint64 {
	hits := min(u.Allowed, uint64(backends.MaxCost))
	if u.Elapsed > l.Window {
		hits = uint64(math.Ceil(float64(hits) * (float64(l.Window) / float64(u.Elapsed))))
	}
	return hits
}

// observe tells the observers of the hits that u reports, as a request of this time and duration.
// seen lends memory.
func (s *Server) observe(u *Usage, b *backends.Batch, seen *service.Observation, of service.Observation) {
	cfg := s.Service.Config()
	clear(seen.Verdicts)
	of.Request = &service.Request{Domain: u.Domain, Descriptors: []service.Descriptor{{Entries: u.Entries}}}
	of.Domain, of.Descriptors, of.ShadowMode, of.Verdicts = u.Domain, 1, cfg.ShadowMode, seen.Verdicts[:0]
	*seen = of
	for i, l := range u.limits {
		op, r := &b.Ops[u.charges+i], &b.Replies[u.charges+i]
		v := service.Verdict{Rule: u.Rule, Limit: l, Key: op.Key, Entries: u.Entries, Hits: u.cost(l), Watched: i >= u.enforced}
		if v.Shadow = v.Watched || u.Rule.Shadow; r.Err == nil {
			v.Take(op, r)
		}
		seen.Verdicts = append(seen.Verdicts, v)
	}
	for _, o := range cfg.Observers {
		o.Observe(seen)
	}
}
