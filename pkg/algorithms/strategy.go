package algorithms

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/rls/pkg/backends"
)

var table = [...]row{
	FixedWindow:   fixedWindow,
	SlidingWindow: slidingWindow,
	SlidingLog:    slidingLog,
	TokenBucket:   tokenBucket,
	GCRA:          cellRate,
	LeakyBucket:   leakyBucket,
	Concurrency:   slots,
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

// New checks spec. Its error is a *SpecError.
func New(spec Spec) (*Limit, error) {
	if int(spec.Strategy) >= len(table) {
		return nil, &SpecError{"strategy", fmt.Sprintf("unknown strategy %d", spec.Strategy)}
	}
	row := &table[spec.Strategy]
	l := &Limit{Spec: spec, row: row, window: spec.Window.Microseconds()}
	if spec.Window <= 0 || spec.Window > MaxWindow || spec.Window%time.Second != 0 {
		return nil, &SpecError{"unit_multiplier", fmt.Sprintf("a window of %v is out of range: whole seconds, more than 0, at most 10 years", spec.Window)}
	}
	if err := l.checkOptions(); err != nil {
		return nil, err
	}
	switch {
	case l.Precision > 0:
		l.row = &parts
	case l.Calendar.On:
		l.row = &periods
	}
	l.tag = l.row.tag
	l.cell = backends.Limit{
		Kind: l.row.kind, PerSecond: l.Window == time.Second,
		Den: 1, Unit: backends.Amount{Whole: 1}, Window: l.window,
	}
	if err := l.row.prepare(l); err != nil {
		return nil, err
	}
	if err := l.prepareOverdraft(); err != nil {
		return nil, err
	}
	l.bucketed = l.row.bucketed && !l.FromFirstHit
	if l.Reserve.TTL > 0 { // earlier builds cannot read a cell with open reservations
		l.tag += "h"
	}
	l.tag = "|" + l.tag + cmp.Or(l.Calendar.Unit(l.Window), formatWindow(l.Window))
	if row.burst != nil && !l.overdraws() {
		l.tag += l.terms()
	}
	if err := l.prepareLease(); err != nil {
		return nil, err
	}
	l.prepareGrant()
	l.prepareOnDemand()
	return l, nil
}

// checkOptions refuses options that the strategy would ignore.
func (l *Limit) checkOptions() error {
	switch {
	case l.Burst != 0 && l.row.burst == nil:
		return &SpecError{"burst", l.row.name + " " + NoBurst()}
	case l.MaxDelay != 0 && l.Strategy != LeakyBucket:
		return &SpecError{"max_delay", l.row.name + " never delays; leaky_bucket does"}
	case l.MaxDelay < 0 || l.MaxDelay > time.Minute || l.MaxDelay%time.Microsecond != 0:
		return &SpecError{"max_delay", "must be between 1us and 1m"}
	case l.FromFirstHit && l.Strategy != FixedWindow:
		return &SpecError{"window", "from_first_hit is an option of fixed_window, not of " + l.row.name}
	case l.Extend && !l.FromFirstHit:
		return &SpecError{"extend", "needs strategy fixed_window with `window: from_first_hit`"}
	case l.Precision > 0 && l.Strategy != SlidingWindow:
		return &SpecError{"precision", "is an option of sliding_window, not of " + l.row.name}
	case l.Precision == 1 || l.Precision > MaxPrecision:
		return &SpecError{"precision", fmt.Sprintf("must be between 2 and %d", MaxPrecision)}
	}
	return cmp.Or(l.checkCalendar(), l.checkOverdraft(), l.checkReserve())
}
