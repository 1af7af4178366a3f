package simulation_test

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"time"
)

// A world is one run: its events happen one after the other, at the times of its
// own clock, and everything random comes from its seed. Nothing in it runs side by
// side or looks at the real time, so that a seed always gives the same run.
type world struct {
	rng     *rand.Rand
	now     int64 // µs since the epoch: the true time
	start   int64
	events  []event // by their times
	current *task
	ids     int // of reservations

	traced bool
	trace  strings.Builder
	failed []string
}

func newWorld(seed uint64, traced bool) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 0)), traced: traced}
	w.now = 1_800_000_000_000_000 + w.rng.Int64N(time.Hour.Microseconds())
	w.start = w.now
	return w
}

// event is something that happens at a time; events of one time happen in the
// order in which they were planned.
type event struct {
	at int64
	do func()
}

// after plans do for so many µs from now.
func (w *world) after(us int64, do func()) {
	e := event{w.now + max(us, 0), do}
	later := sort.Search(len(w.events), func(i int) bool { return w.events[i].at > e.at })
	w.events = slices.Insert(w.events, later, e)
}

// run lets events happen until there are none.
func (w *world) run() {
	for len(w.events) > 0 {
		e := w.events[0]
		w.events = w.events[1:]
		w.now = e.at
		e.do()
	}
}

// chance reports true once in n times.
func (w *world) chance(n int) bool { return w.rng.IntN(n) == 0 }

// between is a number of µs from low to high.
func (w *world) between(low, high time.Duration) int64 {
	return low.Microseconds() + w.rng.Int64N(max(1, (high-low).Microseconds()))
}

// say writes a line of the trace.
func (w *world) say(format string, args ...any) {
	if w.traced {
		fmt.Fprintf(&w.trace, "%11.6f  %s\n", float64(w.now-w.start)/1e6, fmt.Sprintf(format, args...))
	}
}

// fail notes that an invariant does not hold.
func (w *world) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.failed = append(w.failed, text)
	w.say("FAILED: %s", text)
}

// A task is code of the program that waits for answers in the middle: a coroutine,
// which runs only while the world waits for it.
type task struct {
	next  func() (struct{}, bool)
	yield func(struct{}) bool
}

// spawn runs f as a task until its first wait.
func (w *world) spawn(f func()) {
	t := &task{}
	t.next, _ = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		f()
	})
	w.resume(t)
}

// wait ends the turn of the current task. The event that resumes it was planned
// before, or will be.
func (w *world) wait() {
	t := w.current
	t.yield(struct{}{})
}

func (w *world) resume(t *task) {
	before := w.current
	w.current = t
	t.next()
	w.current = before
}
