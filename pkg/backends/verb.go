package backends

// steer applies a Reset or a Grant to the cell as op finds it. ceiling is Op.Ceiling.
func (c Cell) steer(op *Op, ceiling Amount) (Cell, Reply) {
	r := Reply{Now: op.Now, Admitted: op.Times, Prev: c.Prev, Until: op.Until}
	floor := Amount{}
	if op.Kind == Meter {
		floor.Whole = op.Now
	}
	if op.Verb == Reset {
		if r.Value, r.Prev = floor, 0; op.Kind == Meter {
			r.Until = op.Now
		}
		return Cell{}, r
	}
	least := floor.Add(op.Least, op.Den)
	if c.Value.Less(least) {
		least = c.Value // it was granted more before
	}
	r.Value = c.Value
	if ceiling.Less(r.Value) {
		r.Value = ceiling
	}
	if r.Value = r.Value.Sub(op.By, op.Den); r.Value.Less(least) {
		r.Value = least
	}
	credit := op.Kind == Meter && r.Value.Less(floor)
	switch {
	case op.Kind == Meter && !credit:
		r.Until = r.Value.Ceil()
	case op.numbersWindows():
		r.Until = c.ends(op, r.Value, true)
	case !credit && c.Until > 0:
		r.Until = c.Until
	}
	after := Cell{Value: r.Value, Prev: c.Prev, Window: c.Window, Until: r.Until}
	if credit {
		after.Value.Whole -= op.Now
	}
	return after, r
}

// steer applies a Reset or a Grant to the log as op finds it, whose costs sum to used,
// and returns the log and the sum after it.
func (l Log) steer(op *Op, used int64) (Log, int64) {
	if op.Verb == Reset {
		return l[:0], 0
	}
	after := max(min(used, op.Max.Whole)-op.By.Whole, min(used, op.Least.Whole))
	if after < used {
		at, _ := op.Dating()
		l = append(l, Cost{at, after - used, at})
	}
	return l, after
}
