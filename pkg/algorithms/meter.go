package algorithms

import (
	"fmt"

	"example.org/rls/pkg/backends"
)

// A meter is the generic cell rate algorithm of ATM (ITU-T I.371, GCRA(I, L)):
// a theoretical arrival time that each hit moves on by one interval, from now
// if it lies in the past, and that may lie at most burst intervals ahead. A
// token bucket and a leaky bucket are the same line seen from either side.

// onMeter is the row of a strategy that counts on a meter.
func onMeter(name, tag string, defaultBurst func(*Limit) uint32) row {
	return row{
		name: name, kind: backends.Meter, tag: tag, burst: defaultBurst,
		prepare: prepareMeter, plan: planMeter, judge: judgeMeter,
	}
}

func prepareMeter(l *Limit) error {
	if l.Requests == 0 { // no hit ever passes
		l.cell.Unit = backends.Amount{Whole: l.window}
		return nil
	}
	if l.Burst == 0 {
		l.Burst = l.row.burst(l)
	}
	l.cell.Den = int64(l.Requests)
	l.cell.Unit = l.intervals(1)
	if l.tooSlow(int64(l.Burst)) {
		return &SpecError{"burst", fmt.Sprintf("%d at this rate take more than 100 years to fill; lower burst or raise requests_per_unit", l.Burst)}
	}
	l.tolerance = l.intervals(int64(l.Burst))
	l.cell.Full = l.meterMax(0, l.MaxDelay.Microseconds())
	return nil
}

func planMeter(l *Limit, op *backends.Op, c Charge) {
	// A cost above the hits that can remain, and wait in the queue, never passes, and a
	// refund above it fills the bucket.
	debt := l.MaxDebt()
	if c.Beyond {
		debt = max(debt, l.fullDebt())
	}
	largest := max(l.Capacity(), l.MaxRemaining()) + debt
	largest += backends.Amount{Whole: l.MaxDelay.Microseconds()}.Units(l.cell.Unit, l.cell.Den)
	if c.Reservation != "" { // so much may be held, and is not charged again
		largest *= 2
	}
	op.By = l.intervals(min(op.By.Whole, largest+1))
	op.Max = l.meterMax(c.Now, min(l.MaxDelay.Microseconds(), c.Patience))
}

// meterMax is how far the meter may be ahead for a hit that waits at most
// delay µs.
func (l *Limit) meterMax(now, delay int64) backends.Amount {
	if l.Requests == 0 {
		return backends.Amount{Whole: now}
	}
	return l.tolerance.Add(backends.Amount{Whole: now + max(delay, 0)}, l.cell.Den)
}

// ahead is how far the meter that r describes is ahead, below 0 by credit. The debt of another
// limit counts as far as the debt of l may go.
func (l *Limit) ahead(r *backends.Reply) backends.Amount {
	ahead := r.Value.Sub(backends.Amount{Whole: r.Now}, l.cell.Den)
	if l.overdraws() {
		if most := l.tolerance.Add(l.cell.Debt, l.cell.Den); most.Less(ahead) {
			return most
		}
	}
	return ahead
}

func judgeMeter(l *Limit, op *backends.Op, r *backends.Reply) Decision {
	ahead := l.ahead(r)
	d := Decision{
		Allowed:   op.Verb.GivesBack() || r.Admitted == op.Times,
		Remaining: l.tolerance.Sub(ahead, l.cell.Den).Units(l.cell.Unit, l.cell.Den),
		Reset:     micros(ahead.Ceil()),
	}
	// Refunds and checks take no turn. Without a queue an allowed hit finds the meter
	// above its tolerance only if clocks differ (a hit of a lease).
	if l.MaxDelay > 0 && !op.Verb.GivesBack() && op.By != (backends.Amount{}) {
		d.Delay = micros(ahead.Sub(l.tolerance, l.cell.Den).Ceil())
	}
	if !d.Allowed {
		needs := op.By
		if l.overdraws() {
			needs = l.cell.Unit
		}
		needs = needs.Add(r.Beside, l.cell.Den)
		// The charge has said how long it can wait for its turn (Patience).
		most := l.tolerance.Add(op.Max.Sub(l.meterMax(op.Now, 0), l.cell.Den), l.cell.Den)
		d.RetryAfter = micros(ahead.Add(needs, l.cell.Den).Sub(most, l.cell.Den).Ceil())
		if most.Less(needs) {
			d.RetryAfter = l.Window
		}
	}
	return d
}
