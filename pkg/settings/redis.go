package settings

import (
	"strings"
	"time"

	"example.org/rls/pkg/backends/redis"
	"example.org/rls/pkg/backends/remote"
)

// RedisServer says how to reach one Redis: a server, a master with sentinels, or a
// cluster.
type RedisServer struct {
	redis.Options

	Auth         string        `env:"AUTH" help:"Password, or user:password."`
	TLS          bool          `env:"TLS" default:"false" help:"Connect over TLS."`
	SentinelAuth string        `env:"SENTINEL_AUTH" help:"The sentinels' password, or user:password, in place of one in their URLs."`
	Timeout      time.Duration `env:"TIMEOUT" default:"10s" min:"1ms" max:"1h" help:"Longest wait for connection or answer."`

	AuthFile         string `env:"AUTH_FILE" help:"File with AUTH's value. Reread on change; open connections stay open."`
	SentinelAuthFile string `env:"SENTINEL_AUTH_FILE" help:"File with SENTINEL_AUTH's value. Reread on change."`

	PoolOnEmptyBehavior        string        `env:"POOL_ON_EMPTY_BEHAVIOR" default:"WAIT" oneof:"WAIT" help:"What calls do without a free connection."`
	PipelineWindow             time.Duration `env:"PIPELINE_WINDOW" default:"0s" help:"Without effect."`
	PipelineLimit              int           `env:"PIPELINE_LIMIT" default:"0" help:"Without effect."`
	ClusterPipelineParallelism int           `env:"CLUSTER_PIPELINE_PARALLELISM" default:"1" help:"Without effect."`
}

// Redis says how to reach the main Redis, and has the settings that hold for the
// Redis of per-second limits too.
type Redis struct {
	RedisServer

	Persecond bool `env:"PERSECOND" default:"false" help:"Count per-second limits in another Redis (REDIS_PERSECOND_*)."`

	TLSClientCert               string `name:"tls-client-cert" env:"TLS_CLIENT_CERT" help:"Client certificate (PEM). Changes of it, key and CAs count."`
	TLSClientKey                string `name:"tls-client-key" env:"TLS_CLIENT_KEY" help:"Its key (PEM)."`
	TLSCACert                   string `name:"tls-cacert" env:"TLS_CACERT" help:"The server's CAs (PEM); by default the system's."`
	TLSSkipHostnameVerification bool   `name:"tls-skip-hostname-verification" env:"TLS_SKIP_HOSTNAME_VERIFICATION" default:"false" help:"Accept a certificate that names another host."`

	HealthCheckActiveConnection bool `env:"HEALTH_CHECK_ACTIVE_CONNECTION" default:"false" help:"Be unhealthy whenever the store is away, not only before its first answer."`

	StartupInitialInterval time.Duration `env:"STARTUP_INITIAL_INTERVAL" default:"1s" help:"Without effect."`
	StartupMaxInterval     time.Duration `env:"STARTUP_MAX_INTERVAL" default:"30s" help:"Without effect."`
	StartupMaxElapsedTime  time.Duration `env:"STARTUP_MAX_ELAPSED_TIME" default:"0s" min:"0s" help:"Exit if the store has not answered this long after start; 0 is never."`
}

// UseTLS reports whether any server is reached over TLS.
func (r *RedisServer) UseTLS() bool { return r.TLS || strings.Contains(r.URL, "rediss://") }

func (r *RedisServer) conflicts(prefix string) (wrong Errors) {
	wrong.oneSecret(prefix+"AUTH", r.Auth, prefix+"AUTH_FILE", r.AuthFile)
	wrong.oneSecret(prefix+"SENTINEL_AUTH", r.SentinelAuth, prefix+"SENTINEL_AUTH_FILE", r.SentinelAuthFile)
	servers := strings.Split(r.URL, ",")
	want := "host:port or redis://user:password@host:port (rediss:// for TLS)"
	switch r.Type {
	case "SENTINEL":
		wrong.require(len(servers) > 1 && strings.TrimSpace(servers[0]) != "", prefix+"URL", hideSecrets(r.URL, r.URL),
			"MASTER,SENTINEL[,SENTINEL...], because "+prefix+"TYPE is SENTINEL")
		servers = servers[1:]
	case "SINGLE":
		forList := ""
		if len(servers) > 1 {
			forList = "; for a list set " + prefix + "TYPE=SENTINEL (the master's name, then the sentinels) or " + prefix + "TYPE=CLUSTER"
		}
		servers = []string{r.URL}
		want = "host:port or redis://user:password@host:port/database (rediss:// for TLS)" + forList
		if r.SocketType == "unix" {
			wrong.require(strings.TrimSpace(r.URL) != "" && !remote.IsTCP(r.URL), prefix+"URL", hideSecrets(r.URL, r.URL),
				"the path of a socket, because "+prefix+"SOCKET_TYPE is unix; for host:port set "+prefix+"SOCKET_TYPE=tcp"+forList)
			return wrong
		}
	}
	wrong.require(remote.OneLogin(servers), prefix+"URL", hideSecrets(r.URL, r.URL), "the same user and password in all URLs")
	for _, server := range servers {
		wrong.require(r.isServer(server), prefix+"URL", hideSecrets(server, r.URL), want)
	}
	return wrong
}

// isServer reports whether the store can be opened with text as a server.
func (r *RedisServer) isServer(text string) bool {
	server, err := remote.ParseRedis(text, "6379")
	return err == nil && (server.DB == 0 || r.Type == "SINGLE")
}

// hideSecrets is part, which is a part or all of the setting whole, with *** in place
// of every byte that may belong to a password. A password can hold commas and @, and
// can be in a query.
func hideSecrets(part, whole string) string {
	switch at := strings.LastIndexByte(whole, '@'); {
	case strings.Contains(whole, "?"), at >= 0 && part != whole:
		return "***"
	case at >= 0:
		return "***" + whole[at:]
	}
	return part
}
