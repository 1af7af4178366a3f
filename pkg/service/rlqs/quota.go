package rlqs

import (
	"math"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// QuotaInterval is the time between two reports of a Quota: Envoy's, whatever its settings say.
const QuotaInterval = 5 * time.Second

// reportSeconds is QuotaInterval in seconds.
const reportSeconds = float64(QuotaInterval / time.Second)

// Quota is a descriptor of a caller that decides hits by itself, within a Share of the limits
// that it is assigned, and reports them afterwards. Its caller owns it, and has it in one call of
// a method at a time.
type Quota struct {
	Domain  string
	Entries []descriptors.Entry
	// Refused: the caller takes no share. What it reports is charged.
	Refused bool
	// Rule matches the descriptor; nil if none does. Share is what [Server.Report] assigned last.
	// Both are set by Report.
	Rule  *descriptors.Rule
	Share Share

	tree     *descriptors.Tree
	granted  *descriptors.Grants  // that limits have
	limits   []*descriptors.Limit // those that are watched come last
	enforced int
	changed  bool // a reload has changed the limits since Share was assigned
	id       algorithms.Identity
	stem     string // of the keys that all callers of the descriptor share

	// The entries of this caller in the two lists that it shares with others.
	demand, held listed
	before       int64   // demand of the last interval
	weight       int64   // demand of the last intervals
	part         float64 // of all demand
	// longest is the enforced limit with the longest window. used is what ShouldRateLimit had used
	// of it at the last report, if that is known, and rivals the demand that this has come to.
	longest int
	used    int64
	own     int64 // hits of it that Quotas had reported by the last report
	known   bool
	rivals  float64
}

// listed is a cost in a list in the store: hits, at a time in µs.
type listed struct{ at, hits int64 }

// Usage is what a caller reports of its Quota.
type Usage struct {
	*Quota
	Allowed, Denied uint64        // hits since the last report
	Elapsed         time.Duration // since the last report; 0 for the first
	// Unasked: there is no report, only what remains is assigned anew. A Quota that was never
	// reported takes nothing then.
	Unasked bool
	// Returns: the caller may hold a share that Quota does not know, of a process that ended.
	Returns bool

	had     [2]listed // the elements of the lists before
	charges int       // operations begin here: one for each limit, and one for the longest's own cell
	demands int       // the reply to this one has the sum of the demand
	holds   int       // and to this one that of what is held; 0 without lists
	lent    int       // the operation that changes what is held, in the second batch; -1 without
	most    float64   // hits that all callers may hold
	each    bool      // enough remains that each caller gets a hit, even if others hold it
}

// ShareKind is what a Share allows.
type ShareKind uint8

const (
	// Unruled: no rule matches the descriptor, so nothing limits it.
	Unruled ShareKind = iota
	// Unenforced: the rule limits nothing, or is in shadow mode.
	Unenforced
	// Portion allows the Hits of the Share.
	Portion
	// Exhausted: nothing remains, or the caller is refused.
	Exhausted
	// Unchanged: the store was away, and a policy error leaves things as they were.
	Unchanged
)

// Share is the part of its limits that a Quota is assigned.
type Share struct {
	Kind ShareKind
	// Hits may pass until the next report, one QuotaInterval later. At most Burst of them are
	// left over from earlier intervals or come at once.
	Hits, Burst int64
	// Steady: Hits come again in each interval. Else Hits are what the caller has now, and Rate
	// per Window comes again.
	Steady bool
	Rate   float64
	Window time.Duration
	// Fresh: what the caller had before is void, and Hits count from now on.
	Fresh bool
	// Wait is how long nothing remains, if Exhausted; 0 is not known.
	Wait time.Duration
}

// free reports whether nothing of q's rule is enforced.
func (q *Quota) free(cfg *service.Config) bool {
	return q.enforced == 0 || q.Rule.Shadow || cfg.ShadowMode
}

// maxWeight bounds the demand of one caller, in hits per interval.
const maxWeight = 1 << 27

// weigh takes in the demand that u reports: it rises at once and falls within some intervals.
func (u *Usage) weigh() {
	hits := float64(u.Allowed) + float64(u.Denied)
	if u.Elapsed > 0 {
		hits *= reportSeconds / max(u.Elapsed.Seconds(), 1)
	}
	demand := int64(min(math.Ceil(hits), maxWeight))
	u.weight = max(demand, (demand+u.before)/2)
	u.before = demand
}

// left is how many hits of its share the caller of u still has.
func (u *Usage) left() int64 {
	switch {
	case u.Share.Kind != Portion:
		return 0
	case u.Share.Steady:
		return u.Share.Hits
	}
	return u.Share.Hits - int64(min(u.Allowed, uint64(u.Share.Hits)))
}

// Inherit prepares q for a caller that takes over at a time in µs, and reports so many allowed hits.
// It may be another caller than before: what that one may have used since its last report, beyond
// those hits, stays assigned to it.
func (q *Quota) Inherit(now int64, allowed uint64) {
	used := min(q.weight*(now-q.demand.at)/QuotaInterval.Microseconds(), q.held.hits)
	if q.Share.Kind == Portion && !q.Share.Steady && used > int64(min(allowed, maxWeight)) {
		used -= int64(allowed)
		q.held.hits -= used
		q.Share.Hits -= used
	}
}

const (
	// demandList and heldList end the keys of the lists: of the demand of each caller, and of the
	// hits that it was assigned and has not reported. A caller has one cost in each.
	demandList, heldList = "callers", "held"
	// listParts are the parts of a ttl. The costs of a part are one element of a list, so a list is
	// short however many callers there are.
	listParts = 15
)

// demand is the hits that callers ask for in an interval, and the number of the callers.
type demand struct{ hits, callers int64 }

// oneCaller is what a caller adds to the cost of a demand. It is above the hits of 64 callers that ask
// for maxWeight, so hits beyond it look like more callers and never like fewer. Up to backends.MaxValue
// there is room for 500,000 callers.
const oneCaller = 1 << 33

// cost has d in one number: the sum of the costs of a list is the cost of the sum of the demands.
func (d demand) cost() int64 { return d.callers*oneCaller + d.hits }

// demandOf is the demand with that cost.
func demandOf(cost int64) demand { return demand{hits: cost % oneCaller, callers: cost / oneCaller} }

// replace adds the operations after which q has the cost to in a list, in place of
// *have, which it sets. It returns the last one, whose reply has the sum of the list.
func (q *Quota) replace(b *backends.Batch, list string, have *listed, to listed, now, window int64) (last int) {
	const parts = listParts - 1 // a cost counts in its own part, too
	op := backends.Op{
		Limit: &backends.Limit{
			Kind: backends.List, Den: 1, Unit: backends.Amount{Whole: 1},
			Window: window / listParts * parts, Parts: parts,
		},
		Key: q.stem + list, Now: moment(now), Times: 1, Max: backends.NoMax, Until: moment(now) + window,
	}
	if *have != to && have.hits > 0 {
		back, was := op, op
		was.Now = have.at
		back.Verb, back.By.Whole = backends.Refund, have.hits
		back.Mark, _ = was.Dating()
		b.Ops = append(b.Ops, back)
	}
	if *have != to {
		op.By.Whole = to.hits
		*have = listed{op.Now, to.hits}
	}
	b.Ops = append(b.Ops, op)
	return len(b.Ops) - 1
}

// moment is the time of elements of lists that are made at now. A list dates all elements back
// that are later than a new one, and an element is found by its time. So that the clocks of
// processes may differ, it is whole seconds, between which no window ends.
func moment(now int64) int64 {
	const second, half = 1_000_000, 500_000
	return (now-half)/second*second + half
}

// assign sets u.Share by the replies.
func (u *Usage) assign(cfg *service.Config, b *backends.Batch) {
	was, shared := u.Share, sharing{}
	switch {
	case u.Rule == nil:
		u.Share = Share{Kind: Unruled}
		return
	case u.free(cfg):
		u.Share = Share{Kind: Unenforced}
		return
	case u.Refused:
		u.Share = Share{Kind: Exhausted}
		return
	}
	u.Share = Share{Kind: Unenforced, Burst: backends.MaxCost, Rate: math.Inf(1)}
	for i, l := range u.limits[:u.enforced] {
		op, r := &b.Ops[u.charges+i], &b.Replies[u.charges+i]
		if r.Err != nil {
			switch cfg.Policy(l) {
			case descriptors.PolicyAllow:
				continue
			case descriptors.PolicyDeny:
				u.Share = Share{Kind: Exhausted}
			default:
				u.Share = was
				u.Share.Kind = Unchanged
			}
			return
		}
		shared.add(&u.Share, l, op, r)
	}
	u.rival(b)
	if u.Share.Kind == Unenforced {
		return
	}
	if !shared.read(&b.Replies[u.demands], &b.Replies[u.holds]) && shared.alone == 0 {
		u.Share = was
		u.Share.Kind = Unchanged
		return
	}
	shared.divide(u, was)
}

// sharing is how the callers of a descriptor share its limits.
type sharing struct {
	pot     float64 // hits that all of them may let pass until their next reports
	demand  float64 // of all callers, in hits per interval
	callers float64
	held    float64 // hits that callers were assigned and have not reported
	windows bool    // of amounts that do not come again before the window ends
	rest    float64 // hits of the limits that are not steady; 0 without such a limit
	alone   float64 // this process decides as one of so many, without the lists; else 0
}

// add takes in a limit, of which r tells what remains.
func (s *sharing) add(to *Share, l *descriptors.Limit, op *backends.Op, r *backends.Reply) {
	s.alone = max(s.alone, float64(r.Replicas))
	is := l.Judge(op, r)
	rate := rateOf(l)
	pot, burst, processes := float64(is.Remaining), float64(l.Capacity()), float64(max(r.Replicas, 1))
	meter, steady := l.Strategy.HasBurst(), l.Window <= QuotaInterval
	switch {
	case steady:
		pot = rate * reportSeconds / processes
		if !meter {
			burst = rate
		}
	case meter:
		pot += rate * reportSeconds / processes
	default:
		s.windows, rate = true, 0
	}
	if !steady && (s.rest == 0 || pot < s.rest) {
		s.rest = pot
	}
	if to.Kind == Unenforced || pot < s.pot {
		s.pot = pot
		to.Wait = is.Reset
	}
	to.Kind, to.Steady, to.Burst = Portion, to.Steady || steady, min(to.Burst, int64(math.Ceil(burst/processes)))
	if per := to.Rate / to.Window.Seconds(); per > rate { // infinite before the first limit
		to.Rate, to.Window = rate*l.Window.Seconds(), l.Window
	}
}

// read reads the sums of the lists.
func (s *sharing) read(demand, held *backends.Reply) bool {
	all := demandOf(max(demand.Value.Whole, 0))
	s.demand, s.callers = float64(all.hits), float64(max(all.callers, 1))
	s.held = float64(max(held.Value.Whole, 0))
	return demand.Err == nil && held.Err == nil
}

// divide sets the hits of u, whose share was another one before: its fair share, within the room that
// others leave, unless its old share is about right.
//
// For example, 100 hits remain of a day. Two Envoys ask for them: A for 30 hits per interval, B for 10,
// and B holds 20 that it has not reported. A's part of the demand is 0.75. Each of the two gets a hit,
// and A that part of the other 98: its fair share is 74.5. Beside what B holds there is room for 80, so
// A holds 74 hits. At its next report B's fair share is 1 + 0.25 × 98 = 25.5, the room 100 - 74 = 26, so
// B holds 25 then.
func (s *sharing) divide(u *Usage, was Share) {
	to := &u.Share
	// A steady share may pass a burst beyond its hits: where less remains of another limit, the
	// burst is part of the hits.
	ends := to.Steady && s.rest > 0 && s.rest < s.pot+float64(to.Burst)
	if ends {
		to.Steady, s.pot = false, s.rest
	}
	if s.alone > 0 { // then the last part is taken, as if each replica had as many callers
		s.callers, s.held = 1, float64(u.held.hits)
	} else if u.part = 1 / max(s.callers, 1); s.demand+u.rivals > 0 {
		u.part = float64(u.weight) / (s.demand + u.rivals)
	}
	u.each = s.pot >= s.callers
	fair, room := s.fairShare(u), s.roomLeft(u)
	u.most = s.others(u) + room
	hits := math.Floor(min(fair, room))
	switch {
	case s.pot < 1:
		hits = 0
	case hits < 1 && (u.each || room >= 1 && u.weight > 0):
		hits = 1
	}
	switch {
	case s.keepsOldShare(u, was, hits, fair, room):
		*to = was
		to.Fresh = false
	case hits < 1:
		*to = Share{Kind: Exhausted, Wait: to.Wait}
	default:
		u.changed = false
		s.give(to, hits, ends)
	}
}

// fairShare is the part of u in what remains. If there is enough, everybody gets a hit, and the
// others follow the demand.
func (s *sharing) fairShare(u *Usage) float64 {
	part := min(1, u.part*max(s.alone, 1))
	if u.each {
		return 1 + (s.pot-s.callers)*part
	}
	return s.pot * part
}

// others is the number of hits that callers hold besides u.
func (s *sharing) others(u *Usage) float64 { return s.held - float64(u.held.hits) }

// roomLeft is the number of hits that nobody else holds. What a caller holds that returns is among what
// others hold, and nobody knows how much it is: as much as the average.
func (s *sharing) roomLeft(u *Usage) float64 {
	room := s.pot - s.others(u)
	if u.Returns {
		own := s.held / s.callers
		if !u.Share.Steady && s.callers > 2 { // what is given twice does not come again
			own = min(own, s.pot/100)
		}
		room += own
	}
	return room
}

// keepsOldShare reports whether the old share stays: it is unknown how much of it is used, or it is
// within a tenth of the fair share and the caller has used nothing of it.
func (s *sharing) keepsOldShare(u *Usage, was Share, hits, fair, room float64) bool {
	steady := u.Share.Steady
	if was.Kind != Portion || was.Steady != steady || was.Hits < 1 {
		return false
	}
	if u.Unasked && u.known && !steady && s.pot >= 1 {
		return true
	}
	old := float64(was.Hits)
	near := math.Abs(old-fair) <= max(fair/10, 1) && old <= max(room, 1)
	return hits >= 1 && near && !u.changed && (steady || u.Allowed == 0)
}

// give sets the amounts of a share of so many hits, at least 1. Where it ends, hits may come at once
// before the interval does.
func (s *sharing) give(to *Share, hits float64, ends bool) {
	part := hits / s.pot
	to.Hits, to.Fresh, to.Wait = int64(hits), !to.Steady, 0
	to.Burst = min(max(int64(float64(to.Burst)*part), 1), to.Hits)
	to.Rate *= part
	switch {
	case to.Steady:
		return
	case ends:
		to.Rate, to.Window = float64(to.Hits-to.Burst), QuotaInterval
		return
	case s.windows:
		to.Rate = 0
	}
	to.Burst = max(to.Hits-int64(to.Rate/to.Window.Seconds()*reportSeconds), 1)
}

// lend has the list say what u holds now, if that is not what it says. Nobody is lent hits that
// another caller was lent at the same moment, but for the one hit of each.
func (u *Usage) lend(again *backends.Batch, now, window int64) {
	var hits int64
	if u.Share.Kind == Portion {
		hits = u.Share.Hits
	}
	if hits == u.held.hits {
		return
	}
	u.had[1] = u.held
	u.lent = u.replace(again, heldList, &u.held, listed{now, hits}, now, window)
	if op := &again.Ops[u.lent]; hits > 1 || !u.each {
		op.Verb, op.Max.Whole = backends.Fill, int64(u.most)
	}
}

// settle takes in the reply to the operation of lend.
func (u *Usage) settle(r *backends.Reply) {
	if r.Err != nil {
		u.held = u.had[1]
	}
	if r.Err != nil || r.Account == nil {
		return
	}
	if u.held.hits -= r.Account.Cut.Whole; u.held.hits < 1 && !u.each {
		u.Share = Share{Kind: Exhausted}
		return
	}
	u.Share.Hits = max(u.held.hits, 1)
	u.Share.Burst = min(u.Share.Burst, u.Share.Hits)
}
