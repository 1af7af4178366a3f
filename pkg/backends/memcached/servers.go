package memcached

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/split"
)

// srvRetry is the longest pause after a failed look-up while no list is known.
const srvRetry = time.Second

// servers is the list of servers.
type servers struct {
	list    atomic.Pointer[serverList]
	open    func(name string) *server
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// serverList is the servers at one moment, sorted by address. It is not
// changed once it is in use.
type serverList []*server

func newServers(addresses []string, open func(name string) *server) *servers {
	s := &servers{open: open, cancel: func() {}}
	s.list.Store(&serverList{})
	s.set(addresses)
	return s
}

func (s *servers) now() serverList { return *s.list.Load() }

// set replaces the list. Servers that stay keep their connections, servers
// that leave the list are closed after their calls.
func (s *servers) set(addresses []string) {
	addresses = slices.Compact(slices.Sorted(slices.Values(addresses)))
	old := s.now()
	list := make(serverList, len(addresses))
	for i, a := range addresses {
		at := slices.IndexFunc(old, func(v *server) bool { return v.address == a })
		if at >= 0 {
			list[i] = old[at]
		} else {
			list[i] = s.open(a)
		}
	}
	s.list.Store(&list)
	for _, v := range old {
		if !slices.Contains(list, v) {
			v.breaker.Left()
			s.running.Go(func() { _ = v.close() })
		}
	}
}

// pick is the index of the server that scores highest for a key (rendezvous
// hashing). Keys with the same hash tag live on one server. The list must not
// be empty.
func (l serverList) pick(key string) int {
	if len(l) == 1 {
		return 0
	}
	tag := backends.HashTag(key)
	best, highest := 0, uint64(0)
	for i, v := range l {
		var hash xxhash.Digest
		hash.ResetWithSeed(v.seed)
		_, _ = hash.WriteString(tag) // never fails
		if score := hash.Sum64(); i == 0 || score > highest {
			best, highest = i, score
		}
	}
	return best
}

// place is a cell on its server. A reservation is applied alone, as its record is an item of its own.
func (l serverList) place(op *backends.Op) split.Place {
	key := StoredKey(op.Key)
	return split.Place{Server: l.pick(key), Cell: key, Alone: op.Identified() && !op.Verb.Operates()}
}

// follow keeps the list as the SRV record name says, until stop.
func (s *servers) follow(name string, refresh time.Duration, r *net.Resolver) {
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.running.Go(func() {
		for {
			pause := refresh
			switch err := s.lookUp(ctx, name, r); {
			case ctx.Err() != nil:
				return
			case err != nil:
				slog.Warn("memcached: look up servers, keeping the last list", "srv", name, "error", err)
				if len(s.now()) == 0 && (pause == 0 || pause > srvRetry) {
					pause = srvRetry
				}
			}
			if pause == 0 || backends.Pause(ctx, pause) != nil {
				return
			}
		}
	})
}

func (s *servers) lookUp(ctx context.Context, name string, r *net.Resolver) error {
	_, records, err := r.LookupSRV(ctx, "", "", name)
	if err != nil {
		return err
	}
	if len(records) == 0 {
		return errors.New("the record is empty")
	}
	addresses := make([]string, len(records))
	for i, rec := range records {
		host := strings.TrimSuffix(rec.Target, ".")
		addresses[i] = net.JoinHostPort(host, strconv.Itoa(int(rec.Port)))
	}
	s.set(addresses)
	return nil
}

// close stops the look-ups and closes every server.
func (s *servers) close() error {
	s.cancel()
	s.running.Wait()
	var errs []error
	for _, v := range s.now() {
		errs = append(errs, v.close())
	}
	return errors.Join(errs...)
}
