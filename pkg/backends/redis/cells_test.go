package redis_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/backendtest"
	"example.org/rls/pkg/backends/redis"
)

// TestScriptsAgainstSteps holds the scripts to the definition in Go with values
// as large as they may be.
func TestScriptsAgainstSteps(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redis.Options{URL: server.Addr})
	side := client(t, server)
	const hour = int64(time.Hour / time.Microsecond)
	start := time.Now().UnixMicro()
	rapid.Check(t, func(t *rapid.T) {
		if err := side.FlushDB(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		model := backendtest.NewModel()
		now := start
		cost := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, 1<<33), rapid.Int64Range(0, backends.MaxCost))
		ceiling := rapid.OneOf(rapid.Int64Range(-2, 10), rapid.Int64Range(0, 1<<32), rapid.Int64Range(0, backends.MaxValue), rapid.Just(int64(math.MaxInt64)))
		den := rapid.Int64Range(1, 1<<32-1).Draw(t, "den")
		for range rapid.IntRange(1, 25).Draw(t, "batches") {
			now += rapid.SampledFrom([]int64{0, 0, 1, 1000, 1_000_000, hour / 2, hour}).Draw(t, "later")
			// Resets and grants come in batches that are not decided together.
			operator := rapid.IntRange(0, 4).Draw(t, "of an operator") == 0
			b := backends.Batch{AllOrNothing: !operator && rapid.Bool().Draw(t, "all or nothing")}
			for range rapid.IntRange(1, 4).Draw(t, "operations") {
				op := backends.Op{Now: now, Den: 1,
					Times:  rapid.OneOf(rapid.Just(int64(1)), rapid.Int64Range(1, backends.MaxTimes)).Draw(t, "times"),
					By:     backends.Amount{Whole: cost.Draw(t, "by")},
					Max:    backends.Amount{Whole: ceiling.Draw(t, "max")},
					Refund: rapid.IntRange(0, 4).Draw(t, "refund") == 0,
					Undo:   rapid.Bool().Draw(t, "undo"),
					Role:   rapid.SampledFrom([]backends.Role{backends.Firm, backends.Quota, backends.Lenient}).Draw(t, "role"),
					Group:  rapid.Uint8Range(0, 2).Draw(t, "group"),
					Until:  now + hour, Window: hour,
				}
				if b.AllOrNothing || op.Group > 0 {
					op.Times = 1
				}
				switch kind := rapid.SampledFrom([]string{"fixed", "first", "every", "sliding", "meter", "list"}).Draw(t, "kind"); kind {
				case "fixed":
					op.Key, op.Until = "fixed", start+1000*hour
				case "first":
					op.Key, op.Span = kind, backends.FirstHit
				case "every":
					op.Key, op.Span = kind, backends.EveryHit
				case "sliding":
					op.Key, op.Prev, op.Until = kind, "fixed", start+1000*hour
					op.WeightDen = rapid.Int64Range(1, 1<<35).Draw(t, "of")
					op.WeightNum = rapid.Int64Range(0, op.WeightDen).Draw(t, "weight")
				case "meter":
					op.Kind, op.Key, op.Den = backends.Meter, kind, den
					op.By = backends.Amount{
						Whole: rapid.Int64Range(0, hour/10).Draw(t, "interval"),
						Frac:  rapid.Int64Range(0, den-1).Draw(t, "frac"),
					}
					op.Max, op.Furthest = backends.NoMax, backends.NoMax
					if rapid.Bool().Draw(t, "bounded") {
						op.Furthest = backends.Amount{
							Whole: now + rapid.Int64Range(0, 3*hour).Draw(t, "furthest"),
							Frac:  rapid.Int64Range(0, den-1).Draw(t, "furthest frac"),
						}
					}
					if rapid.Bool().Draw(t, "limited") {
						op.Max = backends.Amount{
							Whole: now + rapid.Int64Range(0, 3*hour).Draw(t, "tolerance"),
							Frac:  rapid.Int64Range(0, den-1).Draw(t, "tolerance frac"),
						}
					}
				case "list":
					op.Kind, op.Key = backends.List, kind
					op.By.Whole = min(op.By.Whole, 1<<33)
					op.Max.Whole = min(op.Max.Whole, 1<<40)
				}
				if op.Kind == backends.Counter && !op.Refund {
					op.ChargeDenied = rapid.Bool().Draw(t, "charge denied")
				}
				if operator {
					if op.Group = 0; rapid.Bool().Draw(t, "steered") {
						op = steered(t, op)
					}
				}
				b.Ops = append(b.Ops, op)
			}
			want := b
			b.Replies, want.Replies = make([]backends.Reply, len(b.Ops)), make([]backends.Reply, len(b.Ops))
			if err := s.Apply(context.Background(), &b); err != nil {
				t.Fatal(err)
			}
			if err := model.Apply(context.Background(), &want); err != nil {
				t.Fatal(err)
			}
			if b.Refused != want.Refused {
				t.Fatalf("refused %v, want %v: %+v", b.Refused, want.Refused, b.Ops)
			}
			for i := range b.Ops {
				if !backendtest.Same(&b.Ops[i], b.Replies[i], want.Replies[i]) {
					t.Fatalf("operation %d: %+v\ngot  %+v\nwant %+v", i, b.Ops[i], b.Replies[i], want.Replies[i])
				}
			}
		}
		immortal(t, side)
	})
}

// steered is the operation that resets op's cell, or grants the cost of op.
func steered(t *rapid.T, op backends.Op) backends.Op {
	by, most := op.By, op.Max
	if op = op.Reset(); rapid.Bool().Draw(t, "reset") {
		return op
	}
	op.Verb, op.By, op.Max = backends.Grant, by, most
	op.Least.Whole = -rapid.OneOf(rapid.Int64Range(0, 10), rapid.Int64Range(0, 11<<32)).Draw(t, "least")
	if op.Kind == backends.Meter {
		op.Least.Frac = rapid.Int64Range(0, op.Den-1).Draw(t, "least frac")
		op.Furthest = backends.NoMax // Max is nearer
	}
	return op
}

// immortal fails if a key has no lifetime.
func immortal(t rapid.TB, side *goredis.Client) {
	keys, err := side.Keys(context.Background(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if ttl, err := side.PTTL(context.Background(), key).Result(); err != nil || ttl == -1 {
			t.Fatalf("%s has no lifetime (%v)", key, err)
		}
	}
}

// TestKeysInRedis: a fixed window is an integer that lives until the window ends
// and the jitter more; short keys are stored as they are, long ones shortened.
func TestKeysInRedis(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redis.Options{URL: server.Addr, ExpirationJitter: time.Minute})
	side := client(t, server)
	op := hit("a key")
	op.By.Whole = 7
	began := time.Now()
	must(t, s, op)
	if got, err := side.Get(context.Background(), "a key").Result(); got != "7" || err != nil {
		t.Errorf("GET says %q, %v; want 7", got, err)
	}
	ttl := side.PTTL(context.Background(), "a key").Val()
	if ttl < time.Hour-time.Minute || ttl > time.Hour+time.Minute+2*time.Second {
		t.Errorf("it lives %v, want the hour's rest and at most a minute of jitter", ttl)
	}
	must(t, s, op) // which may set the lifetime anew, for the same time of the request
	if again, took := side.PTTL(context.Background(), "a key").Val(), time.Since(began); again > ttl+took {
		t.Errorf("a second hit %v later made it live longer: %v, then %v", took, ttl, again)
	}

	long := strings.Repeat("x", 10_000)
	for _, key := range []string{"{" + long + "}1", "{" + long + "}2", long} {
		must(t, s, hit(key))
	}
	for _, key := range side.Keys(context.Background(), "*x*").Val() {
		if len(key) > 300 || !strings.Contains(key, "xxx") {
			t.Errorf("long key is stored as %d bytes: %.80s", len(key), key)
		}
	}
	if n := side.DBSize(context.Background()).Val(); n != 4 {
		t.Errorf("%d keys, want 4", n)
	}
}
