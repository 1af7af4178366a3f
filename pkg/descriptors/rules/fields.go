package rules

import (
	"slices"
	"strings"
	"time"

	"example.org/rls/internal/fields"
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
	inThreshold
	inReserve
	inMatch
	inMask
	inTable
)

// String is the place in a message.
func (p place) String() string {
	return [...]string{"the top of the file", "a descriptor", "rate_limit", "replaces", "lease", "thresholds", "reserve", "match", "mask", "table"}[p]
}

// target is where the fields of a mapping are written to, and the reader that reads
// it. Which of the other members is set depends on the mapping's place.
type target struct {
	*reader
	file       *file
	descriptor *descriptor
	limit      *limit
	replaced   *replaced
	lease      *algorithms.Lease
	threshold  *descriptors.Threshold
	reserve    *algorithms.Reserve
	match      *match
	mask       *descriptors.Mask
	table      *tableOf
}

// field is one key of the rule language in one place.
type field struct {
	row
	in place
	// own fields are unknown to envoyproxy/ratelimit. In a place where they
	// have no meaning they are a problem; the other fields are ignored there,
	// as envoyproxy/ratelimit ignores them.
	own bool
	// ignored says that envoyproxy/ratelimit knows the name, and ignores it in this place.
	ignored bool
	// lacking says that the messages of a control plane have no such field, so
	// that it travels in metadata.rls.
	lacking bool
	// free says that any value will do; its keys are not keys of the language.
	free bool
}

type row = fields.Field[target]

// whole reports whether the field's value is a whole number, and no text.
func (f *field) whole() bool {
	types, _ := f.Type.Schema["type"].([]string)
	return slices.Contains(types, "integer") && !slices.Contains(types, "string")
}

const maxFields = 80 // at most; see reader.mapping

var (
	table  []field
	byName = map[string][]int{} // the indices of fields with that name
)

// Types read fields themselves, so the table is made in init: an initializer of a
// variable must not refer to the variable.
func init() {
	table = append(language(), kinds()...)
	for i := range table {
		byName[table[i].Name] = append(byName[table[i].Name], i)
	}
}

// language is the table of fields. Reading, suggestions, messages, /rlconfig, the
// hash of rules, the JSON Schema and the tables of docs/rules.md follow from it.
func language() []field {
	return []field{
		{in: inFile, row: row{Name: "domain", Required: true, Type: fields.At(required, func(t target) *string { return &t.file.domain }),
			What: "the name that Envoy asks with",
			Note: "required. Two files with one domain are an error unless `MERGE_DOMAIN_CONFIG` is set"}},
		{in: inFile, row: row{Name: "descriptors", Type: listOfDescriptors,
			What: "the rules; one level lists a key and value once"}},
		{in: inFile, own: true, lacking: true, row: row{Name: "charge", Type: stating(charge, func(t target) *stated[descriptors.Charge] { return &t.file.charge }), Default: "`always`",
			What: "`always`: a denied request is charged to all its limits; `admitted`: to none",
			Note: "`admitted` needs one atomic step over all counters. On a cluster a charge is given back after a denial, and other requests may be denied for a moment"}},
		{in: inFile, own: true, lacking: true, row: row{Name: "on_error", Type: stating(policy, func(t target) *stated[descriptors.Policy] { return &t.file.onError }), Default: "`ON_ERROR`, which is `error`",
			What: "the [policy](store-away.md) of limits that have none, and of overrides without a rule",
			Note: "a control plane cannot send it: set it in `rate_limit`, or set `ON_ERROR`"}},

		{in: inFile, own: true, lacking: true, free: true, row: row{Name: "pools", Type: pools,
			What: "names and limits of [pools](pools.md)",
			Note: "a pool has the fields of a limit that say how much and how it is counted. With `MERGE_DOMAIN_CONFIG` it is for all files of the domain"}},

		{in: inFile, own: true, lacking: true, free: true, row: row{Name: "plans", Type: plans,
			What: "names and limits, one or a list, of [plans](plans.md)",
			Note: "`unlimited` is always a plan. With `MERGE_DOMAIN_CONFIG` plans are for all files of the domain"}},

		{in: inDescriptor, row: row{Name: "key", Required: true, Type: fields.At(required, func(t target) *string { return &t.descriptor.Key }),
			What: "the entry's key; a `*` matches any text",
			Note: "required. With a `*` the descriptor ranks as a wildcard"}},
		{in: inDescriptor, row: row{Name: "value", Type: fields.At(text, func(t target) *string { return &t.descriptor.Value }),
			What: "the entry's value; without it each value counts for itself",
			Note: "numbers with a fraction must be quoted (`\"1.5\"`), as in the reference; `010` and `yes` keep their text"}},
		{in: inDescriptor, own: true, lacking: true, row: row{Name: "match", Type: matching,
			Needs: has("value", Schema{"enum": []any{"", nil}}),
			What:  "the [values](match.md) that it takes, in place of `value`",
			Note:  "each value has its own counter unless `share_threshold` is set"}},
		{in: inDescriptor, own: true, lacking: true, row: row{Name: "mask", Type: mask,
			Needs: Schema{"allOf": []Schema{has("value", anyOf(Schema{"enum": []any{"", nil}}, aWildcard)), {"properties": Schema{"share_threshold": Schema{"enum": []any{false, nil}}, "match": has("values", false)}}, withoutReserve()}},
			What:  "counts addresses by their [network](match.md#networks)",
			Note:  "keys and metrics have the network, such as `192.0.2.0/24`; another text is counted as it is. Not beside single values or `share_threshold`"}},
		{in: inDescriptor, row: row{Name: "descriptors", Type: listOfDescriptors,
			What: "the descriptors for the next entry, up to 1,000 levels deep",
			Note: "a limit here does not apply to requests with fewer entries"}},
		{in: inDescriptor, row: row{Name: "rate_limit", Type: oneLimit, Default: "no limit",
			What: "the limit; `null` is no limit"}},
		{in: inDescriptor, own: true, lacking: true, row: row{Name: "rate_limits", Type: limits,
			Needs: has("rate_limit", Schema{"type": "null"}),
			What:  "several limits: a request must pass all, or is charged to none",
			Note:  "in place of `rate_limit`; for example a burst and a long-term rate. If one denies, the others are not charged, whatever `charge` says. Two limits with the same strategy and window would share a counter and are an error, unless one is in shadow mode or has a `rollout`"}},
		{in: inDescriptor, row: row{Name: "shadow_mode", Type: fields.At(boolean, func(t target) *bool { return &t.descriptor.rule.Shadow }),
			What: "[count and report](trying.md) with all limits, never deny",
			Note: "`x-ratelimit-*` of Envoy show the limit, other headers do not, and it keeps no other limit from being charged"}},
		{in: inDescriptor, row: row{Name: "quota_mode", Type: fields.At(boolean, func(t target) *bool { return &t.descriptor.rule.Quota }),
			What: "descriptors with it deny a request only [together](before-the-limit.md#deny-only-together)",
			Note: "a limit that is replaced does not count; `QUOTA_MODE=true` puts every descriptor in quota mode"}},
		{in: inDescriptor, lacking: true, row: row{Name: "share_threshold", Type: fields.At(boolean, func(t target) *bool { return &t.descriptor.Shared }),
			Needs: Schema{"allOf": []Schema{anyOf(given("key", aWildcard), given("value", aWildcard), Schema{"required": []string{"match"}}), withoutReserve()}},
			What:  "all values of the wildcard or `match` [share one counter](pools.md#shared-counters)",
			Note:  "needs a wildcard or `match`"}},
		{in: inDescriptor, row: row{Name: "detailed_metric", Type: fields.At(boolean, func(t target) *bool { return &t.descriptor.rule.DetailedMetric }),
			Needs: withoutReserve(),
			What:  "the request's keys and values name the metric",
			Note:  "each value makes a series. `METRICS_MAX_SERIES` caps them"}},
		{in: inDescriptor, lacking: true, row: row{Name: "value_to_metric", Type: fields.At(boolean, func(t target) *bool { return &t.descriptor.ValueToMetric }),
			Needs: withoutReserve(),
			What:  "this entry's value names the metric",
			Note:  "where the rule has a wildcard or no value. Each value makes a series. `METRICS_MAX_SERIES` caps them. With `share_threshold` the pattern stands there instead"}},
		{in: inDescriptor, free: true, row: row{Name: "metadata", Type: metadata(func(t target) *map[string]any { return &t.descriptor.rule.Metadata }),
			What: "goes back to Envoy with each decision",
			Note: "for access logs and other filters; any YAML that JSON can hold"}},

		{in: inLimit, row: row{Name: "unit", Type: fields.At(ranged("second, minute, hour, day, week, month, year", text), func(t target) *string { return &t.limit.unit }),
			What: "the unit of the window, in any case; required without `plan` or `unlimited`",
			Note: "windows follow the Unix clock: a week is 7 days and starts on Thursday, a month is 30 days, a year 365, unless `window: calendar` says otherwise"}},
		{in: inLimit, row: row{Name: "requests_per_unit", Type: fields.At(count(0), func(t target) *uint32 { return &t.limit.spec.Requests }), Default: "0",
			What: "hits per window; 0 denies every hit",
			Note: "a limit without the field gets a warning"}},
		{in: inLimit, own: true, lacking: true, row: row{Name: "unit_multiplier", Type: fields.At(count(1), func(t target) *uint32 { return &t.limit.Multiplier }), Default: "1",
			Needs: longestWindows(),
			What:  "units of the window, up to 10 years"}},
		{in: inLimit, own: true, lacking: true, row: row{Name: "strategy", Type: fields.At(strategy, func(t target) *algorithms.Strategy { return &t.limit.spec.Strategy }), Default: "`fixed_window`, or `DEFAULT_STRATEGY`",
			Needs: anyOf(has("strategy", Schema{"not": Schema{"enum": []string{algorithms.SlidingLog.String(), algorithms.Concurrency.String()}}}), has("requests_per_unit", Schema{"maximum": algorithms.MaxLogRequests})),
			What:  "the [way to count](strategies.md)",
			Note:  "another strategy starts new counters; another `requests_per_unit` keeps them"}},
		{in: inLimit, own: true, lacking: true, row: row{Name: "burst", Type: fields.At(count(1), func(t target) *uint32 { return &t.limit.spec.Burst }), Default: "the strategy's",
			Needs: given("strategy", Schema{"enum": algorithms.WithBurst()}),
			What:  "hits that may come at once after a pause, in buckets and `gcra`",
			Note:  "capacity of token_bucket and leaky_bucket, tolerance of gcra; not for the other strategies"}},
		{in: inLimit, own: true, lacking: true, row: row{Name: "window", Type: window(), Default: "on the clock",
			Needs: Schema{"allOf": []Schema{has("strategy", Schema{"const": algorithms.FixedWindow.String()}), anyOf(has("window", Schema{"const": windowFromFirstHit}), calendarPeriods())}},
			What:  "`fixed_window` [starts](strategies.md#fixed_window) with the key's first hit, or with periods of a time zone",
			Note:  "`from_first_hit`: with the key's first hit, for lock-outs. `calendar`: with the days, weeks, months or years of a time zone; needs such a unit, without `unit_multiplier`"}},
		{in: inLimit, own: true, lacking: true, row: row{Name: "timezone", Type: fields.At(timezone, func(t target) *string { return &t.limit.spec.Calendar.Zone }), Default: "UTC",
			Needs: ofCalendar(descriptors.Day, descriptors.Week, descriptors.Month, descriptors.Year),
			What:  "the zone of `window: calendar`, from the IANA database",
			Note:  "such as Europe/Berlin. The program has the database in it. `Local` is an error, because processes differ in it"}},
		{in: inLimit, own: true, lacking: true, row: row{Name: "week_starts", Type: counted("weekday", weekdays, func(t target) *uint8 { return &t.limit.spec.Calendar.WeekStarts }), Default: "monday",
			Needs: ofCalendar(descriptors.Week),
			What:  "the first day of calendar weeks"}},
		{in: inLimit, own: true, lacking: true, row: row{Name: "month_starts", Type: fields.At(between(1, 28), func(t target) *uint32 { return &t.limit.spec.Calendar.MonthStarts }), Default: "1",
			Needs: ofCalendar(descriptors.Month),
			What:  "the first day of calendar months, for billing periods"}},
		{in: inLimit, own: true, lacking: true, row: row{Name: "year_starts", Type: counted("month", months, func(t target) *uint8 { return &t.limit.spec.Calendar.YearStarts }), Default: "january",
			Needs: ofCalendar(descriptors.Year),
			What:  "the first month of calendar years, for fiscal years"}},
		{in: inLimit, own: true, lacking: true, row: row{Name: "extend", Type: fields.At(boolean, func(t target) *bool { return &t.limit.spec.Extend }),
			Needs: given("window", Schema{"const": windowFromFirstHit}),
			What:  "each hit starts the window of `from_first_hit` anew",
			Note:  "a caller who keeps trying never gets in"}},
		{in: inLimit, own: true, lacking: true, row: row{Name: "max_delay", Type: fields.At(ranged("a duration up to 1m", duration), func(t target) *time.Duration { return &t.limit.spec.MaxDelay }), Default: "deny at once",
			Needs: given("strategy", Schema{"const": algorithms.LeakyBucket.String()}),
			What:  "makes `leaky_bucket` a [queue](strategies.md#leaky_bucket): the longest wait",
			Note:  "Envoy must wait as long: raise the timeout of its filter"}},
		{in: inLimit, own: true, lacking: true, row: row{Name: "on_error", Type: fields.At(policy, func(t target) *descriptors.Policy { return &t.limit.OnError }), Default: "the domain's",
			What: "the [policy](store-away.md) while the store cannot decide",
			Note: "`local` needs `REPLICAS` or `REPLICAS_DNS` if several processes share the store"}},
		{in: inLimit, own: true, lacking: true, row: row{Name: "lease", Type: lease, Default: "false",
			Needs: Schema{"properties": Schema{"max_delay": false, "extend": Schema{"enum": []any{false, nil}}, "strategy": Schema{"not": Schema{"const": algorithms.Concurrency.String()}}}},
			What:  "[charge ahead](multi-region.md#leases) for hot keys and decide from memory",
			Note:  "`true` stands for `{share: 5%, ttl: 250ms}`. Denied hits are not counted. Not with `extend`, `max_delay`, `overdraft`, `reserve` or concurrency; no effect in `rate_limits`, in all-or-nothing requests and in the memory backend"}},
		{in: inLimit, own: true, lacking: true, row: row{Name: "thresholds", Type: listOfThresholds,
			What: "what happens [before the limit](before-the-limit.md)",
			Note: "of a limit that is not enforced (shadow mode, `rollout`) only the metadata"}},
		{in: inLimit, own: true, lacking: true, row: row{Name: "overdraft", Type: fields.At(overdraft, func(t target) *debt { return (*debt)(&t.limit.spec.Overdraft) }), Default: "false",
			Needs: Schema{"properties": Schema{
				"strategy":  Schema{"enum": []string{algorithms.FixedWindow.String(), algorithms.TokenBucket.String(), algorithms.GCRA.String(), algorithms.LeakyBucket.String()}},
				"max_delay": false, "window": Schema{"not": Schema{"const": windowFromFirstHit}}, "lease": Schema{"enum": []any{false, nil}},
			}},
			What: "[debt](costs-known-later.md#overdraft): charges beyond the limit are made, too; `true` is up to 1,000 times the limit",
			Note: "a number allows a debt of that many hits. fixed_window on the clock or calendar, token_bucket, gcra, leaky_bucket. Not with `lease` or `max_delay`"}},
		{in: inLimit, own: true, lacking: true, row: row{Name: "precision", Type: fields.At(between(2, algorithms.MaxPrecision), func(t target) *uint32 { return &t.limit.spec.Precision }), Default: "two windows, the older one fading",
			Needs: given("strategy", Schema{"const": algorithms.SlidingWindow.String()}),
			What:  "parts of an exact [`sliding_window`](strategies.md#sliding_window)",
			Note:  "all parts count whole, so no rolling window ever has more hits than the limit; a hit counts for at most a part longer than the window. sliding_window only"}},
		{in: inLimit, own: true, lacking: true, row: row{Name: "reserve", Type: reserve, Default: "false",
			Needs: Schema{"properties": Schema{"max_delay": false, "window": Schema{"not": Schema{"const": windowFromFirstHit}}, "lease": Schema{"enum": []any{false, nil}}}},
			What:  "hold an [estimate](costs-known-later.md#reserve) first, settle the true cost later",
			Note:  "`true` stands for `{ttl: 10m}`. The value of the descriptor is the id of a reservation; it has no `value`, or a wildcard. The id is no part of the counter's key. Not with `lease`, `max_delay`, `window: from_first_hit`, `share_threshold`, `value_to_metric` or `detailed_metric`"}},
		{in: inLimit, own: true, lacking: true, row: row{Name: "borrow_from", Type: fields.At(nameOf[poolName]("pool"), func(t target) *poolName { return &t.limit.lender }),
			Needs: Schema{"properties": Schema{
				"strategy":  Schema{"not": Schema{"const": algorithms.Concurrency.String()}},
				"overdraft": Schema{"enum": []any{false, nil}}, "reserve": Schema{"enum": []any{false, nil}},
			}},
			What: "the [pool](pools.md) that pays if this limit denies",
			Note: "denied hits are not counted. Not with `overdraft`, `reserve` or `strategy: concurrency`. Over xDS `pools` stands in `metadata.rls` of any descriptor"}},
		{in: inLimit, own: true, lacking: true, row: row{Name: "max_borrow", Type: fields.At(percentFrom1("1% to 100%", algorithms.Whole, "20%"), func(t target) *algorithms.Percent { return &t.limit.maxBorrow }), Default: "100%",
			Needs: Schema{"required": []string{"borrow_from"}},
			What:  "the part of the pool that one key may borrow",
			Note:  "rounded down, and at least one hit"}},
		{in: inLimit, own: true, lacking: true, row: row{Name: "plan", Type: fields.At(nameOf[planName]("plan"), func(t target) *planName { return &t.limit.plan }),
			What: "the [plan](plans.md) whose limits the rule has",
			Note: "only in `rate_limit`, beside `table`, `name` and `replaces`. Metrics are those of the rule. Over xDS it takes the place of the limit in the message"}},
		{in: inLimit, own: true, lacking: true, row: row{Name: "table", Type: tables,
			What: "a [CSV file](plans.md#tables) with limits of single values, in `rate_limit` only",
			Note: "beside the file of rules, or at an address. Values without a row have this limit. The name of a file ends in `.csv`"}},
		{in: inLimit, row: row{Name: "unlimited", Type: fields.At(boolean, func(t target) *bool { return &t.limit.unlimited }),
			What: "no limit, for [exceptions](before-the-limit.md#exemptions)",
			Note: "without `unit`, and only in `rate_limit`"}},
		{in: inLimit, row: row{Name: "name", Type: fields.At(text, func(t target) *string { return &t.limit.Name }),
			What: "the name for `replaces` and metrics"}},
		{in: inLimit, ignored: true, lacking: true, row: row{Name: "shadow_mode", Type: fields.At(boolean, func(t target) *bool { return &t.limit.Shadow }),
			What: "this limit alone [counts and never denies](trying.md)",
			Note: "has a counter of its own, and no effect on replies, headers or other limits. It replaces no limit"}},
		{in: inLimit, own: true, lacking: true, row: row{Name: "rollout", Type: fields.At(rollout, func(t target) *enforced { return (*enforced)(&t.limit.WatchedPart) }), Default: "100%",
			Needs: has("shadow_mode", Schema{"enum": []any{false, nil}}),
			What:  "the part of the keys for which it is [enforced](trying.md)",
			Note:  "for the others it is watched, as with `shadow_mode`. A larger share has all keys of a smaller one. Such as 0.5%. The counters are the same for both. Not with `shadow_mode`"}},
		{in: inLimit, row: row{Name: "replaces", Type: listOfReplaces,
			What: "[limits](before-the-limit.md#exemptions) that do not count beside this one",
			Note: "`[{name: …}]`. Holds also when this limit is unlimited or its rule is in shadow mode, but not where this limit alone is watched (its own `shadow_mode`, `rollout`). Two limits that replace each other leave neither"}},

		{in: inReplaces, row: row{Name: "name", Required: true, Type: fields.At(required, func(t target) *string { return &t.replaced.name }),
			What: "the `name` of another limit"}},

		{in: inReserve, own: true, row: row{Name: "ttl", Type: fields.At(ranged("1s to 24h", duration), func(t target) *time.Duration { return &t.reserve.TTL }), Default: "10m",
			What: "how long a reservation waits, and a settled id is known"}},
		{in: inReserve, own: true, row: row{Name: "on_expiry", Type: onExpiry(), Default: "`keep`",
			What: "whether hits that nobody settles stay charged",
			Note: "`give_back` costs each decision on the counter one more read"}},

		{in: inMask, own: true, row: row{Name: "ipv4", Type: maskBits(32, func(t target) *uint8 { return &t.mask.IPv4 }), Default: "each address for itself",
			What: "bits of the networks that count IPv4 addresses",
			Note: "also of IPv4-mapped addresses"}},
		{in: inMask, own: true, row: row{Name: "ipv6", Type: maskBits(128, func(t target) *uint8 { return &t.mask.IPv6 }), Default: "each address for itself",
			What: "bits of the networks that count IPv6 addresses"}},

		{in: inTable, own: true, row: row{Name: "file", Type: fields.At(tableFile, func(t target) *string { return &t.table.file }),
			What: "a file beside the rules, or in a folder below",
			Note: "or `url`. Symbolic links are followed. Not over xDS"}},
		{in: inTable, own: true, row: row{Name: "url", Type: fields.At(tableURL, func(t target) *string { return &t.table.url }),
			Needs: has("file", false),
			What:  "the [address](plans.md#tables-from-an-address) that it is fetched from, in place of `file`",
			Note:  "without a user and a password"}},
		{in: inTable, own: true, row: row{Name: "every", Type: fields.At(lasting("1s to 24h", time.Second, 24*time.Hour, "from 1s to 24h, such as 5m"), func(t target) *time.Duration { return &t.table.every }), Default: "1m",
			Needs: Schema{"required": []string{"url"}},
			What:  "how often it is fetched",
			Note:  "of several rules with one `url` the shortest counts"}},
		{in: inTable, own: true, row: row{Name: "entry", Type: fields.At(required, func(t target) *string { return &t.table.entry }), Default: "the descriptor's own",
			What: "the key whose value is looked up",
			Note: "of the descriptor or of one around it"}},

		{in: inLease, own: true, row: row{Name: "share", Type: fields.At(ranged("up to 50%", percent), func(t target) *algorithms.Percent { return &t.lease.Share }), Default: "5%",
			What: "the part of the burst or limit that one process may hold",
			Note: "of `burst`, or of `requests_per_unit` where the strategy has no burst; at least one hit"}},
		{in: inLease, own: true, row: row{Name: "ttl", Type: fields.At(ranged("10ms to 10s", duration), func(t target) *time.Duration { return &t.lease.TTL }), Default: "250ms",
			What: "how long a process may hold hits unused",
			Note: "and a few times the round trip to the store"}},

		{in: inThreshold, own: true, row: row{Name: "at", Required: true, Type: fields.At(percentFrom1("1% to 99%", algorithms.Whole/100*99, "80%"), func(t target) *algorithms.Percent { return &t.threshold.At }),
			What: "the used part of the burst or limit from which it applies",
			Note: "of `burst`, or of `requests_per_unit` where the strategy has no burst. Required, and each once in a limit"}},
		{in: inThreshold, own: true, free: true, row: row{Name: "headers", Type: headers(func(t *descriptors.Threshold) *[]descriptors.Header { return &t.Headers }),
			What: "headers that Envoy adds to the request upstream",
			Note: "not `host`, pseudo-headers and headers of the connection"}},
		{in: inThreshold, own: true, free: true, row: row{Name: "response_headers", Type: headers(func(t *descriptors.Threshold) *[]descriptors.Header { return &t.ResponseHeaders }),
			What: "headers that Envoy adds to the response",
			Note: "not `host`, pseudo-headers and headers of the connection"}},
		{in: inThreshold, free: true, row: row{Name: "metadata", Type: metadata(func(t target) *map[string]any { return &t.threshold.Metadata }),
			What: "an item of `thresholds` in dynamic metadata",
			Note: "beside `rule` and `at`, which are no names for it; needs `RESPONSE_DYNAMIC_METADATA`"}},
		{in: inThreshold, own: true, row: row{Name: "delay", Type: fields.At(lasting("a duration up to 1s", 1, time.Second, "above 0 and at most 1s, such as 200ms"), func(t target) *time.Duration { return &t.threshold.Delay }), Default: "answer at once",
			What: "how long the answer is held",
			Note: "as far as the caller's deadline allows: raise the timeout of Envoy's filter"}},
	}
}

// lookup finds the field with that name, in the place if it stands there and
// else in another.
func lookup(name string, where place) (i int, known bool) {
	all := byName[name]
	if len(all) == 0 {
		return 0, false
	}
	here := slices.IndexFunc(all, func(i int) bool { return table[i].in == where })
	return all[max(here, 0)], true
}

// homes names the places in which a field has a meaning.
func homes(name string) string {
	var places []string
	for _, i := range byName[name] {
		places = append(places, table[i].in.String())
	}
	return strings.Join(places, " or ")
}

// names lists the fields that fit, each once.
func names(fits func(*field) bool) []string {
	var list []string
	for i := range table {
		if f := &table[i]; fits(f) && !slices.Contains(list, f.Name) {
			list = append(list, f.Name)
		}
	}
	return list
}

// unknownKey is the message about a key that does not exist. The keys of the
// same place are nearer than others.
func unknownKey(name string, known func(*field) bool) string {
	here := names(known)
	elsewhere := names(func(f *field) bool { return f.in != inMatch }) // not is near many words
	for _, words := range [][]string{here, elsewhere} {
		if s := spelling.Nearest(name, words); s != "" {
			return `unknown key; did you mean "` + s + `"?`
		}
	}
	if len(here) == 0 {
		return "unknown key"
	}
	return "unknown key; known here: " + strings.Join(here, ", ")
}
