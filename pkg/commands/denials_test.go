package commands

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"

	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/denials"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
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
		Denied: denials.Denied{Rule: "shop.user", Entries: []descriptors.Entry{{Key: "user", Value: "ann"}}, Words: "10 per minute", Limit: 10},
		Time:   at.UTC(),
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

// rls denials --follow --n prints every past and every new denial once, also a denial that comes
// after the stream has begun and before the past denials are listed.
func TestFollowMissesNothing(t *testing.T) {
	at := time.Date(2026, 11, 22, 3, 12, 7, 0, time.UTC)
	denial := func(user string) denials.Denial {
		return denials.Denial{Time: at, Denied: denials.Denied{Rule: "shop.user", Entries: []descriptors.Entry{{Key: "user", Value: user}}}, Policy: "counted"}
	}
	past := []denials.Denial{denial("ann")}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("follow") == "" {
			_ = json.NewEncoder(w).Encode(admin.DenialsOfAll{List: denials.List{Denials: past}})
			return
		}
		if r.Form.Has("n") || r.FormValue("q") != "n" || r.FormValue("rule") != "shop.user" {
			t.Errorf("the stream has the query %v", r.Form)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, ": open\n\n")
		past = append([]denials.Denial{denial("bob")}, past...) // follows, and comes before the list
		_ = http.NewResponseController(w).Flush()
		for _, user := range []string{"bob", "cyd"} {
			text, _ := json.Marshal(denial(user))
			_, _ = fmt.Fprintf(w, "data: %s\n\n", text)
		}
	}))
	defer api.Close()
	var out strings.Builder
	c := &denialsCmd{Text: "n", Rule: "shop.user", N: 5, Follow: true}
	c.Addr, c.Timeout = strings.TrimPrefix(api.URL, "http://"), time.Minute
	err := c.Run(t.Context(), &kong.Kong{Stdout: &out, Stderr: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "ended the stream") {
		t.Errorf("got the error %v", err)
	}
	var users []string
	for line := range strings.Lines(out.String()) {
		_, rest, _ := strings.Cut(line, "user=")
		users = append(users, rest[:3])
	}
	if got := strings.Join(users, " "); got != "ann bob cyd" {
		t.Errorf("got %s", got)
	}
}
