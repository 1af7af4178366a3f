package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/near"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/operate"
)

// clockEvery is the time between two measurements of the server's clock, µs.
const clockEvery = 5_000_000

// decisionTimeout is how long a decision waits for the server, µs.
const decisionTimeout = 150_000

// network is the way between processes and the server.
type network struct {
	min, max time.Duration // each way
	loses    int           // one message in so many; 0 loses none
}

// A process is a replica of the service: its real code over a wire to the server.
type process struct {
	*world
	name     string
	server   *server
	network  network
	offset   int64 // of its clock from the true time, µs
	follows  bool  // the server's clock
	service  *service.Service
	operator *operate.Operator
	near     *near.Store
}

var errLost = errors.New("no answer in time")
var errRefused = errors.New("connection refused")

type options struct {
	network    network
	processes  int
	follows    bool
	skew       time.Duration // of clocks that do not follow the server's
	localCache bool
	leases     bool
	local      bool
}

func newProcess(w *world, name string, s *server, o *options, tree *descriptors.Tree, oracle *oracle) *process {
	p := &process{world: w, name: name, server: s, network: o.network, follows: o.follows}
	p.near = near.New(wire{p}, near.Options{
		Timeout: time.Second, Deny: o.localCache, Replicas: func() int { return o.processes },
		Go: func(work func() error) bool {
			w.after(1, func() { w.spawn(func() { _ = work() }) })
			return true
		},
	})
	svc := service.New(service.Config{Store: &watched{p.near, p, oracle}, Local: o.local})
	svc.SetTree(tree)
	p.service, p.operator = svc, operate.New(svc, strings.Clone)
	if o.follows {
		p.measure()
	} else {
		p.offset = w.between(-o.skew, o.skew)
	}
	w.say("%s: its clock is %d µs ahead", name, p.offset)
	return p
}

// measure takes over the server's clock, with the error of a round trip.
func (p *process) measure() {
	if p.server.state == up {
		p.offset = p.server.clock + p.between(-p.network.max/2, p.network.max/2)
	}
}

// tick does the background work of a process.
func (p *process) tick() {
	p.near.Sweep()
}

// wire is the store as a process sees it: over the network.
type wire struct{ *process }

var _ backends.Store = wire{}

func (p wire) Now() int64                 { return p.now + p.offset }
func (p wire) Ping(context.Context) error { return nil }
func (p wire) Close() error               { return nil }

// Apply sends b and waits for the answer. The call goes on after its time is over.
func (p wire) Apply(_ context.Context, b *backends.Batch) error {
	ops, all, answered := slices.Clone(b.Ops), b.AllOrNothing, false
	t := p.current
	answer := func(do func()) {
		if !answered {
			answered = true
			do()
			p.resume(t)
		}
	}
	var err error
	back := func(replies *backends.Batch, failure error) {
		if p.lost() {
			p.say("%s: an answer is lost", p.name)
			return
		}
		p.after(p.travel(), func() {
			answer(func() {
				if err = failure; err == nil {
					copy(b.Replies, replies.Replies)
					b.Refused = replies.Refused
				}
			})
		})
	}
	arrive := func() { back(p.server.receive(ops, all), nil) }
	if p.lost() {
		p.say("%s: a call is lost", p.name)
	} else {
		p.after(p.travel(), func() {
			switch p.server.state {
			case up:
				arrive()
			case down:
				back(nil, errRefused)
			case frozen:
				p.server.held = append(p.server.held, arrive)
			}
		})
	}
	p.after(decisionTimeout, func() { answer(func() { err = errLost }) })
	p.wait()
	if err != nil {
		return b.Fail(fmt.Errorf("%w: %w", backends.ErrUnavailable, err))
	}
	// Decide sets the fields of the batch that only this process has.
	b.Decide()
	return nil
}

func (p *process) lost() bool { return p.network.loses > 0 && p.chance(p.network.loses) }

func (p *process) travel() int64 { return p.between(p.network.min, p.network.max) }

// watched tells the oracle what the service is told.
type watched struct {
	backends.Store
	process *process
	oracle  *oracle
}

func (w *watched) Apply(ctx context.Context, b *backends.Batch) error {
	asked := w.process.now
	era, faults := w.process.server.era, w.process.server.faults
	for i := range b.Ops {
		w.oracle.asks(&b.Ops[i])
	}
	err := w.Store.Apply(ctx, b)
	for i := range b.Ops {
		w.oracle.told(w.process, b, i, asked, era, faults)
	}
	return err
}
