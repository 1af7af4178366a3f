package rlqs_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service/grants"
	"example.org/rls/pkg/service/operate"
)

// TestAGrantUntilATime gives an Envoy another share, and so does its end.
func TestAGrantUntilATime(t *testing.T) {
	in(t, func(t *testing.T) {
		w := start(t, 1, rules)
		limits := w.replicas[0].service
		o := operate.New(limits, strings.Clone)
		o.Keep(grants.NewKeeper(grants.Options{
			Store: w.store.(backends.Notes), Name: "grants", Log: slog.New(slog.DiscardHandler),
			Changed: func(now *descriptors.Grants, _ []*descriptors.Grant) { limits.SetGrants(now) },
		}))
		s := w.stream(0)
		s.report(usage(0, 1, 0, "hour", "v"))
		if got := s.report(usage(5*time.Second, 99, 0, "hour", "v")); got != "deny 15s" {
			t.Fatal(got)
		}
		_, made, err := o.Change(t.Context(), asking("hour"), operate.Grant(operate.Granting{Hits: 20, For: time.Hour}))
		if err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		if got := s.pushed(); got != "20+1/24h0m0s 15s" {
			t.Errorf("after the grant %s", got)
		}
		if _, err := o.Revoke(t.Context(), made[0].Grant.ID); err != nil {
			t.Fatal(err)
		}
		if got := s.report(usage(5*time.Second, 1, 0, "hour", "v")); got != "deny 15s" {
			t.Errorf("after its end %s", got)
		}
	})
}
