package settings_test

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/settings"
)

// TestMain removes the variables of the environment that the tests run in.
func TestMain(m *testing.M) {
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "REDIS_") || name == "HOST" || name == "PORT" {
			os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}

// parse reads settings from flags and from this process's environment.
func parse(t *testing.T, args ...string) (settings.Settings, error) {
	t.Helper()
	return parseAs(t, "memory", args...)
}

// parseAs is parse with a default of BACKEND_TYPE, which depends on the name of the program.
func parseAs(t *testing.T, backendType string, args ...string) (settings.Settings, error) {
	t.Helper()
	var s settings.Settings
	decoder := settings.NewDecoder()
	parser, err := kong.New(&s, decoder.Options(backendType)...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(args); err != nil {
		t.Fatal(err)
	}
	return s, decoder.Check(&s)
}

// problems are those of err, an error of Check; none of nil.
func problems(t *testing.T, err error) (wrong settings.Errors) {
	t.Helper()
	if err != nil && !errors.As(err, &wrong) {
		t.Fatalf("%T: %v", err, err)
	}
	return wrong
}

// flags lists the flags of all settings.
func flags(t *testing.T) []*kong.Flag {
	t.Helper()
	var s settings.Settings
	parser, err := kong.New(&s, append(settings.NewDecoder().Options("memory"), kong.NoDefaultHelp())...)
	if err != nil {
		t.Fatal(err)
	}
	return parser.Model.Flags
}

func TestEveryFlagIsNamedAfterItsVariable(t *testing.T) {
	for _, flag := range flags(t) {
		if len(flag.Envs) != 1 {
			t.Errorf("--%s has variables %q, want one", flag.Name, flag.Envs)
			continue
		}
		if want := strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_")); flag.Envs[0] != want {
			t.Errorf("--%s has the variable %s, want %s", flag.Name, flag.Envs[0], want)
		}
		if flag.Help == "" || flag.Group == nil {
			t.Errorf("--%s has no help or no group", flag.Name)
		}
	}
}

// other is a valid value of the setting other than its default.
func other(flag *kong.Flag) string {
	if choices := settings.Choices(flag.Tag); choices != nil {
		for _, choice := range choices {
			if choice != flag.Default {
				return choice
			}
		}
		return flag.Default
	}
	switch flag.Target.Interface().(type) {
	case bool:
		if flag.Default == "true" {
			return "false"
		}
		return "true"
	case int:
		if most, err := strconv.Atoi(flag.Tag.Get("max")); err == nil && most < 1025 && flag.Default != strconv.Itoa(most) {
			return strconv.Itoa(most)
		}
		return "1025"
	case float64:
		return "0.25"
	case time.Duration:
		return "7s"
	}
	return "/x,y"
}

func TestVariableAndFlagSetTheSame(t *testing.T) {
	defaults, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range flags(t) {
		t.Run(flag.Envs[0], func(t *testing.T) {
			value := other(flag)
			byFlag, errFlag := parse(t, "--"+flag.Name+"="+value)
			t.Setenv(flag.Envs[0], value)
			byVariable, errVariable := parse(t)
			if diff := cmp.Diff(byFlag, byVariable); diff != "" {
				t.Error(diff)
			}
			if (errFlag == nil) != (errVariable == nil) {
				t.Errorf("flag: %v; variable: %v", errFlag, errVariable)
			}
			if cmp.Equal(byFlag, defaults) != (value == flag.Default) {
				t.Errorf("%s=%s changes nothing", flag.Envs[0], value)
			}
		})
	}
}

func TestBareFlagTurnsOn(t *testing.T) {
	s, err := parse(t, "--shadow-mode", "--port", "9", "--runtime-watch-root=false")
	if err != nil || !s.Limits.ShadowMode || s.Server.Port != 9 || s.Rules.RuntimeWatchRoot {
		t.Errorf("got %v, %v, %v, %v", s.Limits.ShadowMode, s.Server.Port, s.Rules.RuntimeWatchRoot, err)
	}
}

func TestWrongValues(t *testing.T) {
	memcache := map[string]string{"BACKEND_TYPE": "memcache", "MEMCACHE_HOST_PORT": "a:1"}
	tests := []struct {
		name string
		set  map[string]string
		want []string // parts of the errors, in their order
	}{
		{"all at once", map[string]string{
			"PORT": "80x8", "GRPC_PORT": "65536", "DEBUG_PORT": "-1", "SHADOW_MODE": "yes", "NEAR_LIMIT_RATIO": "NaN",
			"REDIS_TIMEOUT": "10", "LOG_LEVEL": "loud", "BACKEND_TYPE": "etcd", "CONFIG_TYPE": "GRPC_XDS", "MEMORY_MAX_KEYS": "0",
		}, []string{
			`BACKEND_TYPE (--backend-type) is "etcd": want memory, redis or memcache`,
			`CONFIG_TYPE (--config-type) is "GRPC_XDS": want FILE, GRPC_XDS_SOTW or GRPC_XDS_DELTA`,
			`DEBUG_PORT (--debug-port) is "-1": want a whole number, from 0 to 65535`,
			`GRPC_PORT (--grpc-port) is "65536": want a whole number, from 0 to 65535`,
			`LOG_LEVEL (--log-level) is "loud": want trace, debug, info, warn, warning, error, fatal or panic`,
			`MEMORY_MAX_KEYS (--memory-max-keys) is "0": want a whole number, from 1 to 1000000000`,
			`NEAR_LIMIT_RATIO (--near-limit-ratio) is "NaN": want a number, from 0 to 1`,
			`PORT (--port) is "80x8": want a whole number, from 0 to 65535`,
			`REDIS_TIMEOUT (--redis-timeout) is "10": want a duration such as 150ms, 10s or 1h30m, from 1ms to 1h`,
			`SHADOW_MODE (--shadow-mode) is "yes": want true or false`,
		}},
		{"empty number", map[string]string{"PORT": ""}, []string{`PORT (--port) is ""`}},
		{"huge number", map[string]string{"LOCAL_CACHE_SIZE_IN_BYTES": "99999999999999999999"}, []string{"LOCAL_CACHE_SIZE_IN_BYTES"}},
		{"TLS without files", map[string]string{"GRPC_SERVER_USE_TLS": "true"}, []string{"GRPC_SERVER_TLS_CERT", "GRPC_SERVER_TLS_KEY"}},
		{"client CA without TLS", map[string]string{"GRPC_SERVER_TLS_CA_CERT": "/ca"}, []string{"GRPC_SERVER_TLS_CA_CERT"}},
		{"two client CAs", map[string]string{
			"GRPC_SERVER_USE_TLS": "1", "GRPC_SERVER_TLS_CERT": "c", "GRPC_SERVER_TLS_KEY": "k", "GRPC_CLIENT_TLS_CACERT": "a", "GRPC_SERVER_TLS_CA_CERT": "b",
		}, []string{"want the same as GRPC_CLIENT_TLS_CACERT"}},
		{"SAN without CA", map[string]string{"GRPC_CLIENT_TLS_SAN": "x"}, []string{"GRPC_CLIENT_TLS_SAN"}},
		{"sentinel without sentinels", map[string]string{"BACKEND_TYPE": "redis", "REDIS_TYPE": "sentinel", "REDIS_URL": "mymaster"}, []string{"REDIS_URL"}},
		{"no per-second server", map[string]string{"BACKEND_TYPE": "redis", "REDIS_PERSECOND": "t", "REDIS_PERSECOND_URL": ""}, []string{"REDIS_PERSECOND_URL"}},
		{"certificate without key", map[string]string{"BACKEND_TYPE": "redis", "REDIS_TLS": "true", "REDIS_TLS_CLIENT_CERT": "c"}, []string{"REDIS_TLS_CLIENT_KEY"}},
		{"certificate without key for one of two", map[string]string{
			"BACKEND_TYPE": "redis", "REDIS_PERSECOND": "true", "REDIS_PERSECOND_TLS": "true", "REDIS_TLS_CLIENT_CERT": "c",
		}, []string{"REDIS_TLS_CLIENT_KEY"}},
		{"certificate without TLS", map[string]string{"BACKEND_TYPE": "redis", "REDIS_TLS_CLIENT_CERT": "c"}, nil},
		{"addresses", map[string]string{
			"BACKEND_TYPE": "redis", "REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": "redis:tcp", "USE_PROMETHEUS": "true", "PROMETHEUS_ADDR": "9090",
			"REDIS_PERSECOND": "true", "REDIS_PERSECOND_TYPE": "cluster", "REDIS_PERSECOND_URL": "a:1,b:70000,https://c:1,,[::1]:1",
		}, []string{
			`PROMETHEUS_ADDR (--prometheus-addr) is "9090": want host:port, or :port for all addresses`,
			`REDIS_PERSECOND_URL (--redis-persecond-url) is "b:70000": want host:port or redis://user:password@host:port`,
			`REDIS_PERSECOND_URL (--redis-persecond-url) is "https://c:1": want`,
			`REDIS_PERSECOND_URL (--redis-persecond-url) is "": want`,
			`REDIS_URL (--redis-url) is "redis:tcp": want host:port`,
		}},
		{"right addresses", map[string]string{
			"BACKEND_TYPE": "redis", "REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": "redis://:p@ss@redis/2",
			"REDIS_PERSECOND": "true", "REDIS_PERSECOND_TYPE": "SENTINEL", "REDIS_PERSECOND_URL": "main, sentinel:26379,sentinel,rediss://u:p@sentinel:1",
		}, nil},
		{"memcache addresses", map[string]string{"BACKEND_TYPE": "memcache", "MEMCACHE_HOST_PORT": "a:1,b,/run/memcached.sock"}, []string{`MEMCACHE_HOST_PORT (--memcache-host-port) is "b": want host:port`}},
		{"hosts of the admin API", map[string]string{"ADMIN_ALLOWED_HOSTS": "a.example, b.example,::1,https://c.example,d.example:6071,*.e.example"}, []string{
			`ADMIN_ALLOWED_HOSTS (--admin-allowed-hosts) is "https://c.example"`, `is "d.example:6071"`, `is "*.e.example"`,
		}},
		{"the installation", map[string]string{"INSTALLATION_NAME": "eu\x1b" + strings.Repeat("x", 63)}, []string{`want at most 64 characters, none of them a control character`}},
		{"the fleet", map[string]string{"ADMIN_FLEET": "a:6071, b.example:6071,[::1]:6071,10.0.0.1:1,c,d:0,https://e:1,:6071,", "ADMIN_FLEET_TLS_CACERT": "ca"}, []string{
			`ADMIN_FLEET (--admin-fleet) is "c": want HOST:PORT`, `is "d:0"`, `is "https://e:1"`, `is ":6071"`,
			`ADMIN_FLEET_TLS_CACERT (--admin-fleet-tls-cacert) is "ca": want set together with ADMIN_FLEET and ADMIN_USE_TLS=true`,
			`ADMIN_TOKEN_FILE (--admin-token-file) is "": want a file`,
		}},
		{"header names", map[string]string{"LIMIT_RESPONSE_HEADERS_ENABLED": "1", "LIMIT_LIMIT_HEADER": "", "LIMIT_RESET_HEADER": "X Y"}, []string{
			`LIMIT_LIMIT_HEADER (--limit-limit-header) is "": want the name of a header`,
			`LIMIT_RESET_HEADER (--limit-reset-header) is "X Y": want the name of a header`,
		}},
		{"header names for the upstream", map[string]string{
			"LIMIT_REQUEST_HEADERS_ENABLED": "1", "LIMIT_LIMIT_HEADER": "", "LIMIT_REMAINING_HEADER": "", "LIMIT_RESET_HEADER": "",
		}, []string{
			`LIMIT_LIMIT_HEADER (--limit-limit-header) is "": want the name of a header, because LIMIT_RESPONSE_HEADERS_ENABLED or LIMIT_REQUEST_HEADERS_ENABLED is true`,
			`LIMIT_REMAINING_HEADER (--limit-remaining-header) is "": want`,
			`LIMIT_RESET_HEADER (--limit-reset-header) is "": want`,
		}},
		{"header names that nobody asks for", map[string]string{"LIMIT_LIMIT_HEADER": ""}, nil},
		{"refused pool behaviour", map[string]string{"REDIS_POOL_ON_EMPTY_BEHAVIOR": "CREATE"}, []string{"want WAIT"}},
		{"memcache without servers", map[string]string{"BACKEND_TYPE": "memcache"}, []string{"MEMCACHE_HOST_PORT"}},
		{"memcache", memcache, nil},
		{"other backend's conflicts", map[string]string{"REDIS_URL": "", "MEMCACHE_TLS_CLIENT_CERT": "c"}, nil},
		{"metrics of unknown keys", map[string]string{"TOP_KEYS": "2", "TOP_METRIC": "3"}, []string{`TOP_METRIC (--top-metric) is "3": want at most 2, which is TOP_KEYS`}},
		{"metrics path", map[string]string{"USE_PROMETHEUS": "1", "PROMETHEUS_PATH": "metrics"}, []string{"PROMETHEUS_PATH"}},
		{"metrics port", map[string]string{"USE_PROMETHEUS": "1", "PROMETHEUS_ADDR": ":70000"}, []string{`PROMETHEUS_ADDR (--prometheus-addr) is ":70000": want host:port`}},
		{"metrics port with a name", map[string]string{"USE_PROMETHEUS": "1", "PROMETHEUS_ADDR": "[::1]:http"}, nil},
		{"tracing", map[string]string{"TRACING_ENABLED": "on", "TRACING_EXPORTER_PROTOCOL": "zipkin", "TRACING_SAMPLING_RATE": "1.5"}, []string{
			`TRACING_ENABLED (--tracing-enabled) is "on": want true or false`,
			`TRACING_EXPORTER_PROTOCOL (--tracing-exporter-protocol) is "zipkin": want http or grpc`,
			`TRACING_SAMPLING_RATE (--tracing-sampling-rate) is "1.5": want a number, from 0 to 1`,
		}},
		{"hashed keys", map[string]string{"CACHE_KEY_HASH": "true", "CACHE_KEY_HASH_SECRET": "sixteen bytes or more"}, nil},
		{"hashed keys with a file", map[string]string{"CACHE_KEY_HASH": "true", "CACHE_KEY_HASH_SECRET_FILE": "/run/secret"}, nil},
		{"Kuadrant's RPCs with keys of the reference", map[string]string{"BACKEND_TYPE": "redis", "KUADRANT_RLS_ENABLED": "true", "CACHE_KEY_FORMAT": "ratelimit"}, []string{
			`KUADRANT_RLS_ENABLED (--kuadrant-rls-enabled) is "true": want false, because CACHE_KEY_FORMAT is ratelimit`,
		}},
		{"bounds of holds", map[string]string{"KUADRANT_RLS_MAX_TTL": "25h"}, []string{
			`KUADRANT_RLS_MAX_TTL (--kuadrant-rls-max-ttl) is "25h": want a duration such as`,
		}},
		{"hashed keys without a secret", map[string]string{"CACHE_KEY_HASH": "true"}, []string{
			`CACHE_KEY_HASH_SECRET (--cache-key-hash-secret) is "": want at least 16 bytes (or CACHE_KEY_HASH_SECRET_FILE)`,
		}},
		{"hashed keys with a short secret, which is not shown", map[string]string{"CACHE_KEY_HASH": "true", "CACHE_KEY_HASH_SECRET": "fifteen bytes.."}, []string{
			`CACHE_KEY_HASH_SECRET (--cache-key-hash-secret) is "...": want at least 16 bytes`,
		}},
		{"hashed keys with two secrets", map[string]string{
			"CACHE_KEY_HASH": "true", "CACHE_KEY_HASH_SECRET": "sixteen bytes or more", "CACHE_KEY_HASH_SECRET_FILE": "/run/secret",
		}, []string{"want nothing, because CACHE_KEY_HASH_SECRET_FILE is set"}},
		{"a secret without hashed keys", map[string]string{"CACHE_KEY_HASH_SECRET": "s", "CACHE_KEY_HASH_SECRET_FILE": "/run/secret"}, []string{
			"want nothing, because CACHE_KEY_HASH is false", "want nothing, because CACHE_KEY_HASH is false",
		}},
		{"a password and a file with it", map[string]string{
			"BACKEND_TYPE": "redis", "REDIS_TYPE": "sentinel", "REDIS_URL": "main,h", "REDIS_AUTH": "s", "REDIS_AUTH_FILE": "/run/auth", "REDIS_SENTINEL_AUTH": "s", "REDIS_SENTINEL_AUTH_FILE": "/run/auth",
		}, []string{
			`REDIS_AUTH (--redis-auth) is "...": want nothing, because REDIS_AUTH_FILE is set`,
			`REDIS_SENTINEL_AUTH (--redis-sentinel-auth) is "...": want nothing, because REDIS_SENTINEL_AUTH_FILE is set`,
		}},
		{"headers and a file with them", map[string]string{
			"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS": "a:b", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS_FILE": "/run/headers",
		}, []string{`is "...": want nothing, because CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS_FILE is set`}},
		{"hashed keys of envoyproxy/ratelimit", map[string]string{
			"BACKEND_TYPE": "redis", "CACHE_KEY_FORMAT": "ratelimit", "CACHE_KEY_HASH": "true", "CACHE_KEY_HASH_SECRET": "sixteen bytes or more",
		}, []string{`CACHE_KEY_HASH (--cache-key-hash) is "true": want false, because CACHE_KEY_FORMAT is ratelimit`}},
		{"any case", map[string]string{"LOG_LEVEL": "WARNING", "REDIS_TYPE": "single", "SHADOW_MODE": "TRUE"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, value := range tt.set {
				t.Setenv(name, value)
			}
			_, err := parse(t)
			wrong := problems(t, err)
			if len(wrong) != len(tt.want) {
				t.Fatalf("%d errors, want %d:\n%v", len(wrong), len(tt.want), err)
			}
			for i, e := range wrong {
				if !strings.Contains(e.Error(), tt.want[i]) {
					t.Errorf("error %d: %v\nwant: %s", i, e, tt.want[i])
				}
			}
		})
	}
}

func TestAdminHosts(t *testing.T) {
	t.Setenv("ADMIN_ALLOWED_HOSTS", "A.example, b.example,")
	t.Setenv("ADMIN_FLEET", "RLS-headless:6071, [fd00::1]:6071")
	t.Setenv("ADMIN_TOKEN_FILE", "tokens")
	s, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"127.0.0.1", "a.example", "b.example", "rls-headless", "fd00::1"}, s.Admin.Hosts()); diff != "" {
		t.Error(diff)
	}
}

func TestRightFlagMendsWrongVariable(t *testing.T) {
	t.Setenv("PORT", "x")
	s, err := parse(t, "--port=7")
	if err != nil || s.Server.Port != 7 {
		t.Errorf("got %d, %v", s.Server.Port, err)
	}
}

func TestClientCAHasTwoNames(t *testing.T) {
	for _, name := range []string{"GRPC_CLIENT_TLS_CACERT", "GRPC_SERVER_TLS_CA_CERT"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "/ca.pem")
			s, _ := parse(t)
			if got := s.GRPC.ClientCA(); got != "/ca.pem" {
				t.Errorf("ClientCA() = %q", got)
			}
		})
	}
}

// Manifests set variables to an empty value. As in envoyproxy/ratelimit, that means
// the default, or off.
func TestEmptyValues(t *testing.T) {
	for _, flag := range flags(t) {
		switch flag.Target.Interface().(type) {
		case string, []string:
			t.Setenv(flag.Envs[0], "")
		}
	}
	t.Setenv("USE_PROMETHEUS", "true")
	s, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{
		s.Backend.BackendType, s.Rules.ConfigType, s.Log.Level, s.Log.Format, s.Redis.Type, s.Redis.SocketType, s.Redis.PoolOnEmptyBehavior,
		s.RedisPerSecond.Type, s.Tracing.Protocol, s.Metrics.PrometheusAddr, s.Metrics.PrometheusPath,
		s.Rules.RuntimeAppdirectory, s.XDS.NodeID,
	}
	want := []string{"memory", "FILE", "warn", "text", "SINGLE", "unix", "WAIT", "SINGLE", "http", ":9090", "/metrics", "", ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(s.Metrics.ExtraTags)+len(s.Memcache.Servers)+len(s.Metrics.UseDogStatsdMogrifiers) != 0 {
		t.Errorf("lists are not empty: %q, %q, %q", s.Metrics.ExtraTags, s.Memcache.Servers, s.Metrics.UseDogStatsdMogrifiers)
	}
}

// Kubernetes sets GRPC_PORT=tcp://… in every pod for a Service named grpc. That is no
// setting.
func TestVariablesOfServices(t *testing.T) {
	for _, service := range []string{"GRPC", "DEBUG", "STATSD"} {
		t.Setenv(service+"_PORT", "tcp://10.0.0.1:9")
	}
	s, err := parse(t)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{8081, 6070, 8125}, []int{s.GRPC.Port, s.Server.DebugPort, s.Metrics.StatsdPort}); diff != "" {
		t.Error(diff)
	}
}

// Numbers are parsed as in envoyproxy/ratelimit.
func TestNumbers(t *testing.T) {
	for text, want := range map[string]int{"16": 16, "0x10": 16, "020": 16, "0b10000": 16, "1_6": 16, "+16": 16, "08": 0, "1e1": 0, "16.0": 0} {
		t.Setenv("REDIS_POOL_SIZE", text)
		s, err := parse(t)
		if (err != nil) != (want == 0) || err == nil && s.Redis.PoolSize != want {
			t.Errorf("%s: %d, %v; want %d", text, s.Redis.PoolSize, err, want)
		}
	}
}

func TestDefaultBurstNeedsAStrategyWithABurst(t *testing.T) {
	for _, strategy := range algorithms.Names() {
		if strategy == algorithms.Concurrency.String() {
			continue
		}
		s, err := parse(t, "--default-strategy="+strategy, "--default-burst=20")
		_, wrong := algorithms.New(algorithms.Spec{Strategy: must(algorithms.ParseStrategy(strategy)), Requests: 1, Window: time.Second, Burst: 20})
		if (err == nil) != (wrong == nil) || s.Rules.DefaultStrategy != strategy {
			t.Errorf("%s: %v, though the strategy says %v", strategy, err, wrong)
		}
	}
	const want = "DEFAULT_BURST (--default-burst) is \"20\": want 0, because DEFAULT_STRATEGY is fixed_window, which has no burst; token_bucket, gcra and leaky_bucket have"
	if _, err := parse(t, "--default-burst=20"); err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	const slots = `DEFAULT_STRATEGY (--default-strategy) is "concurrency": want fixed_window, sliding_window, sliding_log, token_bucket, gcra or leaky_bucket`
	if _, err := parse(t, "--default-strategy=concurrency"); err == nil || err.Error() != slots {
		t.Errorf("got %v", err)
	}
	if _, err := parse(t, "--default-strategy=leaky"); err == nil {
		t.Error("an unknown strategy is taken")
	}
}

func TestLimitShare(t *testing.T) {
	for text, want := range map[string]algorithms.Percent{"": 0, "100%": 0, "40%": 400_000, "0.5%": 5000} {
		if s, err := parse(t, "--limit-share="+text); err != nil || s.Rules.Share() != want {
			t.Errorf("%q: %v, %v; want %v", text, s.Rules.Share(), err, want)
		}
	}
	for _, text := range []string{"0%", "40", "0.4", "101%", "-1%", "NaN%", "x%", "%", "0.00001%"} {
		want := "LIMIT_SHARE (--limit-share) is \"" + text + "\": want a percentage above 0% and at most 100%, such as 40%"
		if _, err := parse(t, "--limit-share="+text); err == nil || err.Error() != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
