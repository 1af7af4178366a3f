package memcached

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// srvRetry is the longest pause after a failed look-up while no list is known.
const srvRetry = time.Second

// server is one memcached. Its name is resolved when it is dialled, so that a
// host may change its address.
type server struct {
	network, address string
	seed             uint64
	// failures counts calls that broke off. Connections older than the last
	// one are not trusted.
	failures atomic.Int64
}

func newServer(address string) *server {
	network := "tcp"
	if strings.Contains(address, "/") {
		network = "unix"
	}
	return &server{network: network, address: address, seed: hash(address)}
}

func (s *server) Network() string { return s.network }
func (s *server) String() string  { return s.address }

func checkServer(address string) error {
	if strings.Contains(address, "/") {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	if n, perr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || perr != nil || n == 0 {
		return fmt.Errorf("server %q: must be host:port, or the path of a unix socket", address)
	}
	return nil
}

// servers is the list of servers; it picks the one that holds a key.
type servers struct {
	list    atomic.Pointer[[]*server]
	removed func() error // called when the list has lost a server
	cancel  context.CancelFunc
	running sync.WaitGroup
}

var _ memcache.ServerSelector = (*servers)(nil)

func newServers(addresses []string) *servers {
	s := &servers{cancel: func() {}}
	s.set(addresses)
	return s
}

// set replaces the list, and keeps what is known of servers that stay.
func (s *servers) set(addresses []string) {
	addresses = slices.Clone(addresses)
	slices.Sort(addresses)
	addresses = slices.Compact(addresses)
	list := make([]*server, len(addresses))
	for i, a := range addresses {
		if list[i] = s.find(a); list[i] == nil {
			list[i] = newServer(a)
		}
	}
	old := s.list.Swap(&list)
	if old == nil || s.removed == nil {
		return
	}
	for _, o := range *old {
		if !slices.Contains(list, o) {
			_ = s.removed()
			return
		}
	}
}

// find returns the server at address, or nil.
func (s *servers) find(address string) *server {
	if list := s.list.Load(); list != nil {
		for _, v := range *list {
			if v.address == address {
				return v
			}
		}
	}
	return nil
}

// PickServer returns the server that scores highest for key (rendezvous
// hashing).
func (s *servers) PickServer(key string) (net.Addr, error) {
	list := *s.list.Load()
	switch len(list) {
	case 0:
		return nil, memcache.ErrNoServers
	case 1:
		return list[0], nil
	}
	h := hash(key)
	var best *server
	var most uint64
	for _, v := range list {
		if score := mix(h ^ v.seed); best == nil || score > most {
			best, most = v, score
		}
	}
	return best, nil
}

// Each calls f for every server, all at once, and joins the errors.
func (s *servers) Each(f func(net.Addr) error) error {
	list := *s.list.Load()
	if len(list) == 0 {
		return memcache.ErrNoServers
	}
	errs := make([]error, len(list))
	var all sync.WaitGroup
	for i, v := range list {
		all.Go(func() {
			if err := f(v); err != nil {
				errs[i] = fmt.Errorf("server %s: %w", v.address, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
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
				if len(*s.list.Load()) == 0 && (pause == 0 || pause > srvRetry) {
					pause = srvRetry
				}
			}
			if pause == 0 {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
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

func (s *servers) stop() {
	s.cancel()
	s.running.Wait()
}

// hash is 64-bit FNV-1a.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// mix is the finalizer of SplitMix64; it spreads what FNV leaves in few bits.
func mix(h uint64) uint64 {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}
