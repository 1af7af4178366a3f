package server

import (
	"net"
	"runtime"
	"sync/atomic"
	"testing"
)

// storm is a listener with a client at every Accept.
type storm struct{ net.Listener }

func (storm) Accept() (net.Conn, error) { return storming{}, nil }

type storming struct{ net.Conn }

// However fast clients connect, connections are not accepted faster than their
// goroutines run, behind which calls on other connections would have to wait.
func TestAcceptLetsOthersGoFirst(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const connections, most = 10_000, 100
	h := newHandshakes(storm{})
	var ran atomic.Int64
	for accepted := range int64(connections) {
		if waiting := accepted - ran.Load(); waiting > most {
			t.Fatalf("%d of %d accepted connections wait for their goroutine, want at most %d", waiting, accepted, most)
		}
		if _, err := h.Accept(); err != nil {
			t.Fatal(err)
		}
		go ran.Add(1)
	}
}
