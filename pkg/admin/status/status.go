// Package status knows how this process is doing: requests, denials, errors and
// latency of each second of the last 15 minutes and of steps of the last 6 hours, counts of each rule, the servers of
// the store, the rules in force and where they came from.
//
// [Status.Run] reads the counts of pkg/metrics once a second, and then makes the document
// that all listeners of [Status.Watch] get. Its memory is bounded: [maxHistories] rules
// have a history, and the others only totals.
//
// The package leaves tokens, routes and other methods than GET to package admin.
package status

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"example.org/rls/internal/bounded"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/metrics"
)

const (
	maxWarnings = 50
	maxRefusal  = 4 << 10 // bytes of the reason why rules were refused
)

// Options has the source of the counts of a Status, and its other facts.
type Options struct {
	Counts *metrics.Metrics
	// Facts has what stays as it is: Version, Installation, ShadowMode, Fleet, the Backend of the Store, and
	// the Source and the Path of the Rules.
	Facts Document
	// Servers gives the states of the store's servers. It is called once a second. nil
	// stands for a store in this process.
	Servers func() []Server
	// GrantsKnown reports whether the store has told the grants until a time; nil if it keeps none.
	GrantsKnown func() bool
	// Replicas is the number of processes that share the store; nil: it is not known.
	Replicas func() int
}

// Status knows how a process is doing. Its methods are safe for concurrent use.
type Status struct {
	options Options
	started time.Time

	listeners atomic.Int64
	latest    atomic.Pointer[update] // the newest event

	mu         sync.Mutex
	history    *history
	rules      map[metrics.RuleName]*past
	sparklines int // of rules
	inForce    InForce
	tree       *descriptors.Tree

	making      sync.Mutex              // guards the rest
	documents   map[time.Duration]*made // by the range of their history; 0: without one
	listOfRules made
}

// New returns a Status without a past.
func New(o Options) *Status {
	s := &Status{
		options: o, started: time.Now(), rules: map[metrics.RuleName]*past{},
		history: newHistory(), inForce: o.Facts.Rules,
		documents: map[time.Duration]*made{0: {}},
	}
	for _, length := range Ranges {
		s.documents[length] = new(made)
	}
	s.inForce.Warnings = []string{}
	s.latest.Store(newUpdate(nil))
	return s
}

// Loaded notes the outcome of a load of rules: the rules that come into force now with the warnings
// about them, or no rules, and why rules were refused or partly left out.
func (s *Status) Loaded(tree *descriptors.Tree, warnings []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := &s.inForce
	if in.Refused = ""; tree != nil {
		s.tree, in.Domains, in.Rules, in.Loaded = tree, len(tree.Domains()), tree.Rules(), new(time.Now())
		in.Warnings = append([]string{}, warnings[:min(len(warnings), maxWarnings)]...)
	}
	if err != nil {
		in.Refused = descriptors.Shortened(descriptors.Printable(err.Error()), maxRefusal)
	}
}

// Run ends each second, and then makes what [Status.Watch] sends, until ctx ends. Then it
// ends all listeners.
func (s *Status) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			s.publish(nil)
			close(s.latest.Load().newer) // for listeners that come later
			return nil
		// In the middle of a second of the clock, so that a tick that is a little early or
		// late falls into the right second.
		case <-time.After(untilMiddle(time.Now())):
			s.second(time.Now())
		}
	}
}

// untilMiddle is the time until a second of the clock is half over, more than 0.
func untilMiddle(now time.Time) time.Duration {
	const half = time.Second / 2
	return time.Second - now.Add(half).Sub(now.Add(half).Truncate(time.Second))
}

// second moves the counts since the last call into the past.
func (s *Status) second(now time.Time) {
	s.mu.Lock()
	took, ended := s.options.Counts.Took()
	from := s.history.advance(now.Unix(), took, ended, s.options.Counts.Failed())
	counted := 0
	s.options.Counts.Counted(func(r *metrics.RuleCounts) {
		counted++
		s.pastOf(r).advance(max(from, now.Unix()-historySeconds+1), now.Unix(), r.Ended())
	})
	if counted < len(s.rules) { // the others were forgotten
		maps.DeleteFunc(s.rules, func(_ metrics.RuleName, p *past) bool { return p.at != now.Unix() })
	}
	s.mu.Unlock()
	d := s.describe(now)
	s.mu.Lock()
	s.history.judged(d.Health, now)
	s.mu.Unlock()
	if s.listeners.Load() > 0 {
		d.Second, d.Rates = s.newest(), s.rates(now)
		s.publish(marshal(d))
	}
}

// pastOf finds or makes the past of a rule, with a sparkline while the rule is in force.
func (s *Status) pastOf(r *metrics.RuleCounts) *past {
	p := s.rules[r.RuleName]
	if p == nil || p.of != r {
		p = &past{of: r, seconds: bounded.NewRing[ends](rateSeconds + 1)}
		s.rules[r.RuleName] = p
	}
	switch has := p.bins != nil; {
	case has && !r.InForce():
		p.bins = nil
		s.sparklines--
	case !has && r.InForce() && s.sparklines < maxHistories:
		p.bins = []binned{{binSeconds, bounded.NewRing[ends](bins + 1)}}
		for range bins + 1 {
			*p.bins[0].ends.Next() = p.seconds.Back(0)
		}
		s.sparklines++
	}
	return p
}

// made is JSON that was made in one second for all who ask in it.
type made struct {
	at   int64
	page page // of rules
	json []byte
}

// once makes JSON of a value unless that was done in this second.
func (s *Status) once(m *made, asked page, value func(now time.Time) any) []byte {
	now := time.Now()
	s.making.Lock()
	defer s.making.Unlock()
	if m.at != now.Unix() || m.page != asked {
		*m = made{now.Unix(), asked, marshal(value(now))}
	}
	return m.json
}

func marshal(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // the types have no values that JSON lacks
	}
	return text
}

// JSON is a [Document], which has Rates and the History of a range, one of [Ranges], unless the range
// is 0. Each of these forms is made at most once a second.
func (s *Status) JSON(history time.Duration) []byte {
	return s.once(s.documents[history], page{}, func(now time.Time) any {
		d := s.describe(now)
		if history > 0 {
			d.History, d.Rates = s.columns(history), s.rates(now)
		}
		return d
	})
}

// RulesJSON is a [Listing]: of the rules that have all words of q, in any case, n rules
// after the first offset. Callers that ask for the same page share a document for a second.
func (s *Status) RulesJSON(q string, n, offset int) []byte {
	asked := page{q, n, offset}
	return s.once(&s.listOfRules, asked, func(now time.Time) any { return s.listing(now, asked) })
}

// update is an event for all listeners.
type update struct {
	json  []byte        // nil ends the listeners
	newer chan struct{} // closed when there is a newer update, or none will be
}

func newUpdate(json []byte) *update { return &update{json: json, newer: make(chan struct{})} }

// publish gives all listeners an event.
func (s *Status) publish(json []byte) { close(s.latest.Swap(newUpdate(json)).newer) }

// Watch gives a [Document] with the history as JSON, and then one a second with the newest
// second, until ctx or Run ends. A listener that is too slow misses events. The texts are
// shared by all listeners and must not be changed.
func (s *Status) Watch(ctx context.Context) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		s.listeners.Add(1)
		defer s.listeners.Add(-1)
		at := s.latest.Load()
		for text := s.JSON(Ranges["15m"]); yield(text); text = at.json {
			select {
			case <-ctx.Done():
				return
			case <-at.newer:
			}
			if at = s.latest.Load(); at.json == nil {
				return
			}
		}
	}
}
