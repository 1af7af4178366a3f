package redis_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/redis"
)

// held is a charge of cost of at most 1000,000 that makes or settles the reservation of id.
func held(key string, now, cost int64, id uint64) backends.Op {
	op := hit(key)
	op.Now, op.Until = now, now+time.Hour.Microseconds()
	op.By.Whole, op.Max.Whole = cost, 1_000_000
	op.Hold = &backends.Hold{Key: key + "|hold", ID: string(binary.LittleEndian.AppendUint64(make([]byte, 8), id)),
		TTL: 600_000_000}
	return op
}

// TestMemoryOfReservations: an open reservation costs at most 170 bytes of Redis and its key, with
// the tables of keys and of lifetimes.
func TestMemoryOfReservations(t *testing.T) {
	server, s := start(t)
	now := time.Now().UnixMicro()
	const reservations, batch = 100_000, 500
	before := atoi(t, info(t, server, "used_memory"))
	for first := 0; first < reservations; first += batch {
		b := backends.Batch{Replies: make([]backends.Reply, batch)}
		for i := range batch {
			b.Ops = append(b.Ops, held("{memory}", now+int64(first), 1, uint64(first+i)*0x9e3779b97f4a7c15))
		}
		if err := s.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if r := b.Replies[batch-1]; r.HoldState() != backends.Held {
			t.Fatalf("%+v", r)
		}
	}
	each := (atoi(t, info(t, server, "used_memory")) - before) / reservations
	key := len(held("{memory}", 0, 0, 0).Hold.RecordKey())
	if t.Logf("%d bytes each, %d of them its key", each, key); each > 170+key {
		t.Errorf("an open reservation costs %d bytes", each)
	}
}

// TestARecordHasItsOwnLife: a settlement by any clock finds the reservation, whose key lives as long
// as the reservation. Its settlement lets it live as long again.
func TestARecordHasItsOwnLife(t *testing.T) {
	server, s := start(t)
	admin := client(t, server)
	now := time.Now().UnixMicro()
	for i, at := range [][2]int64{{now - 1, now}, {now, now - backends.Skew/2}, {now - 1, now + 599_000_000}} {
		key := fmt.Sprintf("{life}%d", i)
		for j, want := range []struct {
			now, cost, count int64
			state            backends.HoldState
		}{{at[0], 5, 5, backends.Held}, {at[1], 3, 3, backends.Settled}, {at[1], 9, 3, backends.Unchanged}} {
			b := backends.Batch{Ops: []backends.Op{held(key, want.now, want.cost, 1)}, Replies: make([]backends.Reply, 1)}
			b.Ops[0].Until = now + time.Hour.Microseconds()
			if err := s.Apply(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			if r := b.Replies[0]; r.HoldState() != want.state || r.Value.Whole != want.count {
				t.Errorf("%d, call %d: %v, count %d; want %+v", i, j, r.HoldState(), r.Value.Whole, want)
			}
			names := admin.Keys(t.Context(), key+"|hold|*").Val()
			if len(names) != 1 {
				t.Fatalf("%d, call %d: records at %q, want one", i, j, names)
			}
			if life := admin.PTTL(t.Context(), names[0]).Val(); life < 595*time.Second || life > 602*time.Second {
				t.Errorf("%d, call %d: the record lives for %v", i, j, life)
			}
		}
	}
}

// TestMemoryUsageOfARecord: an open reservation takes at most 132 bytes and the length of its key.
func TestMemoryUsageOfARecord(t *testing.T) {
	server, s := start(t)
	admin := client(t, server)
	for _, op := range []backends.Op{held("{one}", time.Now().UnixMicro(), 1_000_000, 1), slot(time.Now().UnixMicro(), 3, 2)} {
		b := backends.Batch{Ops: []backends.Op{op}, Replies: make([]backends.Reply, 1)}
		if err := s.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		key := op.Hold.RecordKey()
		if bytes := admin.MemoryUsage(t.Context(), key).Val(); bytes == 0 || bytes > int64(132+len(key)) {
			t.Errorf("%s takes %d bytes, %d without its name", key, bytes, bytes-int64(len(key)))
		}
	}
}

// TestReservationsOfLongKeys: the records of a key that is shortened share its slot.
func TestReservationsOfLongKeys(t *testing.T) {
	cluster := testenv.RedisCluster(t, 3, 0)
	s := openPatiently(t, redis.Options{Type: "cluster", URL: cluster.Addrs()[0]})
	now := time.Now().UnixMicro()
	for length := 480; length < 530; length++ {
		key := fmt.Sprintf("{long}%0*d|", length-7, 1)
		for _, state := range []backends.HoldState{backends.Held, backends.Settled} {
			b := backends.Batch{Ops: []backends.Op{held(key, now, 1, 1)}, Replies: make([]backends.Reply, 1)}
			b.Ops[0].Hold.GiveBack = true
			if err := s.Apply(t.Context(), &b); err != nil || b.Replies[0].HoldState() != state {
				t.Fatalf("a key of %d bytes: %v, %v", len(key), err, b.Replies[0].HoldState())
			}
		}
	}
}

// slot is held, on a list from which refunds take the oldest hits.
func slot(now, cost int64, id uint64) backends.Op {
	op := held("{slots}", now, cost, id)
	op.Kind, op.Window, op.Max.Whole, op.Oldest = backends.List, time.Hour.Microseconds(), 10_000, true
	return op
}

// TestAReservedSlotIsFoundAmongMany: Redis looks at few elements of a list to give back one, also
// of a reservation that lapses.
func TestAReservedSlotIsFoundAmongMany(t *testing.T) {
	server, s := start(t)
	now := time.Now().UnixMicro()
	const slots, batch = 1000, 100
	longer := 2 * slot(now, 0, 0).Hold.TTL
	for _, giveBack := range []bool{false, true} {
		for first := int64(0); first < slots; first += batch {
			many := backends.Batch{Replies: make([]backends.Reply, batch)}
			for i := first; i < first+batch; i++ {
				op := slot(now+i, 1, uint64(i))
				op.Hold.GiveBack = giveBack
				if i > 2 {
					op.Hold.TTL = longer
				}
				many.Ops = append(many.Ops, op)
			}
			if err := s.Apply(t.Context(), &many); err != nil {
				t.Fatal(err)
			}
		}
		admin(t, server, "CONFIG", "RESETSTAT")
		back := slot(now+slots, 0, 2)
		if back.Hold.GiveBack = giveBack; giveBack {
			back.Now, back.Hold.ID = now+700_000_000, ""
		}
		b := backends.Batch{Ops: []backends.Op{back}, Replies: make([]backends.Reply, 1)}
		if err := s.Apply(t.Context(), &b); err != nil || b.Replies[0].Value.Whole >= slots {
			t.Fatalf("%+v, %v", b.Replies[0], err)
		}
		stats := admin(t, server, "INFO", "commandstats").(string)
		var calls int
		if _, rest, found := strings.Cut(stats, "cmdstat_lindex:calls="); !found {
			t.Fatal(stats)
		} else if _, err := fmt.Sscanf(rest, "%d", &calls); err != nil || calls > 50 {
			t.Errorf("give back %v: LINDEX is called %d times, %v", giveBack, calls, err)
		}
		admin(t, server, "FLUSHALL")
	}
}

// TestReservedSlotsAfterAFailover: slots that were reserved in one microsecond, or by a clock that
// is behind, come back each once when the server has lost its scripts, and when a replica has
// taken over.
func TestReservedSlotsAfterAFailover(t *testing.T) {
	master, s := start(t)
	host, port, err := net.SplitHostPort(master.Addr)
	if err != nil {
		t.Fatal(err)
	}
	replica := testenv.Redis(t, "--replicaof", host, port, "--repl-diskless-sync-delay", "0")
	now := time.Now().UnixMicro()
	call := func(s *redis.Store, now, cost int64, id uint64, want int64) {
		t.Helper()
		b := backends.Batch{Ops: []backends.Op{slot(now, cost, id)}, Replies: make([]backends.Reply, 1)}
		if err := s.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if got := b.Replies[0].Value.Whole; got != want {
			t.Errorf("%d slots of %d: %d are taken, want %d", cost, id, got, want)
		}
	}
	for id := range int64(9) {
		call(s, now-id%3*100_000, 2, uint64(id), 2*(id+1))
	}
	admin(t, master, "SCRIPT", "FLUSH")
	call(s, now, 0, 4, 16)
	testenv.Eventually(t, 20*time.Second, func() bool {
		return info(t, replica, "master_link_status") == "up" && info(t, replica, "master_repl_offset") == info(t, master, "master_repl_offset")
	}, "the replica has all")
	master.Kill()
	admin(t, replica, "REPLICAOF", "NO", "ONE")
	s = openPatiently(t, redis.Options{URL: replica.Addr})
	for i, id := range []uint64{0, 8, 1, 7, 2, 6, 3, 5} {
		call(s, now-int64(id)*50_000, 0, id, int64(14-2*i))
	}
}

// TestAResetForgetsTheSlotsOfOtherLimits: a reset by a limit without reservations, which shares the
// list, forgets the reservations on it, too.
func TestAResetForgetsTheSlotsOfOtherLimits(t *testing.T) {
	server, s := start(t)
	now := time.Now().UnixMicro()
	must(t, s, slot(now, 3, 1))
	bare := slot(now, 3, 1)
	bare.Hold = nil
	must(t, s, bare.Reset())
	if r := must(t, s, slot(now, 2, 1))[0]; r.HoldState() != backends.Held || r.Value.Whole != 2 {
		t.Errorf("after the reset the ID is new: %v, %d slots", r.HoldState(), r.Value.Whole)
	}
	if n := client(t, server).Exists(t.Context(), bare.Key+"|open").Val(); n != 1 {
		t.Errorf("%d keys of open reservations, want 1", n)
	}
}
