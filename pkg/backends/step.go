package backends

import (
	"math"
	"math/bits"
)

// Cell is the state of a Counter or a Meter. The zero Cell is an absent one.
type Cell struct {
	Value Amount
	Until int64 // when the cell ends; absent once Now >= Until
}

// Step applies op to the cell and returns the cell after it. prev is the count
// of Op.Prev's cell (0 without one). It is the definition of what every store
// does for a Counter and a Meter; stores written in Go call it.
func (c Cell) Step(op *Op, prev int64) (Cell, Reply) {
	if op.Now >= c.Until {
		c = Cell{}
	}
	ceiling := op.Max
	if op.Kind == Meter {
		if floor := (Amount{Whole: op.Now}); c.Value.Less(floor) {
			c.Value = floor
		} else if c.Value.Frac >= op.Den {
			c.Value.Frac = op.Den - 1 // left by a limit with another denominator
		}
	} else if op.Prev != "" {
		ceiling.Whole -= Share(prev, op.WeightNum, op.WeightDen)
	}

	var admitted int64
	v := c.Value
	switch {
	case op.Refund:
		admitted = op.Times
		for range op.Times {
			v = v.Sub(op.By, op.Den)
		}
		if floor := op.floor(); v.Less(floor) {
			v = floor
		}
	default:
		for admitted < op.Times {
			next := v.Add(op.By, op.Den)
			if ceiling.Less(next) {
				break
			}
			v = next
			admitted++
		}
		if op.Kind == Counter && v.Whole > MaxValue {
			v.Whole = MaxValue
		}
	}
	return c.commit(op, v, admitted, prev)
}

// commit writes v into the cell if the step charged something and says so.
func (c Cell) commit(op *Op, v Amount, admitted, prev int64) (Cell, Reply) {
	charged := admitted > 0 && op.By != (Amount{})
	switch {
	case op.Kind == Meter:
		c.Value = v
		c.Until = v.Whole
		if v.Frac > 0 {
			c.Until++
		}
	case charged && (c.Until == 0 || op.Span == EveryHit && !op.Refund):
		if op.Refund { // nothing to give back
			break
		}
		c.Value, c.Until = v, op.Until
	case charged:
		c.Value = v
	}
	until := c.Until
	if until == 0 {
		until = op.Until
	}
	return c, Reply{Admitted: admitted, Value: v, Prev: prev, Until: until}
}

func (o *Op) floor() Amount {
	if o.Kind == Meter {
		return Amount{Whole: o.Now}
	}
	return Amount{}
}

// Share is ceil(count × num / den), exactly: the part of the previous window's
// count that still lies in a rolling one. count >= 0, 0 <= num <= den, den > 0.
func Share(count, num, den int64) int64 {
	hi, lo := bits.Mul64(uint64(count), uint64(num))
	q, r := bits.Div64(hi, lo, uint64(den)) // num <= den, so q <= count fits
	if r > 0 {
		q++
	}
	return int64(q)
}

// Entry is one charge in a Log.
type Entry struct {
	At   int64 // microseconds since the epoch
	Cost int64 // hits, > 0
}

// Log is the state of a List: its charges, oldest first, in the order of At.
type Log []Entry

// Step applies op to the log in place and returns the log after it. It is the
// definition of what every store does for a List.
func (l Log) Step(op *Op) (Log, Reply) {
	keep := 0
	for keep < len(l) && l[keep].At <= op.Now-op.Window {
		keep++
	}
	l = append(l[:0], l[keep:]...)
	var used int64
	for _, e := range l {
		used += e.Cost
	}
	var admitted int64
	if op.Refund {
		admitted = op.Times
		l, used = l.giveBack(used, op.By.Whole*op.Times)
	} else {
		admitted = fits(used, op)
		if cost := op.By.Whole * admitted; cost > 0 {
			at := op.Now
			if n := len(l); n > 0 && l[n-1].At > at {
				at = l[n-1].At // another process' clock is ahead
			}
			l = append(l, Entry{at, cost})
			used += cost
		}
	}
	r := Reply{Admitted: admitted, Value: Amount{Whole: used}, Until: op.Now, RetryAt: op.Now}
	if n := len(l); n > 0 {
		r.Until = l[n-1].At + op.Window
	}
	if admitted < op.Times {
		r.RetryAt = l.retryAt(used, op)
	}
	return l, r
}

// fits says how many of op.Times fit a log whose costs sum to used.
func fits(used int64, op *Op) int64 {
	room := op.Max.Whole - used
	switch {
	case room < 0:
		return 0
	case op.By.Whole == 0:
		return op.Times
	}
	return min(op.Times, room/op.By.Whole)
}

// giveBack takes cost off the newest entries.
func (l Log) giveBack(used, cost int64) (Log, int64) {
	for n := len(l); n > 0 && cost > 0; n = len(l) {
		take := min(cost, l[n-1].Cost)
		l[n-1].Cost -= take
		cost -= take
		used -= take
		if l[n-1].Cost == 0 {
			l = l[:n-1]
		}
	}
	return l, used
}

// retryAt is the moment at which enough of the oldest costs have left for one
// more op.By.
func (l Log) retryAt(used int64, op *Op) int64 {
	for _, e := range l {
		used -= e.Cost
		if used+op.By.Whole <= op.Max.Whole {
			return e.At + op.Window
		}
	}
	return math.MaxInt64
}
