package server_test

import (
	"net"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"example.org/rls/internal/testenv"
)

// accepted returns the server's end of a connection of this process.
func accepted(t *testing.T, client net.Conn) (fd int, found bool) {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	port := client.LocalAddr().(*net.TCPAddr).Port
	for _, file := range files {
		fd, err := strconv.Atoi(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		if peer, err := unix.Getpeername(fd); err != nil {
			continue // no connection
		} else if peer, ok := peer.(*unix.SockaddrInet4); ok && peer.Port == port {
			return fd, true
		}
	}
	return 0, false
}

// A client that is cut off, or does not read, is not waited for as long as the
// system would.
func TestUserTimeout(t *testing.T) {
	s := start(t, allListeners())
	a := s.Addrs()
	for name, addr := range map[string]net.Addr{"gRPC": a.GRPC, "HTTP": a.HTTP, "debug": a.Debug, "metrics": a.Metrics} {
		client, err := net.Dial("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		var fd int
		testenv.Eventually(t, deadline, func() (found bool) {
			fd, found = accepted(t, client)
			return found
		}, name+": accepted")
		if ms, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); err != nil || ms != 20_000 {
			t.Errorf("%s: %d ms, %v", name, ms, err)
		}
	}
}
