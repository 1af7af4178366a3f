package metrics

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/backends/near"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
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
	roomBytes = 128  // longer names take more than one part of reference.room
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

// metricKey has the counters of one metric key.
type metricKey struct {
	stats [statCount]*counter
	room  int // the part of reference.room that the key took
	// owner is the rule of the key, or for limits that requests bring the domain. It keeps the key's
	// counters in memory. Several rules can have one key: when its owner is gone, the next rule that
	// counts hits under the key becomes the owner.
	owner *RuleCounts
}

// reference counts what envoyproxy/ratelimit counts, under that program's names: each
// counter has a path, as in statsd, which a mapping turns into a name and labels for Prometheus.
//
// The number of counters is bounded: names with a caller's bytes are counted as `other` once there
// are too many, and the counters of rules that have been gone for long enough are forgotten.
type reference struct {
	log      *slog.Logger
	mapping  *mapping
	methods  methods
	overflow atomic.Uint64

	loaded, loadFailed       *counter
	redisError, serviceError *counter
	globalShadow             *counter

	mu      sync.RWMutex // guards the rest, and the owners of keys
	room    int          // how many more names with a caller's bytes may have counters
	all     []*counter
	keys    map[string]*metricKey
	unknown map[string]*counter // by domain
}

// newReference returns counters at zero, of which at most maxSeries have a caller's bytes in their names.
// The mapping is a file of statsd_exporter, such as usualMapping; the error describes a fault of it.
func newReference(maxSeries int, mapping string, log *slog.Logger) (*reference, error) {
	p := &reference{
		log: log, room: maxSeries / int(statCount),
		keys: map[string]*metricKey{}, unknown: map[string]*counter{},
	}
	var err error
	if p.mapping, err = newMapping(mapping, log); err != nil {
		return nil, err
	}
	p.methods.init(&p.mapping.mapper)
	p.loaded = p.add("ratelimit.service.config_load_success")
	p.loadFailed = p.add("ratelimit.service.config_load_error")
	p.redisError = p.add("ratelimit.service.call.should_rate_limit.redis_error")
	p.serviceError = p.add("ratelimit.service.call.should_rate_limit.service_error")
	p.globalShadow = p.add("ratelimit.service.global_shadow_mode")
	p.globalShadow.help = "Denials that SHADOW_MODE let pass."
	for _, c := range p.all {
		c.always = true
	}
	return p, nil
}

// request counts a request without its limits.
func (p *reference) request(o *service.Observation) {
	switch {
	case o.Result == service.Invalid || o.Result == service.NoRules:
		p.serviceError.n.Add(1)
	case o.Result == service.NoStore || o.Partial:
		p.redisError.n.Add(1)
	}
	if o.Spared {
		p.globalShadow.n.Add(1)
	}
	if o.Unknown {
		p.notFound(o.Domain).n.Add(uint64(o.Descriptors))
	}
}

// add makes a counter. The caller holds p.mu, or p is not shared yet.
func (p *reference) add(path string) *counter {
	c := &counter{path: path, help: unmappedHelp}
	p.all = append(p.all, c)
	return c
}

// reads adds a metric that is kept elsewhere. p is not shared yet.
func (p *reference) reads(path string, gauge bool, help string, read func() uint64) {
	p.all = append(p.all, &counter{path: path, gauge: gauge, help: help, read: read})
}

// ownKey finds or makes the counters of a metric key without a caller's bytes.
func (p *reference) ownKey(owner *RuleCounts, key string) *metricKey {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.key(owner, key, 0)
}

// callersKey finds or makes the counters of the metric key of v, a verdict of a request to the
// domain. The key has a caller's bytes in it; it is domain.other when there is no room for it.
func (p *reference) callersKey(owner *RuleCounts, domain string, v *service.Verdict) *metricKey {
	domain = descriptors.Printable(domain)
	key := shortened(entriesKey(domain, v))
	p.mu.RLock()
	k := p.keys[key]
	found := k != nil && (k.owner == owner || k.owner.InForce())
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
	return p.key(owner, key, room)
}

// entriesKey is the metric key of v. That of a limit that the request brought is of all its entries.
func entriesKey(domain string, v *service.Verdict) string {
	if !v.Override {
		return v.Rule.MetricKey(domain, v.Entries)
	}
	for _, e := range v.Entries {
		domain += "." + descriptors.Entry{Key: descriptors.Printable(e.Key), Value: descriptors.Printable(e.Value)}.String()
	}
	return domain
}

// notFound finds or makes the counter of a domain without rules.
func (p *reference) notFound(domain string) *counter {
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
		c = p.add("ratelimit.service.rate_limit." + referenceName(domain) + ".domain_not_found")
		c.help = "Descriptors of a domain without rules."
		p.unknown[domain] = c
	}
	return c
}

// admit takes room for a name with a caller's bytes and returns how much: more for a long
// name, so that /metrics stays small with any names; 0 when there is not enough or the name is
// too long. The caller holds p.mu.
func (p *reference) admit(name string, max int) int {
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
func (p *reference) key(owner *RuleCounts, key string, room int) *metricKey {
	k := p.keys[key]
	if k == nil {
		k = &metricKey{owner: owner, room: room}
		name := referenceName(key)
		for stat := range k.stats {
			k.stats[stat] = p.add("ratelimit.service.rate_limit." + name + "." + statNames[stat])
		}
		k.stats[overLimitLocal].help = "Hits that the local cache denied; over_limit has them, too."
		p.keys[strings.Clone(key)] = k
	}
	if !k.owner.InForce() {
		k.owner = owner
	}
	return k
}

// count counts the hits of a verdict as envoyproxy/ratelimit does: when one
// request crosses a threshold, its hits below and above are counted apart. Hits that
// the store did not count are in the total only. Of a limit that is watched only the hits
// beyond it are counted, as hits in shadow mode. The limit is near above near hits.
func (k *metricKey) count(v *service.Verdict, near uint64) {
	if v.Watched {
		if v.Counted && !v.Is.Allowed {
			k.stats[shadowMode].n.Add(v.Hits)
		}
		return
	}
	k.stats[totalHits].n.Add(v.Hits)
	if !v.Counted {
		return
	}
	after := uint64(max(v.After, 0))
	before := after - min(after, v.Hits)
	if v.Is.Allowed {
		k.stats[withinLimit].n.Add(v.Hits)
		if after > near {
			k.stats[nearLimit].n.Add(min(v.Hits, after-near))
		}
		return
	}
	over := v.Hits
	if v.Recalled { // the store was not asked, so nothing was charged
		k.stats[overLimitLocal].n.Add(over)
	} else if limit := uint64(v.Limit.Capacity()); v.All && before < limit {
		over = after - limit
		k.stats[nearLimit].n.Add(limit - max(near, before))
	}
	k.stats[overLimit].n.Add(over)
	if v.Shadow {
		k.stats[shadowMode].n.Add(over)
	}
}

// forgetKeys removes the keys of owners that have been gone for long enough.
func (p *reference) forgetKeys(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gone := map[*counter]bool{}
	for key, k := range p.keys {
		if k.owner.Over(now) {
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
func (p *reference) counters() []*counter {
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

// Pool adds the metrics of connections to a Redis under envoyproxy/ratelimit's name for
// them: redis_pool, or redis_per_second_pool. connections returns how many connections are
// open, and how many were opened so far.
func (p *reference) Pool(name string, connections func() (open, opened int64)) {
	read := func(stat string, gauge bool, help string, value func(open, opened int64) int64) {
		p.reads("ratelimit."+name+"."+stat, gauge, help, func() uint64 { return uint64(max(0, value(connections()))) })
	}
	read("cx_active", true, "Open connections to Redis.", func(open, _ int64) int64 { return open })
	read("cx_total", false, "Connections to Redis, opened.", func(_, opened int64) int64 { return opened })
	read("cx_local_close", false, "Connections to Redis, closed.", func(open, opened int64) int64 { return opened - open })
}

// LocalCache adds the metrics of the local cache. In envoyproxy/ratelimit all of them are
// gauges.
func (p *reference) LocalCache(stats func() near.CacheStats) {
	read := func(stat, help string, value func(near.CacheStats) uint64) {
		p.reads("ratelimit.localcache."+stat, true, help, func() uint64 { return value(stats()) })
	}
	read("hitCount", "Look-ups that the local cache answered.", func(s near.CacheStats) uint64 { return s.Hits })
	read("missCount", "Look-ups that the local cache did not answer.", func(s near.CacheStats) uint64 { return s.Misses })
	read("lookupCount", "Look-ups in the local cache.", func(s near.CacheStats) uint64 { return s.Hits + s.Misses })
	read("entryCount", "Keys in the local cache.", func(s near.CacheStats) uint64 { return s.Entries })
	read("evacuateCount", "Keys that left the full local cache.", func(s near.CacheStats) uint64 { return s.Evicted })
	read("expiredCount", "Look-ups in the local cache that found an expired key.", func(s near.CacheStats) uint64 { return s.Expired })
	read("overwriteCount", "Keys of the local cache that were written again.", func(s near.CacheStats) uint64 { return s.Overwritten })
	read("averageAccessTime", "Middle between now and the time of the local cache's oldest key.", func(s near.CacheStats) uint64 { return s.MeanTime })
}
