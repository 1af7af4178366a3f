package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/internal/testenv"
)

// operator is a person with redis-cli at a Redis.
type operator struct {
	t      *testing.T
	client *goredis.Client
}

func operate(t *testing.T, addr, password string) *operator {
	c := goredis.NewClient(&goredis.Options{Addr: addr, Password: password, Protocol: 2, DisableIdentity: true, ReadTimeout: patience})
	t.Cleanup(func() { _ = c.Close() })
	return &operator{t, c}
}

// does sends a command.
func (o *operator) does(command ...any) any {
	o.t.Helper()
	reply, err := o.client.Do(context.Background(), command...).Result()
	if err != nil {
		o.t.Fatalf("%v: %v", command, err)
	}
	return reply
}

// setting is a value of the configuration.
func (o *operator) setting(name string) string {
	o.t.Helper()
	return o.does("CONFIG", "GET", name).([]any)[1].(string)
}

// rotate changes the password and closes the connections of clients.
func (o *operator) rotate(password string) {
	o.t.Helper()
	o.does("CONFIG", "SET", "requirepass", password)
	o.does("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
}

// failToSave has a Redis fail to write its dump, because a folder is in its place.
func (o *operator) failToSave() {
	o.t.Helper()
	dump := filepath.Join(o.setting("dir"), o.setting("dbfilename"))
	if err := os.MkdirAll(filepath.Join(dump, "in the way"), 0o755); err != nil {
		o.t.Fatal(err)
	}
	o.does("CONFIG", "SET", "save", "3600 1")
	o.does("BGSAVE")
	testenv.Eventually(o.t, patience, func() bool {
		return strings.Contains(o.does("INFO", "persistence").(string), "rdb_last_bgsave_status:err")
	}, "Redis fails to save")
}

// reload has a Redis load its data from a dump in some seconds. It returns when
// Redis has begun.
func (o *operator) reload() {
	o.t.Helper()
	const keys, size, each = 300, 4 << 10, 10_000 // µs for each key
	o.does("CONFIG", "SET", "rdbcompression", "no")
	for i := range keys {
		o.does("SET", fmt.Sprint("ballast", i), strings.Repeat("x", size))
	}
	o.does("CONFIG", "SET", "loading-process-events-interval-bytes", size)
	o.does("CONFIG", "SET", "key-load-delay", each)
	go func() { _ = o.client.Do(context.Background(), "DEBUG", "RELOAD").Err() }()
	testenv.Eventually(o.t, patience, func() bool {
		err := o.client.Ping(context.Background()).Err()
		return err != nil && strings.HasPrefix(err.Error(), "LOADING")
	}, "Redis loads its data")
}

const refusedRules = `
domain: d
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: lenient, rate_limit: {unit: year, requests_per_unit: 1000000, on_error: allow}}
  - {key: strict, rate_limit: {unit: year, requests_per_unit: 1000000, on_error: deny}}
`

// TestStoreThatBeginsToRefuse: while Redis answers and cannot serve, callers are
// told so, or get the verdict of the limit's policy, and the log and the metrics
// say that policies decide. When Redis serves again it counts on from before.
func TestStoreThatBeginsToRefuse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		why, name string
		password  string // at the start
		refuse    func(*operator)
		serve     func(*operator)
	}{
		{"OOM", "full", "",
			func(o *operator) { o.does("CONFIG", "SET", "maxmemory", 1) },
			func(o *operator) { o.does("CONFIG", "SET", "maxmemory", 0) }},
		{"READONLY", "demoted", "",
			func(o *operator) { o.does("REPLICAOF", "127.0.0.1", strconv.Itoa(testenv.FreePort(o.t))) },
			func(o *operator) { o.does("REPLICAOF", "NO", "ONE") }},
		{"NOREPLICAS", "has too few replicas", "",
			func(o *operator) { o.does("CONFIG", "SET", "min-replicas-to-write", 1) },
			func(o *operator) { o.does("CONFIG", "SET", "min-replicas-to-write", 0) }},
		{"MISCONF", "fails to save", "",
			(*operator).failToSave,
			func(o *operator) { o.does("CONFIG", "SET", "save", "") }},
		{"LOADING", "loads its data", "",
			(*operator).reload,
			func(o *operator) { o.does("CONFIG", "SET", "key-load-delay", 0) }},
		{"WRONGPASS", "another password", "old",
			func(o *operator) { o.rotate("new") },
			func(o *operator) { o.rotate("old") }},
		{"NOAUTH", "a first password", "",
			func(o *operator) { o.rotate("new") },
			func(o *operator) { o.rotate("") }},
		{"BUSY", "busy with a script", "",
			func(o *operator) {
				o.does("CONFIG", "SET", "busy-reply-threshold", 1)
				go func() { _ = o.client.Eval(context.Background(), "while true do end", nil).Err() }()
			},
			func(o *operator) { o.does("SCRIPT", "KILL") }},
	} {
		t.Run(c.why+" "+c.name, func(t *testing.T) {
			t.Parallel()
			server := testenv.Redis(t, "--requirepass", c.password, "--enable-debug-command", "yes")
			settings := redisAt(server.Addr)
			if c.password != "" {
				settings = append(settings, "REDIS_AUTH="+c.password)
			}
			s := serve(t, refusedRules, settings...)
			s.want("d", desc("user", "x"), ok, 999_999)
			o := operate(t, server.Addr, c.password)
			o.does("PING") // opens the operator's connection, which stays

			c.refuse(o)
			testenv.Eventually(t, patience, func() bool {
				_, err := s.try(patience, "d", desc("user", "refused"))
				return err != nil
			}, "Redis refuses")
			for range 20 {
				s.undecided("d", desc("user", "refused"), c.why)
			}
			if lenient, strict := s.hit("d", desc("lenient", "x")), s.hit("d", desc("strict", "x")); lenient.Code != ok || strict.Code != over {
				t.Errorf("on_error: allow is answered %v, deny %v", lenient.Code, strict.Code)
			}
			if n := s.stat(`rls_store_errors_total{backend="redis"}`); n < 20 {
				t.Errorf("%v errors of the store are counted, want 20", n)
			}
			active := fmt.Sprintf(`rls_policy_active{backend="redis",server="%s"}`, server.Addr)
			if n, lines := s.stat(active), s.log.With("is away"); n != 1 || len(lines) != 1 || !strings.Contains(lines[0], c.why) {
				t.Errorf("rls_policy_active is %v, want 1; the log has %q, want one line with %s", n, lines, c.why)
			}

			c.serve(o)
			s.within(time.Second, func() bool {
				resp, err := s.try(patience, "d", costing(0, desc("user", "x")))
				return err == nil && resp.Statuses[0].LimitRemaining == 999_999
			}, "right decisions are back")
			s.want("d", desc("user", "x"), ok, 999_998)
			if n, lines := s.stat(active), s.log.With("is back"); n != 0 || len(lines) != 1 {
				t.Errorf("rls_policy_active is %v, want 0; the log has %q, want one line", n, lines)
			}
		})
	}
}
