package metrics

import (
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
)

// The reference's counters of one metric key.
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

// maxKey is the longest metric key, in bytes, that has series of its own when
// a caller made it.
const maxKey = 256

// counter is one of the reference's counters.
type counter struct {
	path string // as in statsd: ratelimit.service.rate_limit.domain.key.total_hits
	n    atomic.Uint64

	series *series // where it goes in Prometheus; set and read by mapped alone
	sent   uint64  // of n; set and read by Statsd alone
}

// keyed is the counters of one metric key.
type keyed [statCount]*counter

// paths is all of the reference's counters.
type paths struct {
	loaded, loadFailed       *counter
	redisError, serviceError *counter
	globalShadow             *counter
	overflow                 atomic.Uint64

	room int // for keys of callers

	mu      sync.RWMutex
	all     []*counter
	keys    map[string]*keyed
	unknown map[string]*counter // by domain
}

// newPaths bounds the series with a caller's bytes by most.
func newPaths(most int) *paths {
	p := &paths{room: most / int(statCount), keys: map[string]*keyed{}, unknown: map[string]*counter{}}
	p.loaded = p.counter("ratelimit.service.config_load_success")
	p.loadFailed = p.counter("ratelimit.service.config_load_error")
	p.redisError = p.counter("ratelimit.service.call.should_rate_limit.redis_error")
	p.serviceError = p.counter("ratelimit.service.call.should_rate_limit.service_error")
	p.globalShadow = p.counter("ratelimit.service.global_shadow_mode")
	return p
}

// counter makes a counter. p.mu is held, or p not yet shared.
func (p *paths) counter(path string) *counter {
	c := &counter{path: path}
	p.all = append(p.all, c)
	return c
}

// method makes the counter of a gRPC method's calls.
func (p *paths) method(name string) *counter {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counter("ratelimit_server." + name + ".total_requests")
}

// rule finds the counters of a metric key that the rules alone make up.
func (p *paths) rule(key string) *keyed {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.key(key)
}

// called finds the counters of a metric key that has a caller's bytes in it,
// or those of domain.other when there is no room for it.
func (p *paths) called(domain, key string) *keyed {
	p.mu.RLock()
	k := p.keys[key]
	p.mu.RUnlock()
	if k != nil {
		return k
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keys[key] == nil && !p.admit(key) {
		key = domain + ".other"
	}
	return p.key(key)
}

// notFound finds the counter of a domain that no rules have.
func (p *paths) notFound(domain string) *counter {
	p.mu.RLock()
	c := p.unknown[domain]
	p.mu.RUnlock()
	if c != nil {
		return c
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unknown[domain] == nil && !p.admit(domain) {
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

// admit takes room for a name that a caller made, if there is some: twice as
// much for a long one, so that the page stays small whatever is sent. p.mu is
// held.
func (p *paths) admit(name string) bool {
	room := 1 + len(name)/(maxKey/2+1)
	if p.room < room || len(name) > maxKey {
		p.overflow.Add(1)
		return false
	}
	p.room -= room
	return true
}

// key finds or makes the counters of a metric key. p.mu is held.
func (p *paths) key(key string) *keyed {
	k := p.keys[key]
	if k == nil {
		k = new(keyed)
		name := referenceName(key)
		for stat := range k {
			k[stat] = p.counter("ratelimit.service.rate_limit." + name + "." + statNames[stat])
		}
		p.keys[strings.Clone(key)] = k
	}
	return k
}

// counters is all there are. The slice is not to be changed.
func (p *paths) counters() []*counter {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.all[:len(p.all):len(p.all)]
}

var (
	separators = strings.NewReplacer(":", "_", "|", "_")
	ipv4       = regexp.MustCompile(`\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`)
)

// referenceName is a metric key as it stands in a path: without what separates
// the parts of a line of statsd, and with IPv4 addresses in one piece.
func referenceName(key string) string {
	key = separators.Replace(strings.ToValidUTF8(key, "_"))
	return ipv4.ReplaceAllStringFunc(key, func(ip string) string { return strings.ReplaceAll(ip, ".", "_") })
}
