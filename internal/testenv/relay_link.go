package testenv

import (
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// link is a connection of a client and its continuation to the server.
type link struct {
	relay     *Relay
	down, up  net.Conn
	forgotten bool // guarded by the relay
	once      sync.Once
	ended     chan struct{} // closed with the link
}

// chunk is a piece of a stream and the moment at which it arrives.
type chunk struct {
	bytes []byte
	at    time.Time
}

// pipe passes on from one side to the other until a side is closed, and then
// closes both. A forgotten link stays open until its relay ends.
func (k *link) pipe(to, from net.Conn, replies bool) {
	const bound = 1 << 10 // chunks under way, before the sender is held up
	way := make(chan chunk, bound)
	k.relay.running.Go(func() {
		defer close(way)
		for buf, last := make([]byte, 64<<10), (time.Time{}); ; {
			n, err := from.Read(buf)
			if n > 0 {
				// Later chunks do not overtake.
				if at := time.Now().Add(k.relay.journey()); at.After(last) {
					last = at
				}
				select {
				case way <- chunk{append([]byte(nil), buf[:n]...), last}:
				case <-k.ended:
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	for c := range way {
		switch {
		case !k.until(c.at) || !k.passes(): // reads on to the end
		case replies && k.relay.loses():
			reset(k.down)
			k.close()
		default:
			if !replies {
				k.relay.watcher()(c.bytes)
			}
			_, _ = to.Write(c.bytes) // if this fails, the other direction ends the link
		}
	}
	if k.passes() {
		k.close()
	}
}

// until waits for a moment. It reports whether the link is still open then.
func (k *link) until(at time.Time) bool {
	wait := time.Until(at)
	if wait <= 0 {
		return true
	}
	select {
	case <-time.After(wait):
		return true
	case <-k.ended:
		return false
	}
}

// passes waits while the relay is frozen. It reports whether the link still passes
// anything on then.
func (k *link) passes() bool {
	r := k.relay
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.frozen && !r.ended {
		r.thawed.Wait()
	}
	return !k.forgotten
}

func (k *link) close() {
	k.once.Do(func() {
		close(k.ended)
		_ = k.down.Close()
		_ = k.up.Close()
	})
}

func (r *Relay) watcher() func([]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watch
}

// loses reports whether the next chunk of replies is lost.
func (r *Relay) loses() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.came++
	lost := r.once || r.cut > 0 && r.came%r.cut == 0
	r.once = false
	return lost
}

// journey is how long the next chunk is under way.
func (r *Relay) journey() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, r.delay+time.Duration(rand.Int64N(int64(2*r.jitter+1)))-r.jitter)
}

// reset closes a connection with RST.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
