package commands

import (
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/top"
)

func topRow(value string, denied, hits int64) top.Row {
	return top.Row{Domain: "shop", Rule: "shop.user", Entries: []descriptors.Entry{{Key: "user", Value: value}}, Denied: denied, Hits: hits, Cost: hits, Rate: 0.5, Error: 1, Limit: "ten", Remaining: new(int64(7))}
}

func topText(t *testing.T, width int, rows ...top.Row) string {
	t.Helper()
	var text strings.Builder
	if err := writeTop(&text, &admin.TopOfAll{Table: top.Table{By: "denied", Window: "60s", Rows: rows}}, terminal.Colors{}, width); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// The key stands first. A long one does not widen the column.
func TestTopTable(t *testing.T) {
	long := strings.Repeat("x", 60)
	want := `last 60s: 0 requests, 0 denied, 0 hits
KEY         DENIED  SHARE  HITS  COST  RATE (denied/s)  ERROR  REMAINING  LIMIT  RULE
user=ann         5   50 %    10    10              0.5      1          7  ten  shop.user
user=` + long + `       4  100 %     4     4              0.5      1          7  ten  shop.user
user=zoë_1       0    0 %   100   100              0.5      1          7  ten  shop.user
`
	if got := topText(t, math.MaxInt, topRow("ann", 5, 10), topRow(long, 4, 4), topRow("zoë_1", 0, 100)); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// On a terminal of any width lines are cut, but no key is, and neither are the numbers of a long one.
func TestTopCutsNoKey(t *testing.T) {
	long := strings.Repeat("x", 30)
	for width := 1; width < 150; width++ {
		got := topText(t, width, topRow("ann", 5, 10), topRow(long, 4, 4))
		for _, want := range []string{"\nuser=ann", "\nuser=" + long} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in %d columns:\n%s", want, width, got)
			}
		}
		short := strings.Split(got, "\n")[2]
		if width >= 16 && len(short) > width {
			t.Errorf("%q has more than %d columns", short, width)
		}
		if width < 70 && !strings.Contains(got, long+"       4  100 %     4     4              0.5      1          7  ten  shop.user\n") {
			t.Errorf("the row of a long key is cut in %d columns:\n%s", width, got)
		}
	}
}

func TestTopShowsControlBytesAsText(t *testing.T) {
	if got := topText(t, math.MaxInt, topRow("\x1b[2J\n", 1, 1)); !strings.Contains(got, `user=\x1b[2J\n`) || strings.Contains(got, "\x1b") {
		t.Errorf("got %q", got)
	}
}

// The buckets of Envoys have columns if there are any.
func TestTopBuckets(t *testing.T) {
	row := topRow("ann", 0, 1)
	row.Buckets, row.Assigned = 3, 12.5
	text := topText(t, math.MaxInt, row, topRow("bob", 1, 1))
	for _, want := range []string{"REMAINING  BUCKETS  ASSIGNED/s  LIMIT", "7        3        12.5  ten", "7        0         0.0  ten"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// nobody is an address where no process listens.
func nobody(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	return l.Addr().String()
}

// The screen has as many rows as it has lines, or as many as the person wants, below the
// addresses that do not answer. Of a process that does not answer it has an error alone.
func TestTopScreen(t *testing.T) {
	var rows []top.Row
	for i := range 100 {
		rows = append(rows, topRow(fmt.Sprint("u", i), 1, 1))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.FormValue("n"))
		answer := map[string]any{"by": r.FormValue("by"), "window": "60s", "rows": rows[:n]}
		if r.FormValue("fleet") == "true" {
			answer["replicas"] = []client.Replica{{Address: "10.0.0.2", Error: "away"}}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer server.Close()
	there, away := server.Listener.Addr().String(), nobody(t)
	t.Setenv("RLS_TOKEN", "0123456789abcdef")
	for name, test := range map[string]struct {
		addr string
		cmd  topCmd
		rows int
		head string
	}{
		"one process":     {there, topCmd{}, 30, "last 60s: "},
		"rows are wanted": {there, topCmd{N: 5}, 5, "last 60s: "},
		"a fleet":         {there, topCmd{fleetFlag: fleetFlag{true}}, 30, "rls: replica 10.0.0.2 does not answer: away\nlast 60s: "},
		"nobody":          {away, topCmd{}, 0, "rls: admin API at " + away + ": "},
	} {
		t.Run(name, func(t *testing.T) {
			c := test.cmd
			c.By, c.Timeout = "denied", 10*time.Second
			api, err := c.client(test.addr)
			if err != nil {
				t.Fatal(err)
			}
			got := c.screen(t.Context(), api, 80, 30)
			if n := strings.Count(got, "\nuser=u"); n != test.rows || !strings.HasPrefix(got, test.head) {
				t.Errorf("%d rows, want %d and %q:\n%s", n, test.rows, test.head, got)
			}
			if shown := slices.ContainsFunc(strings.Split(got, "\n"), func(line string) bool { return strings.HasPrefix(line, "KEY ") }); shown != (test.rows > 0) {
				t.Errorf("a table: %v\n%s", shown, got)
			}
		})
	}
}
