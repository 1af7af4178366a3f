package yaml_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.org/rls/internal/document"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
)

func TestProblems(t *testing.T) {
	tests := []struct{ name, content, want string }{
		{
			"every problem of a file, where it is",
			`domain: d
charge: allways
descriptors:
  - key: user
    vlue: x
    rate_limit:
      unit: minuet
      requests_per_unit: 5.0
      shadow_mode: true
  - key: plan
    value: 1.5
    shadow_mode: 'true'
    rate_limit: {unit: minute, requests_per_unit: '5'}
    descriptors:
      - value: x
        rate_limit: {unit: fortnight, requests_per_unit: -1}
  - key: user
    share_threshold: yes
    rate_limit: {unit: hour, unlimited: true}
`,
			`a.yaml:2:9: charge: unknown charge "allways"; did you mean "always"?
a.yaml:5:5: vlue: unknown key; did you mean "value"?
a.yaml:7:13: rate_limit.unit: unknown unit "minuet"; did you mean "minute"?
a.yaml:8:26: rate_limit.requests_per_unit: must be a whole number, not 5.0
a.yaml:11:12: value: 1.5 is a number with a fraction or an exponent; quote it to make it a string: "1.5"
a.yaml:12:18: shadow_mode: must be true or false, not the string "true"
a.yaml:13:51: rate_limit.requests_per_unit: must be a whole number, not the string "5"
a.yaml:15:9: key: must not be empty; a descriptor matches entries of one key
a.yaml:16:28: rate_limit.unit: unknown unit "fortnight"; one of second, minute, hour, day, week, month, year
a.yaml:16:58: rate_limit.requests_per_unit: must be between 0 and 4294967295, not -1
a.yaml:17:5: repeats key "user" of a.yaml:4:5; a descriptor may be listed once
a.yaml:18:22: share_threshold: needs a wildcard or match: there is no * in "user"
a.yaml:19:24: rate_limit.unit: must not be given with unlimited: true`,
		},
		{
			"strategies and their options",
			`domain: d
descriptors:
  - key: a
    rate_limit: {unit: minute, requests_per_unit: 1, strategy: token_buket, burst: 3}
  - key: b
    rate_limit: {unit: minute, requests_per_unit: 1, burst: 3}
  - key: c
    rate_limit: {unit: minute, requests_per_unit: 1, strategy: gcra, burst: 0, unit_multiplier: 0}
  - key: e
    rate_limit: {unit: year, requests_per_unit: 1, unit_multiplier: 4294967295}
  - key: f
    rate_limit: {unit: minute, requests_per_unit: 20000, strategy: sliding_log}
  - key: g
    rate_limit: {unit: minute, requests_per_unit: 1, extend: true}
  - key: h
    rate_limit: {unit: minute, requests_per_unit: 1, strategy: gcra, window: from_first_hit}
  - key: i
    rate_limit: {unit: minute, requests_per_unit: 1, strategy: leaky_bucket, max_delay: 500}
  - key: j
    rate_limit: {unit: minute, requests_per_unit: 1, window: rolling, strategy: x}
  - key: l
    rate_limit: {unlimited: true, burst: 3}
  - key: m
    burst: 3
    rate_limit: {requests_per_unit: 1}
  - key: n
    rate_limit: {unit: year, unit_multiplier: 10, requests_per_unit: 1, strategy: gcra, burst: 4294967295}
`,
			`a.yaml:4:64: rate_limit.strategy: unknown strategy "token_buket"; did you mean "token_bucket"?
a.yaml:6:61: rate_limit.burst: fixed_window has no burst; token_bucket, gcra and leaky_bucket have
a.yaml:8:77: rate_limit.burst: must be at least 1
a.yaml:8:97: rate_limit.unit_multiplier: must be at least 1
a.yaml:10:69: rate_limit.unit_multiplier: must be at most 10 for the unit year: a window is at most 10 years
a.yaml:12:51: rate_limit.requests_per_unit: sliding_log remembers every hit and takes at most 10000; use ` + "`strategy: sliding_window`" + ` for more
a.yaml:14:62: rate_limit.extend: needs strategy fixed_window with ` + "`window: from_first_hit`" + `
a.yaml:16:78: rate_limit.window: from_first_hit is an option of fixed_window, not of gcra
a.yaml:18:89: rate_limit.max_delay: must be a duration above 0 such as 500ms or 1.5s, not "500"
a.yaml:20:62: rate_limit.window: unknown window "rolling"; one of from_first_hit, calendar
a.yaml:20:81: rate_limit.strategy: unknown strategy "x"; one of fixed_window, sliding_window, sliding_log, token_bucket, gcra, leaky_bucket, concurrency
a.yaml:22:42: rate_limit.burst: must not be given with unlimited: true
a.yaml:24:5: burst: has no meaning here; it belongs into rate_limit
a.yaml:25:17: rate_limit.unit: is missing; one of second, minute, hour, day, week, month, year
a.yaml:27:96: rate_limit.burst: 4294967295 at this rate take more than 100 years to fill; lower burst or raise requests_per_unit`,
		},
		{
			"leases",
			`domain: d
descriptors:
  - key: a
    rate_limit: {unit: minute, requests_per_unit: 19, lease: true}
  - key: b
    rate_limit: {unit: minute, requests_per_unit: 1000, lease: {share: 60%, ttl: 1m}}
  - key: c
    rate_limit:
      unit: minute
      requests_per_unit: 1000
      lease:
        share: 51%
        ttl: 1s
  - key: e
    rate_limit: {unit: minute, requests_per_unit: 1000, lease: {share: 5, ttl: soon, sahre: 1%}}
  - key: f
    rate_limit: {unit: minute, requests_per_unit: 1000, lease: 5%}
  - key: g
    rate_limit: {unit: minute, requests_per_unit: 1000, strategy: gcra, lease: true}
  - key: h
    rate_limit: {unit: minute, requests_per_unit: 1000, window: from_first_hit, extend: true, lease: true}
  - key: i
    rate_limit: {unit: minute, requests_per_unit: 1000, strategy: leaky_bucket, max_delay: 1s, burst: 1000, lease: true}
  - key: j
    share: 5%
    rate_limit: {unit: minute, requests_per_unit: 1000, lease: {ttl: 9ms}}
  - key: l
    rate_limit: {unlimited: true, lease: true}
`,
			`a.yaml:4:62: rate_limit.lease.share: 5% of requests_per_unit 19 is less than one hit; want at least 5.2632%, or no lease
a.yaml:6:82: rate_limit.lease.ttl: 1m0s is out of range: want 10ms to 10s
a.yaml:12:16: rate_limit.lease.share: 51% is more than half of the limit; want at most 50%, so that other processes have a part
a.yaml:15:72: rate_limit.lease.share: must be a percentage above 0% and at most 100%, such as 5%, not "5"
a.yaml:15:80: rate_limit.lease.ttl: must be a duration above 0 such as 500ms or 1.5s, not "soon"
a.yaml:15:86: rate_limit.lease.sahre: unknown key; did you mean "share"?
a.yaml:17:64: rate_limit.lease: must be true, false, or a mapping with share and ttl, not the string "5%"
a.yaml:19:80: rate_limit.lease: no share of burst 1 is as much as one hit; leave lease out
a.yaml:21:102: rate_limit.lease: has no meaning with ` + "`extend`" + `: each hit has to move the window's end
a.yaml:23:116: rate_limit.lease: has no meaning with max_delay: a turn in the queue cannot be held
a.yaml:25:5: share: has no meaning here; it belongs into lease
a.yaml:26:70: rate_limit.lease.ttl: 9ms is out of range: want 10ms to 10s
a.yaml:28:42: rate_limit.lease: must not be given with unlimited: true`,
		},
		{
			"several limits",
			`domain: d
descriptors:
  - key: a
    rate_limit: {unit: minute, requests_per_unit: 1}
    rate_limits: [{unit: minute, requests_per_unit: 1}]
  - key: b
    rate_limits:
      - {unit: minute, requests_per_unit: 30, unit_multiplier: 60}
      - {unit: hour, requests_per_unit: 100}
      - {unit: hour, requests_per_unit: 100, strategy: gcra}
      - {unlimited: true}
      - {unit: day, requests_per_unit: 5, name: x, replaces: [{name: x}, {name: ""}]}
  - key: c
    rate_limits: []
  - key: e
    rate_limits: {unit: day}
  - key: f
    rate_limits: [5]
`,
			`a.yaml:5:5: rate_limits: excludes rate_limit; move that into the list
a.yaml:9:9: rate_limits[1]: has the strategy and window of "30 per 60 minutes" before it and would share its counter; keep the stricter one or change the window
a.yaml:11:21: rate_limits[3].unlimited: belongs into rate_limit: an unlimited descriptor has no list of limits
a.yaml:12:70: rate_limits[4].replaces[0].name: a limit cannot replace itself ("x")
a.yaml:12:81: rate_limits[4].replaces[1].name: must not be empty; it is the name of another limit
a.yaml:14:18: rate_limits: must have at least one limit
a.yaml:16:18: rate_limits: must be a list, not a mapping
a.yaml:18:19: rate_limits[0]: must be a mapping, not 5`,
		},
		{
			"trying limits",
			`domain: d
descriptors:
  - key: a
    rate_limit: {unit: day, requests_per_unit: 1, rollout: 10}
  - key: b
    rate_limit: {unit: day, requests_per_unit: 1, rollout: 0.5}
  - key: c
    rate_limit: {unit: day, requests_per_unit: 1, rollout: 101%}
  - key: d
    rate_limit: {unit: day, requests_per_unit: 1, rollout: -1%}
  - key: e
    rate_limit: {unit: day, requests_per_unit: 1, rollout: 0.00001%}
  - key: f
    rate_limit: {unit: day, requests_per_unit: 1, rollout: 10%, shadow_mode: true}
  - key: g
    rate_limit: {unit: day, requests_per_unit: 1, shadow_mode: maybe}
  - key: h
    rollout: 10%
  - key: i
    rate_limits:
      - {unit: hour, requests_per_unit: 10, shadow_mode: true}
      - {unit: minute, unit_multiplier: 60, requests_per_unit: 20, shadow_mode: true}
      - {unit: hour, requests_per_unit: 30}
      - {unit: hour, requests_per_unit: 40, rollout: 10%}
      - {unit: hour, requests_per_unit: 50, rollout: 20%}
  - key: j
    rate_limit: {unlimited: true, rollout: 10%}
`,
			`a.yaml:4:60: rate_limit.rollout: must be a percentage from 0% to 100%, such as 10% or 0.5%, not "10"
a.yaml:6:60: rate_limit.rollout: must be a percentage with %, such as 0.5%, not 0.5
a.yaml:8:60: rate_limit.rollout: must be a percentage from 0% to 100%, such as 10% or 0.5%, not "101%"
a.yaml:10:60: rate_limit.rollout: must be a percentage from 0% to 100%, such as 10% or 0.5%, not "-1%"
a.yaml:12:60: rate_limit.rollout: must be 0% or at least 0.0001%, not "0.00001%"
a.yaml:14:60: rate_limit.rollout: must not be given with shadow_mode: true, which watches the limit for every key; remove shadow_mode to enforce it for a share of them
a.yaml:16:64: rate_limit.shadow_mode: must be true or false, not the string "maybe"
a.yaml:18:5: rollout: has no meaning here; it belongs into rate_limit
a.yaml:22:9: rate_limits[1]: has the strategy and window of "10 per hour" before it and would share its counter; keep the stricter one or change the window
a.yaml:25:9: rate_limits[4]: has the strategy and window of "40 per hour" before it and would share its counter; keep the stricter one or change the window
a.yaml:27:44: rate_limit.rollout: must not be given with unlimited: true`,
		},
		{
			"overdrafts, parts of windows, slots and reservations",
			`domain: d
descriptors:
  - {key: a1, rate_limit: {unit: minute, requests_per_unit: 1, overdraft: 0}}
  - {key: a2, rate_limit: {unit: minute, requests_per_unit: 1, overdraft: -1}}
  - {key: a3, rate_limit: {unit: minute, requests_per_unit: 1, overdraft: 1.5}}
  - {key: a4, rate_limit: {unit: minute, requests_per_unit: 1, overdraft: "true"}}
  - {key: a5, rate_limit: {unit: minute, requests_per_unit: 1, overdraft: 4294967296}}
  - {key: a6, rate_limit: {unit: minute, requests_per_unit: 1, overdraft: {}}}
  - {key: a7, rate_limit: {unit: minute, requests_per_unit: 1, overdraft: true, strategy: sliding_window}}
  - {key: a8, rate_limit: {unit: minute, requests_per_unit: 1, overdraft: true, strategy: sliding_log}}
  - {key: a9, rate_limit: {unit: minute, requests_per_unit: 1, overdraft: true, strategy: concurrency}}
  - {key: a10, rate_limit: {unit: minute, requests_per_unit: 1, overdraft: true, strategy: leaky_bucket, max_delay: 1s}}
  - {key: a11, rate_limit: {unit: minute, requests_per_unit: 1, overdraft: true, window: from_first_hit}}
  - {key: a12, rate_limit: {unit: minute, requests_per_unit: 100, overdraft: true, lease: true}}
  - {key: a13, rate_limit: {unit: year, requests_per_unit: 1, overdraft: 1000, strategy: gcra}}
  - {key: a14, rate_limit: {unlimited: true, overdraft: true}}
  - {key: a15, overdraft: true, rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: a16, rate_limit: {unit: minute, requests_per_unit: 100, overdraft: true, strategy: sliding_window, precision: 5}}
  - {key: b1, rate_limit: {unit: minute, requests_per_unit: 1, precision: 1, strategy: sliding_window}}
  - {key: b2, rate_limit: {unit: minute, requests_per_unit: 1, precision: 61, strategy: sliding_window}}
  - {key: b3, rate_limit: {unit: minute, requests_per_unit: 1, precision: 0, strategy: sliding_window}}
  - {key: b4, rate_limit: {unit: minute, requests_per_unit: 1, precision: -5, strategy: sliding_window}}
  - {key: b5, rate_limit: {unit: minute, requests_per_unit: 1, precision: 4294967297, strategy: sliding_window}}
  - {key: b6, rate_limit: {unit: minute, requests_per_unit: 1, precision: "6", strategy: sliding_window}}
  - {key: b7, rate_limit: {unit: minute, requests_per_unit: 1, precision: 6}}
  - {key: b8, rate_limit: {unit: minute, requests_per_unit: 1, precision: 6, strategy: sliding_log}}
  - {key: b9, rate_limit: {unlimited: true, precision: 6}}
  - {key: b10, precision: 6, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: b11, rate_limit: {unit: minute, requests_per_unit: 1, precision: true, strategy: sliding_window}}
  - {key: c1, rate_limit: {unit: minute, requests_per_unit: 10001, strategy: concurrency}}
  - {key: c2, rate_limit: {unit: minute, requests_per_unit: 10, strategy: concurrency, burst: 3}}
  - {key: c3, rate_limit: {unit: minute, requests_per_unit: 10, strategy: concurrency, window: from_first_hit}}
  - {key: c4, rate_limit: {unit: minute, requests_per_unit: 10, strategy: concurrency, extend: true}}
  - {key: c5, rate_limit: {unit: minute, requests_per_unit: 10, strategy: concurrency, max_delay: 1s}}
  - {key: c6, rate_limit: {unit: minute, requests_per_unit: 100, strategy: concurrency, lease: true}}
  - {key: c7, rate_limit: {unit: minute, requests_per_unit: 10, strategy: concurrency, overdraft: 3}}
  - {key: c8, rate_limit: {unit: minute, requests_per_unit: 10, strategy: concurrency, precision: 3}}
  - {key: c9, rate_limit: {unit: minute, requests_per_unit: 10, strategy: concurency}}
  - {key: c10, rate_limit: {unit: minute, requests_per_unit: 10, strategy: concurrency, window: from_first_hit, extend: true}}
  - {key: d1, rate_limit: {unit: minute, requests_per_unit: 10, reserve: 5}}
  - {key: d2, rate_limit: {unit: minute, requests_per_unit: 10, reserve: {ttl: 0s}}}
  - {key: d3, rate_limit: {unit: minute, requests_per_unit: 10, reserve: {ttl: 500ms}}}
  - {key: d4, rate_limit: {unit: minute, requests_per_unit: 10, reserve: {ttl: 25h}}}
  - {key: d5, rate_limit: {unit: minute, requests_per_unit: 10, reserve: {tll: 10m}}}
  - {key: d6, rate_limit: {unit: minute, requests_per_unit: 10, reserve: {ttl: 10}}}
  - {key: d7, rate_limit: {unit: minute, requests_per_unit: 10, reserve: {on_expiry: giveback}}}
  - {key: d8, rate_limit: {unit: minute, requests_per_unit: 100, reserve: true, lease: true}}
  - {key: d9, rate_limit: {unit: minute, requests_per_unit: 100, reserve: true, strategy: leaky_bucket, max_delay: 1s}}
  - {key: d10, rate_limit: {unit: minute, requests_per_unit: 100, reserve: true, window: from_first_hit}}
  - {key: d11, value: "a*", share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 100, reserve: true}}
  - {key: d12, value_to_metric: true, rate_limit: {unit: minute, requests_per_unit: 100, reserve: true}}
  - {key: d13, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 100, reserve: true}}
  - {key: d14, reserve: true, rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: d15, rate_limit: {unlimited: true, reserve: true}}
  - {key: d16, ttl: 10m, rate_limit: {unit: minute, requests_per_unit: 100}}
  - {key: d17, rate_limit: {unit: minute, requests_per_unit: 100, reserve: "true"}}
  - {key: d18, rate_limit: {unit: minute, requests_per_unit: 100, reserve: [1]}}
  - {key: d19, rate_limit: {unit: minute, requests_per_unit: 100, reserve: {ttl: 10m, share: 5%}}}
  - {key: d20, detailed_metric: true, rate_limits: [{unit: minute, requests_per_unit: 100},{unit: hour, requests_per_unit: 100, reserve: true}]}
  - key: e1
    rate_limits:
      - {unit: minute, requests_per_unit: 100, overdraft: true}
      - {unit: minute, requests_per_unit: 100, overdraft: 5}
      - {unit: minute, requests_per_unit: 100}
      - {unit: minute, requests_per_unit: 100, reserve: true}
      - {unit: hour, requests_per_unit: 100, strategy: concurrency}
      - {unit: hour, requests_per_unit: 10, strategy: concurrency}
      - {unit: hour, requests_per_unit: 100, strategy: sliding_window, precision: 5}
      - {unit: hour, requests_per_unit: 200, strategy: sliding_window, precision: 5}
      - {unit: hour, requests_per_unit: 100, strategy: sliding_window, precision: 6}
      - {unit: hour, requests_per_unit: 100, strategy: sliding_window}
      - {unit: hour, requests_per_unit: 100, strategy: gcra, burst: 5}
      - {unit: hour, requests_per_unit: 100, strategy: gcra, overdraft: true, burst: 5}
  - {key: g1, rate_limit: {unit: minute, requests_per_unit: 1, reserve: []}}
  - {key: g2, rate_limit: {unit: minute, requests_per_unit: 1, overdraft: yes, lease: {share: 50%}}}
  - {key: g3, rate_limit: {unit: minute, requests_per_unit: 100, strategy: token_bucket, burst: 1.5, precision: 2.5}}
`,
			`a.yaml:3:75: rate_limit.overdraft: must be at least 1
a.yaml:4:75: rate_limit.overdraft: must be between 1 and 4294967295, not -1
a.yaml:5:75: rate_limit.overdraft: must be a whole number, not 1.5
a.yaml:6:75: rate_limit.overdraft: must be true, false, or a number of hits of at least 1, not the string "true"
a.yaml:7:75: rate_limit.overdraft: must be between 1 and 4294967295, not 4294967296
a.yaml:8:75: rate_limit.overdraft: must be true, false, or a number of hits of at least 1, not an empty mapping
a.yaml:9:75: rate_limit.overdraft: sliding_window cannot have debt; fixed_window, token_bucket, gcra and leaky_bucket can
a.yaml:10:75: rate_limit.overdraft: sliding_log cannot have debt; fixed_window, token_bucket, gcra and leaky_bucket can
a.yaml:11:75: rate_limit.overdraft: concurrency cannot have debt; fixed_window, token_bucket, gcra and leaky_bucket can
a.yaml:12:76: rate_limit.overdraft: has no meaning with max_delay: a queue lets nobody pass before its turn
a.yaml:13:76: rate_limit.overdraft: has no meaning with from_first_hit: no window follows that could take the debt over
a.yaml:14:91: rate_limit.lease: has no meaning with overdraft: each charge has to see the debt
a.yaml:15:74: rate_limit.overdraft: a debt of 1000 hits at this rate takes more than 100 years to pay; lower it
a.yaml:16:57: rate_limit.overdraft: must not be given with unlimited: true
a.yaml:17:16: overdraft: has no meaning here; it belongs into rate_limit
a.yaml:18:78: rate_limit.overdraft: sliding_window cannot have debt; fixed_window, token_bucket, gcra and leaky_bucket can
a.yaml:19:75: rate_limit.precision: must be between 2 and 60, not 1
a.yaml:20:75: rate_limit.precision: must be between 2 and 60, not 61
a.yaml:21:75: rate_limit.precision: must be between 2 and 60, not 0
a.yaml:22:75: rate_limit.precision: must be between 2 and 60, not -5
a.yaml:23:75: rate_limit.precision: must be between 2 and 60, not 4294967297
a.yaml:24:75: rate_limit.precision: must be a whole number, not the string "6"
a.yaml:25:75: rate_limit.precision: is an option of sliding_window, not of fixed_window
a.yaml:26:75: rate_limit.precision: is an option of sliding_window, not of sliding_log
a.yaml:27:56: rate_limit.precision: must not be given with unlimited: true
a.yaml:28:16: precision: has no meaning here; it belongs into rate_limit
a.yaml:29:76: rate_limit.precision: must be a whole number, not true
a.yaml:30:61: rate_limit.requests_per_unit: concurrency has at most 10000 slots
a.yaml:31:95: rate_limit.burst: concurrency has no burst; token_bucket, gcra and leaky_bucket have
a.yaml:32:96: rate_limit.window: from_first_hit is an option of fixed_window, not of concurrency
a.yaml:33:96: rate_limit.extend: needs strategy fixed_window with ` + "`" + `window: from_first_hit` + "`" + `
a.yaml:34:99: rate_limit.max_delay: concurrency never delays; leaky_bucket does
a.yaml:35:96: rate_limit.lease: has no meaning with concurrency: a slot that is held ahead is a slot that is taken
a.yaml:36:99: rate_limit.overdraft: concurrency cannot have debt; fixed_window, token_bucket, gcra and leaky_bucket can
a.yaml:37:99: rate_limit.precision: is an option of sliding_window, not of concurrency
a.yaml:38:75: rate_limit.strategy: unknown strategy "concurency"; did you mean "concurrency"?
a.yaml:39:97: rate_limit.window: from_first_hit is an option of fixed_window, not of concurrency
a.yaml:40:74: rate_limit.reserve: must be true, false, or a mapping with ttl and on_expiry, not 5
a.yaml:41:80: rate_limit.reserve.ttl: must be a duration above 0 such as 500ms or 1.5s, not "0s"
a.yaml:42:80: rate_limit.reserve.ttl: 500ms is out of range: want 1s to 24h
a.yaml:43:80: rate_limit.reserve.ttl: 25h0m0s is out of range: want 1s to 24h
a.yaml:44:75: rate_limit.reserve.tll: unknown key; did you mean "ttl"?
a.yaml:45:80: rate_limit.reserve.ttl: must be a duration above 0 such as 500ms or 1.5s, not "10"
a.yaml:46:86: rate_limit.reserve.on_expiry: unknown on_expiry "giveback"; did you mean "give_back"?
a.yaml:47:88: rate_limit.lease: has no meaning with reserve: a settlement has to find its reservation in the store
a.yaml:48:75: rate_limit.reserve: has no meaning with max_delay: a turn in the queue cannot be held
a.yaml:49:76: rate_limit.reserve: has no meaning with from_first_hit: a reservation would begin the window
a.yaml:50:46: share_threshold: has no meaning beside reserve: the value of "d11" is the id of a reservation, which is in no counter and in no metric
a.yaml:51:33: value_to_metric: has no meaning beside reserve: the value of "d12" is the id of a reservation, which is in no counter and in no metric
a.yaml:52:33: detailed_metric: has no meaning beside reserve: the value of "d13" is the id of a reservation, which is in no counter and in no metric
a.yaml:53:16: reserve: has no meaning here; it belongs into rate_limit
a.yaml:54:55: rate_limit.reserve: must not be given with unlimited: true
a.yaml:55:16: ttl: has no meaning here; it belongs into reserve or lease
a.yaml:56:76: rate_limit.reserve: must be true, false, or a mapping with ttl and on_expiry, not the string "true"
a.yaml:57:76: rate_limit.reserve: must not be a list; want true, or a mapping
a.yaml:58:87: rate_limit.reserve.share: has no meaning here; it belongs into lease
a.yaml:59:33: detailed_metric: has no meaning beside reserve: the value of "d20" is the id of a reservation, which is in no counter and in no metric
a.yaml:63:9: rate_limits[1]: has the strategy and window of "100 per minute" before it and would share its counter; keep the stricter one or change the window
a.yaml:65:9: rate_limits[3]: has the strategy and window of "100 per minute" before it and would share its counter; keep the stricter one or change the window
a.yaml:67:9: rate_limits[5]: has the strategy and window of "100 per hour" before it and would share its counter; keep the stricter one or change the window
a.yaml:69:9: rate_limits[7]: has the strategy and window of "100 per hour" before it and would share its counter; keep the stricter one or change the window
a.yaml:74:73: rate_limit.reserve: must be true, false, or a mapping with ttl and on_expiry, not a list
a.yaml:75:87: rate_limit.lease: has no meaning with overdraft: each charge has to see the debt
a.yaml:76:97: rate_limit.burst: must be a whole number, not 1.5
a.yaml:76:113: rate_limit.precision: must be a whole number, not 2.5`,
		},
		{
			"thresholds",
			`domain: d
descriptors:
  - key: a
    rate_limit: {unit: day, requests_per_unit: 1, thresholds: 80%}
  - key: b
    rate_limit: {unit: day, requests_per_unit: 1, thresholds: [80%]}
  - key: c
    rate_limit:
      unit: day
      requests_per_unit: 1
      thresholds:
        - {at: 80}
        - {at: 0.8}
        - {at: 0.5%}
        - {at: 99.5%}
        - {at: 50%}
        - {delay: 1s, at: 50.0%}
        - {delay: 1s}
        - {at: ~}
  - key: d
    rate_limit:
      unit: day
      requests_per_unit: 1
      thresholds:
        - {at: 1%, delay: 1001ms}
        - {at: 2%, delay: 0s}
        - {at: 3%, delay: 100}
        - {at: 4%, hedaers: {}, headers: [], response_headers: x}
        - {at: 5%, headers: {":path": /, Host: x, "a b": c, "": d, Transfer-Encoding: e, [f]: g}}
        - {at: 6%, headers: {x-a: "b\n", x-c: ~, x-d: [e], x-f: !!binary /w==}}
        - {at: 60%, headers: {x-a: b, X-A: g}}
        - {at: 7%, metadata: x}
        - {at: 8%, metadata: {rule: x, at: y, fine: z}}
  - key: e
    rate_limit: {unlimited: true, thresholds: [{at: 50%}]}
  - key: f
    thresholds: [{at: 50%}]
`,
			`a.yaml:4:63: rate_limit.thresholds: must be a list, not the string "80%"
a.yaml:6:64: rate_limit.thresholds[0]: must be a mapping, not the string "80%"
a.yaml:12:16: rate_limit.thresholds[0].at: must be a percentage from 1% to 99%, such as 80%, not "80"
a.yaml:13:16: rate_limit.thresholds[1].at: must be a percentage from 1% to 99%, such as 80%, not "0.8"
a.yaml:14:16: rate_limit.thresholds[2].at: must be a percentage from 1% to 99%, such as 80%, not "0.5%"
a.yaml:15:16: rate_limit.thresholds[3].at: must be a percentage from 1% to 99%, such as 80%, not "99.5%"
a.yaml:17:27: rate_limit.thresholds[5].at: 50% is the at of item 4, too; put them together
a.yaml:18:11: rate_limit.thresholds[6].at: is missing; the used part of the limit from which the threshold applies, such as 80%
a.yaml:19:16: rate_limit.thresholds[7].at: must be a percentage from 1% to 99%, such as 80%, not ""
a.yaml:25:27: rate_limit.thresholds[0].delay: must be a duration above 0 and at most 1s, such as 200ms, not "1001ms"
a.yaml:26:27: rate_limit.thresholds[1].delay: must be a duration above 0 and at most 1s, such as 200ms, not "0s"
a.yaml:27:27: rate_limit.thresholds[2].delay: must be a duration above 0 and at most 1s, such as 200ms, not "100"
a.yaml:28:20: rate_limit.thresholds[3].hedaers: unknown key; did you mean "headers"?
a.yaml:28:42: rate_limit.thresholds[3].headers: must be a mapping of names to values, not a list
a.yaml:28:64: rate_limit.thresholds[3].response_headers: must be a mapping of names to values, not the string "x"
a.yaml:29:30: rate_limit.thresholds[4].headers.:path: is a pseudo-header, which cannot be added; choose a header such as x-quota-warning
a.yaml:29:42: rate_limit.thresholds[4].headers.Host: cannot be added: it says where a message goes or ends; choose a header such as x-quota-warning
a.yaml:29:51: rate_limit.thresholds[4].headers.a b: is not the name of a header: letters, digits and any of !#$%&'*+-.^_` + "`" + `|~
a.yaml:29:61: rate_limit.thresholds[4].headers.: is not the name of a header: letters, digits and any of !#$%&'*+-.^_` + "`" + `|~
a.yaml:29:68: rate_limit.thresholds[4].headers.Transfer-Encoding: cannot be added: it says where a message goes or ends; choose a header such as x-quota-warning
a.yaml:29:90: rate_limit.thresholds[4].headers.: is not the name of a header: letters, digits and any of !#$%&'*+-.^_` + "`" + `|~
a.yaml:30:35: rate_limit.thresholds[5].headers.x-a: is not the value of a header: it has a line break, another control character, or bytes that are not UTF-8
a.yaml:30:47: rate_limit.thresholds[5].headers.x-c: must be the value of a header, which is a text, not null
a.yaml:30:55: rate_limit.thresholds[5].headers.x-d: must be the value of a header, which is a text, not a list
a.yaml:30:65: rate_limit.thresholds[5].headers.x-f: is not the value of a header: it has a line break, another control character, or bytes that are not UTF-8
a.yaml:31:39: rate_limit.thresholds[6].headers.X-A: the header is repeated; write it once
a.yaml:32:30: rate_limit.thresholds[7].metadata: must be a mapping, not the string "x"
a.yaml:33:31: rate_limit.thresholds[8].metadata.rule: stands for the rule of the threshold in dynamic metadata; choose another name
a.yaml:33:40: rate_limit.thresholds[8].metadata.at: stands for the at of the threshold in dynamic metadata; choose another name
a.yaml:35:47: rate_limit.thresholds: must not be given with unlimited: true
a.yaml:37:5: thresholds: has no meaning here; it belongs into rate_limit`,
		},
		{"an empty file", "", `a.yaml:1:1: domain: must not be empty; name the domain that Envoy's filter asks with`},
		{"not a mapping", "\n  [1]\n", `a.yaml:2:3: must be a mapping with domain and descriptors, not a list`},
		{"a key that is not a string", "domain: d\nno: 5\n", `a.yaml:2:1: a key must be a string; no is a boolean`},
		{"tests of rules", "domain: d\ntests: []\n", "a.yaml:2:1: tests: unknown key; the name of a file with tests of rules must end in _test.yaml"},
		{"a key from elsewhere", "domain: d\nfoo: 5\n", `a.yaml:2:1: foo: unknown key; known here: domain, descriptors, charge, on_error, pools, plans`},
		{"a key of another place", "domain: d\nrequest_per_unit: 5\n", `a.yaml:2:1: request_per_unit: unknown key; did you mean "requests_per_unit"?`},
		{"not YAML: a bracket", "domain: d\ndescriptors: [\n", `a.yaml:3:1: not valid YAML: did not find expected node content`},
		{"not YAML: a tab", "domain: d\ndescriptors:\n\t- key: a\n", `a.yaml:3:1: not valid YAML: a tab indents this line; use spaces`},
		{"not YAML: a tab on the next line", "domain: d\ndescriptors:\n  - key: a\n\tvalue: b\n", `a.yaml:4:1: not valid YAML: a tab indents this line; use spaces`},
		{"not YAML: a tab behind a dash", "domain: d\ndescriptors:\n  -\tkey: a\n", `a.yaml:3:4: not valid YAML: a tab indents this line; use spaces`},
		{"not YAML: a tab behind spaces", "domain: d\ndescriptors:\n  - key: a\n    rate_limit:\n    \tunit: day\n", `a.yaml:5:5: not valid YAML: a tab indents this line; use spaces`},
		{"not YAML: no tab", "domain: d\ndescriptors:\n  - key: @a\n", `a.yaml:3:3: not valid YAML: found character that cannot start any token`},
		{"not YAML: a colon", "domain: d\ndescriptors:\n  - key: a: b\n", `a.yaml:3:3: not valid YAML: mapping values are not allowed in this context`},
		{"not YAML: an alias without anchor", "domain: *d\n", `a.yaml:1:1: not valid YAML: unknown anchor 'd' referenced`},
		{"an alias inside its anchor", "domain: d\ndescriptors: &all\n- key: a\n  descriptors: *all\n", `a.yaml:4:16: *all is used inside the value that it stands for`},
		{"a merge of what is no mapping", "domain: d\n<<: [{}, 5]\n", `a.yaml:2:1: << needs a mapping or a list of mappings`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tree, warnings, err := yaml.Load([]yaml.Text{{Name: "a.yaml", Content: []byte(tt.content)}}, rules.Options{})
			if tree != nil || warnings != nil {
				t.Error("a tree in spite of problems")
			}
			if diff := cmp.Diff(strings.Split(tt.want, "\n"), strings.Split(fmt.Sprint(err), "\n")); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	const content = `domain: d
value: x
descriptors:
  - key: a
    unit: day
    rate_limit: {unit: day}
  - key: b
    key: c
    rate_limit: {unlimited: true, unit: x, requests_per_unit: 5}
---
domain: e
`
	const want = `a.yaml:2:1: value: has no meaning here and is ignored; it belongs into a descriptor
a.yaml:5:5: unit: has no meaning here and is ignored; it belongs into rate_limit
a.yaml:6:17: rate_limit.requests_per_unit: is missing, which means 0: every request is denied
a.yaml:8:5: key: the key is repeated; only the last one counts
a.yaml:9:41: rate_limit.unit: has no meaning with unlimited: true and is ignored
a.yaml:9:63: rate_limit.requests_per_unit: has no meaning with unlimited: true and is ignored
a.yaml:10:1: a second document is ignored; put it in a file of its own`
	tree, warnings := loadWith(t, rules.Options{}, text("a.yaml", content))
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(warnings, "\n")); diff != "" || len(tree.Domains()) != 1 {
		t.Errorf("%d domains; -want +got\n%s", len(tree.Domains()), diff)
	}
}

// A key in place of a merged one is what merges are for. A limit in place of a merged
// one keeps its other fields, which is not.
func TestWarningsOfMerges(t *testing.T) {
	for _, tt := range []struct{ item, want string }{
		{"{<<: *base, key: b, value: x}", ""},
		{"{<<: [*base, *other], key: b}", "a.yaml:3:18: rate_limit: the key is repeated; keys of the mapping before that this one does not have still count"},
		{"{<<: *base, key: b, rate_limit: {unit: hour}}", "a.yaml:5:23: rate_limit: the key is repeated; keys of the mapping before that this one does not have still count"},
		{"{key: b, <<: {key: c}}", "a.yaml:5:17: key: the key is repeated; only the last one counts"},
		{"{<<: *base, key: b, key: c}", "a.yaml:5:23: key: the key is repeated; only the last one counts"},
	} {
		content := "domain: d\ndescriptors:\n- &base {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n- &other {key: o, rate_limit: {unit: day, requests_per_unit: 2}}\n- " + tt.item + "\n"
		if _, got := loadWith(t, rules.Options{}, text("a.yaml", content)); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.item, got, tt.want)
		}
	}
}

// Later loads, also refused ones, do not change the rules of an earlier load.
func TestLoadsLeaveEarlierRulesAlone(t *testing.T) {
	const many = 500
	generation := func(unit string, requests int) yaml.Text {
		var b strings.Builder
		b.WriteString("domain: d\ndescriptors:\n")
		for i := range many {
			fmt.Fprintf(&b, "- key: k%d\n  value: %s\n  metadata: {a: %s}\n  rate_limit: {unit: %s, requests_per_unit: %d, name: %s}\n", i, unit, unit, unit, requests, unit)
			fmt.Fprintf(&b, "- {key: free%d, value: %s, rate_limit: {unlimited: true, name: %s, replaces: [{name: x%s}]}}\n", i, unit, unit, unit)
		}
		return yaml.Text{Name: unit + ".yaml", Content: []byte(b.String())}
	}
	first := load(t, generation("minute", 1))
	before := rules.Dump(first)
	for i := range 5 {
		load(t, generation("hour", 2+i))
		if _, _, err := yaml.Load([]yaml.Text{generation("eon", 1)}, rules.Options{}); err == nil || !strings.Contains(err.Error(), `eon.yaml:6:22: rate_limit.unit: unknown unit "eon"`) {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(before, rules.Dump(first)); diff != "" {
		t.Errorf("the rules changed: %s", diff)
	}
	for i := range many {
		for _, key := range []string{"k", "free"} {
			entry := descriptors.Entry{Key: fmt.Sprint(key, i), Value: "minute"}
			if rule := first.Domain("d").Match([]descriptors.Entry{entry}); rule == nil || key == "k" && rule.Metadata["a"] != "minute" || key == "free" && rule.Replaces[0] != "xminute" {
				t.Fatalf("%v: %+v", entry, rule)
			}
		}
	}
}

// Rules behind the place where the parser stops get a warning.
func TestWarningsOfWhatIsLeftOut(t *testing.T) {
	const left = "what stands further to the left than the file's first key is ignored, with all that follows"
	const after = "what stands after the end of the rules is ignored"
	const second = "a second document is ignored; put it in a file of its own"
	for _, tt := range []struct{ name, content, want string }{
		{"further left", " domain: d\n # c\n#\ndescriptors:\n- key: a\n", "a.yaml:4:1: " + left},
		{"a little", "  domain: d\n descriptors: []\n", "a.yaml:2:2: " + left},
		{"after an end", "domain: d\n...\n\n# c\ndescriptors: []\n", "a.yaml:5:1: " + second},
		{"after an end, with an error", "domain: d\n...\nfoo: [\n", "a.yaml:3:1: " + second},
		{"nothing after the end", " domain: d\n...\n# c\n\n", ""},
		{"indented alike", " domain: d\n# c\n descriptors:\n - key: a\n", ""},
		{"in braces", " {domain: d,\ndescriptors: []}\n", ""},
		{"brackets further left", "  domain: d\n  descriptors: [\n    {key: a}\n]\n", ""},
		{"brackets further left, and more", "  domain: d\n  descriptors: [\n    {key: a}\n]\ndomain: e\n", "a.yaml:5:1: " + left},
		{"quotes further left", "  descriptors: []\n  domain: \"d\n e\"\n", ""},
		{"after the braces", "{domain: d}\n\n  descriptors: []\n", "a.yaml:3:3: " + after},
		{"comments around the markers", "  # c\n---\ndomain: d\n...\n  # c\n", ""},
	} {
		if _, got := loadWith(t, rules.Options{}, text("a.yaml", tt.content)); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestRuleHasWhatWasWritten(t *testing.T) {
	domain := load(t, yaml.Text{Name: "a.yaml", Content: []byte(`
domain: d
charge: admitted
descriptors:
  - key: api
    shadow_mode: true
    quota_mode: true
    rate_limits:
      - {unit: second, requests_per_unit: 10, name: burst}
      - {unit: minute, unit_multiplier: 10, requests_per_unit: 3000, strategy: sliding_window, replaces: [{name: a}, {name: b}]}
      - {unit: hour, requests_per_unit: 9, strategy: leaky_bucket, burst: 5, max_delay: 1.5s}
  - key: vip
    rate_limit: {unlimited: true, name: v, replaces: [{name: burst}]}
`)}).Domain("d")
	if domain.Charge != descriptors.ChargeAdmitted {
		t.Errorf("charge is %s", domain.Charge)
	}
	api := domain.Match(entries("api=1"))
	if !api.Shadow || !api.Quota || api.Unlimited || len(api.Limits) != 3 {
		t.Fatalf("api is %+v", api)
	}
	if want := (document.Position{File: "a.yaml", Line: 5, Column: 5}); api.Pos != want {
		t.Errorf("api is at %v", api.Pos)
	}
	second, minutes, hour := api.Limits[0], api.Limits[1], api.Limits[2]
	if second.Name != "burst" || second.Requests != 10 || second.Window != time.Second || second.Replaces != nil {
		t.Errorf("second is %+v", second)
	}
	if minutes.Strategy != algorithms.SlidingWindow || minutes.Window != 10*time.Minute || !cmp.Equal(minutes.Replaces, []string{"a", "b"}) {
		t.Errorf("minutes is %+v", minutes)
	}
	if hour.Burst != 5 || hour.MaxDelay != 1500*time.Millisecond {
		t.Errorf("hour is %+v", hour)
	}
	vip := domain.Match(entries("vip=1"))
	if !vip.Unlimited || vip.Limits != nil || vip.Name != "v" || !cmp.Equal(vip.Replaces, []string{"burst"}) || vip.Shadow {
		t.Errorf("vip is %+v", vip)
	}
}

func TestDomainsOfSeveralFiles(t *testing.T) {
	a := text("a.yaml", "domain: d\ncharge: admitted\ndescriptors:\n- {key: a, "+limited+"}\n- {key: k, value: 'x*', "+limited+"}\n")
	b := text("b.yaml", "domain: d\ndescriptors:\n- {key: b, "+limited+"}\n- {key: k, value: '*x', "+limited+"}\n")
	again := text("c.yaml", "domain: d\ncharge: always\ndescriptors:\n- {key: a, "+limited+"}\n")
	other := text("e.yaml", "domain: c\n")
	merge := rules.Options{MergeDomains: true}

	tests := []struct {
		name  string
		files []yaml.Text
		opts  rules.Options
		want  string
	}{
		{"none", nil, merge, ""},
		{"apart", []yaml.Text{a, other}, rules.Options{}, ""},
		{"twice", []yaml.Text{a, b}, rules.Options{}, `b.yaml:1:9: domain: "d" is already in a.yaml:1:9; put the descriptors together, or allow domains to be merged`},
		{"merged", []yaml.Text{a, b}, merge, ""},
		{"merged with the same key", []yaml.Text{a, b, again}, merge, `c.yaml:2:9: charge: differs from that of the same domain in a.yaml:2:9
c.yaml:4:3: repeats key "a" of a.yaml:4:3; a descriptor may be listed once`},
		{"all files are checked", []yaml.Text{text("y", "x: 1"), text("x", "domain: d\nx: 1")}, merge, `x:2:1: x: unknown key; known here: domain, descriptors, charge, on_error, pools, plans
y:1:1: x: unknown key; known here: domain, descriptors, charge, on_error, pools, plans
y:1:1: domain: must not be empty; name the domain that Envoy's filter asks with`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := yaml.Load(tt.files, tt.opts)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}

	var users strings.Builder
	for i := range 100 {
		fmt.Fprintf(&users, "- {key: user, value: v0-%d, %s}\n", i, limited)
	}
	always := text("f.yaml", "domain: f\ncharge: always\n")
	tree, _ := loadWith(t, rules.Options{MergeDomains: true, Charge: descriptors.ChargeAdmitted}, b, other, a, rulesOfD(users.String()), always)
	var names []string
	for _, d := range tree.Domains() {
		names = append(names, d.Name+" "+d.Charge.String())
	}
	if diff := cmp.Diff([]string{"c admitted", "d admitted", "f always"}, names); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for request, want := range map[string]string{"a": "d.a", "b": "d.b", "k=xx": "d.k_*x", "user=v0-99": "d.user_v0-99"} {
		if got := tree.Domain("d").Match(entries(request)).Path; got != want {
			t.Errorf("%s matches %s, want %s: wildcards rank in the order of the files", request, got, want)
		}
	}
}

// A few aliases of aliases stand for 10^9 descriptors. The load ends at once with
// the reason.
func TestAliasesAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("domain: d\nmetadata:\n  - &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := range 9 {
		fmt.Fprintf(&b, "  - &a%d [%s*a%d]\n", i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), i)
	}
	start := time.Now()
	_, _, err := yaml.Load([]yaml.Text{{Name: "bomb.yaml", Content: []byte(b.String())}}, rules.Options{})
	const want = "bomb.yaml:1:1: the aliases of this file stand for more than 2000000 values; write fewer"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

// Values that stand too deep in each other are a problem with a place, however
// they came there, and are found in time that grows with the file.
func TestDepthIsBounded(t *testing.T) {
	nested := func(open, middle, end string) func(int) string {
		return func(n int) string { return strings.Repeat(open, n) + middle + strings.Repeat(end, n) }
	}
	inBraces := nested("{key: a, descriptors: [", "{key: b, "+limited+"}", "]}")
	descriptors := func(n int) string { return "domain: d\ndescriptors: [" + inBraces(n-1) + "]\n" }
	// Each anchor adds three levels to the one before, so that the text stays flat.
	aliases := func(n int) string {
		var b strings.Builder
		b.WriteString("domain: d\nkey: [&a0 {key: a}")
		for i := range n / 3 {
			fmt.Fprintf(&b, ", &a%d {key: a, descriptors: [{key: a, descriptors: [{key: a, descriptors: [*a%d]}]}]}", i+1, i)
		}
		return b.String() + fmt.Sprintf("]\ndescriptors: [*a%d]\n", n/3)
	}
	metadata := func(n int) string {
		return "domain: d\ndescriptors: [{key: a, " + limited + ", metadata: {x: " + nested("[", "1", "]")(n-1) + "}}]\n"
	}
	for _, tt := range []struct {
		name string
		text string
		want string // the end of the only problem, "" for none
	}{
		{"descriptors", descriptors(1000), ""},
		{"too many descriptors", descriptors(1001), "descriptors: descriptors stand more than 1000 deep in each other"},
		{"too many descriptors by aliases", aliases(1002), "descriptors: descriptors stand more than 1000 deep in each other"},
		{"metadata", metadata(999), ""},
		{"too deep metadata", metadata(1001), "metadata: values stand more than 1000 deep in each other"},
		{"far too many brackets", "domain: " + nested("[", "", "]")(9000), "values stand more than 3000 deep in each other"},
		{"more brackets than the parser takes", "domain: " + nested("[", "", "]")(100_000), "not valid YAML: exceeded max depth of 10000"},
		{"far too many items", nested("- ", "a", "")(9000), "values stand more than 3000 deep in each other"},
	} {
		_, _, err := yaml.Load([]yaml.Text{{Name: "a.yaml", Content: []byte(tt.text)}}, rules.Options{})
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %.200v", tt.name, err)
		case tt.want != "" && (err == nil || !strings.HasSuffix(firstLine(err), ": "+tt.want) || !strings.HasPrefix(err.Error(), "a.yaml:")):
			t.Errorf("%s: got %.200v, want %s", tt.name, err, tt.want)
		}
	}
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

func TestWrongRulesCanBeSkipped(t *testing.T) {
	minute := func(requests int) string {
		return fmt.Sprintf("unit=MINUTE requests_per_unit=%d, shadow_mode: false, quota_mode: false\n", requests)
	}
	tests := []struct{ name, a, b, rules string }{
		{"a descriptor", `
domain: a
descriptors:
  - {key: good, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: bad, rate_limit: {unit: eon, requests_per_unit: 1}}
`, "", "a.good: " + minute(1)},
		{"with what is below it", `
domain: a
descriptors:
  - key: bad
    value: 1.5
    descriptors: [{key: below, rate_limit: {unit: minute, requests_per_unit: 1}}]
  - key: good
    rate_limit: {unit: minute, requests_per_unit: 1}
    descriptors:
      - {key: better, rate_limit: {unit: minute, requests_per_unit: 2}}
      - {key: worse, shadow: 1}
`, "", "a.good.better: " + minute(2) + "a.good: " + minute(1)},
		{"a repetition", `
domain: a
descriptors:
  - {key: twice, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: twice, rate_limit: {unit: minute, requests_per_unit: 2}}
`, "", "a.twice: " + minute(1)},
		{"a file", "domain: [", "{domain: b, descriptors: [{key: good, rate_limit: {unit: minute, requests_per_unit: 1}}]}",
			"b.good: " + minute(1)},
		{"a file by a key at its top", "{domain: a, descriptrs: [{key: k, rate_limit: {unit: minute, requests_per_unit: 1}}]}",
			"{domain: b, descriptors: [{key: good, rate_limit: {unit: minute, requests_per_unit: 1}}]}",
			"b.good: " + minute(1)},
		{"but not all", "domain: [", "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files := []yaml.Text{text("a.yaml", tt.a)}
			if tt.b != "" {
				files = append(files, text("b.yaml", tt.b))
			}
			tree, _, err := yaml.Load(files, rules.Options{SkipWrong: true})
			if (tree != nil) != (tt.rules != "") {
				t.Fatalf("tree %v, %v", tree, err)
			}
			if tree != nil && rules.Dump(tree) != tt.rules {
				t.Errorf("got\n%swant\n%s", rules.Dump(tree), tt.rules)
			}
			_, _, strict := yaml.Load(files, rules.Options{})
			if strict == nil || err == nil || err.Error() != strict.Error() {
				t.Errorf("problems %v, without skipping %v", err, strict)
			}
		})
	}
}
