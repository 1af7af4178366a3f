package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/redis"
	"example.org/rls/test/backendtest"
)

// TestScriptsAgainstSteps holds the scripts to the definition in Go with values
// as large as they may be.
func TestScriptsAgainstSteps(t *testing.T) {
	const rounds = 1000
	server, s := start(t)
	side := client(t, server)
	r := testenv.Random(t)
	for range rounds {
		if err := side.FlushDB(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		model := backendtest.NewModel()
		began := time.Now().UnixMicro()
		now, den := began, testenv.Between(r, 1, 1<<32-1)
		for range testenv.Between(r, 1, 25) {
			now += testenv.OneOf(r, 0, 0, 1, 1000, 1_000_000, hour/2, hour)
			b := anyBatch(r, began, now, den)
			want := b
			b.Replies, want.Replies = make([]backends.Reply, len(b.Ops)), make([]backends.Reply, len(b.Ops))
			if err := s.Apply(context.Background(), &b); err != nil {
				t.Fatalf("%v: %+v", err, b.Ops)
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
	}
}

const hour = int64(time.Hour / time.Microsecond)

// anyBatch is a batch of operations at the time now, on cells that began to count at
// the time began. Meters count in parts of 1/den.
func anyBatch(r *rand.Rand, began, now, den int64) backends.Batch {
	// Resets and grants come in batches that are not decided together.
	operator := r.IntN(5) == 0
	b := backends.Batch{AllOrNothing: !operator && r.IntN(2) == 0}
	for range testenv.Between(r, 1, 4) {
		op := anyOp(r, began, now, den)
		op.Times = testenv.OneOf(r, 1, testenv.Between(r, 1, backends.MaxTimes))
		if b.AllOrNothing || op.Group > 0 {
			op.Times = 1
		}
		if operator {
			if op.Group = 0; r.IntN(2) == 0 {
				op = steered(r, op)
			}
		}
		b.Ops = append(b.Ops, op)
	}
	return b
}

// anyOp is a charge or a refund on a cell of any kind.
func anyOp(r *rand.Rand, began, now, den int64) backends.Op {
	op := backends.Op{
		Limit: &backends.Limit{Den: 1, Window: hour}, Now: now,
		By: backends.Amount{Whole: testenv.Between(r, 0, testenv.OneOf(r, 3, 1<<33, backends.MaxCost))},
		Max: backends.Amount{Whole: testenv.OneOf(r, testenv.Between(r, -2, 10), testenv.Between(r, 0, 1<<32),
			testenv.Between(r, 0, backends.MaxValue), math.MaxInt64)},
		Role:  testenv.OneOf(r, backends.Firm, backends.Quota, backends.Lenient),
		Group: uint8(r.IntN(3)),
		Until: now + hour,
	}
	if r.IntN(5) == 0 {
		op.Verb = testenv.OneOf(r, backends.Refund, backends.Undo)
	}
	switch kind := testenv.OneOf(r, "fixed", "first", "every", "sliding", "meter", "list"); kind {
	case "fixed":
		op.Key, op.Until = kind, began+1000*hour
	case "first":
		op.Key, op.Span = kind, backends.FirstHit
	case "every":
		op.Key, op.Span = kind, backends.EveryHit
	case "sliding":
		op.Key, op.Span, op.Window = kind, backends.Sliding, testenv.Between(r, hour, 1<<35*1000)
		op.Mark = now / op.Window
		op.Until = (op.Mark + 2) * op.Window
	case "meter":
		moment := func(most int64) backends.Amount {
			return backends.Amount{Whole: testenv.Between(r, 0, most), Frac: testenv.Between(r, 0, den-1)}
		}
		op.Kind, op.Key, op.Den = backends.Meter, kind, den
		op.By = moment(hour / 10)
		op.Max, op.Full = backends.NoMax, backends.NoMax
		if r.IntN(2) == 0 {
			op.Full = moment(3 * hour)
		}
		if r.IntN(2) == 0 {
			op.Max = moment(3 * hour)
			op.Max.Whole += now
		}
	case "list":
		op.Kind, op.Key = backends.List, kind
		op.By.Whole = min(op.By.Whole, 1<<33)
		op.Max.Whole = min(op.Max.Whole, 1<<40)
	}
	if op.Kind == backends.Counter && !op.Verb.GivesBack() {
		if r.IntN(2) == 0 {
			op.Verb = backends.Count
		}
	}
	return op
}

// steered is the operation that resets op's cell, or grants the cost of op.
func steered(r *rand.Rand, op backends.Op) backends.Op {
	by, most := op.By, op.Max
	if op = op.Reset(); r.IntN(2) == 0 {
		return op
	}
	op.Verb, op.By, op.Max = backends.Grant, by, most
	op.Least.Whole = -testenv.Between(r, 0, testenv.OneOf[int64](r, 10, 11<<32))
	if op.Kind == backends.Meter {
		op.Least.Frac = testenv.Between(r, 0, op.Den-1)
		op.Full = backends.NoMax // Max is nearer
	}
	return op
}

// immortal fails if a key has no lifetime.
func immortal(t *testing.T, side *goredis.Client) {
	t.Helper()
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
	if again, took := side.PTTL(context.Background(), "a key").Val(), time.Since(began); again > ttl+took+time.Millisecond {
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

// TestCountsNeedNoScript: the operation of nearly all traffic is two plain commands, alone and beside
// others, which cost Redis less than a script.
func TestCountsNeedNoScript(t *testing.T) {
	server, s := start(t)
	for i := range int64(4) {
		must(t, s, hit("a"))
		if got := must(t, s, hit("a"), hit("b")); got[0].Value.Whole != 2*i+2 || got[1].Value.Whole != i+1 {
			t.Errorf("two counts: %+v", got)
		}
	}
	stats := admin(t, server, "INFO", "commandstats").(string)
	if strings.Contains(stats, "eval") || !strings.Contains(stats, "cmdstat_incrby:calls=12,") || !strings.Contains(stats, "cmdstat_pexpire:calls=12,") {
		t.Errorf("Redis was sent\n%s", stats)
	}
}

// TestALoneCountIsSaturated: a count does not go on beyond backends.MaxValue, so that
// it never overflows.
func TestALoneCountIsSaturated(t *testing.T) {
	server, s := start(t)
	side, ctx := client(t, server), context.Background()
	must(t, s, hit("a"))
	if err := side.Set(ctx, "a", backends.MaxValue-1, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if got := must(t, s, hit("a"))[0].Value.Whole; got != backends.MaxValue {
			t.Errorf("it counts %d, want %d", got, backends.MaxValue)
		}
	}
	if got := side.Get(ctx, "a").Val(); got != "4503599627370496" {
		t.Errorf("the key holds %s", got)
	}
	if ttl := side.PTTL(ctx, "a").Val(); ttl <= 0 {
		t.Errorf("it lives %v", ttl)
	}
}

// TestALoneCountWithoutMemory: a charge that a full Redis refuses leaves no key.
func TestALoneCountWithoutMemory(t *testing.T) {
	server, s := start(t)
	must(t, s, hit("a"))
	admin(t, server, "CONFIG", "SET", "maxmemory", "1")
	if _, err := try(s, time.Second, hit("b")); !errors.Is(err, backends.ErrUnavailable) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("got %v", err)
	}
	admin(t, server, "CONFIG", "SET", "maxmemory", "0")
	if got := count(t, s, "b"); got != 0 {
		t.Errorf("charged %d times", got)
	}
	must(t, s, hit("b"))
}

// kinds are operations of cost 1 that fit twice, one for each kind of cell.
func kinds() map[string]backends.Op {
	minute := time.Minute.Microseconds()
	two := func(op backends.Op) backends.Op { op.Max.Whole = 2; return op }
	count, first, sliding, meter, list := hit("count"), two(hit("first")), two(hit("sliding")), hit("meter"), two(hit("list"))
	first.Span = backends.FirstHit
	sliding.Span, sliding.Window = backends.Sliding, 30*minute
	sliding.Mark = sliding.Now / sliding.Window
	sliding.Until = (sliding.Mark + 2) * sliding.Window
	meter.Kind, meter.By.Whole, meter.Max.Whole, meter.Full = backends.Meter, minute, meter.Now+2*minute, backends.NoMax
	list.Kind, list.Window = backends.List, minute
	return map[string]backends.Op{"count": count, "first hit": first, "sliding": sliding, "meter": meter, "list": list}
}

// TestALostExpiryComesBack: keys that were made to live for ever get a lifetime with the next hit,
// admitted or denied: keys of cells, of reservations, and of hits that are to come back.
func TestALostExpiryComesBack(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redis.Options{URL: server.Addr, ExpirationJitter: time.Minute})
	side, ctx := client(t, server), context.Background()
	lost := kinds()
	for name, op := range kinds() {
		op.Max.Whole += hour // never denied
		if lost[name+", never full"] = op; name == "count" || name == "first hit" {
			continue
		}
		for hold, giveBack := range map[string]bool{"reservations": false, "holds": true} {
			held := op
			held.Hold = &backends.Hold{Key: op.Key + "|hold", TTL: hour / 6, GiveBack: giveBack}
			lost[name+", "+hold] = held
		}
	}
	debt := hit("debt")
	debt.Span, debt.Window, debt.Unit.Whole, debt.Max.Whole = backends.Carried, hour, 1, 10
	debt.Carry, debt.Debt = 10, backends.Amount{Whole: 100}
	lost["debt"] = debt
	for name, op := range lost {
		t.Run(name, func(t *testing.T) {
			side.FlushDB(ctx)
			for i := range int64(4) {
				if op.Hold != nil { // reserves, and then settles with twice the cost
					if i == 2 {
						side.Del(ctx, op.Hold.RecordKey()) // nobody asks for it again
					}
					op.Hold.ID = fmt.Sprintf("reservation %04d", i/2)
					op.By.Whole = (1 + i%2) * lost[name].By.Whole
				}
				must(t, s, op)
				immortal(t, side)
				for _, key := range side.Keys(ctx, "*").Val() {
					if ttl := side.PTTL(ctx, key).Val(); ttl > time.Hour+time.Minute+2*time.Second {
						t.Errorf("%s lives %v", key, ttl)
					}
					side.Persist(ctx, key)
				}
			}
		})
	}
}

// TestADebtLives: the key of a debt lives until a tenth of the limit would have paid it, and the key
// of hits within their limit for their window.
func TestADebtLives(t *testing.T) {
	server, s := start(t)
	side, ctx := client(t, server), context.Background()
	for used, hours := range map[int64]time.Duration{100: 1, 220: 22} {
		op := hit("debt")
		op.Span, op.Window, op.By.Whole, op.Unit.Whole, op.Max.Whole = backends.Carried, hour, used, 1, 100
		op.Carry, op.Debt = 100, backends.Amount{Whole: 1000}
		must(t, s, op)
		if ttl := side.PTTL(ctx, op.Key).Val(); ttl > hours*time.Hour+2*time.Second || ttl < hours*time.Hour-time.Minute {
			t.Errorf("%d of 100 hits live %v, want %d hours", used, ttl, hours)
		}
		must(t, s, op.Reset())
	}
}

// TestAListThatNeverEnds: the hits that have left a list which is never empty do not add up without
// end in its totals. With the hits of a round that come back as the oldest ones, the first half of the
// list is written anew.
func TestAListThatNeverEnds(t *testing.T) {
	_, s := start(t)
	op := kinds()["list"]
	op.By.Whole, op.Times, op.Max = backends.MaxCost, backends.MaxTimes/4, backends.NoMax
	for round := range int64(300) {
		op.Now += op.Window / 8
		back := op
		back.Verb, back.Oldest, back.Times = backends.Refund, true, round%2+1
		r := must(t, s, op, back)
		if want := min(round+1, 8) * op.By.Whole * op.Times; r[0].Value.Whole > want || r[0].Value.Whole < want*15/16 {
			t.Fatalf("round %d: the list has %d hits, want %d", round, r[0].Value.Whole, want)
		}
	}
}

// TestForeignKeys: a key with data that the store did not write is an error of its
// own operation only. The error does not name the key.
func TestForeignKeys(t *testing.T) {
	server, s := start(t)
	side, ctx := client(t, server), context.Background()
	for _, c := range []struct {
		content string
		put     func(key string) error
	}{
		{"a list", func(key string) error { return side.RPush(ctx, key, "alice").Err() }},
		{"a hash", func(key string) error { return side.HSet(ctx, key, "alice", "1").Err() }},
		{"text", func(key string) error { return side.Set(ctx, key, "alice", 0).Err() }},
		{"text with a colon", func(key string) error { return side.Set(ctx, key, "1:alice", 0).Err() }},
		{"a number and a word", func(key string) error { return side.Set(ctx, key, "7;12345678", 0).Err() }},
		{"a number and a text", func(key string) error { return side.Set(ctx, key, "7"+strings.Repeat("a", 40), 0).Err() }},
		{"a colon too many", func(key string) error { return side.Set(ctx, key, "7:", 0).Err() }},
		{"a number too few", func(key string) error { return side.Set(ctx, key, "7::7", 0).Err() }},
		{"a negative number", func(key string) error { return side.Set(ctx, key, "-7:-7", 0).Err() }},
		{"a number below all counts", func(key string) error { return side.Set(ctx, key, "-9000000000000000000", 0).Err() }},
	} {
		for name, op := range kinds() {
			t.Run(c.content+" for "+name, func(t *testing.T) {
				side.FlushDB(ctx)
				if err := c.put(op.Key); err != nil {
					t.Fatal(err)
				}
				if _, err := try(s, time.Second, op); !errors.Is(err, backends.ErrUnavailable) || !strings.Contains(err.Error(), backends.KeyHash(op.Key)) {
					t.Fatalf("alone: %v", err)
				}
				good := hit("good")
				for _, all := range []bool{false, true} {
					b, err := apply(ctx, s, all, op, good)
					if !errors.Is(err, backends.ErrUnavailable) || !errors.Is(err, b.Replies[0].Err) {
						t.Fatalf("error %v, replies %+v", err, b.Replies)
					}
					if says := err.Error(); !strings.Contains(says, backends.KeyHash(op.Key)) || strings.Contains(says, op.Key+" ") || strings.Contains(says, "script") {
						t.Errorf("the error is %q", says)
					}
					if r := b.Replies[1]; r.Err != nil || r.Admitted != 1 {
						t.Errorf("the operation beside it: %+v", r)
					}
					if got := count(t, s, "good"); got != 1 {
						t.Errorf("all or nothing %v: the operation beside it has been charged %d times, want 1", all, got)
					}
				}
			})
		}
	}
}

// TestNumbersOfAnotherForm: three numbers are the cell of a sliding window, or a meter with credit, and
// nothing else; a meter with credit has all three.
func TestNumbersOfAnotherForm(t *testing.T) {
	server, s := start(t)
	side, ctx := client(t, server), context.Background()
	for _, c := range [][2]string{{"count", "7:7:7"}, {"first hit", "7:7:7"}, {"meter", "7:7:7"}, {"meter", "-7:0"}} {
		op := kinds()[c[0]]
		if err := side.Set(ctx, op.Key, c[1], 0).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := try(s, time.Second, op); !errors.Is(err, backends.ErrUnavailable) || !strings.Contains(err.Error(), backends.KeyHash(op.Key)) {
			t.Errorf("%s at the key of a %s: %v", c[1], c[0], err)
		}
	}
}

// TestAForeignKeyThatCannotRefuse: in an all-or-nothing batch an undecided
// operation keeps the others from being charged only if it could refuse the batch.
func TestAForeignKeyThatCannotRefuse(t *testing.T) {
	server, s := start(t)
	if err := client(t, server).Set(context.Background(), "foreign", "text", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		foreign, beside backends.Role
		charged         int64
	}{
		{backends.Firm, backends.Firm, 0},
		{backends.Firm, backends.Quota, 0},
		{backends.Lenient, backends.Firm, 1},
		{backends.Quota, backends.Firm, 0},
		{backends.Quota, backends.Quota, 1},
	} {
		foreign, beside := hit("foreign"), hit(fmt.Sprint("beside", i))
		foreign.Role, beside.Role = c.foreign, c.beside
		b, err := apply(context.Background(), s, true, foreign, beside)
		if !errors.Is(err, backends.ErrUnavailable) || b.Refused || b.Replies[1].Err != nil {
			t.Errorf("%+v: error %v, refused %v, %+v", c, err, b.Refused, b.Replies[1])
		}
		if got := count(t, s, beside.Key); got != c.charged || b.Replies[1].Value.Whole != c.charged {
			t.Errorf("%+v: charged %d times; %+v", c, got, b.Replies[1])
		}
	}
}
