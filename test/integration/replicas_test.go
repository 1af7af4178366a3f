package integration

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"example.org/rls/internal/testenv"
)

// headless is a name server that has an address for each of so many replicas of
// every name: the first and those after it.
type headless struct {
	replicas atomic.Int32
	first    [4]byte
}

func (h *headless) serve(conn net.PacketConn) {
	buf := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		m.Response, m.Authoritative, m.Additionals = true, true, nil
		if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
			for i := range byte(h.replicas.Load()) {
				m.Answers = append(m.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1},
					Body:   &dnsmessage.AResource{A: [4]byte{h.first[0], h.first[1], h.first[2], h.first[3] + i}},
				})
			}
		}
		if b, err := m.Pack(); err == nil {
			_, _ = conn.WriteTo(b, from)
		}
	}
}

// nameServer starts a name server at port 53 of a loopback address, and returns the command of
// a program that asks it, because it has an /etc/resolv.conf of its own.
func nameServer(t *testing.T, address string, first [4]byte) (dns *headless, command []string) {
	t.Helper()
	if out, err := exec.Command("unshare", "-m", "true").CombinedOutput(); err != nil {
		t.Skipf("needs root, for a mount namespace: %v: %s", err, out)
	}
	conn, err := net.ListenPacket("udp", address+":53")
	if err != nil {
		t.Skipf("needs port 53 of a loopback address: %v", err)
	}
	dns = &headless{first: first}
	var running sync.WaitGroup
	running.Go(func() { dns.serve(conn) })
	t.Cleanup(func() {
		_ = conn.Close()
		running.Wait()
	})
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver "+address+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dns, []string{"unshare", "-m", "sh", "-c", fmt.Sprintf("mount --bind %q /etc/resolv.conf && exec %q serve", resolv, program)}
}

// TestReplicasFromDNS: the name in REPLICAS_DNS has as many addresses as there are
// processes. While the store is frozen, each process admits its part of a limit, and
// soon another part when the number changes.
func TestReplicasFromDNS(t *testing.T) {
	t.Parallel()
	dns, command := nameServer(t, "127.0.53.17", [4]byte{10, 0, 0, 1})
	dns.replicas.Store(4)
	server := testenv.Redis(t)
	s := beginAs(t, command, onError, append(redisAt(server.Addr), "REPLICAS_DNS=rls-headless.default.svc")...)
	s.connect()
	testenv.Eventually(t, patience, s.healthy, "the program is healthy")
	server.Pause()
	admitted := func(user string) (n int) { // of 20
		for range 21 {
			if s.hit("d", desc("local", user)).Code == ok {
				n++
			}
		}
		return n
	}
	if n := admitted("first"); n != 5 {
		t.Errorf("one of 4 replicas admits %d of 20 hits, want 5", n)
	}
	dns.replicas.Store(2)
	last, began := 0, time.Now()
	testenv.Eventually(t, patience, func() bool {
		last = admitted(fmt.Sprint("again ", time.Since(began)))
		return last == 10
	}, "one of 2 replicas admits 10 of 20 hits")
	t.Logf("after %v", time.Since(began))
	server.Resume()
}
