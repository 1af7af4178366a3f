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

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
	"example.org/rls/pkg/service/operate"
)

// usage reads all pages of at most n rows.
func (r *rig) usage(rule string, above float64, n int) (rows []operate.Used, pages int, hidden int64) {
	r.t.Helper()
	for cursor := ""; ; {
		page, err := r.Usage(r.t.Context(), rule, above, n, cursor)
		if err != nil {
			r.t.Fatal(err)
		}
		if len(page.Rows) > n {
			r.t.Errorf("a page of %d has %d rows", n, len(page.Rows))
		}
		rows, hidden = append(rows, page.Rows...), hidden+page.Hidden
		if pages++; page.Cursor == "" {
			return rows, pages, hidden
		}
		cursor = page.Cursor
	}
}

// line is a row in words.
func line(u operate.Used) string {
	return fmt.Sprintf("%s %s %s %d of %d %v", u.Rule, u.Name, descriptors.Pairs(u.Entries), u.Used, u.Limit, u.Share)
}

func lines(rows []operate.Used) (all []string) {
	for _, row := range rows {
		all = append(all, line(row))
	}
	return all
}

// A reservation is no counter whose values the store has shortened: its key ends in bytes of no text.
func TestUsageWithReservations(t *testing.T) {
	r := start(t, "domain: d\ndescriptors:\n- {key: user, descriptors: [{key: id, rate_limit: {unit: hour, requests_per_unit: 9, reserve: true}}]}\n")
	for _, id := range []string{"a", "b", "c"} {
		r.hit(desc("user", "ann", "id", id))
	}
	if rows, _, hidden := r.usage("d.user.id", 0, 10); len(rows) != 1 || rows[0].Used != 3 || hidden != 0 {
		t.Errorf("got %v, %d hidden", lines(rows), hidden)
	}
}

// TestUsage tells the counters of one rule, as people are told their values.
func TestUsage(t *testing.T) {
	r := start(t, celled, func(c *service.Config) { c.KeyPrefix = "rl:" })
	for _, d := range []service.Descriptor{
		withHits(4, desc("user", "bob")), withHits(9, desc("user", "b|=%{}*")), desc("user", "ann"), desc("user", "al"),
		desc("plan", "free", "user", "bob"), desc("path", "/s/1"), withHits(2, desc("path", "/s/2")), desc("ip", "10.1.1.1"), desc("ip", "192.0.2.7"),
		withHits(5, desc("api_key", "k")), withHits(10, desc("user", strings.Repeat("x", 300))), desc("x-a", "1"), desc("user", "b\xff"),
	} {
		r.hit(d)
	}
	for rule, want := range map[string]string{
		"d.user_ann": "d.user_ann  user=ann 1 of 10 0.1",
		"d.user_a*":  "d.user_a*  user=al 1 of 10 1", "d.plan_free.user": "d.plan_free.user  plan=free,user=bob 1 of 10 0.1",
		"d.path_/s/*": "d.path_/s/*  path=/s/* 3 of 10 0.3", "d.ip~cidr:10.0.0.0/8+1": "d.ip~cidr:10.0.0.0/8+1  ip~cidr:10.0.0.0/8+1 1 of 10 0.1",
		"d.ip": "d.ip  ip=192.0.2.0/24 1 of 10 1", "d.x-*": "d.x-*  x-a 1 of 10 0.1",
	} {
		if rows, _, hidden := r.usage(rule, 0, 10); len(rows) != 1 || line(rows[0]) != want || hidden != 1 {
			t.Errorf("%s: got %v, %d hidden, want %s", rule, lines(rows), hidden, want)
		}
	}
	if rows, _, _ := r.usage("d.api_key", 0.4, 10); len(rows) != 2 || rows[0].Share+rows[1].Share != 1 {
		t.Errorf("the limits of a key that are used by 40 %%, one of them with a burst: %v", rows)
	}
	for above, want := range map[float64]int{0: 3, 0.4: 2, 0.5: 1, 0.91: 0} {
		if rows, _, _ := r.usage("d.user", above, 10); len(rows) != want {
			t.Errorf("above %v: %v, want %d rows", above, rows, want)
		}
	}
}

// TestUsageInPages: each counter comes once, in pages of at most n, also while others come.
func TestUsageInPages(t *testing.T) {
	r := start(t, celled)
	const users = 700
	for i := range users {
		r.hit(withHits(uint64(1+i%10), desc("user", fmt.Sprint(i))))
	}
	for n, pages := range map[int]int{1: users, 30: users / 30, 1000: 1} {
		seen := map[string]bool{}
		rows, got, _ := r.usage("d.user", 0, n)
		for _, row := range rows {
			seen[row.Entries[0].Value] = true
		}
		if len(rows) != users || len(seen) != users || got < pages {
			t.Errorf("%d rows of %d users in %d pages of %d", len(rows), len(seen), got, n)
		}
	}
	if rows, pages, _ := r.usage("d.user", 1, 20); len(rows) != users/10 || pages > 10 {
		t.Errorf("of those that are full: %d rows in %d pages", len(rows), pages)
	}
}

func TestUsageThatCannotBe(t *testing.T) {
	for _, c := range []struct {
		rule, cursor, want string
		code               codes.Code
		change             func(*service.Config)
	}{
		{"d.nobody", "", "no rule d.nobody is in force", codes.NotFound, func(*service.Config) {}},
		{"d.free", "", "unlimited", codes.FailedPrecondition, func(*service.Config) {}},
		{"d.user", "", "CACHE_KEY_HASH", codes.Unimplemented, func(c *service.Config) { c.Values = service.NewValueHash([]byte("secret")) }},
		{"d.user", "", "CACHE_KEY_FORMAT", codes.Unimplemented, func(c *service.Config) { c.RatelimitKeys = true }},
		{"d.user", "", "cannot scan", codes.Unimplemented, func(c *service.Config) { c.Store = struct{ backends.Store }{c.Store} }},
		{"d.user", "0/1:2:3", "begin without a cursor", codes.Aborted, func(*service.Config) {}},
		{"d.user", "7/", "begin without a cursor", codes.Aborted, func(*service.Config) {}},
		{"d.user", "", "cannot list its keys: redis at 10.0.0.1", codes.Unavailable, func(c *service.Config) { c.Store = unlisted{c.Store} }},
	} {
		page, err := start(t, celled, c.change).Usage(t.Context(), c.rule, 0, 10, c.cursor)
		if status.Code(envoy.Error(err)) != c.code || !strings.Contains(err.Error(), c.want) || len(page.Rows) > 0 {
			t.Errorf("%s %s: %v, want %q", c.rule, c.cursor, err, c.want)
		}
	}
}

// unlisted is a store that cannot list its keys now.
type unlisted struct{ backends.Store }

func (unlisted) Page(context.Context, string, string, int) ([]string, string, error) {
	return nil, "", errors.New("redis at 10.0.0.1 does not answer")
}

// TestUsageOfServers: in Redis and in a Redis Cluster each counter comes once, while others come.
func TestUsageOfServers(t *testing.T) {
	cluster := testenv.RedisCluster(t, 2, 0)
	for name, o := range map[string]redis.Options{
		"redis": {URL: testenv.Redis(t).Addr}, "cluster": {Type: "cluster", URL: strings.Join(cluster.Addrs(), ",")},
	} {
		o.Watch = &breaker.Watch{Slow: 10 * time.Second}
		store, err := redis.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		r := start(t, strings.ReplaceAll(celled, "unit: minute", "unit: year"), func(c *service.Config) { c.Store = store })
		const users = 600
		for i := range users {
			r.hit(desc("user", fmt.Sprint(i)))
		}
		seen, added := map[string]int{}, 0
		for cursor := ""; ; {
			page, err := r.Usage(t.Context(), "d.user", 0, 50, cursor)
			if err != nil || len(page.Rows) > 50 {
				t.Fatalf("%s: a page of %d rows, %v", name, len(page.Rows), err)
			}
			for _, row := range page.Rows {
				seen[row.Entries[0].Value]++
			}
			if cursor = page.Cursor; cursor == "" {
				break
			}
			for range 40 {
				if added++; added < 2000 {
					r.hit(desc("user", fmt.Sprint("added", added)))
				}
			}
		}
		for i := range users {
			if seen[fmt.Sprint(i)] == 0 {
				t.Errorf("%s: the user %d is missing", name, i)
			}
		}
		for user, times := range seen {
			if times > 1 {
				t.Errorf("%s: %s comes %d times", name, user, times)
			}
		}
	}
}
