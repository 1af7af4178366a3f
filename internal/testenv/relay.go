package testenv

import (
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// Relay is a network between clients and a server that a test watches and breaks.
// A new Relay passes everything on. Its methods are safe for concurrent use.
type Relay struct {
	// Addr is where clients connect: host:port, or the path of a socket.
	Addr string

	t        testing.TB
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	target string
	links  []*link // all connections since the start
	hole   *hole   // while new connections are dropped
	frozen bool
	thawed *sync.Cond // frozen or ended has changed
	ended  bool
	watch  func(request []byte)
	delay  time.Duration // each way
	jitter time.Duration // at most this much more or less than delay
	cut    int           // one chunk of replies in so many is lost; 0 loses none
	came   int           // chunks of replies since cut was set
	once   bool          // the next chunk of replies is lost
}

// NewRelay starts a relay to target, the host:port of a server. It ends with the
// test.
func NewRelay(t testing.TB, target string) *Relay {
	t.Helper()
	return RelayAt(t, "tcp", "127.0.0.1:0", target)
}

// RelayAt is NewRelay with the address of the relay: network is tcp or unix.
func RelayAt(t testing.TB, network, address, target string) *Relay {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatalf("testenv: relay to %s: %v", target, err)
	}
	r := &Relay{Addr: l.Addr().String(), t: t, listener: l, target: target, watch: func([]byte) {}}
	r.thawed = sync.NewCond(&r.mu)
	r.running.Go(r.accept)
	t.Cleanup(r.close)
	return r
}

// locked changes the relay.
func (r *Relay) locked(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// Watch has f called with each chunk that clients send, before the chunk goes on.
// F must be safe for concurrent use.
func (r *Relay) Watch(f func(request []byte)) { r.locked(func() { r.watch = f }) }

// To has new connections lead to target.
func (r *Relay) To(target string) { r.locked(func() { r.target = target }) }

// Opened is the number of connections that clients have opened so far.
func (r *Relay) Opened() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.links)
}

// Freeze accepts new connections and holds everything that either side sends,
// until Heal.
func (r *Relay) Freeze() { r.locked(func() { r.frozen = true }) }

// Forget drops everything that is sent from now on over the connections that have
// carried something, and tells neither side: their peer has vanished without FIN
// or RST. New connections pass.
func (r *Relay) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range r.links {
		k.forgotten = true
	}
}

// BlackHole is Forget, and also drops the SYN of new connections until Heal, so
// that they time out. Only TCP has SYNs.
func (r *Relay) BlackHole() {
	r.t.Helper()
	r.Forget()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hole != nil {
		return
	}
	hole, err := dig(r.listener.(*net.TCPListener))
	if err != nil {
		r.t.Fatalf("testenv: black hole at %s: %v", r.Addr, err)
	}
	r.hole = hole
}

// CutEvery loses each nth chunk of replies and resets the connection on which it
// would have come: the server has done its work, and its client does not know.
// 0 loses none.
func (r *Relay) CutEvery(n int) { r.locked(func() { r.cut, r.came = n, 0 }) }

// Cut loses the next chunk of replies and resets its connection, as CutEvery does.
func (r *Relay) Cut() { r.locked(func() { r.once = true }) }

// Slow delays everything that is sent from now on, each way, by delay plus or
// minus jitter. The order is kept.
func (r *Relay) Slow(delay, jitter time.Duration) {
	r.locked(func() { r.delay, r.jitter = delay, jitter })
}

// Heal ends every fault. Connections that were forgotten stay so.
func (r *Relay) Heal() {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay, r.jitter, r.cut, r.frozen = 0, 0, 0, false
	r.thawed.Broadcast()
	if err := r.hole.fill(); err != nil {
		r.t.Fatalf("testenv: heal the relay at %s: %v", r.Addr, err)
	}
	r.hole = nil
}

func (r *Relay) accept() {
	for {
		down, err := r.listener.Accept()
		r.mu.Lock()
		hole, target := r.hole, r.target
		r.mu.Unlock()
		switch {
		case hole != nil:
			if err == nil {
				hole.keep(down) // it came while the hole was dug
			}
			<-hole.filled
		case err == nil:
			r.connect(down, target)
		case !os.IsTimeout(err): // else the hole that woke it is filled by now
			return
		}
	}
}

func (r *Relay) connect(down net.Conn, target string) {
	up, err := net.Dial("tcp", target)
	if err != nil {
		reset(down)
		return
	}
	k := &link{relay: r, down: down, up: up, ended: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ended:
		k.close()
		return
	case r.hole != nil:
		k.forgotten = true
	}
	r.links = append(r.links, k)
	r.running.Go(func() { k.pipe(up, down, false) })
	r.running.Go(func() { k.pipe(down, up, true) })
}

func (r *Relay) close() {
	r.mu.Lock()
	r.ended = true
	_ = r.listener.Close()
	_ = r.hole.fill()
	r.hole = nil
	r.thawed.Broadcast()
	for _, k := range r.links {
		k.close()
	}
	r.mu.Unlock()
	r.running.Wait()
}
