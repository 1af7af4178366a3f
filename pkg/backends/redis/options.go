package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"example.org/rls/pkg/backends/breaker"
	"example.org/rls/pkg/backends/redis/lane"
	"example.org/rls/pkg/backends/remote"
)

// How the servers are arranged.
const (
	typeSingle   = "SINGLE"   // one server, or a proxy that looks like one
	typeSentinel = "SENTINEL" // a master and replicas watched by sentinels
	typeCluster  = "CLUSTER"  // a Redis Cluster
)

// Options says where the store is and how to talk to it. Numbers are not negative. The fields with a
// tag env are settings of the process.
type Options struct {
	// SocketType is "tcp" or "unix" (SINGLE only); "" is "tcp".
	SocketType string `env:"SOCKET_TYPE" default:"unix" oneof:"tcp,unix" help:"Kind of connection. Under the name rls a URL of host:port means tcp."`
	// Type is SINGLE, SENTINEL or CLUSTER, in any case; "" is SINGLE.
	Type string `env:"TYPE" default:"SINGLE" oneof:"SINGLE,SENTINEL,CLUSTER" help:"A server, a master with sentinels, or a cluster."`
	// URL is, by Type: "host:port" or the path of a socket; "master,host:port,
	// host:port" (the sentinels); "host:port,host:port" (any nodes). Instead
	// of a host:port there may be a redis:// or rediss:// URL with a user, a
	// password and, for SINGLE, a database: redis://user:password@host:port/2.
	// The user and password of one URL hold for all servers in the list, and in
	// those of sentinels for the sentinels only.
	URL string `env:"URL" default:"${url}" help:"SINGLE: host:port, redis://user:password@host:port/database or a socket. SENTINEL: MASTER,SENTINEL,SENTINEL; passwords in their URLs are the sentinels'. CLUSTER: NODE,NODE."`
	// PoolSize bounds the connections to each server; 0 is 10. Calls use up to
	// four of them at a time, and all but one if the server is distant; the clock
	// uses one.
	PoolSize int `env:"POOL_SIZE" default:"10" min:"1" max:"10000" help:"Connections to each node."`
	// Auth returns "password" or "user:password" for a new connection to a server,
	// in place of the credentials in URL; connections that are open go on with
	// theirs. nil leaves those of URL. SentinelAuth is the same for the sentinels.
	Auth         func() string `kong:"-"`
	SentinelAuth func() string `kong:"-"`
	// TLS returns the client's TLS configuration for a new connection to a server
	// or sentinel. The store may change it. nil connects in plain text.
	TLS func() *tls.Config `kong:"-"`

	// Timeout bounds connecting and a call without a deadline of its own;
	// 0 is 10 s. A connection that is silent for the least of it, Watch.Slow
	// (at least 100 ms) and one second is given up.
	Timeout time.Duration `kong:"-"`
	// ExpirationJitter is the longest random time that is added to the life of
	// a fixed window's key, so that not all keys expire at once.
	ExpirationJitter time.Duration `kong:"-"`
	// Clock is the local clock; nil is the system's.
	Clock func() time.Time `kong:"-"`

	// Watch makes the breakers of the servers; nil makes them with default options.
	Watch *breaker.Watch `kong:"-"`
	// ClockError, if not nil, is called from one goroutine for each measurement
	// of the server's time that failed.
	ClockError func(error) `kong:"-"`
}

// bufferSize, of a connection in either direction, holds some hundreds of calls.
const bufferSize = 64 << 10

// target are Options with their defaults and with the URL read.
type target struct {
	Options
	addrs          []string
	master         string // SENTINEL: its name
	user, password string // in URL
	db             int
	connections    lane.Connections
}

// silence is the longest time without an answer before a connection is closed. With less
// than 100 ms connections would be closed whenever a process has to wait for a processor.
func (t *target) silence() time.Duration {
	return min(t.Timeout, max(t.Watch.SlowAfter(), 100*time.Millisecond), time.Second)
}

// connecting is the longest time for a connection, and for its TLS handshake. A name
// may have to be resolved.
func (t *target) connecting() time.Duration { return min(t.Timeout, 2*t.silence()) }

func (t *target) dialer() *lane.Dialer {
	return lane.NewDialer(t.connecting(), t.silence(), t.TLS, &t.connections)
}

// universal are the options of go-redis for every type.
func (t *target) universal() *goredis.UniversalOptions {
	return &goredis.UniversalOptions{
		Addrs: t.addrs, MasterName: t.master, DB: t.db, CredentialsProviderContext: t.credentials,
		Protocol: 2, DisableIdentity: true,
		MaxRetries: -1, MaxRedirects: -1, DialerRetries: 1,
		DialTimeout: 2 * t.connecting(), ReadTimeout: t.silence(), WriteTimeout: t.silence(), PoolTimeout: t.silence(),
		PoolSize: t.PoolSize, MaxActiveConns: t.PoolSize, PipelinePoolSize: -1,
		ReadBufferSize: bufferSize, WriteBufferSize: bufferSize,
	}
}

// credentials are the user and the password for a new connection to a server, as
// go-redis asks for them.
func (t *target) credentials(context.Context) (user, password string, err error) {
	user, password = t.user, t.password
	if t.Auth != nil {
		user, password = cutAuth(t.Auth())
	}
	return user, password, nil
}

// cutAuth cuts "user:password", or "password".
func cutAuth(auth string) (user, password string) {
	if user, password, both := strings.Cut(auth, ":"); both {
		return user, password
	}
	return "", auth
}

func (o Options) parse() (*target, error) {
	t := &target{Options: o}
	t.Type = cmp.Or(strings.ToUpper(o.Type), typeSingle)
	t.SocketType = cmp.Or(t.SocketType, "tcp")
	t.PoolSize = cmp.Or(t.PoolSize, 10)
	t.Timeout = cmp.Or(t.Timeout, 10*time.Second)
	t.Watch = cmp.Or(t.Watch, &breaker.Watch{})
	if t.Clock == nil {
		t.Clock = time.Now
	}
	switch {
	case t.Type != typeSingle && t.Type != typeSentinel && t.Type != typeCluster:
		return nil, fmt.Errorf("unknown type %q: one of SINGLE, SENTINEL, CLUSTER", o.Type)
	case t.SocketType != "tcp" && t.SocketType != "unix":
		return nil, fmt.Errorf("unknown socket type %q: tcp or unix", o.SocketType)
	case t.SocketType == "unix" && t.Type != typeSingle:
		return nil, fmt.Errorf("type %s needs socket type tcp", t.Type)
	case strings.TrimSpace(t.URL) == "":
		return nil, errors.New("the URL is empty")
	}
	if err := t.parseURL(); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *target) parseURL() error {
	if t.SocketType == "unix" {
		if remote.IsTCP(t.URL) {
			return errors.New("the URL is not the path of a socket: for host:port set socket type tcp")
		}
		t.addrs = []string{strings.TrimSpace(t.URL)}
		return nil
	}
	list, port := []string{t.URL}, "6379"
	if t.Type != typeSingle {
		list = strings.Split(t.URL, ",")
	}
	if t.Type == typeSentinel {
		t.master, list, port = strings.TrimSpace(list[0]), list[1:], "26379"
		if t.master == "" || len(list) == 0 {
			return errors.New("the URL must name the master and at least one sentinel: master,host:port,host:port")
		}
	}
	if !remote.OneLogin(list) {
		return errors.New("the URLs in the list have different users or passwords: all servers must have the same")
	}
	for _, item := range list {
		s, err := remote.ParseRedis(item, port)
		switch {
		case err != nil:
			return err
		case s.DB > 0 && t.Type != typeSingle:
			return fmt.Errorf("type %s has no databases: leave /%d out of the URL", t.Type, s.DB)
		case s.TLS && t.TLS == nil:
			t.TLS = func() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }
		}
		switch {
		case s.User+s.Password == "":
		case t.Type != typeSentinel:
			t.user, t.password = s.User, s.Password
		case t.SentinelAuth == nil:
			t.SentinelAuth = func() string { return s.User + ":" + s.Password }
		}
		t.addrs, t.db = append(t.addrs, s.Addr), s.DB
	}
	return nil
}
