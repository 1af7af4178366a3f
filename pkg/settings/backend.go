package settings

import (
	"os"

	"example.org/rls/pkg/backends/remote"
)

// servers are the settings that name servers, and the backends that have them.
var servers = []struct{ setting, backend string }{
	{"REDIS_URL", "redis"},
	{"REDIS_PERSECOND_URL", "redis"},
	{"MEMCACHE_HOST_PORT", "memcache"},
	{"MEMCACHE_SRV", "memcache"},
}

// checkBackend returns the problems of the settings for the backend in use.
//
// A setting that names servers of another backend is a problem, because counters
// would not be where the operator expects them. A variable is no problem if
// envoyproxy/ratelimit has the backend in use, too: it ignores such a variable, and
// Unused reports it.
func (d *Decoder) checkBackend(s *Settings) (wrong Errors) {
	used := s.Backend.BackendType
	switch used {
	case "redis":
		wrong = d.redisConflicts(s)
	case "memcache":
		wrong = s.Memcache.conflicts()
	case "memory":
	default:
		return nil // BACKEND_TYPE is reported as wrong already
	}
	wrong.require(used == "redis" || s.Backend.CacheKeyFormat != "ratelimit", "CACHE_KEY_FORMAT", s.Backend.CacheKeyFormat,
		"rls, because BACKEND_TYPE is not redis and counters are shared there only")
	wrong.require(used == "memory" || s.State.File == "", "STATE_FILE", s.State.File,
		"nothing, because BACKEND_TYPE is "+used+", whose counters outlive the process; or BACKEND_TYPE=memory")
	for _, of := range servers {
		// flagged is also true for a list that comes from a variable.
		byFlag := d.flagged[of.setting] && os.Getenv(of.setting) == ""
		given := byFlag || used == "memory" && isSet(of.setting)
		advice := "leave " + of.setting + " out"
		if !byFlag {
			advice += ", or make it empty where somebody else sets it (" + of.setting + `: "")`
		}
		wrong.require(of.backend == used || !given, "BACKEND_TYPE", used,
			of.backend+", because "+of.setting+" is set; or "+advice)
	}
	return wrong
}

// settleSocket makes the socket's type tcp if the URL is host:port and no setting says the type.
func (d *Decoder) settleSocket(prefix string, r *RedisServer) {
	if name := prefix + "SOCKET_TYPE"; d.ownName && !d.flagged[name] && os.Getenv(name) == "" && remote.IsTCP(r.URL) {
		r.SocketType = "tcp"
	}
}

// Unused returns the variables that name servers of another backend than the
// one in use and that Check does not refuse.
func Unused(s *Settings) (variables []string) {
	for _, of := range servers {
		if of.backend != s.Backend.BackendType && isSet(of.setting) {
			variables = append(variables, of.setting)
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

func (d *Decoder) redisConflicts(s *Settings) Errors {
	d.settleSocket("REDIS_", &s.Redis.RedisServer)
	d.settleSocket("REDIS_PERSECOND_", &s.RedisPerSecond)
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
