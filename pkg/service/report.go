package service

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

// NewQuota returns the quota of a descriptor. Its error is InvalidArgument if the descriptor has
// no entries, an entry without a key, or more than Caps allows.
func (s *Service) NewQuota(domain string, entries []descriptors.Entry) (Quota, error) {
	if len(entries) == 0 {
		return Quota{}, invalid("bucket_id.bucket must not be empty; set at least one key and value")
	}
	if slices.ContainsFunc(entries, func(e descriptors.Entry) bool { return e.Key == "" }) {
		return Quota{}, invalid("bucket_id.bucket has an empty key; every entry needs a key")
	}
	if err := s.cfg.Caps.entries(entries); err != nil {
		return Quota{}, invalid("bucket_id.bucket: %v", err)
	}
	return Quota{Domain: domain, Entries: entries}, nil
}

// quotaScratches holds memory for reuse.
var quotaScratches = sync.Pool{New: func() any { return new(quotaScratch) }}

// quotaScratch has the memory of a Report.
type quotaScratch struct {
	first, second backends.Batch
	seen          Observation
}

func (q *quotaScratch) release() {
	for _, b := range []*backends.Batch{&q.first, &q.second} {
		*b = backends.Batch{Ops: emptied(b.Ops), Replies: emptied(b.Replies)}
	}
	q.seen = Observation{Verdicts: emptied(q.seen.Verdicts)}
	quotaScratches.Put(q)
}

// maxUsages bounds the usages of one batch for the store.
const maxUsages = 32

// Report charges what callers have let pass, whatever remains, and assigns new shares: the
// usages' Share. A caller that does not report within ttl has given its share back. Where a
// window is shorter than Usage.Elapsed, the window's part of the hits is charged.
//
// Its error is Unavailable without rules. A store that fails is no error: then the policies of
// the limits decide.
func (s *Service) Report(ctx context.Context, ttl time.Duration, usages []Usage) error {
	tree := s.tree.Load()
	if tree == nil {
		return errNoRules
	}
	for some := range slices.Chunk(usages, maxUsages) {
		s.report(ctx, tree, ttl, some)
	}
	return nil
}

func (s *Service) report(ctx context.Context, tree *descriptors.Tree, ttl time.Duration, usages []Usage) {
	scratch := quotaScratches.Get().(*quotaScratch)
	defer scratch.release()
	b, again, now, start := &scratch.first, &scratch.second, s.cfg.Store.Now(), time.Now()
	window := ttl.Microseconds()
	for i := range usages {
		u := &usages[i]
		if u.tree != tree {
			s.find(u.Quota, tree)
		}
		u.plan(&s.planner, b, now, window)
	}
	s.applyQuotas(ctx, b)
	for i := range usages {
		u := &usages[i]
		u.assign(&s.planner, b)
		if u.lent = -1; u.holds > 0 && b.Replies[u.holds].Err != nil {
			u.demand, u.held = u.had[0], u.had[1]
		} else if u.holds > 0 && u.Share.Kind != Unchanged && u.weight|u.demand.hits > 0 {
			u.lend(again, now, window)
		}
		if len(s.cfg.Observers) > 0 && u.Allowed > 0 && len(u.limits) > 0 {
			s.observe(u, b, &scratch.seen, Observation{At: now, Took: time.Since(start)})
		}
	}
	s.applyQuotas(ctx, again)
	for i := range usages {
		if u := &usages[i]; u.lent >= 0 {
			u.settle(&again.Replies[u.lent])
		}
	}
}

func (s *Service) applyQuotas(ctx context.Context, b *backends.Batch) {
	if len(b.Ops) > 0 {
		b.Replies = resized(b.Replies, len(b.Ops))
		_ = s.cfg.Store.Apply(ctx, b) // its error is in the replies
	}
}

// Release gives back the shares of quotas, whose callers report no more.
func (s *Service) Release(ctx context.Context, ttl time.Duration, quotas []*Quota) {
	now := s.cfg.Store.Now()
	for some := range slices.Chunk(quotas, maxUsages) {
		var b backends.Batch
		for _, q := range some {
			if q.demand.hits > 0 {
				q.replace(&b, demandList, &q.demand, listed{}, now, ttl.Microseconds())
				q.replace(&b, heldList, &q.held, listed{}, now, ttl.Microseconds())
			}
		}
		s.applyQuotas(ctx, &b)
	}
}

// find finds the limits of q in tree.
func (s *Service) find(q *Quota, tree *descriptors.Tree) {
	before, stem, known := q.limits[:q.enforced], q.stem, q.known
	q.tree, q.Rule, q.limits, q.enforced, q.longest, q.stem, q.known = tree, nil, nil, 0, 0, "", false
	defer func() {
		if q.stem == stem && slices.EqualFunc(before, q.limits[:q.enforced], alike) {
			q.known = known
		} else {
			q.changed = true
		}
	}()
	p := plan{planner: &s.planner, domain: tree.Domain(q.Domain)}
	if p.domain == nil {
		return
	}
	_ = p.match(context.Background(), &Request{Descriptors: []Descriptor{{Entries: q.Entries}}}, false) // only overrides are wrong
	t := &p.targets[0]
	if q.Rule = t.rule; q.Rule == nil || t.first == t.last {
		return
	}
	q.limits, q.enforced = p.limits, t.end
	for i, l := range q.limits[:q.enforced] {
		if l.Window > q.limits[q.longest].Window {
			q.longest = i
		}
	}
	q.id = p.identity(nil, t)
	q.stem = q.id.Prefix + string(q.id.ID) + "|rlqs="
}

// alike reports whether two limits let the same hits pass.
func alike(a, b *descriptors.Limit) bool {
	return a.Strategy == b.Strategy && a.Requests == b.Requests && a.Window == b.Window && a.Capacity() == b.Capacity()
}

// plan adds the operations of u: for each limit the charge of the hits; the same charge to a cell
// beside the limit with the longest window, which has only what is reported; and those of the lists.
func (u *Usage) plan(p *planner, b *backends.Batch, now, window int64) {
	u.charges = len(b.Ops)
	for _, l := range u.limits {
		var op backends.Op
		l.Plan(&op, ofLimit(u.id, l), algorithms.Charge{Now: now, Cost: u.cost(l), Beyond: true})
		op.IfUndecided = ifUndecided(l, false, p.cfg.Local)
		b.Ops = append(b.Ops, op)
	}
	if u.Refused || u.free(p) {
		return
	}
	own := b.Ops[u.charges+u.longest]
	own.Key += "|rlqs"
	own.Stem, own.Hold = 0, nil
	b.Ops = append(b.Ops, own)
	u.had = [2]listed{u.demand, u.held}
	demand, held := u.demand, u.held
	if !u.Unasked {
		u.weigh()
		demand = listed{now, oneCaller + u.weight}
	} else if now-u.demand.at > window { // the caller has not reported for a whole ttl
		u.weight = 0
	}
	if left := u.left(); left != held.hits || now-held.at > window/15 {
		held = listed{now, left}
	}
	u.demands = u.replace(b, demandList, &u.demand, demand, now, window)
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
func (s *Service) observe(u *Usage, b *backends.Batch, seen *Observation, of Observation) {
	of.Request = &Request{Domain: u.Domain, Descriptors: []Descriptor{{Entries: u.Entries}}}
	of.Domain, of.Descriptors, of.ShadowMode, of.Verdicts = u.Domain, 1, s.cfg.ShadowMode, emptied(seen.Verdicts)
	*seen = of
	for i, l := range u.limits {
		op, r := &b.Ops[u.charges+i], &b.Replies[u.charges+i]
		v := Verdict{Rule: u.Rule, Limit: l, Key: op.Key, Entries: u.Entries, Hits: u.cost(l), Watched: i >= u.enforced}
		if v.Shadow = v.Watched || u.Rule.Shadow; r.Err == nil {
			v.count(op, r)
		}
		seen.Verdicts = append(seen.Verdicts, v)
	}
	for _, o := range s.cfg.Observers {
		o.Observe(seen)
	}
}
