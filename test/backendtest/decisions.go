package backendtest

import (
	"testing"

	"example.org/rls/pkg/backends"
)

// limit is one operation of cost 1.
type limit struct {
	role         backends.Role
	group        uint8
	full         bool // its counter has no room
	chargeDenied bool
	charged      bool // by the batch
}

// decisions say which operations of a batch are charged.
var decisions = []struct {
	name         string
	allOrNothing bool
	limits       []limit
	refused      bool
}{
	{"each on its own", false, []limit{{charged: true}, {full: true}, {full: true, chargeDenied: true, charged: true}}, false},
	{"a group that passes", false, []limit{{group: 1, charged: true}, {group: 1, charged: true}}, false},
	{"a group is charged together or not at all", false, []limit{{group: 1}, {group: 1, full: true}, {charged: true}}, false},
	{"also when the first refuses", false, []limit{{group: 1, full: true}, {group: 1}, {group: 1}}, false},
	{"neighbouring groups are decided each for itself", false, []limit{
		{group: 1}, {group: 1, full: true}, {group: 2, charged: true}, {group: 2, charged: true}}, false},
	{"in a group a charged denial is charged, and nothing else", false, []limit{
		{group: 1, full: true, chargeDenied: true, charged: true}, {group: 1, chargeDenied: true}, {group: 1}}, false},
	{"a charged denial that fits is charged with its group", false, []limit{
		{group: 1, chargeDenied: true, charged: true}, {group: 1, charged: true}}, false},

	{"all fit", true, []limit{{charged: true}, {charged: true}}, false},
	{"a firm one refuses the batch", true, []limit{{}, {full: true}, {role: backends.Lenient}}, true},
	{"a lenient one refuses only itself", true, []limit{{charged: true}, {role: backends.Lenient, full: true}}, false},
	{"a lenient group refuses only itself", true, []limit{
		{charged: true}, {role: backends.Lenient, group: 1, full: true}, {role: backends.Lenient, group: 1}}, false},
	{"a firm group refuses the batch", true, []limit{{}, {group: 1}, {group: 1, full: true}}, true},
	{"one quota of two", true, []limit{{role: backends.Quota, full: true}, {role: backends.Quota, charged: true}, {charged: true}}, false},
	{"both quotas refuse the batch", true, []limit{{role: backends.Quota, full: true}, {role: backends.Quota, full: true}, {}}, true},
	{"one quota alone refuses the batch", true, []limit{{role: backends.Quota, full: true}, {}}, true},
	{"a quota of two limits counts once", true, []limit{
		{role: backends.Quota, group: 1, full: true}, {role: backends.Quota, group: 1}, {role: backends.Quota, charged: true}}, false},
	{"a quota beside a firm refusal", true, []limit{{role: backends.Quota}, {full: true}}, true},
	{"a refused batch charges its charged denial", true, []limit{{}, {full: true, chargeDenied: true, charged: true}, {chargeDenied: true}}, true},
	{"a lenient charged denial", true, []limit{{charged: true}, {role: backends.Lenient, full: true, chargeDenied: true, charged: true}}, false},
}

// testDecisions plays the table on counters that hold 3 of 3, or 1 of 3.
func testDecisions(t *testing.T, s backends.Store) {
	for _, d := range decisions {
		t.Run(d.name, func(t *testing.T) {
			now := epoch()
			b := backends.Batch{AllOrNothing: d.allOrNothing}
			for _, l := range d.limits {
				op := counter(fresh("decision"), now, 1, 3)
				held := int64(1)
				if l.full {
					held = 3
				}
				applyOne(t, s, counter(op.Key, now, held, -1))
				op.Role, op.Group = l.role, l.group
				if l.chargeDenied {
					op.Verb = backends.Count
				}
				b.Ops = append(b.Ops, op)
			}
			apply(t, s, &b)
			if b.Refused != d.refused {
				t.Errorf("refused %v, want %v", b.Refused, d.refused)
			}
			for i, l := range d.limits {
				want, admitted := int64(1), int64(1)
				if l.full {
					want, admitted = 3, 0
				}
				if l.charged {
					want++
				}
				is := applyOne(t, s, b.Ops[i].Look()).Value.Whole
				if r := b.Replies[i]; is != want || r.Value.Whole != want || r.Admitted != admitted {
					t.Errorf("operation %d holds %d, want %d; reply %+v, want admitted %d", i, is, want, r, admitted)
				}
			}
		})
	}

	t.Run("one key twice, with a charged denial", func(t *testing.T) {
		key := fresh("twice")
		op := counter(key, epoch(), 2, 3)
		op.Verb = backends.Count
		r := apply(t, s, &backends.Batch{AllOrNothing: true, Ops: []backends.Op{op, op}})
		// The second operation sees the charge that the first would have made.
		if r[0].Admitted != 1 || r[0].Value.Whole != 0 || r[1].Admitted != 0 || r[1].Value.Whole != 2 {
			t.Fatalf("got %+v", r)
		}
	})

	t.Run("some of several fit", func(t *testing.T) {
		op := counter(fresh("times"), epoch(), 2, 7)
		op.Times, op.Verb = 5, backends.Count
		if r := applyOne(t, s, op); r.Admitted != 3 || r.Value.Whole != 10 {
			t.Fatalf("3 of 5 charges of 2 fit 7, and 10 are counted: got %+v", r)
		}
	})
}

// testRoom has a group that fails, and another descriptor, charge one cell that has room for one
// of them. The order makes no difference.
func testRoom(t *testing.T, s backends.Store) {
	now := epoch()
	hold := func(op *backends.Op) *backends.Hold {
		return &backends.Hold{Key: op.Key + "|hold", ID: reservation("a"), TTL: second}
	}
	for name, change := range map[string]func(*backends.Op){
		"counter":   func(*backends.Op) {},
		"first hit": func(op *backends.Op) { op.Span = backends.FirstHit },
		"meter": func(op *backends.Op) {
			op.Kind, op.Full.Whole, op.Until = backends.Meter, 5*second, 0
			op.By.Whole, op.Max.Whole = 3*second, now+5*second
		},
		"list":        func(op *backends.Op) { op.Kind, op.Window = backends.List, window },
		"reservation": func(op *backends.Op) { op.Hold = hold(op) },
		"hold": func(op *backends.Op) {
			op.Hold = hold(op)
			op.Hold.GiveBack = true
		},
	} {
		for _, mode := range []struct {
			all  bool
			role backends.Role
		}{{false, backends.Firm}, {true, backends.Lenient}, {true, backends.Quota}} {
			for _, first := range []bool{true, false} {
				shared := counter(fresh("room"), now, 3, 5)
				change(&shared)
				shared.Role, shared.Group = mode.role, 1
				full, charged := counter(shared.Key+"full", now, 1, 0), shared
				full.Role, full.Group, charged.Group = mode.role, 1, 2
				b, i := backends.Batch{AllOrNothing: mode.all, Ops: []backends.Op{charged, shared, full}}, 0
				if first {
					b.Ops, i = []backends.Op{shared, full, charged}, 2
				}
				r := apply(t, s, &b)
				floor := int64(0)
				if shared.Kind == backends.Meter {
					floor = now
				}
				is := applyOne(t, s, shared.Look()).Value.Whole
				if b.Refused || r[i].Admitted != 1 || is != floor+shared.By.Whole || shared.Hold != nil && r[i].HoldState() != backends.Held {
					t.Errorf("%s, %+v, fails first %v: %+v, and the cell holds %d, want %d", name, mode, first, r, is-floor, shared.By.Whole)
				}
			}
		}
	}
}
