package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/rls/internal/spelling"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

// place is where in a file a mapping stands.
type place uint8

const (
	inFile place = iota
	inDescriptor
	inLimit
	inReplaces
	inLease
	anywhere // inside a value that is ignored
)

// String is the place in a message.
func (p place) String() string {
	return [...]string{"the top of the file", "a descriptor", "rate_limit", "replaces", "lease"}[p]
}

// field is one key of the rule language in one place.
type field struct {
	name string
	in   place
	// own fields are unknown to envoyproxy/ratelimit. In a place where they
	// have no meaning they are a problem; the other fields are ignored there,
	// as envoyproxy/ratelimit ignores them.
	own bool
	// lacking says that the messages of a control plane have no such field, so
	// that it travels in metadata.rls.
	lacking bool
	value   setter
	// print writes the field for /rlconfig; "" leaves it out. Fields without
	// print are part of the line that envoyproxy/ratelimit prints, or of none.
	print func(*descriptors.Limit) string

	// For docs/rules.md.
	def, what, catch string
}

// maxFields is the greatest number of fields.
const maxFields = 64

var (
	fields []field
	byName = map[string][]int{} // the indices of fields with that name
)

// Setters read fields themselves, so the table is made in init: an initializer
// of a variable must not refer to the variable.
func init() {
	fields = language()
	for i := range fields {
		byName[fields[i].name] = append(byName[fields[i].name], i)
	}
}

// language is the table of fields. Reading, suggestions, messages, /rlconfig, the
// JSON Schema and the tables of docs/rules.md follow from it.
func language() []field {
	return []field{
		{name: "domain", in: inFile, value: required(func(t target) *string { return &t.file.domain }),
			what:  "the name that Envoy asks with",
			catch: "required. Two files with one domain are an error unless `MERGE_DOMAIN_CONFIG` is set"},
		{name: "descriptors", in: inFile, value: listOfDescriptors,
			what:  "the rules",
			catch: "each pair of key and value may be listed once per level"},
		{name: "charge", in: inFile, own: true, lacking: true, value: charge, def: "`always`",
			what:  "`always`: a denied request is charged to all its limits. `admitted`: a request is decided as a whole and charged only if no enforced limit denies it",
			catch: "`admitted` needs one atomic step over all counters. On a cluster a charge is given back after a denial, and other requests may be denied for a moment"},
		{name: "on_error", in: inFile, own: true, lacking: true, value: policy(func(t target) *descriptors.Policy { return &t.file.onError }), def: "`ON_ERROR`, which is `error`",
			what:  "`on_error` of the domain's limits that have none, and of overrides without a rule",
			catch: "a control plane cannot send it: set it in `rate_limit`, or set `ON_ERROR`"},

		{name: "key", in: inDescriptor, value: required(func(t target) *string { return &t.descriptor.Key }),
			what:  "the entry's key",
			catch: "required. A `*` matches any text; the descriptor then ranks as a wildcard"},
		{name: "value", in: inDescriptor, value: text(func(t target) *string { return &t.descriptor.Value }),
			what:  "the entry's value. Without it the descriptor matches any value and counts each value for itself",
			catch: "numbers with a fraction must be quoted (`\"1.5\"`), as in the reference; `010` and `yes` keep their text"},
		{name: "descriptors", in: inDescriptor, value: listOfDescriptors,
			what:  "the descriptors for the request's next entry, at most 1,000 levels deep",
			catch: "a limit here does not apply to requests with fewer entries"},
		{name: "rate_limit", in: inDescriptor, value: oneLimit, def: "no limit",
			what:  "the limit",
			catch: "`null` is no limit"},
		{name: "rate_limits", in: inDescriptor, own: true, lacking: true, value: limits,
			what:  "several limits; a request must pass all of them, for example a burst and a long-term rate. If one denies, the others are not charged, whatever `charge` says",
			catch: "not together with `rate_limit`. Two limits with the same strategy and window would share a counter and are an error"},
		{name: "shadow_mode", in: inDescriptor, value: boolean(func(t target) *bool { return &t.descriptor.rule.Shadow }),
			what:  "count and report, but never deny, to try a limit out",
			catch: "`x-ratelimit-*` of Envoy show the limit, other headers do not, and it keeps no other limit from being charged"},
		{name: "quota_mode", in: inDescriptor, value: boolean(func(t target) *bool { return &t.descriptor.rule.Quota }),
			what:  "descriptors in quota mode deny a request together, when all of them are over",
			catch: "a limit that is replaced does not count; `QUOTA_MODE=true` puts every descriptor in quota mode"},
		{name: "share_threshold", in: inDescriptor, lacking: true, value: boolean(func(t target) *bool { return &t.descriptor.Shared }),
			what:  "all values that match the wildcard share one counter, such as `/static/*` as a whole",
			catch: "needs a wildcard"},
		{name: "detailed_metric", in: inDescriptor, value: boolean(func(t target) *bool { return &t.descriptor.rule.DetailedMetric }),
			what:  "the request's own keys and values name the metric",
			catch: "each value makes a series. `METRICS_MAX_SERIES` caps them"},
		{name: "value_to_metric", in: inDescriptor, lacking: true, value: boolean(func(t target) *bool { return &t.descriptor.ValueToMetric }),
			what:  "this entry's value names the metric, where the rule has a wildcard or no value",
			catch: "as above. With `share_threshold` the pattern stands there instead"},
		{name: "metadata", in: inDescriptor, value: metadata,
			what:  "goes back to Envoy with the decision, for access logs and other filters",
			catch: "any YAML that JSON can hold"},

		{name: "unit", in: inLimit, value: text(func(t target) *string { return &t.limit.unit }),
			what:  "second, minute, hour, day, week (7 days), month (30 days) or year (365 days), in any case",
			catch: "required. Windows follow the Unix clock: weeks start on Thursday, months not on the 1st"},
		{name: "requests_per_unit", in: inLimit, value: count(0, func(t target) *uint32 { return &t.limit.spec.Requests }), def: "0",
			what:  "hits per window",
			catch: "0 denies every hit. A limit without the field gets a warning"},
		{name: "unit_multiplier", in: inLimit, own: true, lacking: true, value: count(1, func(t target) *uint32 { return &t.limit.Multiplier }), def: "1",
			print: func(l *descriptors.Limit) string { return unless(l.Multiplier, 1) },
			what:  "the window is that many units, up to 10 years: 15 × minute"},
		{name: "strategy", in: inLimit, own: true, lacking: true, value: strategy, def: "`fixed_window`, or `DEFAULT_STRATEGY`",
			print: func(l *descriptors.Limit) string { return unless(l.Strategy, 0) },
			what:  "how hits are counted: see [strategies](strategies.md)",
			catch: "another strategy starts new counters; another `requests_per_unit` keeps them"},
		{name: "burst", in: inLimit, own: true, lacking: true, value: count(1, func(t target) *uint32 { return &t.limit.spec.Burst }), def: "the strategy's",
			print: func(l *descriptors.Limit) string { return unless(l.Burst, 0) },
			what:  "capacity of token_bucket and leaky_bucket, tolerance of gcra, in hits: so many may come at once after a pause",
			catch: "not for the other strategies"},
		{name: "window", in: inLimit, own: true, lacking: true, value: fromFirstHit, def: "on the clock",
			print: func(l *descriptors.Limit) string { return when(l.FromFirstHit, windowFromFirstHit) },
			what:  "`from_first_hit`: a fixed window starts at the key's first hit, for lock-outs",
			catch: "fixed_window only"},
		{name: "extend", in: inLimit, own: true, lacking: true, value: boolean(func(t target) *bool { return &t.limit.spec.Extend }),
			print: func(l *descriptors.Limit) string { return when(l.Extend, "true") },
			what:  "each hit starts the window of `from_first_hit` anew, for elastic lock-outs",
			catch: "a caller who keeps trying never gets in"},
		{name: "max_delay", in: inLimit, own: true, lacking: true, value: duration(func(t target) *time.Duration { return &t.limit.spec.MaxDelay }), def: "deny at once",
			print: func(l *descriptors.Limit) string { return unless(l.MaxDelay, 0) },
			what:  "makes leaky_bucket a queue: a request waits for its turn for at most this long",
			catch: "Envoy must wait as long: raise the timeout of its filter"},
		{name: "on_error", in: inLimit, own: true, lacking: true, value: policy(func(t target) *descriptors.Policy { return &t.limit.OnError }), def: "the domain's",
			print: func(l *descriptors.Limit) string { return unless(l.OnError, descriptors.PolicyError) },
			what:  "what happens to hits while the store cannot decide: see [failure policies](failure.md)",
			catch: "`local` needs `REPLICAS` or `REPLICAS_DNS` if several processes share the store"},
		{name: "lease", in: inLimit, own: true, lacking: true, value: lease, def: "false",
			print: func(l *descriptors.Limit) string { return l.Lease.String() },
			what:  "decide the hits of hot keys from memory: a process charges the store ahead for several hits at once. `true` stands for `{share: 5%, ttl: 250ms}`. See [regions](multi-region.md)",
			catch: "denied hits are not counted. Not with `extend` or `max_delay`; no effect in `rate_limits`, in all-or-nothing requests and in the memory backend"},
		{name: "unlimited", in: inLimit, value: boolean(func(t target) *bool { return &t.limit.unlimited }),
			what:  "no limit, for exceptions",
			catch: "without `unit`, and only in `rate_limit`"},
		{name: "name", in: inLimit, value: text(func(t target) *string { return &t.limit.Name }),
			what: "the name that `replaces` of other limits refers to"},
		{name: "replaces", in: inLimit, value: listOfReplaces,
			what:  "the limits that do not count in requests that match this limit, too: `[{name: …}]`",
			catch: "holds also when this limit is unlimited or in shadow mode. Two limits that replace each other leave neither"},

		{name: "name", in: inReplaces, value: required(func(t target) *string { return &t.replaced.name }),
			what: "the `name` of another limit"},

		{name: "share", in: inLease, own: true, value: percent(func(t target) *algorithms.Percent { return &t.lease.Share }), def: "5%",
			what:  "the part of `burst`, or of `requests_per_unit` where the strategy has no burst, that one process may hold at most",
			catch: "at least one hit, at most 50%"},
		{name: "ttl", in: inLease, own: true, value: duration(func(t target) *time.Duration { return &t.lease.TTL }), def: "250ms",
			what:  "how long a process may hold hits unused",
			catch: "10ms to 10s, and a few times the round trip to the store"},
	}
}

func unless[T comparable](v, def T) string {
	if v == def {
		return ""
	}
	return fmt.Sprint(v)
}

func when(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

// lookup finds the field with that name, in the place if it stands there and
// else in another.
func lookup(name string, where place) (i int, known bool) {
	all := byName[name]
	for _, i := range all {
		if fields[i].in == where {
			return i, true
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	return all[0], true
}

// homes names the places in which a field has a meaning.
func homes(name string) string {
	var places []string
	for _, i := range byName[name] {
		places = append(places, fields[i].in.String())
	}
	return strings.Join(places, " or ")
}

// names lists the fields that fit, each once.
func names(fits func(*field) bool) []string {
	var list []string
	for i := range fields {
		if f := &fields[i]; fits(f) && !slices.Contains(list, f.name) {
			list = append(list, f.name)
		}
	}
	return list
}

// unknownKey is the message about a key that does not exist. The keys of the
// same place are nearer than others.
func unknownKey(name string, known func(*field) bool) string {
	here := names(known)
	for _, words := range [][]string{here, names(func(*field) bool { return true })} {
		if s := spelling.Nearest(name, words); s != "" {
			return `unknown key; did you mean "` + s + `"?`
		}
	}
	if len(here) == 0 {
		return "unknown key"
	}
	return "unknown key; known here: " + strings.Join(here, ", ")
}
