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
	UseHTTP  bool `name:"use-http" env:"USE_HTTP" default:"true" help:"Listen for HTTP."`
	UseDebug bool `env:"USE_DEBUG" default:"true" help:"Listen for debugging."`

	Host      string `env:"HOST" default:"0.0.0.0" help:"Address for HTTP (/healthcheck, /json)."`
	Port      int    `env:"PORT" default:"8080" min:"0" max:"65535" help:"Port for HTTP; 0: any free one."`
	DebugHost string `env:"DEBUG_HOST" default:"0.0.0.0" help:"Address for debugging (/rlconfig, /stats, pprof)."`
	DebugPort int    `env:"DEBUG_PORT" default:"6070" min:"0" max:"65535" help:"Port for debugging; 0: any free one."`

	ReusePort string `env:"REUSE_PORT" default:"auto" oneof:"auto,true,false" help:"Share the ports (SO_REUSEPORT), so that a successor takes over before this process ends. auto: not with BACKEND_TYPE=memory."`

	DrainPeriod time.Duration `env:"DRAIN_PERIOD" default:"3s" min:"0s" max:"1h" help:"Time after SIGTERM for answering while unhealthy: clients' interval of health checks plus Envoy's update_merge_window of 1s."`

	HealthyWithAtLeastOneConfigLoaded bool `env:"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED" default:"false" help:"Be unhealthy while the rules have no domain."`
}

// Rules says where the rules come from and how they are loaded.
type Rules struct {
	ConfigType          string `env:"CONFIG_TYPE" default:"FILE" oneof:"FILE,GRPC_XDS_SOTW,GRPC_XDS_DELTA" help:"Source of the rules: files, or an xDS server that sends all (SOTW) or changed ones (DELTA)."`
	RuntimeRoot         string `env:"RUNTIME_ROOT" default:"/srv/runtime_data/current" help:"Root folder of the rules."`
	RuntimeSubdirectory string `env:"RUNTIME_SUBDIRECTORY" help:"Folder below the root."`
	RuntimeAppdirectory string `env:"RUNTIME_APPDIRECTORY" default:"config" help:"Folder below that, loaded with its subfolders, without tests (*_test.yaml). With RUNTIME_WATCH_ROOT also names beside it such as config.yaml."`

	ConfigOnError string `env:"CONFIG_ON_ERROR" default:"reject" oneof:"reject,skip" help:"If rules have errors: reject all, or skip the wrong ones."`

	Loading

	RuntimeWatchRoot bool `env:"RUNTIME_WATCH_ROOT" default:"true" help:"Reload only when RUNTIME_ROOT, a symbolic link, is swapped, or a table changes; false: when any file changes."`

	ForceStartWithoutInitialConfig bool `env:"FORCE_START_WITHOUT_INITIAL_CONFIG" default:"false" help:"Be healthy before the xDS server sends rules; until then requests get errors."`
}

// Backend says which store counts, and has the settings that hold for all stores.
type Backend struct {
	Kind
	Keys

	ExpirationJitterMaxSeconds int `env:"EXPIRATION_JITTER_MAX_SECONDS" default:"300" min:"0" max:"2592000" unit:"seconds" help:"Most by which keys are kept longer, at random, against expiring together."`
	LocalCacheSizeInBytes      int `env:"LOCAL_CACHE_SIZE_IN_BYTES" default:"0" min:"0" unit:"bytes" help:"Memory for keys over their limit: their hits are denied, uncharged, for up to a second without asking the store. 0 is off; the least is 524288."`
}

// Store says how long a decision waits for a store on servers, and when calls to a
// server are refused.
type Store struct {
	DecisionTimeout time.Duration `env:"DECISION_TIMEOUT" default:"150ms" min:"0s" max:"1h" help:"Longest wait for the store; a longer call counts as failed. 0 waits until the caller's deadline; calls then fail after 1s."`
	MaxInFlight     int           `name:"store-max-in-flight" env:"STORE_MAX_IN_FLIGHT" default:"1024" min:"64" max:"1000000" unit:"calls" help:"Calls under way to one server; more fail at once. It must hold those of one round trip."`

	Sharing
}

// State says where counters in memory outlive the process.
type State struct {
	File     string        `env:"FILE" help:"File in which counters, reservations, events and denials (each counter's first and last) outlive the process. A lock (NAME.lock) keeps a second process off."`
	Interval time.Duration `env:"INTERVAL" default:"10s" min:"1s" max:"1h" help:"Time between writes of STATE_FILE, also written at the end. A killed process forgets at most this."`
}

// Limits says how decisions are made and reported.
type Limits struct {
	NearLimitRatio float64 `env:"NEAR_LIMIT_RATIO" default:"0.8" min:"0" max:"1" help:"Used share of a limit above which hits are near_limit."`
	ShadowMode     bool    `env:"SHADOW_MODE" default:"false" help:"Decide and count, but always answer OK."`
	QuotaMode      bool    `env:"QUOTA_MODE" default:"false" help:"Treat every rule as in quota_mode: deny only if all descriptors are over their limits."`

	ResponseDynamicMetadata bool `env:"RESPONSE_DYNAMIC_METADATA" default:"false" help:"Add dynamic metadata for Envoy's other filters."`

	LimitResponseHeadersEnabled bool   `env:"LIMIT_RESPONSE_HEADERS_ENABLED" default:"false" help:"Add the three headers named below."`
	LimitRequestHeadersEnabled  bool   `env:"LIMIT_REQUEST_HEADERS_ENABLED" default:"false" help:"Let Envoy append these headers to upstream requests, behind a client's own values."`
	LimitLimitHeader            string `env:"LIMIT_LIMIT_HEADER" default:"RateLimit-Limit" help:"Header with the limit."`
	LimitRemainingHeader        string `env:"LIMIT_REMAINING_HEADER" default:"RateLimit-Remaining" help:"Header with the remaining hits."`
	LimitResetHeader            string `env:"LIMIT_RESET_HEADER" default:"RateLimit-Reset" help:"Header with the seconds until the reset."`

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
	BeyondCaps string `env:"BEYOND_CAPS" default:"deny" oneof:"deny,error" help:"Answer beyond these bounds: deny is OVER_LIMIT and a log line a minute; error is INVALID_ARGUMENT, which passes in Envoy without failure_mode_deny."`
}

// Log has the level, the format and the sampling of the log.
type Log struct {
	Level  string `env:"LEVEL" default:"warn" oneof:"trace,debug,info,warn,warning,error,fatal,panic" help:"Log this level and those above."`
	Format string `env:"FORMAT" default:"text" oneof:"text,json" help:"Format of log lines."`

	Decisions float64 `env:"DECISIONS" default:"0" min:"0" max:"1" help:"Share of decisions logged, at random, at every LOG_LEVEL."`

	DecisionsEntries bool `env:"DECISIONS_ENTRIES" default:"false" help:"Add domain and entries, in clear text, to lines of LOG_DECISIONS (for rls replay, with LOG_FORMAT=json), LOG_DENIALS and LOG_THRESHOLDS."`

	Denials string `env:"DENIALS" default:"off" oneof:"off,first,all" help:"Denials logged at every LOG_LEVEL: none, each counter's first in a minute (at most 10,000), or all."`

	Thresholds bool `env:"THRESHOLDS" default:"false" help:"Log each counter's first hit above each threshold in a window, at every LOG_LEVEL, at most 10,000 a minute."`
}

// Top says how many heavy hitters the process knows.
type Top struct {
	Keys int `env:"KEYS" default:"1000" min:"0" max:"1000" help:"Counters, of up to 2 KiB, that rls top knows in each order. Ten times as many descriptors keep the last limit that requests brought."`

	Metric     int  `env:"METRIC" default:"0" min:"0" max:"100" help:"Most denied keys as metrics (rls_top_denied, rls_top_remaining): new series as keys come and go."`
	MetricHash bool `env:"METRIC_HASH" default:"false" help:"Hash these keys, which hides them from readers, not from a guess."`
}

func (t *Top) conflicts() (wrong Errors) {
	wrong.require(t.Metric <= t.Keys, "TOP_METRIC", t.Metric, "at most "+strconv.Itoa(t.Keys)+", which is TOP_KEYS")
	return wrong
}

// Denials says how many denials the process remembers.
type Denials struct {
	Keep int `env:"KEEP" default:"10000" min:"0" max:"1000000" help:"Last denials a process with the admin API remembers; 10,000 take at most 4 MiB."`
}

// Tracing says under which name spans are sent. Their server, interval and batch size
// are set by OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_*, OTEL_BSP_*).
type Tracing struct {
	Enabled bool `env:"ENABLED" default:"false" help:"Send spans of decisions and store calls over OTLP. OTEL_EXPORTER_OTLP_ENDPOINT and its like name the collector."`
	tracing.Options
}
