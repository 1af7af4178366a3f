// Package settings has the settings of the process.
//
// Every setting is a field of a small group. The field's tag has its environment
// variable, default, unit, range and help, from which the flag, the help text, the
// checks and docs/settings.md are made. Groups embed the options of the packages that take
// them, such as memcached.Options, whose fields have the tags. Where envoyproxy/ratelimit has a setting, the
// name, default and meaning are the same.
//
// The package promises that settings which [Decoder.Check] accepts can be used
// without further checks: every value is parsed, in its range and consistent with
// the others. It also promises that all problems are reported at once. Whether files
// can be read, hosts resolve and ports are free is left to the users of the settings.
package settings

import (
	"strconv"
	"time"

	"golang.org/x/net/http/httpguts"

	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
	"example.org/rls/pkg/tracing"
)

// Settings is all settings, in groups.
type Settings struct {
	Server Server `embed:"" group:"HTTP, debug and health"`
	GRPC   GRPC   `embed:"" group:"gRPC" prefix:"grpc-" envprefix:"GRPC_"`
	Admin  Admin  `embed:"" group:"Admin API" prefix:"admin-" envprefix:"ADMIN_"`

	Installation Installation `embed:"" group:"Admin API" prefix:"installation-" envprefix:"INSTALLATION_"`

	Rules Rules `embed:"" group:"Rules"`
	XDS   XDS   `embed:"" group:"Rules over xDS" prefix:"config-grpc-xds-" envprefix:"CONFIG_GRPC_XDS_"`

	XDSClient XDSClient `embed:"" group:"Rules over xDS" prefix:"xds-client-" envprefix:"XDS_CLIENT_"`

	Tables Tables `embed:"" group:"Tables from an address" prefix:"table-" envprefix:"TABLE_"`

	Backend Backend        `embed:"" group:"Backend"`
	Store   Store          `embed:"" group:"Backends on servers"`
	Memory  memory.Options `embed:"" group:"Backend memory" prefix:"memory-" envprefix:"MEMORY_"`
	State   State          `embed:"" group:"Backend memory" prefix:"state-" envprefix:"STATE_"`

	Redis          Redis       `embed:"" group:"Backend redis" prefix:"redis-" envprefix:"REDIS_" set:"url=/var/run/nutcracker/ratelimit.sock"`
	RedisPerSecond RedisServer `embed:"" group:"Backend redis for per-second limits" prefix:"redis-persecond-" envprefix:"REDIS_PERSECOND_" set:"url=/var/run/nutcracker/ratelimitpersecond.sock"`
	Memcache       Memcache    `embed:"" group:"Backend memcache" prefix:"memcache-" envprefix:"MEMCACHE_"`

	Kuadrant Kuadrant `embed:"" group:"Kuadrant's RPCs" prefix:"kuadrant-rls-" envprefix:"KUADRANT_RLS_"`

	RLQS RLQS `embed:"" group:"Envoy's quota protocol" prefix:"rlqs-" envprefix:"RLQS_"`

	Limits  Limits  `embed:"" group:"Decisions and replies"`
	Request Request `embed:"" group:"Request caps" prefix:"request-" envprefix:"REQUEST_"`
	Metrics Metrics `embed:"" group:"Metrics"`
	Top     Top     `embed:"" group:"Heavy hitters" prefix:"top-" envprefix:"TOP_"`
	Denials Denials `embed:"" group:"Denials" prefix:"denials-" envprefix:"DENIALS_"`
	Log     Log     `embed:"" group:"Logging" prefix:"log-" envprefix:"LOG_"`
	Tracing Tracing `embed:"" group:"Tracing" prefix:"tracing-" envprefix:"TRACING_"`
}

// Server says where the process listens for HTTP clients, operators and probes.
type Server struct {
	UseGRPC  bool `name:"use-grpc" env:"USE_GRPC" default:"true" help:"Listen for gRPC."`
	UseHTTP  bool `name:"use-http" env:"USE_HTTP" default:"true" help:"Listen for HTTP (/healthcheck, /json)."`
	UseDebug bool `env:"USE_DEBUG" default:"true" help:"Listen for operators (/rlconfig, /stats, pprof)."`

	Host      string `env:"HOST" default:"0.0.0.0" help:"Address of the HTTP listener (/healthcheck, /json)."`
	Port      int    `env:"PORT" default:"8080" min:"0" max:"65535" help:"Port of the HTTP listener; 0 takes a free one."`
	DebugHost string `env:"DEBUG_HOST" default:"0.0.0.0" help:"Address of the debug listener (/rlconfig, /stats, pprof)."`
	DebugPort int    `env:"DEBUG_PORT" default:"6070" min:"0" max:"65535" help:"Port of the debug listener; 0 takes a free one."`

	ReusePort string `env:"REUSE_PORT" default:"auto" oneof:"auto,true,false" help:"Let other processes listen on the same ports (SO_REUSEPORT), so that a new one can take over before the old one ends. With auto they may unless BACKEND_TYPE is memory, which counts in each process alone."`

	DrainPeriod time.Duration `env:"DRAIN_PERIOD" default:"3s" min:"0s" max:"1h" help:"Time after SIGTERM in which the process is unhealthy and still answers. It must be long enough for clients to notice, such as their interval of health checks plus Envoy's update_merge_window of 1s."`

	HealthyWithAtLeastOneConfigLoaded bool `env:"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED" default:"false" help:"Stay unhealthy until rules with at least one domain were loaded, and become unhealthy again when rules without a domain are."`
}

// Rules says where the rules come from and how they are loaded.
type Rules struct {
	ConfigType          string `env:"CONFIG_TYPE" default:"FILE" oneof:"FILE,GRPC_XDS_SOTW,GRPC_XDS_DELTA" help:"Where the rules come from: files, or an xDS management server that sends all of them (SOTW) or the changed ones (DELTA)."`
	RuntimeRoot         string `env:"RUNTIME_ROOT" default:"/srv/runtime_data/current" help:"Root folder of the rules."`
	RuntimeSubdirectory string `env:"RUNTIME_SUBDIRECTORY" help:"Folder below the root."`
	RuntimeAppdirectory string `env:"RUNTIME_APPDIRECTORY" default:"config" help:"Folder below that: every file in it and its subfolders is loaded, except files with tests, whose names end in _test.yaml. With RUNTIME_WATCH_ROOT also files and folders beside it whose names begin with its name and a dot, such as config.yaml."`

	ConfigOnError string `env:"CONFIG_ON_ERROR" default:"reject" oneof:"reject,skip" help:"What to do when rules hold an error: reject all rules, or skip the wrong ones and use the others."`

	Loading

	RuntimeWatchRoot bool `env:"RUNTIME_WATCH_ROOT" default:"true" help:"Reload only when RUNTIME_ROOT, a symbolic link, is swapped, or a table changes; false reloads when any of the files changes."`

	ForceStartWithoutInitialConfig bool `env:"FORCE_START_WITHOUT_INITIAL_CONFIG" default:"false" help:"Listen and be healthy before the xDS server has sent rules; until then every request gets an error."`
}

// Backend says which store counts, and has the settings that hold for all stores.
type Backend struct {
	Kind
	Keys

	ExpirationJitterMaxSeconds int `env:"EXPIRATION_JITTER_MAX_SECONDS" default:"300" min:"0" max:"2592000" unit:"seconds" help:"Upper bound of a random time by which keys are kept longer, so that they do not all expire together."`
	LocalCacheSizeInBytes      int `env:"LOCAL_CACHE_SIZE_IN_BYTES" default:"0" min:"0" unit:"bytes" help:"Approximate size of the memory for keys that are over their limit. Their hits are denied without a call to Redis or memcached; 0 is off, and less than 524288 counts as that. Such denials are not charged, and a refund through another replica takes effect within a second."`
}

// Store says how long a decision waits for a store on servers, and when calls to a
// server are refused.
type Store struct {
	DecisionTimeout time.Duration `env:"DECISION_TIMEOUT" default:"150ms" min:"0s" max:"1h" help:"Longest wait of a decision for the store. A call to a server that takes longer counts as failed. 0 leaves the wait to the caller's deadline, and a call counts as failed after 1s."`
	MaxInFlight     int           `name:"store-max-in-flight" env:"STORE_MAX_IN_FLIGHT" default:"1024" min:"64" max:"1000000" unit:"calls" help:"Calls that may be under way to one server; more fail at once. A server needs as many as it gets calls in one round trip."`

	Sharing
}

// State says where counters in memory outlive the process.
type State struct {
	File     string        `env:"FILE" help:"File in which counters, reservations, events, and the first and the last denial of each counter outlive the process. It is locked by a file of the same name with .lock behind it: a second process neither reads nor writes it. Empty: they end with the process."`
	Interval time.Duration `env:"INTERVAL" default:"10s" min:"1s" max:"1h" help:"Time between two writes of STATE_FILE, which is also written when the process ends. A process that is killed forgets at most this time."`
}

// Limits says how decisions are made and reported.
type Limits struct {
	NearLimitRatio float64 `env:"NEAR_LIMIT_RATIO" default:"0.8" min:"0" max:"1" help:"Share of a limit above which hits count as near_limit."`
	ShadowMode     bool    `env:"SHADOW_MODE" default:"false" help:"Decide and count, but always answer OK."`
	QuotaMode      bool    `env:"QUOTA_MODE" default:"false" help:"Treat every rule as one in quota_mode: deny only if all descriptors are over their limits."`

	ResponseDynamicMetadata bool `env:"RESPONSE_DYNAMIC_METADATA" default:"false" help:"Add dynamic metadata to the reply, for other filters of Envoy."`

	LimitResponseHeadersEnabled bool   `env:"LIMIT_RESPONSE_HEADERS_ENABLED" default:"false" help:"Add the three headers named below."`
	LimitRequestHeadersEnabled  bool   `env:"LIMIT_REQUEST_HEADERS_ENABLED" default:"false" help:"Let Envoy append the three headers named below to requests that go on to the upstream, after values that a client sent under the same names."`
	LimitLimitHeader            string `env:"LIMIT_LIMIT_HEADER" default:"RateLimit-Limit" help:"Name of the header with the limit."`
	LimitRemainingHeader        string `env:"LIMIT_REMAINING_HEADER" default:"RateLimit-Remaining" help:"Name of the header with the remaining hits."`
	LimitResetHeader            string `env:"LIMIT_RESET_HEADER" default:"RateLimit-Reset" help:"Name of the header with the seconds until the limit resets."`

	envoy.Reply
}

func (l *Limits) conflicts() (wrong Errors) {
	if !l.LimitResponseHeadersEnabled && !l.LimitRequestHeadersEnabled {
		return nil
	}
	for setting, name := range map[string]string{
		"LIMIT_LIMIT_HEADER": l.LimitLimitHeader, "LIMIT_REMAINING_HEADER": l.LimitRemainingHeader, "LIMIT_RESET_HEADER": l.LimitResetHeader,
	} {
		wrong.require(httpguts.ValidHeaderFieldName(name), setting, name, "the name of a header, because LIMIT_RESPONSE_HEADERS_ENABLED or LIMIT_REQUEST_HEADERS_ENABLED is true")
	}
	return wrong
}

// Request bounds a request.
type Request struct {
	service.Caps
	BeyondCaps string `env:"BEYOND_CAPS" default:"deny" oneof:"deny,error" help:"Answer to a request beyond these bounds: deny is OVER_LIMIT, with one line in the log a minute; error is INVALID_ARGUMENT, which Envoy takes for leave to let the request pass, unless its filter has failure_mode_deny."`
}

// Log has the level, the format and the sampling of the log.
type Log struct {
	Level  string `env:"LEVEL" default:"warn" oneof:"trace,debug,info,warn,warning,error,fatal,panic" help:"Log this level and those above."`
	Format string `env:"FORMAT" default:"text" oneof:"text,json" help:"Format of log lines."`

	Decisions float64 `env:"DECISIONS" default:"0" min:"0" max:"1" help:"Share of the decisions that are logged, chosen at random, whatever LOG_LEVEL is."`

	DecisionsEntries bool `env:"DECISIONS_ENTRIES" default:"false" help:"Add the domain and the entries of the descriptor, in clear text, to these lines, so that rls replay can read them (with LOG_FORMAT=json). Lines of LOG_DENIALS and LOG_THRESHOLDS have the entries, too."`

	Denials string `env:"DENIALS" default:"off" oneof:"off,first,all" help:"Denials that are logged, whatever LOG_LEVEL is: none, the first of each counter in a minute (of at most 10,000 counters), or all."`

	Thresholds bool `env:"THRESHOLDS" default:"false" help:"Log the first hit of each counter above each threshold of its limit in a window, at most 10,000 a minute, whatever LOG_LEVEL is."`
}

// Top says how many heavy hitters the process knows.
type Top struct {
	Keys int `env:"KEYS" default:"1000" min:"0" max:"1000" help:"Number of counters that the admin API (rls top) knows in each order: denied most, asked for most, charged most. Each takes up to 2 KiB. Of ten times as many descriptors the last limit that a request brought is remembered, for rls get, explain, reset and grant. 0 knows and remembers none."`

	Metric     int  `env:"METRIC" default:"0" min:"0" max:"100" help:"Number of the keys denied most that are metrics, as rls_top_denied and rls_top_remaining. They make new series as keys come and go."`
	MetricHash bool `env:"METRIC_HASH" default:"false" help:"Put a hash in place of each key in these metrics. It hides keys from a reader of metrics, not from a guess."`
}

func (t *Top) conflicts() (wrong Errors) {
	wrong.require(t.Metric <= t.Keys, "TOP_METRIC", t.Metric, "at most "+strconv.Itoa(t.Keys)+", which is TOP_KEYS")
	return wrong
}

// Denials says how many denials the process remembers.
type Denials struct {
	Keep int `env:"KEEP" default:"10000" min:"0" max:"1000000" help:"Number of the last denials that the admin API (rls denials) knows. 10,000 take at most 4 MiB, as they come. 0 remembers none; a process without the admin API remembers none, either."`
}

// Tracing says under which name spans are sent. Their server, interval and batch size
// are set by OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_*, OTEL_BSP_*).
type Tracing struct {
	Enabled bool `env:"ENABLED" default:"false" help:"Send spans of decisions and of calls to the store, over OTLP. OTEL_EXPORTER_OTLP_ENDPOINT and OpenTelemetry's other variables name the collector and the connection."`
	tracing.Options
}
