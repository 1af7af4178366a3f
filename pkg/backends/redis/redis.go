// Package redis is the store on Redis 6.2 or later and on Valkey: one server,
// a master watched by sentinels, or a cluster.
//
// It promises that every batch takes one round trip: one script, which is atomic, or two plain
// commands for each of its counts (in a cluster one call per slot, all on their way at once).
// No operation is charged twice, and every key has a lifetime from the moment it
// exists. A server that is stopped, frozen, unreachable or demoted delays the first
// callers until their deadlines at most; then package breaker refuses calls to it at
// once, until a probe succeeds. Calls do not pile up. An all-or-nothing batch over
// several slots charges each slot and gives back if one refuses: other callers may be
// refused for a moment, nobody is admitted beyond a limit.
//
// Calls are sent in go-redis' pipelines and outlive their callers: a caller
// that gives up ends its wait, not the call.
//
// It leaves the deadlines of callers and policies for a store that is away to
// decorators, and the meaning of cells to the strategies.
package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/redis/lane"
	"example.org/rls/pkg/backends/split"
)

// Store keeps cells in Redis.
type Store struct {
	target  *target
	servers servers
	slots   *split.Places // where cells live in a cluster; nil for one server
	clock   *clock
	cancel  context.CancelFunc
}

var (
	_ backends.Spread  = (*Store)(nil)
	_ backends.Scanner = (*Store)(nil)
)

// Open checks o and returns a store that connects when it is used, whether or
// not anything listens yet.
func Open(o Options) (*Store, error) {
	t, err := o.parse()
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Store{target: t, clock: newClock(t), cancel: cancel}
	switch t.Type {
	case typeCluster:
		s.servers = openCluster(t, s.clock.soon)
		s.slots = &split.Places{Of: slotOfOp, Ask: s.applySlots, GiveBack: t.Timeout}
	case typeSentinel:
		s.servers = openSentinel(t, s.clock.soon)
	default:
		s.servers = openSingle(t, s.clock.soon)
	}
	go s.clock.follow(ctx, func(ctx context.Context) (time.Time, error) { return timeOf(ctx, s.servers) })
	return s, nil
}

// Now is the time on the server's clock, as last measured; in a cluster it is the
// clock of the master with the least address. It never waits.
func (s *Store) Now() int64 { return s.clock.now() }

// Ping asks the servers for a sign of life, through the same queue as Apply. One that answers is
// enough: the store can decide for its keys.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := backends.Within(ctx, s.target.Timeout)
	defer cancel()
	lanes, err := s.servers.lanes(ctx)
	if err == nil {
		err = split.FirstOf(lanes, func(l *lane.Lane) error { return l.Ping(ctx) })
	}
	if err != nil {
		s.servers.failed(err)
		return fmt.Errorf("redis: ping: %w", unavailable(err))
	}
	return nil
}

// Close ends the store's connections and goroutines, after the calls under
// way.
func (s *Store) Close() error {
	s.cancel()
	if err := s.servers.close(); err != nil && !errors.Is(err, goredis.ErrClosed) {
		return fmt.Errorf("redis: close: %w", err)
	}
	return nil
}

// Apply implements backends.Store.
func (s *Store) Apply(ctx context.Context, b *backends.Batch) error {
	return s.ApplyEach(ctx, b, func(*backends.Op) {})
}

// ApplyEach implements backends.Spread.
func (s *Store) ApplyEach(ctx context.Context, b *backends.Batch, decided func(*backends.Op)) error {
	ctx, cancel := backends.Within(ctx, s.target.Timeout)
	defer cancel()
	switch {
	case s.slots != nil && len(b.Ops) > 1:
		return s.slots.ApplyEach(ctx, b, decided)
	case len(b.Ops) == 0:
		b.Refused = false
		return nil
	}
	c := s.newCall(b)
	c.start(ctx)
	if err := c.finish(ctx); err != nil {
		fail(b, err)
	}
	b.Each(decided)
	return b.Err()
}

// pattern is the glob of the keys with a prefix.
func pattern(prefix string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(prefix) + "*"
}

// Connections returns how many connections to the servers and sentinels are open
// now, and how many were opened since Open.
func (s *Store) Connections() (open, opened int64) { return s.target.connections.Count() }

func slotOfOp(op *backends.Op) split.Place {
	return split.Place{Server: int(slotOf(StoredKey(op.Key)))}
}

// timeOf asks the servers in the order of their names, and returns the time of the first one that answers,
// so that all processes go by the same clock.
func timeOf(ctx context.Context, all servers) (t time.Time, err error) {
	masters, err := all.masters(ctx)
	for _, name := range slices.Sorted(maps.Keys(masters)) {
		if t, err = masters[name].Time(ctx).Result(); err == nil {
			return t, nil
		}
		err = fmt.Errorf("%s: %w", name, err) // another server's time will do
	}
	return t, err
}

// idOf is the run id of a server, which it has until it ends, or its name if the server does not tell that.
func idOf(name string, info *goredis.StringCmd) (string, error) {
	text, err := info.Result()
	if lane.Answered(err) && !lane.CannotServe(err) {
		return name, nil
	}
	_, id, _ := strings.Cut(text, "run_id:")
	id, _, _ = strings.Cut(id, "\r\n")
	return cmp.Or(id, name), err
}

// Page implements backends.Scanner by one SCAN on one server, after the servers whose ids come first.
// A position names the ids of all masters by their hash, because a server that has started anew, or was
// promoted, has its keys in another order.
func (s *Store) Page(ctx context.Context, prefix, from string, n int) (keys []string, next string, err error) {
	type server struct {
		id, name string
		*goredis.Client
		err error
	}
	masters, err := s.servers.masters(ctx)
	if err != nil {
		return nil, "", scanFailed(ctx, err)
	}
	var all []*server
	for name, client := range masters {
		all = append(all, &server{name: name, Client: client})
	}
	split.AtOnce(all, func(s *server) { s.id, s.err = idOf(s.name, s.Info(ctx, "server")) })
	slices.SortFunc(all, func(a, b *server) int { return strings.Compare(a.id, b.id) })
	ids := ""
	for _, s := range all {
		if s.err != nil {
			return nil, "", scanFailed(ctx, fmt.Errorf("%s: %w", s.name, s.err))
		}
		ids += s.id + " "
	}
	const form = "%16s:%d:%d"
	var of string
	var at int
	var cursor uint64
	ids = backends.KeyHash(ids)
	_, wrong := fmt.Sscanf(from, form, &of, &at, &cursor)
	if from != "" && (wrong != nil || of != ids || at < 0 || at >= len(all)) {
		return nil, "", fmt.Errorf("redis: %w", backends.ErrMoved)
	}
	to := all[at]
	calls := to.Pipeline()
	info, reply := calls.Info(ctx, "server"), calls.Scan(ctx, cursor, pattern(prefix), int64(n))
	_, _ = calls.Exec(ctx) // each reply has its error
	id, err := idOf(to.name, info)
	if err == nil && id != to.id {
		return nil, "", fmt.Errorf("redis: %s: %w", to.name, backends.ErrMoved)
	}
	if err == nil {
		keys, cursor, err = reply.Result()
	}
	if err != nil {
		return nil, "", scanFailed(ctx, fmt.Errorf("%s: %w", to.name, err))
	}
	if cursor == 0 {
		at++
	}
	if at < len(all) {
		next = fmt.Sprintf(form, ids, at, cursor)
	}
	return keys, next, nil
}

// scanFailed is the error of a scan.
func scanFailed(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return fmt.Errorf("redis: scan: %w", unavailable(err))
}
