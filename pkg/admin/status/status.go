// Package status knows how this process is doing: requests, denials, errors and
// latency of each second of the last 15 minutes, the same for each rule, the servers of
// the store, the rules in force and where they came from.
//
// [Status] is a [service.Observer]. On the way of a request it does one atomic addition,
// and one for each descriptor that has a limit; everything else happens once a second in
// [Status.Run], also the document that all listeners of [Status.Watch] get. Its memory
// is bounded: [maxHistories] rules have a history, and the others only totals.
//
// The package leaves tokens, routes and other methods than GET to package admin.
package status

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// Options says what a Status tells besides its own counts.
type Options struct {
	Version string
	// Backend is the kind of store: memory, redis, memcache.
	Backend string
	// Servers gives the states of the store's servers. It is called once a second. nil
	// stands for a store in this process.
	Servers func() []Server
	// Replicas is the number of processes that share the store; nil: it is not known.
	Replicas func() int
	// Source says where rules come from: file or xds, and the folder or the server.
	Source, Path string
	// ShadowMode: the service denies nothing.
	ShadowMode bool
}

// Status counts what a process does. Its methods are safe for concurrent use.
type Status struct {
	options Options
	started time.Time

	// requests counts requests by how they ended and by how long they took.
	requests [kinds][buckets]atomic.Uint64
	// rules maps *descriptors.Rule to *tally, so that a request takes no lock. Each set
	// of rules gets a new map, because the old one refers to the old rules.
	rules atomic.Pointer[sync.Map]

	listeners atomic.Int64
	latest    atomic.Pointer[update] // the newest event

	mu        sync.Mutex        // held for moments, because requests may wait for it
	tallies   map[string]*tally // by the path of the rule
	histories int               // of tallies
	history   *history
	force     force

	making      sync.Mutex // guards the rest
	document    made
	beginning   made // of the events of a listener
	listOfRules made
}

// The ways in which a request ends.
const (
	passed = iota
	denied
	failed // refused or not decided
	kinds
)

// New returns a Status that has seen nothing.
func New(o Options) *Status {
	s := &Status{options: o, started: time.Now(), tallies: map[string]*tally{}, history: newHistory()}
	s.rules.Store(new(sync.Map))
	s.latest.Store(newUpdate(nil))
	return s
}

// Observe implements [service.Observer].
func (s *Status) Observe(o *service.Observation) {
	s.requests[min(o.Result, failed)][bucketOf(o.Took)].Add(1)
	for i := 0; i < len(o.Verdicts); {
		i += s.descriptor(o.Verdicts[i:])
	}
}

// descriptor counts the first descriptor of the verdicts, which has a verdict for each of
// its limits. It returns their number.
func (s *Status) descriptor(verdicts []service.Verdict) (limits int) {
	first := &verdicts[0]
	kind := passed
	for ; limits < len(verdicts) && (limits == 0 || first.SameDescriptor(&verdicts[limits])); limits++ {
		switch v := &verdicts[limits]; {
		case v.Decided && !v.Is.Allowed:
			kind = denied
		case !v.Decided && kind == passed:
			kind = failed
		}
	}
	if first.Rule != nil {
		s.tally(first.Rule).counts[kind].Add(1)
	}
	return limits
}

// Rules implements [service.Observer]: it notes the rules that come into force now.
// Rules that were in force before keep their counts.
func (s *Status) Rules(tree *descriptors.Tree) {
	here := map[string]bool{}
	tree.Each(func(_ *descriptors.Domain, r *descriptors.Rule) { here[r.Path] = true })
	s.mu.Lock()
	defer s.mu.Unlock()
	for path, t := range s.tallies {
		if !here[path] {
			delete(s.tallies, path)
			if t.bins.slots != nil {
				s.histories--
			}
		}
	}
	s.rules.Store(new(sync.Map))
	s.force.tree, s.force.rules, s.force.loaded = tree, len(here), time.Now()
	s.force.hash = sync.OnceValue(func() string { return fmt.Sprintf("%016x", tree.Hash()) })
}

// Loaded notes the outcome of a load of rules: nil, or why the rules were refused or
// partly left out.
func (s *Status) Loaded(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.force.refused = ""
	if err != nil {
		s.force.refused = short(err.Error(), maxRefusal)
	}
}

// Warned notes the warnings about the rules that come into force next.
func (s *Status) Warned(warnings []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.force.warnings = warnings[:min(len(warnings), maxWarnings)]
}

// Run ends each second, and then makes what [Status.Watch] sends, until ctx ends. Then it
// ends all listeners.
func (s *Status) Run(ctx context.Context) error {
	// In the middle of a second of the clock, so that a tick that is a little early or
	// late falls into the right second.
	timer := time.NewTimer(untilMiddle(time.Now()))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			s.end()
			return nil
		case <-timer.C:
			now := time.Now()
			s.second(now)
			timer.Reset(untilMiddle(now))
		}
	}
}

// untilMiddle is the time until a second of the clock is half over, more than 0.
func untilMiddle(now time.Time) time.Duration {
	const half = time.Second / 2
	return time.Second - now.Add(half).Sub(now.Add(half).Truncate(time.Second))
}

// second moves the counts since the last call into the histories.
func (s *Status) second(now time.Time) {
	s.mu.Lock()
	s.history.advance(now.Unix(), &s.requests)
	for _, t := range s.tallies {
		t.advance(now.Unix())
	}
	s.mu.Unlock()
	if s.listeners.Load() > 0 {
		s.publish(s.event(now))
	}
}

const (
	maxWarnings = 50
	maxRefusal  = 4 << 10
)

// short cuts a text at a limit of bytes.
func short(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…"
}
