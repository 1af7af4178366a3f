package settings

import (
	"os"
	"slices"
)

// backend has the conditions of a value of BACKEND_TYPE on other settings.
type backend struct {
	name string
	// servers are the settings that name its servers.
	servers []string
	// conflicts returns the problems of the backend's own settings; nil if it
	// can have none.
	conflicts func(*Decoder, *Settings) Errors
	// ratelimit: envoyproxy/ratelimit has the backend, too.
	ratelimit bool
	// ratelimitKeys: counters can be shared with envoyproxy/ratelimit.
	ratelimitKeys bool
}

var backends = []backend{
	{name: "memory"},
	{name: "redis", servers: []string{"REDIS_URL", "REDIS_PERSECOND_URL"}, conflicts: redisConflicts, ratelimit: true, ratelimitKeys: true},
	{name: "memcache", servers: []string{"MEMCACHE_HOST_PORT", "MEMCACHE_SRV"}, conflicts: memcacheConflicts, ratelimit: true},
}

// checkBackend returns the problems of the settings for the backend in use.
//
// A setting that names servers of another backend is a problem, because counters
// would not be where the operator expects them. A variable is no problem if
// envoyproxy/ratelimit has the backend in use, too: it ignores such a variable, and
// Unused reports it.
func (d *Decoder) checkBackend(s *Settings) (wrong Errors) {
	i := slices.IndexFunc(backends, func(b backend) bool { return b.name == s.Backend.BackendType })
	if i < 0 {
		return nil // BACKEND_TYPE is reported as wrong already
	}
	used := &backends[i]
	wrong.require(used.ratelimitKeys || s.Backend.CacheKeyFormat != "ratelimit", "CACHE_KEY_FORMAT", s.Backend.CacheKeyFormat,
		"rls, because BACKEND_TYPE is not redis and counters are shared there only")
	if used.conflicts != nil {
		wrong = append(wrong, used.conflicts(d, s)...)
	}
	for _, other := range backends {
		for _, setting := range other.servers {
			// flagged is also true for a list that comes from a variable.
			byFlag := d.flagged[setting] && os.Getenv(setting) == ""
			given := byFlag || !used.ratelimit && isSet(setting)
			advice := "leave " + setting + " out"
			if !byFlag {
				advice += ", or make it empty where somebody else sets it (" + setting + `: "")`
			}
			wrong.require(other.name == used.name || !given, "BACKEND_TYPE", used.name,
				other.name+", because "+setting+" is set; or "+advice)
		}
	}
	return wrong
}

// Unused returns the variables that name servers of another backend than the
// one in use and that Check does not refuse.
func Unused(s *Settings) (variables []string) {
	for _, other := range backends {
		for _, variable := range other.servers {
			if other.name != s.Backend.BackendType && isSet(variable) {
				variables = append(variables, variable)
			}
		}
	}
	return variables
}

// isSet reports whether somebody has set the variable: not Kubernetes, which
// sets some for each Service.
func isSet(variable string) bool {
	value := os.Getenv(variable)
	return value != "" && !isServiceLink(variable+"="+value)
}

func redisConflicts(d *Decoder, s *Settings) Errors {
	wrong := s.Redis.conflicts("REDIS_")
	useTLS := s.Redis.UseTLS()
	if s.Redis.Persecond {
		wrong = append(wrong, s.RedisPerSecond.conflicts("REDIS_PERSECOND_")...)
		useTLS = useTLS || s.RedisPerSecond.UseTLS()
	}
	wrong.require(s.Redis.Persecond || !d.flagged["REDIS_PERSECOND_URL"], "REDIS_PERSECOND", false, "true, because REDIS_PERSECOND_URL is set; or leave REDIS_PERSECOND_URL out")
	if useTLS {
		wrong.pair("REDIS_TLS_CLIENT_CERT", s.Redis.TLSClientCert, "REDIS_TLS_CLIENT_KEY", s.Redis.TLSClientKey)
	}
	return wrong
}

func memcacheConflicts(_ *Decoder, s *Settings) Errors { return s.Memcache.conflicts() }
