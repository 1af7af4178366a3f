package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/redis"
)

// kinds are operations of cost 1 that fit twice, one for each kind of cell.
func kinds() map[string]backends.Op {
	minute := time.Minute.Microseconds()
	two := func(op backends.Op) backends.Op { op.Max.Whole = 2; return op }
	count, first, sliding, meter, list := hit("count"), two(hit("first")), two(hit("{sliding}2")), hit("meter"), two(hit("list"))
	first.Span = backends.FirstHit
	sliding.Prev, sliding.WeightDen = "{sliding}1", 1
	meter.Kind, meter.By.Whole, meter.Max.Whole, meter.Furthest = backends.Meter, minute, meter.Now+2*minute, backends.NoMax
	list.Kind, list.Window = backends.List, minute
	return map[string]backends.Op{"count": count, "first hit": first, "sliding": sliding, "meter": meter, "list": list}
}

// TestALostExpiryComesBack: a key that was made to live for ever gets a lifetime
// when it is hit, and also when it is denied.
func TestALostExpiryComesBack(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redis.Options{URL: server.Addr, ExpirationJitter: time.Minute})
	side, ctx := client(t, server), context.Background()
	for name, op := range kinds() {
		t.Run(name, func(t *testing.T) {
			for range 4 {
				must(t, s, op)
				// A lone count gets it at one hit in eight, chosen at random.
				for i := 0; name == "count" && i < 200 && side.PTTL(ctx, op.Key).Val() < 0; i++ {
					must(t, s, op)
				}
				if ttl := side.PTTL(ctx, op.Key).Val(); ttl <= 0 || ttl > time.Hour+time.Minute+2*time.Second {
					t.Fatalf("it lives %v", ttl)
				}
				if !side.Persist(ctx, op.Key).Val() {
					t.Fatal("it had no lifetime")
				}
			}
		})
	}
}

// TestForeignKeys: a key with data that the store did not write is an error of its
// own operation only. The error does not name the key.
func TestForeignKeys(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redis.Options{URL: server.Addr})
	side, ctx := client(t, server), context.Background()
	for _, c := range []struct {
		content string
		put     func(key string) error
	}{
		{"a list", func(key string) error { return side.RPush(ctx, key, "alice").Err() }},
		{"a hash", func(key string) error { return side.HSet(ctx, key, "alice", "1").Err() }},
		{"text", func(key string) error { return side.Set(ctx, key, "alice", 0).Err() }},
		{"text with a colon", func(key string) error { return side.Set(ctx, key, "1:alice", 0).Err() }},
		{"a negative number", func(key string) error { return side.Set(ctx, key, "-7:-7", 0).Err() }},
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
					b := backends.Batch{AllOrNothing: all, Ops: []backends.Op{op, good}, Replies: make([]backends.Reply, 2)}
					err := s.Apply(ctx, &b)
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

// TestAForeignKeyThatCannotRefuse: in an all-or-nothing batch an undecided
// operation keeps the others from being charged only if it could refuse the batch.
func TestAForeignKeyThatCannotRefuse(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redis.Options{URL: server.Addr})
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
		b := backends.Batch{AllOrNothing: true, Ops: []backends.Op{foreign, beside}, Replies: make([]backends.Reply, 2)}
		if err := s.Apply(context.Background(), &b); !errors.Is(err, backends.ErrUnavailable) || b.Refused || b.Replies[1].Err != nil {
			t.Errorf("%+v: error %v, refused %v, %+v", c, err, b.Refused, b.Replies[1])
		}
		if got := count(t, s, beside.Key); got != c.charged || b.Replies[1].Value.Whole != c.charged {
			t.Errorf("%+v: charged %d times; %+v", c, got, b.Replies[1])
		}
	}
}
