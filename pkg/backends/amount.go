package backends

import (
	"math"
	"math/bits"
)

// Amount is a value in units and a fraction of a unit, Whole + Frac/Den with
// Den given by the operation and 0 <= Frac < Den. Counters and lists have no
// fraction. Meters need one because a window divided by its requests is seldom
// a whole number of microseconds, and the rounding errors of many hits would add
// up.
type Amount struct {
	Whole int64
	Frac  int64
}

// MaxValue bounds every count: cells saturate here instead of wrapping. It is below 2^53,
// exact in doubles, and far above any limit (2^32 - 1).
const MaxValue int64 = 1 << 52

// Less reports whether a < b. Both must have the same denominator.
func (a Amount) Less(b Amount) bool {
	return a.Whole < b.Whole || a.Whole == b.Whole && a.Frac < b.Frac
}

// Add returns a + b over the denominator den, saturated at MaxInt64.
func (a Amount) Add(b Amount, den int64) Amount {
	w, f := a.Whole+b.Whole, a.Frac+b.Frac
	if a.Whole > 0 && b.Whole > 0 && w < 0 {
		return Amount{Whole: math.MaxInt64}
	}
	if f >= den {
		w, f = w+1, f-den
	}
	return Amount{w, f}
}

// Sub returns a - b over the denominator den.
func (a Amount) Sub(b Amount, den int64) Amount {
	w, f := a.Whole-b.Whole, a.Frac-b.Frac
	if f < 0 {
		w, f = w-1, f+den
	}
	return Amount{w, f}
}

var (
	// NoMax is an Op.Max above every value: the step always charges.
	NoMax = Amount{Whole: math.MaxInt64}
	// NoRoom is an Op.Max below every value, also below credit: the step never charges.
	NoRoom = Amount{Whole: -MaxValue}
)

// Ceil is the amount rounded up to whole units.
func (a Amount) Ceil() int64 {
	if a.Frac > 0 {
		return a.Whole + 1
	}
	return a.Whole
}

// Times is n × a over the denominator den. n >= 0, and the product fits 63 bits.
func (a Amount) Times(n, den int64) Amount {
	frac := a.Frac * n
	return Amount{Whole: a.Whole*n + frac/den, Frac: frac % den}
}

// Units is how many whole units a has over the denominator den: floor(a / unit), 0 if a
// is below 0. unit is above 0.
func (a Amount) Units(unit Amount, den int64) int64 {
	switch {
	case a.Whole < 0:
		return 0
	case a == unit:
		return 1
	case den == 1 && unit.Whole == 1:
		return a.Whole
	}
	divisor := uint64(unit.Whole)*uint64(den) + uint64(unit.Frac)
	hi, lo := bits.Mul64(uint64(a.Whole), uint64(den))
	lo, carry := bits.Add64(lo, uint64(a.Frac), 0)
	if hi += carry; hi >= divisor {
		return math.MaxInt64
	}
	n, _ := bits.Div64(hi, lo, divisor)
	return int64(min(n, math.MaxInt64))
}
