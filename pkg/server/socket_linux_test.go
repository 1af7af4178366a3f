package server_test

import (
	"net"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/grpc_channelz_v1"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

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

// The system closes the connection of a client that is cut off, or does not
// read, sooner than by default, which is after 15 minutes.
func TestUserTimeout(t *testing.T) {
	s := start(t, options())
	for _, name := range []string{"gRPC", "HTTP"} {
		client, err := net.Dial("tcp", s.Addr(name).String())
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

// channelz shows the options of a connection's socket, whatever wraps the
// connection.
func TestChannelzTellsOfSockets(t *testing.T) {
	certs := testenv.Certs(t)
	for name, tt := range map[string]struct {
		tls   bool
		guard int
	}{"plain": {false, 0}, "plain, guarded": {false, 500}, "TLS": {true, 0}, "TLS, guarded": {true, 500}} {
		o := options()
		o.GRPC.Channelz, o.GRPC.MaxCancellationsPerSecond = true, tt.guard
		creds := insecure.NewCredentials()
		if tt.tls {
			o.GRPC.TLS = certs.Server
			creds = credentials.NewTLS(certs.Client)
		}
		s := start(t, o)
		port := s.Addr("gRPC").(*net.TCPAddr).Port
		client := channelz.NewChannelzClient(s.dial(t, grpc.WithTransportCredentials(creds)))
		servers, err := client.GetServers(t.Context(), &channelz.GetServersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		told := map[string]bool{}
		for _, server := range servers.Server { // of the whole process
			sockets, err := client.GetServerSockets(t.Context(), &channelz.GetServerSocketsRequest{ServerId: server.Ref.ServerId})
			if err != nil {
				t.Fatal(err)
			}
			for _, ref := range sockets.SocketRef {
				resp, err := client.GetSocket(t.Context(), &channelz.GetSocketRequest{SocketId: ref.SocketId})
				if err != nil || int(resp.Socket.Local.GetTcpipAddress().GetPort()) != port {
					continue
				}
				for _, option := range resp.Socket.Data.Option {
					told[option.Name] = true
				}
			}
		}
		if !told["TCP_INFO"] {
			t.Errorf("%s: told of %v", name, told)
		}
	}
}
