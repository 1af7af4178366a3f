package testenv

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Redis starts a redis-server without persistence. In args, further options
// in command-line form, {port} and {dir} stand for the server's port and its
// directory: `"--port", "0", "--tls-port", "{port}"`.
func Redis(t testing.TB, args ...string) *Server {
	t.Helper()
	return startRedis(t, "redis-server", args)
}

// Valkey starts a valkey-server; see Redis.
func Valkey(t testing.TB, args ...string) *Server {
	t.Helper()
	return startRedis(t, "valkey-server", args)
}

func startRedis(t testing.TB, binary string, args []string) *Server {
	t.Helper()
	return start(t, program{
		name: binary,
		args: append([]string{
			"--bind", "127.0.0.1", "--port", "{port}", "--dir", "{dir}",
			"--save", "", "--appendonly", "no",
			// Ending does not wait for replicas that tests have paused.
			"--shutdown-timeout", "0",
		}, args...),
		// Whatever the options (TLS, passwords), the log says when it is up.
		ready: func(s *Server) bool { return s.Logged("Ready to accept connections") },
	})
}

// Memcached starts a memcached. Args are further options; {port} and {dir}
// stand for the server's port and its directory.
func Memcached(t testing.TB, args ...string) *Server {
	t.Helper()
	options := []string{"-l", "127.0.0.1", "-p", "{port}", "-U", "0"}
	if os.Geteuid() == 0 {
		options = append(options, "-u", "root") // it refuses to be root by accident
	}
	return start(t, program{
		name:  "memcached",
		args:  append(options, args...),
		env:   []string{"MEMCACHED_PORT_FILENAME={ready}"}, // written once it listens
		ready: (*Server).wroteReady,
	})
}

// setTimeout bounds how long servers take to find each other.
const setTimeout = 30 * time.Second

// Cluster is a Redis Cluster. When one of its masters is gone its replica
// takes over after about two seconds; the other masters' slots are served all
// the while.
type Cluster struct {
	Masters  []*Server
	Replicas []*Server // of Masters[i % len(Masters)], in turn
}

// Addrs returns the addresses of all nodes, masters first.
func (c *Cluster) Addrs() []string { return addrs(c.nodes()) }

func (c *Cluster) nodes() []*Server { return slices.Concat(c.Masters, c.Replicas) }

// RedisCluster starts a Redis Cluster and returns when every node knows all
// nodes, serves, and every replica follows its master.
func RedisCluster(t testing.TB, masters, replicasPerMaster int) *Cluster {
	t.Helper()
	const slots = 16384
	node := func() *Server {
		return Redis(t,
			"--cluster-enabled", "yes",
			"--cluster-config-file", "{dir}/nodes.conf",
			"--cluster-node-timeout", "1000",
			"--cluster-require-full-coverage", "no",
			"--repl-diskless-sync-delay", "0")
	}
	c := &Cluster{}
	for i := range masters {
		m := node()
		redisCLI(t, m, "CLUSTER", "SET-CONFIG-EPOCH", fmt.Sprint(i+1))
		redisCLI(t, m, "CLUSTER", "ADDSLOTSRANGE",
			fmt.Sprint(i*slots/masters), fmt.Sprint((i+1)*slots/masters-1))
		c.Masters = append(c.Masters, m)
	}
	for range masters * replicasPerMaster {
		c.Replicas = append(c.Replicas, node())
	}
	nodes := c.nodes()
	for _, n := range nodes[1:] {
		host, port, _ := net.SplitHostPort(n.Addr)
		redisCLI(t, nodes[0], "CLUSTER", "MEET", host, port)
	}
	all(t, nodes, func(n *Server) bool {
		info := redisCLI(t, n, "CLUSTER", "INFO")
		return strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", len(nodes))) &&
			strings.Contains(info, "cluster_state:ok") &&
			strings.Contains(info, fmt.Sprintf("cluster_slots_assigned:%d\r", slots)) // the state is ok without them, too
	}, "know each other")

	for i, r := range c.Replicas {
		id := strings.TrimSpace(redisCLI(t, c.Masters[i%masters], "CLUSTER", "MYID"))
		redisCLI(t, r, "CLUSTER", "REPLICATE", id)
	}
	all(t, nodes, func(n *Server) bool {
		// A line per node; its flags are "slave", or "myself,slave".
		return strings.Count(redisCLI(t, n, "CLUSTER", "NODES"), "slave ") == len(c.Replicas)
	}, "know the replicas")
	follow(t, c.Replicas...)
	return c
}

// SentinelSetup is a master and a replica watched by three sentinels, two of
// which must agree that the master is down; they promote the replica within a few
// seconds of its end.
type SentinelSetup struct {
	MasterName string
	Master     *Server // at the start
	Replica    *Server // at the start
	Sentinels  []*Server
}

// Addrs returns the addresses of the sentinels.
func (s *SentinelSetup) Addrs() []string { return addrs(s.Sentinels) }

// Sentinel starts a SentinelSetup and returns when a failover would succeed.
func Sentinel(t testing.TB) *SentinelSetup {
	t.Helper()
	const sentinels, quorum = 3, 2
	s := &SentinelSetup{MasterName: "primary"}
	s.Master = Redis(t, "--repl-diskless-sync-delay", "0")
	host, port, _ := net.SplitHostPort(s.Master.Addr)
	s.Replica = Redis(t, "--replicaof", host, port, "--repl-diskless-sync-delay", "0")
	follow(t, s.Replica)

	for range sentinels {
		// A sentinel rewrites its configuration, so each has its own file.
		config := filepath.Join(t.TempDir(), "sentinel.conf")
		text := fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s %[4]d\n"+
			"sentinel down-after-milliseconds %[1]s 1000\n"+
			"sentinel failover-timeout %[1]s 1000\n", s.MasterName, host, port, quorum)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatalf("testenv: configure a sentinel: %v", err)
		}
		sentinel := start(t, program{
			name:  "redis-sentinel",
			args:  []string{config, "--bind", "127.0.0.1", "--port", "{port}", "--dir", "{dir}"},
			ready: func(s *Server) bool { return s.Logged("+monitor master") },
		})
		// Sentinels look at servers every ten seconds and greet each other
		// every two; tests need not wait for that. A replica may be promoted
		// when it was looked at within five PING-PERIODs, which while its
		// master is down happens once in a second whatever INFO-PERIOD says.
		redisCLI(t, sentinel, "SENTINEL", "DEBUG",
			"INFO-PERIOD", "200", "PUBLISH-PERIOD", "200", "PING-PERIOD", "500", "ASK-PERIOD", "100",
			"ELECTION-TIMEOUT", "1000")
		s.Sentinels = append(s.Sentinels, sentinel)
	}
	all(t, s.Sentinels, func(sentinel *Server) bool {
		master := redisCLI(t, sentinel, "SENTINEL", "MASTER", s.MasterName)
		return strings.Contains(master, fmt.Sprintf("\nnum-other-sentinels\n%d\n", sentinels-1)) &&
			strings.Contains(master, "\nnum-slaves\n1\n") && strings.Contains(master, "\nflags\nmaster\n") &&
			strings.Contains(redisCLI(t, sentinel, "SENTINEL", "REPLICAS", s.MasterName), "\nmaster-link-status\nok\n")
	}, "know each other and the replica")
	return s
}

// follow waits until all replicas are in step with their masters.
func follow(t testing.TB, replicas ...*Server) {
	t.Helper()
	all(t, replicas, func(r *Server) bool {
		return strings.Contains(redisCLI(t, r, "INFO", "replication"), "master_link_status:up")
	}, "follow their masters")
}

// all waits until a condition holds for all servers at one time.
func all(t testing.TB, servers []*Server, is func(*Server) bool, msg string) {
	t.Helper()
	Eventually(t, setTimeout, func() bool {
		return !slices.ContainsFunc(servers, func(s *Server) bool { return !is(s) })
	}, "the servers of the set "+msg)
}

func addrs(servers []*Server) []string {
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = s.Addr
	}
	return list
}

// redisCLI sends one command to a server and returns the reply as redis-cli
// prints it. An error reply fails the test.
func redisCLI(t testing.TB, s *Server, command ...string) string {
	t.Helper()
	host, port, _ := net.SplitHostPort(s.Addr)
	cmd := exec.Command(Binary(t, "redis-cli"), append([]string{"-e", "-h", host, "-p", port}, command...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("testenv: %s to %s: %v: %s", strings.Join(command, " "), s.Addr, err, out)
	}
	return string(out)
}
