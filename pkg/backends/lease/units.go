package lease

import (
	"math"
	"math/bits"

	"example.org/rls/pkg/backends"
)

// at is op at another time.
func at(op backends.Op, now int64) backends.Op {
	by := now - op.Now
	op.Now = now
	switch op.Kind {
	case backends.Meter:
		for _, v := range []*backends.Amount{&op.Max, &op.Furthest} {
			if *v != backends.NoMax {
				v.Whole += by
			}
		}
	case backends.Counter:
		if op.Span != backends.Fixed {
			op.Until += by
		}
	}
	return op
}

// times is n × unit over the denominator den.
func times(unit backends.Amount, n, den int64) backends.Amount {
	frac := unit.Frac * n
	return backends.Amount{Whole: unit.Whole*n + frac/den, Frac: frac % den}
}

// unitsIn is how many whole units a has; 0 if a is below 0.
func unitsIn(a backends.Amount, den int64, unit backends.Amount) int64 {
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
