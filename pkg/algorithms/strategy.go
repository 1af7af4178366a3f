package algorithms

import (
	"slices"
	"strings"

	"example.org/rls/pkg/backends"
)

// Strategy names a way to count.
type Strategy uint8

// The strategies; docs/strategies.md says when to choose which.
const (
	FixedWindow Strategy = iota
	SlidingWindow
	SlidingLog
	TokenBucket
	GCRA
	LeakyBucket
	Concurrency
)

// row is one strategy.
type row struct {
	name     string
	tag      string              // names the strategy in the cell's key
	burst    func(*Limit) uint32 // the default of Spec.Burst; nil if that has no meaning
	bucketed bool                // each window of the clock has a cell of its own
	paired   bool                // a decision reads the previous window's cell, too
	prepare  func(*Limit) error  // checks the spec further and derives values
	plan     func(*Limit, *backends.Op, Charge)
	judge    func(*Limit, *backends.Op, *backends.Reply) Decision
}

var table = [...]row{
	FixedWindow:   fixedWindow,
	SlidingWindow: slidingWindow,
	SlidingLog:    slidingLog,
	TokenBucket:   tokenBucket,
	GCRA:          gcra,
	LeakyBucket:   leakyBucket,
	Concurrency:   concurrency,
}

// String is the strategy's name in the rules: fixed_window, ...
func (s Strategy) String() string { return table[s].name }

// Names lists the strategies' names in the order of their constants.
func Names() []string {
	names := make([]string, len(table))
	for i := range table {
		names[i] = table[i].name
	}
	return names
}

// HasBurst reports whether the strategy has a burst. Rate and burst say all about
// such a strategy.
func (s Strategy) HasBurst() bool { return table[s].burst != nil }

// WithBurst lists the names of the strategies that have a burst.
func WithBurst() (names []string) {
	for i := range table {
		if table[i].burst != nil {
			names = append(names, table[i].name)
		}
	}
	return names
}

// NoBurst is the end of a message about a strategy that is given a burst and has none.
func NoBurst() string {
	names := WithBurst()
	last := len(names) - 1
	return "has no burst; " + strings.Join(names[:last], ", ") + " and " + names[last] + " have"
}

// ParseStrategy finds a strategy by its name in the rules.
func ParseStrategy(name string) (Strategy, error) {
	if i := slices.Index(Names(), name); i >= 0 {
		return Strategy(i), nil
	}
	return 0, &SpecError{"strategy", "unknown strategy \"" + name + "\": one of " + strings.Join(Names(), ", ")}
}
