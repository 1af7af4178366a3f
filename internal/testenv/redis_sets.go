package testenv

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

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

func (c *Cluster) nodes() []*Server {
	return append(append([]*Server(nil), c.Masters...), c.Replicas...)
}

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
	Eventually(t, setTimeout, func() bool {
		for _, n := range nodes {
			info := redisCLI(t, n, "CLUSTER", "INFO")
			if !strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", len(nodes))) ||
				!strings.Contains(info, "cluster_state:ok") {
				return false
			}
		}
		return true
	}, "all nodes of the Redis Cluster know each other")

	for i, r := range c.Replicas {
		id := strings.TrimSpace(redisCLI(t, c.Masters[i%masters], "CLUSTER", "MYID"))
		redisCLI(t, r, "CLUSTER", "REPLICATE", id)
	}
	Eventually(t, setTimeout, func() bool {
		for _, n := range nodes {
			// A line per node; its flags are "slave", or "myself,slave".
			if strings.Count(redisCLI(t, n, "CLUSTER", "NODES"), "slave ") != len(c.Replicas) {
				return false
			}
		}
		return following(t, c.Replicas)
	}, "the replicas of the Redis Cluster follow their masters")
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
	Eventually(t, setTimeout, func() bool { return following(t, []*Server{s.Replica}) },
		"the replica follows its master")

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
			path:  Binary(t, "redis-sentinel"),
			args:  []string{config, "--bind", "127.0.0.1", "--port", "{port}", "--dir", "{dir}"},
			ready: func(s *Server) bool { return s.logged("+monitor master") },
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
	Eventually(t, setTimeout, func() bool {
		for _, sentinel := range s.Sentinels {
			master := strings.Fields(redisCLI(t, sentinel, "SENTINEL", "MASTER", s.MasterName))
			if field(master, "num-other-sentinels") != fmt.Sprint(sentinels-1) ||
				field(master, "num-slaves") != "1" || field(master, "flags") != "master" ||
				!strings.Contains(redisCLI(t, sentinel, "SENTINEL", "REPLICAS", s.MasterName), "\nmaster-link-status\nok\n") {
				return false
			}
		}
		return true
	}, "the sentinels know each other and the replica")
	return s
}

// field returns what follows name in a list of names and values.
func field(list []string, name string) string {
	for i := 0; i+1 < len(list); i += 2 {
		if list[i] == name {
			return list[i+1]
		}
	}
	return ""
}

// following reports whether all replicas are in step with their masters.
func following(t testing.TB, replicas []*Server) bool {
	t.Helper()
	for _, r := range replicas {
		if !strings.Contains(redisCLI(t, r, "INFO", "replication"), "master_link_status:up") {
			return false
		}
	}
	return true
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
