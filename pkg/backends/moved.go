package backends

// At is the operation at another time: it does to its cell at now what o does at o.Now.
// A cell that belongs to a window of the clock takes no operation after the window, so
// there At stops at the window's last microsecond. With the span Sliding the operation stays one
// of its window, and with the span Carried it goes to a later window, which may be too early by
// one if windows differ in length.
func (o Op) At(now int64) Op {
	by := now - o.Now
	switch {
	case o.Kind == Meter:
		if o.Max != NoMax {
			o.Max.Whole += by
		}
	case o.Kind == List, o.Span == FirstHit, o.Span == EveryHit:
		o.Until += by
	case o.Span == Carried:
		if late := now - o.Until; late >= 0 {
			windows := late/o.Window + 1
			o.Mark += windows
			o.Until += windows * o.Window
		}
	case o.Span == Fixed:
		now = min(now, o.Until-1)
	}
	o.Now = now
	return o
}

// Alone is the step of one of n processes, each of which decides o on its own copy of
// the cell: each hit counts n times, as if every process had admitted it. So a process
// admits what remained in the cell when it was copied ÷ n, rounded up, and a meter
// refills for it at 1/n of the rate. A charge with an overdraft fits while one hit remains.
// n is 1 to 10,000.
func (o Op) Alone(n int64) Op {
	if n == 1 || o.Kind == Meter && o.Full == NoMax {
		return o
	}
	extra := o.Unit.Times(n-1, o.Den)
	if full := o.Full.Whole + extra.Whole; o.Kind == Meter && o.By.Whole > full/n+1 {
		o.By = Amount{Whole: full + 1}.Add(o.Unit, o.Den) // never fits either
	} else {
		o.By = o.By.Times(n, o.Den)
	}
	if !o.overdraws() && o.Max != NoMax {
		o.Max = o.Max.Add(extra, o.Den)
	}
	if o.Kind == Meter {
		limit := *o.Limit
		limit.Full = limit.Full.Add(extra, o.Den)
		o.Limit = &limit
	}
	return o
}
