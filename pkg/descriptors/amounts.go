package descriptors

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"example.org/rls/pkg/algorithms"
)

// Amounts are the amounts of a limit that a request or a row gives. The limit's own amount stands for
// a field that is zero.
type Amounts struct {
	Requests   uint32
	Multiplier uint32
	Burst      uint32
	Unit       Unit
	Given      bool // Requests, which may be 0
}

// yields says which options of a limit give way to amounts that cannot have them.
type yields uint8

const (
	lease    yields = iota // to the amounts of a row
	defaults               // if settings gave the strategy, and perhaps the burst
	options                // to the amounts of a request
)

// giveWay changes the option of s in which [algorithms.New] finds a fault, its error err. It returns false
// if that does not give way.
func (y yields) giveWay(s *algorithms.Spec, err error) bool {
	var wrong *algorithms.SpecError
	if !errors.As(err, &wrong) {
		return false
	}
	before, fault := *s, wrong.Field
	switch log := s.Strategy == algorithms.SlidingLog; {
	case strings.HasPrefix(fault, "lease"):
		s.Lease = algorithms.Lease{}
	case y == lease:
	case fault == "burst":
		s.Burst = 0 // the strategy's own
	case fault == "requests_per_unit" && log:
		s.Strategy = algorithms.SlidingWindow
	case y == defaults:
		s.Strategy, s.Burst = algorithms.FixedWindow, 0
	case fault == "requests_per_unit":
		s.Requests = min(s.Requests, algorithms.MaxLogRequests)
	case fault == "overdraft":
		s.Overdraft = algorithms.FullOverdraft
	}
	return *s != before
}

// with is l with other amounts and the options of spec; the options that y names may give way. It
// returns the errors of [algorithms.New].
func (l Limit) with(spec algorithms.Spec, a Amounts, y yields) (Limit, error) {
	if a.Given {
		l.WrittenRequests, spec.Requests = a.Requests, l.Share.Of(a.Requests)
	}
	if spec.Burst = l.WrittenBurst; a.Burst > 0 {
		spec.Burst = l.Share.Of(a.Burst)
	}
	l.Unit, l.Multiplier = cmp.Or(a.Unit, l.Unit), cmp.Or(a.Multiplier, l.Multiplier)
	spec.Window = time.Duration(l.Multiplier) * l.Unit.Duration()
	for {
		made, err := algorithms.New(spec)
		if err == nil || !y.giveWay(&spec, err) {
			l.Limit, l.WrittenBurst = made, spec.Burst
			return l, err
		}
	}
}

// Window is the window of that many units, or what is wrong with it.
func (u Unit) Window(multiplier uint32, calendar bool) (time.Duration, *algorithms.SpecError) {
	wrong := ""
	switch longest := algorithms.MaxWindow / u.Duration(); {
	case time.Duration(multiplier) > longest:
		wrong = fmt.Sprintf("must be at most %d for the unit %s: a window is at most 10 years", longest, strings.ToLower(u.String()))
	case calendar && multiplier > 1:
		wrong = fmt.Sprintf("must be 1 with `window: calendar`, whose windows are one %s long", strings.ToLower(u.String()))
	default:
		return time.Duration(multiplier) * u.Duration(), nil
	}
	return 0, &algorithms.SpecError{Field: "unit_multiplier", Message: wrong}
}

// With returns l with the amounts of a row. A limit without a unit needs requests and a unit. Where
// the amounts cannot have a strategy and burst that give way, the burst is the strategy's, or the
// strategy another one; a lease whose share is less than one hit is left out. The error is an
// [algorithms.SpecError].
func (l *Limit) With(a Amounts) (Limit, error) {
	const missing = "is missing, and the rule is unlimited and has none"
	switch {
	case l.Unit.Valid():
	case !a.Given:
		return *l, &algorithms.SpecError{Field: "requests_per_unit", Message: missing}
	case !a.Unit.Valid():
		return *l, &algorithms.SpecError{Field: "unit", Message: missing}
	}
	if _, wrong := cmp.Or(a.Unit, l.Unit).Window(cmp.Or(a.Multiplier, l.Multiplier), l.Calendar.On); wrong != nil {
		return *l, wrong
	}
	y := lease
	if l.GivesWay && a.Burst == 0 {
		y = defaults
	}
	return l.with(l.Spec, a, y)
}

// Override returns a copy of l that allows requests hits per multiplier × unit: the
// limit that a request brings along (Envoy's limit override). The copy has l.Share of
// the requests. It has no Name and no Replaces, because an override neither replaces a
// limit nor is replaced, is enforced for every key, and keeps everything else. A Limit
// without an [algorithms.Limit] stands for a fixed_window.
//
// Some options give way instead of failing the request. More requests than a
// sliding_log can remember are decided by a sliding_window. A burst that would
// need more than 100 years to refill at the new rate becomes the strategy's
// default, and a debt that would need longer that of `overdraft: true`. A limit of
// concurrency has at most [algorithms.MaxLogRequests] slots. A lease whose share is less
// than one hit is left out. So is a calendar whose
// periods are not as long as the window, and a start of weeks, months or years which is
// of another unit.
//
// The error says which of unit and multiplier is wrong and what would be right.
func (l *Limit) Override(requests uint32, unit Unit, multiplier uint32) (Limit, error) {
	if !unit.Valid() {
		return Limit{}, fmt.Errorf("unit %d is unknown; want SECOND (1), MINUTE (2), HOUR (3), DAY (4), MONTH (5), YEAR (6) or WEEK (7)", unit)
	}
	if longest := uint32(algorithms.MaxWindow / unit.Duration()); multiplier == 0 || multiplier > longest {
		return Limit{}, fmt.Errorf("unit_multiplier is %d; want 1 to %d with %s", multiplier, longest, unit)
	}
	copied, spec := Limit{OnError: l.OnError}, algorithms.Spec{}
	if l.Limit != nil {
		copied, spec = *l, l.Spec
		copied.Name, copied.Replaces, copied.Shadow, copied.WatchedPart, copied.As = "", nil, false, 0, nil
	}
	spec.Mark, spec.Calendar = "", spec.Calendar.For(time.Duration(multiplier)*unit.Duration())
	return copied.with(spec, Amounts{Requests: requests, Given: true, Unit: unit, Multiplier: multiplier}, options)
}
