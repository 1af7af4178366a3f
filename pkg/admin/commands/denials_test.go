package commands

import (
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"example.org/rls/pkg/denials"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/explain"
)

func lineOf(d *denials.Denial, now time.Time) string {
	var b strings.Builder
	s := &sheet{tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)}
	s.addDenial(d, now)
	_ = s.Flush()
	return b.String()
}

func TestDenialLine(t *testing.T) {
	at := time.Date(2026, 11, 22, 3, 12, 7, 0, time.Local)
	d := denials.Denial{
		Time: at.UTC(), Rule: "shop.user", Entries: []descriptors.Entry{{Key: "user", Value: "ann"}}, Limit: 10,
		Window: explain.Duration(time.Minute), Cost: 1, RetryAfter: explain.Duration(40_300 * time.Millisecond), Policy: "counted",
	}
	odd := d
	odd.Entries = []descriptors.Entry{{Key: "user", Value: "\x1b[2J\n"}, {Key: "plan"}}
	odd.Name, odd.Cost, odd.RetryAfter, odd.Policy, odd.Shadow, odd.Sampled = "per\tday", 3, explain.Duration(1500*time.Microsecond), "deny", true, 8
	for want, got := range map[string]string{
		"03:12:07 shop.user user=ann 10 per minute, wait 41s\n":                                                                                  lineOf(&d, at.Add(24*time.Hour)),
		"2026-11-22 03:12:07 shop.user user=ann 10 per minute, wait 41s\n":                                                                       lineOf(&d, at.Add(24*time.Hour+1)),
		`03:12:07 shop.user user=\x1b[2J\n,plan 10 per minute (per\tday), wait 2ms, cost 3, by policy deny, shadow, 1 of about 8 denials` + "\n": lineOf(&odd, at),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
