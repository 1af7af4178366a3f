package operate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/operate"
)

// grants are those in force, one in a line: who, key of the request, hits and hits left.
func (r *rig) grants() string {
	r.t.Helper()
	all, err := r.Grants(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	var b strings.Builder
	for _, g := range all {
		if g.Domain != "d" || !strings.HasPrefix(strings.TrimPrefix(g.Key, "{"), "d|") || !g.Ends.After(time.UnixMicro(r.clock.Load())) || time.Since(g.Time) > time.Minute {
			r.t.Errorf("got %+v", g)
		}
		fmt.Fprintf(&b, "%s %s %d %d\n", g.Who, g.Rule, g.Hits, g.Left)
	}
	return b.String()
}

// The end of a grant is the time until which its hits pass.
func TestTheEndOfAGrant(t *testing.T) {
	for key, want := range map[string]time.Duration{
		"fixed": 50 * time.Second, "first": time.Minute, "sliding": 50 * time.Second, "log": time.Minute,
		"bucket": time.Minute, "gcra": time.Minute, "leaky": time.Minute,
		"calendar": 18*time.Hour + 15*time.Minute - 10*time.Second,
	} {
		r := start(t, strategies)
		began := time.UnixMicro(r.clock.Load())
		r.hit(withHits(10, desc(key, "a")))
		r.change(operate.Grant(operate.Granting{Hits: 20}), request(desc(key, "a")))
		all, err := r.Grants(t.Context())
		if err != nil || len(all) != 1 || all[0].Ends.Sub(began) != want {
			t.Errorf("%s: got %+v, %v, want the end after %v", key, all, err, want)
		}
		r.pass(want)
		if got := r.grants(); got != "" {
			t.Errorf("%s: after its end %s", key, got)
		}
	}
}

// A grant is in force until its hits are used up, it ends, or the cell is reset.
func TestGrantsInForce(t *testing.T) {
	for _, key := range everyStrategy {
		t.Run(key, func(t *testing.T) {
			r := start(t, strategies)
			a := request(desc(key, "a"))
			give := func(who string, hits int64) {
				r.change(operate.Grant(operate.Granting{Hits: hits, Who: who}), a)
			}
			wants := func(when, want string) {
				t.Helper()
				if got := r.grants(); got != want {
					t.Errorf("%s: got %q, want %q", when, got, want)
				}
			}
			wants("at first", "")
			r.hit(withHits(10, desc(key, "a")))
			give("ann", 5)
			wants("granted 5", "ann d."+key+" 5 5\n")
			r.hit(withHits(2, desc(key, "a")))
			wants("2 used", "ann d."+key+" 5 3\n")
			give("bob", 4)
			wants("granted 4 more", "bob d."+key+" 7 7\n")
			r.hit(withHits(7, desc(key, "a")))
			wants("used up", "")
			give("ann", 5)
			r.change(operate.Reset, a)
			wants("reset", "")
			r.hit(withHits(10, desc(key, "a")))
			give("ann", 5)
			wants("granted after the reset", "ann d."+key+" 5 5\n")
			r.pass(3 * time.Minute)
			wants("ended", "")
		})
	}
}

// Grants of a limit that a request brings along have its key and the path of the rule.
func TestGrantsOfOverrides(t *testing.T) {
	r := start(t, strategies)
	r.change(operate.Grant(operate.Granting{Hits: 5, Who: "ann"}), request(withLimit(3, descriptors.Hour, desc("fixed", "a")), withLimit(3, descriptors.Hour, desc("nothing", "a"))))
	all, err := r.Grants(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatalf("got %v, %v", all, err)
	}
	for _, g := range all {
		if !strings.Contains(g.Key, "|1h|") || g.Rule != "d.fixed" && g.Rule != "d.override" {
			t.Errorf("got %+v", g)
		}
	}
}

// breaking is a store that fails once it is broken.
type breaking struct {
	backends.Store
	broken bool
}

func (s *breaking) Apply(ctx context.Context, b *backends.Batch) error {
	if s.broken {
		return b.Fail(fmt.Errorf("redis 10.0.0.1: %w", backends.ErrUnavailable))
	}
	return s.Store.Apply(ctx, b)
}

// The hits left cannot be told while the store fails.
func TestGrantsWhileTheStoreFails(t *testing.T) {
	var between *breaking
	r := keeping(t, strategies, func(c *service.Config) { between = &breaking{Store: c.Store}; c.Store = between })
	r.change(operate.Grant(operate.Granting{Hits: 5}), request(desc("fixed", "a")))
	r.change(until(5, time.Hour), request(desc("fixed", "b")))
	between.broken = true
	var told *service.Error
	all, err := r.Grants(t.Context())
	if !errors.As(err, &told) || told.Code != codes.Unavailable || !strings.Contains(err.Error(), "d.fixed: redis 10.0.0.1") {
		t.Errorf("got %v", err)
	}
	if len(all) != 1 || all[0].Words() != "5 more hits per window" {
		t.Errorf("the grants until a time are known: got %+v", all)
	}
}

// A grant can be for one of the limits, by its name, its rate or its title.
func TestAGrantToOneLimit(t *testing.T) {
	for only, want := range map[string]int{
		"short": 0, "fixed_window 10 per minute": -1, "10 per minute": 0, "10/minute": 0, "10/60*second": 0, "100 per 2 hours": 1,
		"sliding_window 100 per 2 hours": 1, "100/2*hour": 1,
		"long": -1, "10/hour": -1, "10 per": -1,
	} {
		r := start(t, `domain: d
descriptors:
- key: two
  rate_limits: [{name: short, unit: minute, requests_per_unit: 10}, {unit: hour, unit_multiplier: 2, requests_per_unit: 100, strategy: sliding_window}]
`)
		two := request(desc("two", "a"))
		in, err := r.try(operate.Grant(operate.Granting{Hits: 5, Only: only}), two)
		after := r.inspect(operate.Look, two)[0].Limits
		granted := []int64{after[0].Granted, after[1].Granted}
		if want < 0 {
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), fmt.Sprintf("no limit %q: want one of short, 100 per 2 hours", only)) || granted[0]+granted[1] != 0 {
				t.Errorf("%s: got %v, granted %v", only, err, granted)
			}
			continue
		}
		if err != nil || granted[want] != 5 || granted[1-want] != 0 || len(in) != 1 {
			t.Errorf("%s: got %v, granted %v", only, err, granted)
		}
	}
}

// Each limit has its own maximum, and a grant that is too large for one of them is refused
// with the smallest.
func TestTheMaximumOfSeveralLimits(t *testing.T) {
	r := start(t, `domain: d
descriptors:
- key: two
  rate_limits: [{name: long, unit: hour, requests_per_unit: 100}, {name: short, unit: minute, requests_per_unit: 10}]
`)
	two := request(desc("two", "a"))
	_, err := r.try(operate.Grant(operate.Granting{Hits: 5000}), two)
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), `the limit short: 5000 hits are too many: one grant has at most 100 (10 times the limit of 10); "only" names one`) {
		t.Errorf("got %v", err)
	}
	if in := r.change(operate.Grant(operate.Granting{Hits: 900, Only: "long"}), two); changed(t, in).After.Granted != 900 {
		t.Errorf("got %+v", in)
	}
}

// A dry run tells what the change would leave, and changes nothing.
func TestDryRuns(t *testing.T) {
	for _, key := range everyStrategy {
		r := start(t, strategies)
		a := request(desc(key, "a"))
		for range 2 { // the second is denied; a fixed window counts it all the same
			r.hit(withHits(10, desc(key, "a")))
		}
		give := operate.Grant(operate.Granting{Hits: 5})
		for _, do := range []operate.Action{give, give, operate.Reset} {
			foreseen := changed(t, r.change(do.DryRun(), a))
			again := only(t, r.inspect(operate.Look, a))
			if again.Usage != *foreseen.Before {
				t.Errorf("%s: a dry run left %+v of %+v", key, again.Usage, foreseen.Before)
			}
			done := changed(t, r.change(do, a))
			if *done.After != *foreseen.After {
				t.Errorf("%s: %+v, foreseen %+v", key, done.After, foreseen.After)
			}
			if !done.Until.Equal(foreseen.Until) {
				t.Errorf("%s: until %v, foreseen %v", key, done.Until, foreseen.Until)
			}
		}
		if _, err := r.try(operate.Grant(operate.Granting{Hits: 1000}).DryRun(), a); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: got %v", key, err)
		}
	}
}

// TestGrantsTellDescriptors: a change and a grant have the entries of their descriptor, unless values are
// hashed in keys, or are so long that they would take much memory.
func TestGrantsTellDescriptors(t *testing.T) {
	const rules = "domain: d\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 10}}]\n"
	hashed := func(c *service.Config) { c.Values = service.NewValueHash([]byte("a-secret-of-some-length")) }
	long := strings.Repeat("x", 5000)
	for name, r := range map[string]*rig{"ann": start(t, rules), long: start(t, rules), "hashed": start(t, rules, hashed)} {
		in, err := r.try(operate.Grant(operate.Granting{Hits: 5}), request(desc("user", name)))
		if err != nil || len(in) != 1 {
			t.Fatalf("%v, %+v", err, in)
		}
		all, err := r.Grants(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		told := [][]descriptors.Entry{in[0].Entries}
		for _, g := range all {
			told = append(told, g.Entries)
		}
		for _, entries := range told {
			if got := descriptors.Pairs(entries); (got == "user=ann") != (name == "ann") || got != "" && name != "ann" {
				t.Errorf("%.10s: told %.20q", name, got)
			}
		}
	}
}
