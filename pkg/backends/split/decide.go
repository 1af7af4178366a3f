package split

import "example.org/rls/pkg/backends"

// decide computes from b's replies whether the batch is refused, and returns
// for each operation whether it is to be charged.
func decide(b *backends.Batch) (charged []bool) {
	charged = make([]bool, len(b.Ops))
	undecided := b.Err() != nil
	firm, quotas, quotaPasses := false, 0, false
	for first := 0; first < len(b.Ops); {
		last := descriptor(b.Ops, first)
		known, fits := true, true
		for i := first; i < last; i++ {
			if r := &b.Replies[i]; r.Err != nil {
				known = false
			} else if r.Admitted < b.Ops[i].Times {
				fits = false
			}
		}
		switch b.Ops[first].Role {
		case backends.Firm:
			firm = firm || !fits && !b.Ops[first].Soft
		case backends.Quota:
			quotas++
			quotaPasses = quotaPasses || fits // an undecided one may pass
		}
		lone := last == first+1
		for i := first; i < last; i++ {
			charged[i] = b.Replies[i].Err == nil && (lone || known && fits)
		}
		first = last
	}
	b.Refused = b.AllOrNothing && (firm || quotas > 0 && !quotaPasses)
	for i := range b.Ops {
		fits := b.Replies[i].Err == nil && b.Replies[i].Admitted == b.Ops[i].Times
		switch {
		case b.Replies[i].Err == nil && b.Ops[i].ChargeDenied && !fits:
			charged[i] = true
		case b.AllOrNothing && (undecided || b.Refused || !fits):
			charged[i] = false
		}
	}
	return charged
}

// descriptor is the index after the last operation of the descriptor that
// begins with operation first: a group, or an operation without one.
func descriptor(ops []backends.Op, first int) int {
	last := first + 1
	for ops[first].Group > 0 && last < len(ops) && ops[last].Group == ops[first].Group {
		last++
	}
	return last
}
