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

// channelz tells the state of a connection's socket, whatever wraps it.
func TestChannelzTellsOfSockets(t *testing.T) {
	certs := testenv.Certs(t)
	for name, tt := range map[string]struct {
		tls   bool
		guard int
	}{"plain": {false, 0}, "plain, guarded": {false, 500}, "TLS": {true, 0}, "TLS, guarded": {true, 500}} {
		cfg := config()
		cfg.GRPC.Channelz, cfg.GRPC.MaxCancellationsPerSecond = true, tt.guard
		creds := insecure.NewCredentials()
		if tt.tls {
			cfg.GRPC.ServerUseTLS, cfg.GRPC.ServerTLSCert, cfg.GRPC.ServerTLSKey = true, certs.ServerCertFile, certs.ServerKeyFile
			creds = credentials.NewTLS(certs.Client)
		}
		s := start(t, cfg)
		port := s.Addrs().GRPC.(*net.TCPAddr).Port
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
