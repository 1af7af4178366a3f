package grants_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/service/grants"
)

// store is the memory store on a clock that moves only when the test says so, and that can be away.
type store struct {
	*memory.Store
	clock atomic.Int64
	away  atomic.Bool
	reads atomic.Int64 // of all notes
	// before is called before each change; it may be nil.
	before func()
}

func (s *store) ChangeNotes(ctx context.Context, name string, c backends.NotesChange) (before, after string, err error) {
	if s.before != nil {
		s.before()
	}
	return s.Store.ChangeNotes(ctx, name, c)
}

func newStore(t *testing.T) *store {
	s := new(store)
	s.clock.Store(1_800_000_000_000_000)
	var err error
	if s.Store, err = memory.New(memory.Options{MaxKeys: 10, Now: s.clock.Load}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *store) NotesVersion(ctx context.Context, name string) (string, error) {
	if s.away.Load() {
		return "", backends.ErrUnavailable
	}
	return s.Store.NotesVersion(ctx, name)
}

func (s *store) Notes(ctx context.Context, name string, most backends.NotesBound) (string, map[string]string, error) {
	s.reads.Add(1)
	return s.Store.Notes(ctx, name, most)
}

// replica is a Keeper and the grants that it has put in force.
type replica struct {
	*grants.Keeper
	*store
	inForce atomic.Pointer[descriptors.Grants]
	changed atomic.Int64
	log     bytes.Buffer
}

func (s *store) replica() *replica {
	r := &replica{store: s}
	r.Keeper = grants.NewKeeper(grants.Options{Store: s, Name: "grants", Log: slog.New(slog.NewTextHandler(&r.log, nil)), Changed: func(m *descriptors.Grants, changed []*descriptors.Grant) {
		r.inForce.Store(m)
		r.changed.Add(int64(len(changed)))
	}})
	return r
}

func (r *replica) grant(user string, hits int64, d time.Duration) *descriptors.Grant {
	now := time.UnixMicro(r.Store.Now()).UTC()
	return &descriptors.Grant{Time: now, Until: now.Add(d), Who: "ann", Domain: "d", Rule: "d.user", Caller: "d|user=" + user, Counter: "|1m", Hits: hits}
}

func rule(t *testing.T, limit string) *descriptors.Rule {
	tree, _, err := yaml.Load([]yaml.Text{{Name: "r.yaml", Content: []byte("domain: d\ndescriptors:\n- {key: user, rate_limit: {unit: minute, requests_per_unit: " + limit + "}}\n")}}, yaml.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tree.Domain("d").Match([]descriptors.Entry{{Key: "user", Value: "x"}})
}

// amount is what the limit of a user is; -1 if no map is in force.
func (r *replica) amount(of *descriptors.Rule, user string) int64 {
	m := r.inForce.Load()
	if m == nil {
		return -1
	}
	return int64(m.Rule([]byte("d|user="+user), of, r.Store.Now()).Limits[0].Requests)
}

// TestKeeper: two processes decide by the same grants, of which each ends by its own time, also while
// the store is away.
func TestKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		a, b, of := s.replica(), s.replica(), rule(t, "10")
		ctx, stop := context.WithCancel(t.Context())
		for _, r := range []*replica{a, b} {
			go func() { _ = r.Run(ctx) }()
		}
		defer synctest.Wait()
		defer stop()
		tick := func() { <-time.After(600 * time.Millisecond); synctest.Wait() }
		tick()
		if a.inForce.Load() != nil || !a.Known() {
			t.Fatal("a map without grants, or they are not known")
		}
		first, second := a.grant("ann", 5, time.Hour), a.grant("bob", 90, 2*time.Hour)
		for _, g := range []*descriptors.Grant{first, second} {
			if err := a.Add(ctx, g); err != nil {
				t.Fatal(err)
			}
		}
		if got := a.amount(of, "ann"); got != 15 {
			t.Errorf("the limit is %d when Add has returned", got)
		}
		if got := s.reads.Load(); got != 2 {
			t.Errorf("all grants were read %d times, want once at each start", got)
		}
		tick()
		for user, want := range map[string]int64{"ann": 15, "bob": 100, "eve": 10} {
			if got := b.amount(of, user); got != want {
				t.Errorf("%s has %d in the other process, want %d", user, got, want)
			}
		}
		reads := s.reads.Load()
		tick()
		if got := s.reads.Load(); got != reads {
			t.Errorf("the grants were read %d times without a change", got-reads)
		}
		if again := a.grant("ann", 7, time.Hour); a.Add(ctx, again) != nil || a.amount(of, "ann") != 17 || len(a.All()) != 2 {
			t.Errorf("after a later grant: %d, %d grants", a.amount(of, "ann"), len(a.All()))
		}
		// Other rules are in force: the grant is for what they say.
		if got := a.amount(rule(t, "20"), "ann"); got != 27 {
			t.Errorf("after a reload %d", got)
		}
		if got := a.amount(rule(t, "0"), "ann"); got != 0 {
			t.Errorf("a limit of 0 became %d", got)
		}
		tick()
		s.away.Store(true)
		tick()
		if got := b.amount(of, "bob"); got != 100 {
			t.Errorf("while the store is away %d", got)
		}
		s.clock.Add(time.Hour.Microseconds())
		if got := b.amount(of, "ann"); got != 10 {
			t.Errorf("after its end %d", got)
		}
		tick()
		if got, all := b.amount(of, "bob"), b.All(); got != 100 || len(all) != 1 || all[0].Caller != "d|user=bob" {
			t.Errorf("%d, in force %+v", got, all)
		}
		s.away.Store(false)
		if g, err := b.Revoke(ctx, second.ID); err != nil || g == nil || b.inForce.Load() != nil {
			t.Errorf("revoke: %+v, %v", g, err)
		}
		if g, err := b.Revoke(ctx, second.ID); err != nil || g != nil {
			t.Errorf("a second revoke: %+v, %v", g, err)
		}
		tick()
		if a.inForce.Load() != nil || len(a.All()) != 0 {
			t.Error("the other process still has grants")
		}
		stop()
		synctest.Wait()
		if log := b.log.String(); log != "" { // the breaker has said that the store is away
			t.Errorf("got the log\n%s", log)
		}
	})
}

// TestAStartWithoutTheStore knows no grants, and says so.
func TestAStartWithoutTheStore(t *testing.T) {
	s := newStore(t)
	if err := s.replica().Add(t.Context(), s.replica().grant("ann", 5, time.Hour)); err != nil {
		t.Fatal(err)
	}
	s.away.Store(true)
	r := s.replica()
	ended, stop := context.WithCancel(t.Context())
	stop()
	_ = r.Run(ended)
	if _, err := r.Revoke(t.Context(), "x"); !errors.Is(err, backends.ErrUnavailable) || r.Known() || r.inForce.Load() != nil || strings.Count(r.log.String(), "not known until the store tells them") != 1 {
		t.Errorf("%v, known %v, log %s", err, r.Known(), r.log.String())
	}
	s.away.Store(false)
	if _, err := r.Revoke(t.Context(), "x"); err != nil || !r.Known() || r.amount(rule(t, "10"), "ann") != 15 {
		t.Errorf("%v, known %v", err, r.Known())
	}
}

// TestWhatTheStoreHasIsChecked: an entry that is no grant is left out, and the others count.
func TestWhatTheStoreHasIsChecked(t *testing.T) {
	s := newStore(t)
	r := s.replica()
	for i, change := range []func(*descriptors.Grant){
		func(g *descriptors.Grant) { g.Until = g.Until.Add(40 * 24 * time.Hour) },
		func(g *descriptors.Grant) { g.Until = g.Time.Add(-time.Second) },
		func(g *descriptors.Grant) { g.Caller = "d|user=other" },
		func(g *descriptors.Grant) { g.ID = "" },
		func(g *descriptors.Grant) { g.Hits = 0 },
		func(g *descriptors.Grant) { g.Hits = -1 },
		func(g *descriptors.Grant) { g.Rate = &descriptors.Rate{RequestsPerUnit: 1, Unit: descriptors.Day} },
		func(g *descriptors.Grant) { g.Hits, g.Rate = 0, &descriptors.Rate{RequestsPerUnit: 1} },
		func(g *descriptors.Grant) { g.Who = strings.Repeat("x", 5000) },
		func(g *descriptors.Grant) { g.Hits = 101 }, // no limit of the rule takes it
	} {
		g := r.grant(fmt.Sprint("u", i), 5, time.Hour)
		g.ID = "x"
		name := g.Caller + " " + g.Counter
		change(g)
		text, _ := json.Marshal(g)
		set(t, s, name, string(text))
	}
	set(t, s, "d|user=text |1m", "{")
	set(t, s, "d|user=long |1m", strings.Repeat("x", 20_000))
	if err := r.Add(t.Context(), r.grant("good", 5, time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := r.amount(rule(t, "10"), "good"); got != 15 {
		t.Errorf("the good one: %d", got)
	}
	for i := range 10 {
		if got := r.amount(rule(t, "10"), fmt.Sprint("u", i)); got != 10 {
			t.Errorf("grant %d acts: %d", i, got)
		}
	}
	if n := len(r.All()); n != 2 { // the good one, and that which no limit takes
		t.Errorf("%d grants", n)
	}
	if strings.Count(r.log.String(), "grants that are none") != 1 {
		t.Errorf("log %s", r.log.String())
	}
}

func set(t *testing.T, s *store, name, text string) {
	t.Helper()
	_, _, err := s.ChangeNotes(t.Context(), "grants", backends.NotesChange{Set: name, Text: text, Most: grants.Most, Until: time.UnixMicro(s.Now()).Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTooManyGrants(t *testing.T) {
	s := newStore(t)
	r := s.replica()
	for i := range grants.Most {
		g := r.grant(fmt.Sprint(i), 5, time.Hour)
		g.ID = "x"
		text, _ := json.Marshal(g)
		set(t, s, g.Caller+" "+g.Counter, string(text))
	}
	if err := r.Add(t.Context(), r.grant("more", 5, time.Hour)); !errors.Is(err, grants.ErrFull) {
		t.Errorf("one too many: %v", err)
	}
	if err := r.Add(t.Context(), r.grant("17", 6, time.Hour)); err != nil { // in the place of another
		t.Error(err)
	}
	if err := r.Add(t.Context(), r.grant(strings.Repeat("x", 5000), 6, time.Hour)); !errors.Is(err, grants.ErrTooLong) {
		t.Errorf("a long one: %v", err)
	}
}

// TestGrantsOutliveTheProcess by Save and Load, without those that have ended.
func TestGrantsOutliveTheProcess(t *testing.T) {
	s := newStore(t)
	r := s.replica()
	for i, d := range []time.Duration{time.Minute, time.Hour} {
		if err := r.Add(t.Context(), r.grant(fmt.Sprint(i), 5, d)); err != nil {
			t.Fatal(err)
		}
	}
	var file bytes.Buffer
	if err := r.Save(&file); err != nil {
		t.Fatal(err)
	}
	next := newStore(t)
	next.clock.Add(time.Minute.Microseconds())
	after := next.replica()
	if err := after.Load(&file); err != nil || len(after.All()) != 1 || after.amount(rule(t, "10"), "1") != 15 {
		t.Errorf("%v, %+v", err, after.All())
	}
	if err := after.Load(strings.NewReader("[{")); err == nil {
		t.Error("a cut file is no error")
	}
}

func TestALookUpDoesNotAllocate(t *testing.T) {
	r := newStore(t).replica()
	if err := r.Add(t.Context(), r.grant("ann", 5, time.Hour)); err != nil {
		t.Fatal(err)
	}
	of, m, now := rule(t, "10"), r.inForce.Load(), r.Store.Now()
	for _, name := range []string{"d|user=ann", "d|user=bob"} {
		id := []byte(name)
		m.Rule(id, of, now)
		if n := testing.AllocsPerRun(100, func() { m.Rule(id, of, now) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// fields are the fields that the store has.
func (s *store) fields(t *testing.T) map[string]string {
	t.Helper()
	_, texts, err := s.Store.Notes(t.Context(), "grants", backends.NotesBound{Fields: 1000, Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// TestGrantsThatHaveEndedLeave: what has ended takes no room in the store from others, and leaves with the
// next grant.
func TestGrantsThatHaveEndedLeave(t *testing.T) {
	s := newStore(t)
	a, b := s.replica(), s.replica()
	for i := range 20 {
		if err := a.Add(t.Context(), a.grant(fmt.Sprint("u", i), 5, time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(b.Look(t.Context()), a.Add(t.Context(), a.grant("long", 5, 9*time.Hour))); err != nil {
		t.Fatal(err)
	}
	s.clock.Add(int64(2 * time.Hour / time.Microsecond))
	if err := errors.Join(a.Look(t.Context()), b.Look(t.Context())); err != nil { // both know that they have ended
		t.Fatal(err)
	}
	if err := a.Add(t.Context(), a.grant("u3", 7, time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := s.fields(t); len(got) != 2 {
		t.Errorf("the store has %d grants, want 2", len(got))
	}
	// b has not looked since, and removes nothing of the grant that took the place of one that ended.
	if err := b.Add(t.Context(), b.grant("eve", 5, time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := s.fields(t); len(got) != 3 || len(b.All()) != 3 {
		t.Errorf("the store has %v, want 3", got)
	}
}

// TestARevokeEndsItsOwnGrantAlone: a later one that took its place meanwhile stays.
func TestARevokeEndsItsOwnGrantAlone(t *testing.T) {
	s := newStore(t)
	a, b := s.replica(), s.replica()
	first, later := a.grant("ann", 5, time.Hour), b.grant("ann", 9, time.Hour)
	if err := a.Add(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	s.before = func() {
		s.before = nil
		if err := b.Add(t.Context(), later); err != nil {
			t.Error(err)
		}
	}
	if was, err := a.Revoke(t.Context(), first.ID); err != nil || was.ID != first.ID {
		t.Errorf("revoked %+v, %v", was, err)
	}
	if all := a.All(); len(all) != 1 || all[0].ID != later.ID || len(s.fields(t)) != 1 {
		t.Errorf("in force: %+v", all)
	}
}

// TestManyAtOnce: grants and ends by 64 callers of two processes end in the state that the store has.
func TestManyAtOnce(t *testing.T) {
	s := newStore(t)
	both := []*replica{s.replica(), s.replica()}
	var running sync.WaitGroup
	for i := range 64 {
		r := both[i%2]
		running.Go(func() {
			for n := range 20 {
				g := r.grant(fmt.Sprint("u", i%8), int64(n+1), time.Hour)
				if err := r.Add(t.Context(), g); err != nil {
					t.Error(err)
				}
				if n%3 == 0 {
					if _, err := r.Revoke(t.Context(), g.ID); err != nil {
						t.Error(err)
					}
				}
				r.amount(rule(t, "10"), fmt.Sprint("u", i%8))
				_ = r.Save(io.Discard)
			}
			own := r.grant(fmt.Sprint("own", i), 3, time.Hour)
			if err := r.Add(t.Context(), own); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	of, owned := rule(t, "10"), 0
	for _, r := range both {
		if err := r.Look(t.Context()); err != nil {
			t.Error(err)
		}
		for i := range 64 {
			if r.amount(of, fmt.Sprint("own", i)) == 13 {
				owned++
			}
		}
		if got, want := len(r.All()), len(s.fields(t)); got != want {
			t.Errorf("%d grants in force, the store has %d", got, want)
		}
	}
	if owned != 128 {
		t.Errorf("%d of 128 grants to their own callers act", owned)
	}
}
