package backendtest

import (
	"slices"
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

// event is a moment in a timeline: hits that arrive at once, one charge each,
// and the decision for the last of them. A duration of zero, and a remaining of
// anything, is not compared.
// Nor is the number of hits compared that were cut off a cost which no empty cell holds.
type event struct {
	at        time.Duration // since a round hour
	hits      int
	cost      uint64 // of each hit; 0 is 1, see check
	check     bool   // charge nothing
	refund    bool
	admitted  int   // how many of the hits pass
	remaining int64 // after the last hit
	reset     time.Duration
	retry     time.Duration
	delay     time.Duration
	limit     *algorithms.Spec // from this event on; nil: as before
	id        string           // of a reservation
	commit    bool             // settles the reservation, whatever remains
	hold      backends.HoldState
	cut       int64 // hits that were not charged
}

const anything = -1

type timeline struct {
	name string
	spec algorithms.Spec
	// admittedOnly: denied hits do not count in a fixed window.
	admittedOnly bool
	events       []event
}

var timelines = []timeline{
	{"fixed window: a denied hit counts", algorithms.Spec{Requests: 5, Window: time.Minute}, false, []event{
		{at: 10 * time.Second, hits: 5, admitted: 5, remaining: 0, reset: 50 * time.Second},
		{at: 20 * time.Second, hits: 3, admitted: 0, remaining: 0, retry: 40 * time.Second},
		{at: 30 * time.Second, hits: 1, cost: 3, refund: true, admitted: 1, remaining: 0},
		{at: 30 * time.Second, hits: 1, admitted: 0, remaining: 0},
		{at: 60 * time.Second, hits: 1, admitted: 1, remaining: 4, reset: time.Minute},
	}},
	{"fixed window: only admitted hits count", algorithms.Spec{Requests: 5, Window: time.Minute}, true, []event{
		{at: 10 * time.Second, hits: 9, admitted: 5, remaining: 0, retry: 50 * time.Second},
		{at: 20 * time.Second, hits: 1, cost: 1, refund: true, admitted: 1, remaining: 1},
		{at: 30 * time.Second, hits: 1, cost: 2, admitted: 0, remaining: 1},
		{at: 30 * time.Second, hits: 2, admitted: 1, remaining: 0},
	}},
	{"fixed window: a check at the limit passes", algorithms.Spec{Requests: 2, Window: time.Minute}, false, []event{
		{hits: 2, admitted: 2, remaining: 0},
		{hits: 1, check: true, admitted: 1, remaining: 0},
		{hits: 1, admitted: 0, remaining: 0},
		{hits: 1, check: true, admitted: 0, remaining: 0},
	}},
	{"fixed window from the first hit", algorithms.Spec{Requests: 10, Window: time.Minute, FromFirstHit: true}, false, []event{
		{at: 45 * time.Second, hits: 1, admitted: 1, remaining: 9, reset: time.Minute},
		{at: 60 * time.Second, hits: 9, admitted: 9, remaining: 0, reset: 45 * time.Second},
		{at: 104 * time.Second, hits: 1, admitted: 0, remaining: 0, retry: time.Second},
		{at: 105 * time.Second, hits: 1, admitted: 1, remaining: 9, reset: time.Minute},
	}},
	{"fixed window, extended by each hit", algorithms.Spec{Requests: 2, Window: time.Minute, FromFirstHit: true, Extend: true}, false, []event{
		{at: 0, hits: 2, admitted: 2, remaining: 0, reset: time.Minute},
		{at: 50 * time.Second, hits: 1, admitted: 0, remaining: 0, retry: time.Minute},
		{at: 100 * time.Second, hits: 1, admitted: 0, remaining: 0, retry: time.Minute},
		{at: 160 * time.Second, hits: 1, admitted: 1, remaining: 1, reset: time.Minute},
	}},
	{"a day of the calendar in a time zone", algorithms.Spec{Requests: 5, Window: 24 * time.Hour, Calendar: algorithms.Calendar{On: true, Zone: "Asia/Kathmandu"}}, true, []event{
		{at: untilKathmandu - time.Second, hits: 6, admitted: 5, remaining: 0, retry: time.Second},
		{at: untilKathmandu, hits: 1, admitted: 1, remaining: 4, reset: 24 * time.Hour},
		{at: untilKathmandu - time.Second, hits: 1, cost: 2, refund: true, admitted: 1, remaining: 2, reset: time.Second},
		{at: untilKathmandu + 12*time.Hour, hits: 5, admitted: 4, remaining: 0, retry: 12 * time.Hour},
		{at: untilKathmandu + 24*time.Hour, hits: 1, check: true, admitted: 1, remaining: 5, reset: 24 * time.Hour},
	}},
	{"nothing passes a limit of zero: fixed window", algorithms.Spec{Window: time.Minute}, true, zeroEvents},
	{"nothing passes a limit of zero: sliding window", algorithms.Spec{Strategy: algorithms.SlidingWindow, Window: time.Minute}, false, zeroEvents},
	{"nothing passes a limit of zero: sliding log", algorithms.Spec{Strategy: algorithms.SlidingLog, Window: time.Minute}, false, zeroEvents},
	{"nothing passes a limit of zero: token bucket", algorithms.Spec{Strategy: algorithms.TokenBucket, Window: time.Minute}, false, zeroEvents},
	{"nothing passes a limit of zero, whatever its burst: token bucket", algorithms.Spec{Strategy: algorithms.TokenBucket, Window: time.Minute, Burst: 5_000_000}, false, zeroEvents},
	{"nothing passes a limit of zero, whatever its burst: GCRA", algorithms.Spec{Strategy: algorithms.GCRA, Window: time.Minute, Burst: 5_000_000}, false, zeroEvents},
	{"nothing passes a limit of zero, whatever its burst: a queue", algorithms.Spec{Strategy: algorithms.LeakyBucket, Window: time.Minute, Burst: 5_000_000, MaxDelay: time.Minute}, false, zeroEvents},

	{"a token bucket raised from 10 to 10,000 a day and lowered again", algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 10, Window: 24 * time.Hour, Burst: 10}, false, []event{
		{hits: 11, admitted: 10, remaining: 0, retry: 144 * time.Minute},
		{at: time.Minute, hits: 11, admitted: 10, remaining: 0, retry: 8640 * time.Millisecond,
			limit: &algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 10_000, Window: 24 * time.Hour, Burst: 10}},
		{at: time.Minute, hits: 1, admitted: 0, remaining: 0, retry: 143 * time.Minute,
			limit: &algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 10, Window: 24 * time.Hour, Burst: 10}},
	}},
	{"a limit of 0 beside a queue takes nobody's turn", algorithms.Spec{Strategy: algorithms.LeakyBucket, Requests: 1, Window: time.Minute, MaxDelay: time.Minute}, false, []event{
		{hits: 3, admitted: 2, remaining: 0, retry: time.Minute},
		{hits: 2, admitted: 0, remaining: 0, limit: &algorithms.Spec{Strategy: algorithms.LeakyBucket, Window: time.Minute, MaxDelay: time.Minute}},
		{at: time.Minute, hits: 2, admitted: 1, remaining: 0, retry: time.Minute,
			limit: &algorithms.Spec{Strategy: algorithms.LeakyBucket, Requests: 1, Window: time.Minute, MaxDelay: time.Minute}},
	}},
	{"a raised and a lowered log", algorithms.Spec{Strategy: algorithms.SlidingLog, Requests: 2, Window: time.Minute}, false, []event{
		{hits: 3, admitted: 2, remaining: 0},
		{hits: 3, admitted: 2, remaining: 0, limit: &algorithms.Spec{Strategy: algorithms.SlidingLog, Requests: 4, Window: time.Minute}},
		{at: 60 * time.Second, hits: 2, admitted: 1, remaining: 0, limit: &algorithms.Spec{Strategy: algorithms.SlidingLog, Requests: 1, Window: time.Minute}},
	}},

	{"the clock goes back by an hour: token bucket", algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 10, Window: time.Minute}, false, []event{
		{at: time.Hour, hits: 10, admitted: 10, remaining: 0},
		{hits: 1, check: true, admitted: 1, remaining: 0, reset: time.Minute},
		{hits: 1, admitted: 0, remaining: 0, retry: 6 * time.Second},
		{at: 6 * time.Second, hits: 2, admitted: 1, remaining: 0},
		{at: 2 * time.Minute, hits: 11, admitted: 10, remaining: 0},
	}},
	{"the clock goes back by an hour: GCRA", algorithms.Spec{Strategy: algorithms.GCRA, Requests: 10, Window: time.Minute}, false, []event{
		{at: time.Hour, hits: 1, admitted: 1, remaining: 0},
		{hits: 1, admitted: 0, remaining: 0, retry: 6 * time.Second},
		{at: 6 * time.Second, hits: 1, admitted: 1, remaining: 0},
	}},
	{"the clock goes back by an hour: a queue", algorithms.Spec{Strategy: algorithms.LeakyBucket, Requests: 10, Window: time.Minute, MaxDelay: 12 * time.Second}, false, []event{
		{at: time.Hour, hits: 3, admitted: 3, remaining: 0},
		{hits: 1, admitted: 0, remaining: 0, retry: 6 * time.Second},
		{at: 6 * time.Second, hits: 1, admitted: 1, remaining: 0, delay: 12 * time.Second},
	}},
	{"the clock goes back by an hour: sliding log", algorithms.Spec{Strategy: algorithms.SlidingLog, Requests: 3, Window: time.Minute}, false, []event{
		{at: time.Hour, hits: 1, admitted: 1, remaining: 2},
		{at: time.Hour + 10*time.Second, hits: 2, admitted: 2, remaining: 0},
		{hits: 1, admitted: 0, remaining: 0, reset: time.Minute, retry: time.Minute},
		{at: 59 * time.Second, hits: 1, admitted: 0, remaining: 0, retry: time.Second},
		{at: 60 * time.Second, hits: 4, admitted: 3, remaining: 0},
	}},
	{"the clock goes back by an hour: window from the first hit", algorithms.Spec{Requests: 2, Window: time.Minute, FromFirstHit: true}, false, []event{
		{at: time.Hour, hits: 2, admitted: 2, remaining: 0},
		{hits: 1, check: true, admitted: 1, remaining: 0, reset: time.Minute},
		{at: 10 * time.Second, hits: 1, admitted: 0, remaining: 0, retry: time.Minute},
		{at: 70 * time.Second, hits: 1, admitted: 1, remaining: 1, reset: time.Minute},
	}},
	{"the clock goes back by an hour: window extended by each hit", algorithms.Spec{Requests: 2, Window: time.Minute, FromFirstHit: true, Extend: true}, true, []event{
		{at: time.Hour, hits: 2, admitted: 2, remaining: 0},
		{hits: 1, admitted: 0, remaining: 0, retry: time.Minute},
		{at: 60 * time.Second, hits: 1, admitted: 1, remaining: 1, reset: time.Minute},
	}},

	{"aligned windows let two quotas through around their edge", algorithms.Spec{Requests: 100, Window: time.Minute}, false, []event{
		{at: -time.Second, hits: 101, admitted: 100, remaining: 0, retry: time.Second},
		{at: time.Second, hits: 101, admitted: 100, remaining: 0},
	}},
	{"a sliding window does not", algorithms.Spec{Strategy: algorithms.SlidingWindow, Requests: 100, Window: time.Minute}, false, []event{
		{at: -time.Second, hits: 100, admitted: 100, remaining: 0},
		{at: time.Second, hits: 100, admitted: 1, remaining: 0},
	}},
	{"a sliding log does not", algorithms.Spec{Strategy: algorithms.SlidingLog, Requests: 100, Window: time.Minute}, false, []event{
		{at: -time.Second, hits: 100, admitted: 100, remaining: 0, reset: time.Minute},
		{at: time.Second, hits: 100, admitted: 0, remaining: 0, retry: 58 * time.Second},
	}},
	{"a token bucket does not", algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 100, Window: time.Minute}, false, []event{
		{at: -time.Second, hits: 100, admitted: 100, remaining: 0, reset: time.Minute},
		{at: time.Second, hits: 100, admitted: 3, remaining: 0, retry: 400 * time.Millisecond},
	}},
	{"GCRA does not", algorithms.Spec{Strategy: algorithms.GCRA, Requests: 100, Window: time.Minute, Burst: 100}, false, []event{
		{at: -time.Second, hits: 100, admitted: 100, remaining: 0},
		{at: time.Second, hits: 100, admitted: 3, remaining: 0},
	}},
	{"a leaky bucket does not", algorithms.Spec{Strategy: algorithms.LeakyBucket, Requests: 100, Window: time.Minute}, false, []event{
		{at: -time.Second, hits: 100, admitted: 100, remaining: 0},
		{at: time.Second, hits: 100, admitted: 3, remaining: 0},
	}},

	{"moving window", algorithms.Spec{Strategy: algorithms.SlidingLog, Requests: 10, Window: time.Minute}, false, []event{
		{at: 10 * time.Second, hits: 1, admitted: 1, remaining: 9},
		{at: 20 * time.Second, hits: 2, admitted: 2, remaining: 7},
		{at: 30 * time.Second, hits: 4, admitted: 4, remaining: 3},
		{at: 50 * time.Second, hits: 3, admitted: 3, remaining: 0, reset: time.Minute},
		{at: 69 * time.Second, hits: 1, admitted: 0, remaining: 0, retry: time.Second},
		{at: 71 * time.Second, hits: 1, admitted: 1, remaining: 0},
		{at: 72 * time.Second, hits: 1, admitted: 0, remaining: 0, retry: 8 * time.Second},
		{at: 72 * time.Second, hits: 1, cost: 3, admitted: 0, remaining: 0, retry: 18 * time.Second},
		{at: 80 * time.Second, hits: 3, admitted: 2, remaining: 0},
		{at: 80 * time.Second, hits: 1, cost: 2, refund: true, admitted: 1, remaining: 2},
		{at: 80 * time.Second, hits: 3, admitted: 2, remaining: 0},
	}},
	{"sliding window: previous 40, current 80", algorithms.Spec{Strategy: algorithms.SlidingWindow, Requests: 100, Window: time.Minute}, false, []event{
		{at: 59 * time.Second, hits: 1, cost: 40, admitted: 1, remaining: 60},
		{at: 60 * time.Second, hits: 1, cost: 60, admitted: 1, remaining: 0},
		{at: 89*time.Second + 999*time.Millisecond, hits: 1, cost: 20, admitted: 0, remaining: anything, retry: time.Millisecond},
		{at: 90 * time.Second, hits: 1, cost: 20, admitted: 1, remaining: 0},
		{at: 90 * time.Second, hits: 1, admitted: 0, remaining: 0, retry: 1500 * time.Millisecond},
		{at: 100 * time.Second, hits: 1, admitted: 1, remaining: 5},
	}},
	{"sliding window: previous 400, current 250, at 45 s", algorithms.Spec{Strategy: algorithms.SlidingWindow, Requests: 500, Window: time.Minute}, false, []event{
		{at: 0, hits: 1, cost: 400, admitted: 1, remaining: 100},
		{at: 100 * time.Second, hits: 1, cost: 250, admitted: 1, remaining: anything},
		{at: 105 * time.Second, hits: 1, check: true, admitted: 1, remaining: 150},
		{at: 105 * time.Second, hits: 1, admitted: 1, remaining: 149, reset: 75 * time.Second},
	}},
	{"sliding window: weight 8/10 after 2 s of 10", algorithms.Spec{Strategy: algorithms.SlidingWindow, Requests: 10, Window: 10 * time.Second}, false, []event{
		{at: 0, hits: 10, admitted: 10, remaining: 0},
		{at: 12 * time.Second, hits: 3, admitted: 2, remaining: 0, retry: time.Second},
	}},
	{"sliding window: one a day, late and early", algorithms.Spec{Strategy: algorithms.SlidingWindow, Requests: 1, Window: 24 * time.Hour}, false, []event{
		{at: untilMidnight - time.Second, hits: 1, admitted: 1, remaining: 0},
		{at: untilMidnight, hits: 1, admitted: 0, remaining: 0, retry: 24 * time.Hour},
		{at: untilMidnight + 23*time.Hour, hits: 1, admitted: 0, remaining: 0, retry: time.Hour},
		{at: untilMidnight + 24*time.Hour, hits: 1, admitted: 1, remaining: 0},
	}},
	{"10,000 per 15 minutes", algorithms.Spec{Requests: 10_000, Window: 15 * time.Minute}, false, []event{
		{at: 0, hits: 1, cost: 9_999, admitted: 1, remaining: 1, reset: 15 * time.Minute},
		{at: 14*time.Minute + 59*time.Second, hits: 2, admitted: 1, remaining: 0, retry: time.Second},
		{at: 15 * time.Minute, hits: 1, admitted: 1, remaining: 9_999},
	}},
	{"3000 per 10 minutes, sliding", algorithms.Spec{Strategy: algorithms.SlidingWindow, Requests: 3000, Window: 10 * time.Minute}, false, []event{
		{at: 0, hits: 1, cost: 3000, admitted: 1, remaining: 0, reset: 20 * time.Minute},
		{at: 19 * time.Minute, hits: 1, check: true, admitted: 1, remaining: 2700, reset: time.Minute},
	}},
	{"token bucket of 10 a second, burst 20", algorithms.Spec{Strategy: algorithms.TokenBucket, Requests: 10, Window: time.Second, Burst: 20}, false, []event{
		{at: 0, hits: 21, admitted: 20, remaining: 0, retry: 100 * time.Millisecond},
		{at: 500 * time.Millisecond, hits: 6, admitted: 5, remaining: 0},
		{at: 500 * time.Millisecond, hits: 1, cost: 21, admitted: 0, remaining: 0, retry: time.Second},
		{at: 10 * time.Second, hits: 1, check: true, admitted: 1, remaining: 20},
		{at: 10 * time.Second, hits: 1, cost: 20, admitted: 1, remaining: 0, reset: 2 * time.Second},
		{at: 10 * time.Second, hits: 1, cost: 5, refund: true, admitted: 1, remaining: 5},
		{at: 10 * time.Second, hits: 1, cost: 500, refund: true, admitted: 1, remaining: 20},
		{at: 10 * time.Second, hits: 21, admitted: 20, remaining: 0},
	}},
	{"GCRA spaces evenly", algorithms.Spec{Strategy: algorithms.GCRA, Requests: 10, Window: time.Minute}, false, []event{
		{at: 0, hits: 2, admitted: 1, remaining: 0, retry: 6 * time.Second},
		{at: 5 * time.Second, hits: 1, admitted: 0, remaining: 0, retry: time.Second},
		{at: 6 * time.Second, hits: 2, admitted: 1, remaining: 0, retry: 6 * time.Second},
	}},
	{"GCRA with thirds of a second", algorithms.Spec{Strategy: algorithms.GCRA, Requests: 3, Window: time.Second}, false, []event{
		{at: 0, hits: 1, admitted: 1, remaining: 0},
		{at: 333333 * time.Microsecond, hits: 1, admitted: 0, remaining: 0, retry: time.Microsecond},
		{at: 333334 * time.Microsecond, hits: 1, admitted: 1, remaining: 0},
	}},
	{"a queue holds hits until their turn", algorithms.Spec{Strategy: algorithms.LeakyBucket, Requests: 10, Window: time.Minute, MaxDelay: 12 * time.Second}, false, []event{
		{at: 0, hits: 1, admitted: 1, remaining: 0},
		{at: 0, hits: 1, admitted: 1, remaining: 0, delay: 6 * time.Second},
		{at: 0, hits: 2, admitted: 1, remaining: 0, retry: 6 * time.Second},
		{at: 6 * time.Second, hits: 1, admitted: 1, remaining: 0, delay: 12 * time.Second},
	}},
}

// zeroEvents are hits on a limit of 0, and a check, with their decisions.
var zeroEvents = []event{
	{hits: 1, admitted: 0, remaining: 0, retry: time.Minute},
	{hits: 1, cost: 5_000_000, admitted: 0, remaining: 0, retry: time.Minute},
	{hits: 1, cost: 1 << 62, admitted: 0, remaining: 0, retry: time.Minute},
	{hits: 1, cost: 1 << 62, refund: true, admitted: 1, remaining: 0},
	{hits: 1, check: true, admitted: 1, remaining: 0},
	{hits: 1, admitted: 0, remaining: 0, retry: time.Minute},
}

// untilMidnight is from the round hour that timelines start at to the next
// UTC midnight.
var untilMidnight = time.Duration(24-time.UnixMicro(epoch()).UTC().Hour()) * time.Hour

// untilKathmandu is from the round hour that timelines start at to the next midnight of
// Kathmandu, whose clocks are 5 hours and 45 minutes ahead and do not change.
var untilKathmandu = (untilMidnight + 24*time.Hour - 5*time.Hour - 45*time.Minute) % (24 * time.Hour)

func testTimelines(t *testing.T, s backends.Store, lease algorithms.Lease, exceptions []Exceptions) {
	for _, tl := range timelines {
		if !excepted(exceptions, tl.name) {
			t.Run(tl.name, func(t *testing.T) { playAll(t, s, tl, lease) })
		}
	}
}

func playAll(t *testing.T, s backends.Store, tl timeline, lease algorithms.Lease) {
	l := leased(t, tl.spec, lease)
	id := identity("timeline")
	if slices.ContainsFunc(tl.events, func(e event) bool { return e.commit }) {
		id.Longest = (10 * time.Minute).Microseconds()
	}
	for i, e := range tl.events {
		if e.limit != nil {
			l = leased(t, *e.limit, lease)
		}
		play(t, s, l, id, tl.admittedOnly, i, e)
	}
}

// leased is the limit of spec with the lease, or without it if the limit cannot have
// that lease.
func leased(t *testing.T, spec algorithms.Spec, lease algorithms.Lease) *algorithms.Limit {
	t.Helper()
	with := spec
	with.Lease = lease
	if l, err := algorithms.New(with); err == nil {
		return l
	}
	return limited(t, spec, spec.Requests)
}

func play(t *testing.T, s backends.Store, l *algorithms.Limit, id algorithms.Identity, admittedOnly bool, i int, e event) {
	t.Helper()
	c := algorithms.Charge{
		Now: epoch() + e.at.Microseconds(), Cost: max(e.cost, 1), Refund: e.refund,
		AdmittedOnly: admittedOnly, Patience: time.Hour.Microseconds(), Beyond: e.commit,
	}
	if e.check {
		c.Cost = 0
	}
	if e.id != "" {
		c.Reservation = reservation(e.id)
	}
	admitted := 0
	var d algorithms.Decision
	var r backends.Reply
	var op backends.Op
	for range e.hits {
		l.Plan(&op, id, c)
		r = applyOne(t, s, op)
		if d = l.Judge(&op, &r); d.Allowed {
			admitted++
		}
	}
	ok := admitted == e.admitted &&
		(e.remaining == anything || d.Remaining == e.remaining) &&
		(e.reset == 0 || d.Reset == e.reset) &&
		(e.retry == 0 || d.RetryAfter == e.retry) &&
		(e.delay == 0 || d.Delay == e.delay) &&
		r.HoldState() == e.hold && (e.cut == anything || cutOf(&op, &r) == e.cut)
	if !ok {
		t.Fatalf("event %d at %v: admitted %d of %d, then %+v, account %+v\nwant %+v", i, e.at, admitted, e.hits, d, r.Account, e)
	}
}
