package metrics

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/descriptors"
)

// The counters that envoyproxy/ratelimit has for one metric key.
const (
	totalHits = iota
	overLimit
	nearLimit
	withinLimit
	shadowMode
	overLimitLocal
	statCount
)

var statNames = [statCount]string{"total_hits", "over_limit", "near_limit", "within_limit", "shadow_mode", "over_limit_with_local_cache"}

// Lengths, in bytes, of names with a caller's bytes.
const (
	maxKey    = 1024 // longer metric keys are shortened; this one fits a datagram of statsd
	maxDomain = 256  // longer unknown domains have no counter of their own
	roomBytes = 128  // longer names take more than one part of paths.room
)

// counter is a counter or a gauge that envoyproxy/ratelimit has.
type counter struct {
	path string // as in statsd: ratelimit.service.rate_limit.domain.key.total_hits
	n    atomic.Uint64

	// read gives the value in place of n; help is the help text of a value without a mapping.
	read  func() uint64
	help  string
	gauge bool
	// always says that Prometheus gets the counter while it is 0, too: the rate of a series that begins
	// with 1 is 0.
	always bool

	series *series // its name and labels in Prometheus; only collect uses it
	sent   uint64  // the part of n that was sent; only Statsd uses it
}

func (c *counter) value() uint64 {
	if c.read != nil {
		return c.read()
	}
	return c.n.Load()
}

// keyed is the counters of one metric key.
type keyed struct {
	stats [statCount]*counter
	room  int // the part of paths.room that the key took
	// of is the key's rule, or for overrides the domain. Several rules can have one key:
	// when its rule is gone, the next rule that counts hits under the key takes over.
	// paths.mu guards of.
	of *lifetime
}

// paths holds all counters that envoyproxy/ratelimit has.
type paths struct {
	loaded, loadFailed       *counter
	redisError, serviceError *counter
	globalShadow             *counter
	overflow                 atomic.Uint64

	mu      sync.RWMutex
	room    int // how many more names with a caller's bytes may have counters
	all     []*counter
	keys    map[string]*keyed
	unknown map[string]*counter // by domain
}

// newPaths returns counters of which at most max have a caller's bytes in their names.
func newPaths(max int) *paths {
	p := &paths{room: max / int(statCount), keys: map[string]*keyed{}, unknown: map[string]*counter{}}
	p.loaded = p.counter("ratelimit.service.config_load_success")
	p.loadFailed = p.counter("ratelimit.service.config_load_error")
	p.redisError = p.counter("ratelimit.service.call.should_rate_limit.redis_error")
	p.serviceError = p.counter("ratelimit.service.call.should_rate_limit.service_error")
	p.globalShadow = p.counter("ratelimit.service.global_shadow_mode")
	for _, c := range p.all {
		c.always = true
	}
	return p
}

// counter makes a counter. The caller holds p.mu, or p is not shared yet.
func (p *paths) counter(path string) *counter {
	c := &counter{path: path, help: unmappedHelp}
	p.all = append(p.all, c)
	return c
}

// reads adds a metric that is kept elsewhere. p is not shared yet.
func (p *paths) reads(path string, gauge bool, help string, read func() uint64) {
	p.all = append(p.all, &counter{path: path, gauge: gauge, help: help, read: read})
}

// method makes the counter of the calls of a gRPC method.
func (p *paths) method(path string) *counter {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counter(path)
}

// rule finds or makes the counters of a metric key without a caller's bytes.
func (p *paths) rule(of *lifetime, key string) *keyed {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.key(of, key, 0)
}

// called finds or makes the counters of a metric key that has a caller's bytes
// in it, or of the key domain.other when there is no room for it.
func (p *paths) called(of *lifetime, domain, key string) *keyed {
	key = shortened(key)
	p.mu.RLock()
	k := p.keys[key]
	found := k != nil && (k.of == of || k.of.InForce())
	p.mu.RUnlock()
	if found {
		return k
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	room := 0
	if p.keys[key] == nil {
		if room = p.admit(key, maxKey); room == 0 {
			key = domain + ".other"
		}
	}
	return p.key(of, key, room)
}

// notFound finds or makes the counter of a domain without rules.
func (p *paths) notFound(domain string) *counter {
	domain = descriptors.Printable(domain)
	p.mu.RLock()
	c := p.unknown[domain]
	p.mu.RUnlock()
	if c != nil {
		return c
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unknown[domain] == nil && p.admit(domain, maxDomain) == 0 {
		domain = "other"
	}
	c = p.unknown[domain]
	if c == nil {
		domain = strings.Clone(domain)
		c = p.counter("ratelimit.service.rate_limit." + referenceName(domain) + ".domain_not_found")
		p.unknown[domain] = c
	}
	return c
}

// admit takes room for a name with a caller's bytes and returns how much: more for a long
// name, so that /metrics stays small with any names; 0 when there is not enough or the name is
// too long. The caller holds p.mu.
func (p *paths) admit(name string, max int) int {
	room := 1 + len(name)/(roomBytes+1)
	if p.room < room || len(name) > max {
		p.overflow.Add(1)
		return 0
	}
	p.room -= room
	return room
}

// shortened is the key, or its beginning and a hash if it is longer than maxKey.
func shortened(key string) string {
	if len(key) <= maxKey {
		return key
	}
	hash := sha256.Sum256([]byte(key))
	return strings.ToValidUTF8(key[:maxKey-17], "_") + "_" + hex.EncodeToString(hash[:8])
}

// key finds or makes the counters of a metric key. The caller holds p.mu.
func (p *paths) key(of *lifetime, key string, room int) *keyed {
	k := p.keys[key]
	if k == nil {
		k = &keyed{of: of, room: room}
		name := referenceName(key)
		for stat := range k.stats {
			k.stats[stat] = p.counter("ratelimit.service.rate_limit." + name + "." + statNames[stat])
		}
		p.keys[strings.Clone(key)] = k
	}
	if !k.of.InForce() {
		k.of = of
	}
	return k
}

// forget removes the keys of rules that have been gone for long enough.
func (p *paths) forget(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gone := map[*counter]bool{}
	for key, k := range p.keys {
		if k.of.over(now) {
			delete(p.keys, key)
			p.room += k.room
			for _, c := range k.stats {
				gone[c] = true
			}
		}
	}
	// Readers of counters have the old slice.
	p.all = slices.DeleteFunc(slices.Clone(p.all), func(c *counter) bool { return gone[c] })
}

// counters returns all counters. The caller must not change the slice.
func (p *paths) counters() []*counter {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.all[:len(p.all):len(p.all)]
}

var (
	separators = strings.NewReplacer(":", "_", "|", "_")
	ipv4       = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)
)

// referenceName is a metric key as envoyproxy/ratelimit writes it in a path: with
// _ for the separators of a line of statsd and for the dots of IPv4 addresses,
// which would divide labels.
func referenceName(key string) string {
	key = separators.Replace(key)
	return ipv4.ReplaceAllStringFunc(key, func(ip string) string { return strings.ReplaceAll(ip, ".", "_") })
}
