package settings_test

import (
	"slices"
	"strings"
	"testing"

	"example.org/rls/pkg/settings"
)

// TestServersOfAnotherBackend: a setting that names servers of a backend that is not
// in use is refused with a hint to BACKEND_TYPE. Only variables that
// envoyproxy/ratelimit would ignore are ignored here, too.
func TestServersOfAnotherBackend(t *testing.T) {
	for _, c := range []struct {
		name   string
		set    string // one variable
		args   []string
		wrong  string // the error; "" for none
		unused bool   // the variable is reported as ignored
	}{
		{"variable", "REDIS_URL=redis:6379", nil, `BACKEND_TYPE (--backend-type) is "memory": want redis, because REDIS_URL is set; or leave REDIS_URL out, or make it empty where somebody else sets it (REDIS_URL: "")`, true},
		{"flag", "", []string{"--redis-url=redis:6379"}, "want redis, because REDIS_URL is set", false},
		{"per-second", "REDIS_PERSECOND_URL=redis:6379", nil, "want redis, because REDIS_PERSECOND_URL is set", true},
		{"memcached", "MEMCACHE_HOST_PORT=memcached:11211", nil, "want memcache, because MEMCACHE_HOST_PORT is set", true},
		{"memcached by DNS", "MEMCACHE_SRV=memcached", nil, "want memcache, because MEMCACHE_SRV is set", true},
		{"although memory was asked for", "REDIS_URL=redis:6379", []string{"--backend-type=memory"}, "want redis", true},
		{"empty", "REDIS_URL=", nil, "", false},
		{"of a Service", "MEMCACHE_HOST_PORT=tcp://10.0.0.1:11211", nil, "", false},
		{"as with envoyproxy/ratelimit", "MEMCACHE_HOST_PORT=memcached:11211", []string{"--backend-type=redis"}, "", true},
		{"the other way round", "REDIS_URL=redis:6379", []string{"--backend-type=memcache", "--memcache-host-port=m:1"}, "", true},
		{"flags of two", "", []string{"--backend-type=redis", "--memcache-host-port=m:1"}, `BACKEND_TYPE (--backend-type) is "redis": want memcache`, false},
		{"per-second without its switch", "REDIS_PERSECOND_URL=redis:6379", []string{"--backend-type=redis"}, "", false},
		{"a flag without its switch", "", []string{"--backend-type=redis", "--redis-persecond-url=redis:6379"}, `REDIS_PERSECOND (--redis-persecond) is "false": want true`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			name, value, _ := strings.Cut(c.set, "=")
			if name != "" {
				t.Setenv(name, value)
			}
			s, err := parse(t, c.args...)
			switch {
			case c.wrong == "" && err != nil:
				t.Errorf("got %v", err)
			case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
				t.Errorf("got %v, want %s", err, c.wrong)
			}
			if got := slices.Contains(settings.Unused(&s), name); got != c.unused {
				t.Errorf("%s is reported as unused: %v, want %v", name, got, c.unused)
			}
		})
	}
}
