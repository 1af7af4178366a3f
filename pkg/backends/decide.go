package backends

// ApplyTogether applies operations that are decided together ([Batch.Together]), which a store
// does as one atomic unit. try applies operation i to its cell. apply applies op in place of
// operation i, and back takes the cells of the operations from first on, and before end, to what
// they were before try.
//
// The operations are tried in order, so that later ones see what earlier ones charge. A group
// that fails is taken back and settled before the next descriptor is tried, so that it takes no
// room from that. So is the whole batch in the end, if it is not charged.
func (b *Batch) ApplyTogether(try func(i int) Reply, back func(first, end int), apply func(i int, op *Op) Reply) {
	b.Refused, b.open = false, false
	settle := func(first, end int) {
		if b.asTried(first, end) {
			return
		}
		back(first, end)
		for i := first; i < end; i++ {
			op := b.settled(i)
			b.Settle(i, apply(i, &op))
		}
	}
	for first, end := 0, 0; first < len(b.Ops); first = end {
		end = b.descriptorEnd(first)
		for i := first; i < end; i++ {
			b.Replies[i] = try(i)
		}
		settle(first, end)
	}
	if b.Decide(); b.Refused || b.open {
		settle(0, len(b.Ops))
	}
}

// asTried reports whether the operations from first on, and before end, that are charged are those
// that were charged when they were tried.
func (b *Batch) asTried(first, end int) bool {
	for i := first; i < end; i++ {
		op, r := &b.Ops[i], &b.Replies[i]
		tried := op.Verb == Count || op.Overdraws() || r.Admitted > 0
		if r.Err == nil && b.Charged(i) != tried {
			return false
		}
	}
	return true
}

// Together reports whether the charge of one operation of the batch may depend
// on another operation, so that the store needs [Batch.ApplyTogether].
func (b *Batch) Together() bool {
	if len(b.Ops) < 2 {
		return false
	}
	if b.AllOrNothing {
		return true
	}
	for i := range b.Ops {
		if b.Ops[i].Group != 0 {
			return true
		}
	}
	return false
}

// Decide sets b.Refused from the replies to the tried operations. A descriptor
// (the operations of a group, or one without a group) refuses if one of its
// operations does not fit, and passes if all of them fit. An undecided operation
// (Reply.Err) counts as Op.IfUndecided says; while that is Open, its descriptor
// neither passes nor refuses and is open. An all-or-nothing batch is refused if a
// Firm descriptor refuses, or if it has Quota descriptors and all of them refuse.
// The batch is open, and not charged either, if it would be refused had every open
// descriptor refused. So the batch is still charged when a Lenient descriptor is
// open, or a Quota descriptor beside another Quota descriptor that passes.
//
// Decide sets Reply.Beside.
func (b *Batch) Decide() {
	b.Refused = b.AllOrNothing && b.refusedBy((*Batch).denies)
	b.open = b.AllOrNothing && b.refusedBy((*Batch).fails)
	if b.Together() && b.any(0, len(b.Ops), (*Batch).denies) {
		b.tellBeside()
	}
}

// tellBeside sets Reply.Beside: the charges that have to fit together with the operation, because
// they are in the same group, or in an all-or-nothing batch.
func (b *Batch) tellBeside() {
	beside := make(map[string]Amount) // by Op.Key
	for first, end := 0, 0; first < len(b.Ops); first = end {
		if end = b.descriptorEnd(first); !b.AllOrNothing {
			clear(beside)
		}
		for i := first; i < end; i++ {
			op, r, denied := &b.Ops[i], &b.Replies[i], b.denies(i)
			if r.Beside = (Amount{}); denied {
				r.Beside = beside[op.Key]
			}
			if needed := !denied || op.Role == Firm; needed && !op.Verb.GivesBack() && !b.Charged(i) {
				beside[op.Key] = beside[op.Key].Add(op.By, op.Den)
			}
		}
	}
}

// refusedBy reports whether the roles of the descriptors refuse the batch, if a
// descriptor refuses when fails holds for one of its operations.
func (b *Batch) refusedBy(fails func(*Batch, int) bool) bool {
	quotas, passes := false, false
	for first, end := 0, 0; first < len(b.Ops); first = end {
		end = b.descriptorEnd(first)
		refuses := b.any(first, end, fails)
		switch op := &b.Ops[first]; {
		case op.Role == Lenient:
		case op.Role == Quota:
			quotas, passes = true, passes || !refuses
		case refuses:
			return true
		}
	}
	return quotas && !passes
}

// Charged reports whether operation i is charged, or given back, at least once, after Decide. An
// operation that Counts and does not fit is charged, whatever the batch comes to, and so are an
// operation that overdraws and one that has settled a reservation. Any other operation is not
// charged if its group does not pass, or if its all-or-nothing batch is refused or open.
func (b *Batch) Charged(i int) bool {
	r := &b.Replies[i]
	return r.Err == nil && (b.Regardless(i) || b.Passes(i) && r.Admitted > 0)
}

// Regardless reports whether operation i, which is decided, is charged whatever the batch
// comes to.
func (b *Batch) Regardless(i int) bool {
	op := &b.Ops[i]
	return op.Verb == Count && b.denies(i) || op.Overdraws() || b.settles(i)
}

// settles reports whether operation i has found a reservation, which it settles or leaves as it is.
func (b *Batch) settles(i int) bool { return b.Replies[i].HoldState() >= Settled }

// Passes reports, after Decide, whether the charge of operation i stays if it fits: its
// group passes, and its all-or-nothing batch is neither refused nor open.
func (b *Batch) Passes(i int) bool {
	return !b.Refused && !b.open && !b.groupFails(i)
}

// groupFails reports whether operation i is in a group that fails.
func (b *Batch) groupFails(i int) bool {
	if b.Ops[i].Group == 0 {
		return false
	}
	first := i
	for first > 0 && b.neighbours(first-1, i) {
		first--
	}
	return b.any(first, b.descriptorEnd(first), (*Batch).fails)
}

// settled is the operation that charges operation i if it is Charged; if not, the operation
// is denied, or reads the cell if i is a refund.
func (b *Batch) settled(i int) Op {
	op, charged := b.Ops[i], b.Charged(i)
	switch {
	case charged && (op.overdraws() || b.settles(i)):
		return op
	case charged:
		op.Max = NoMax
	case op.Verb.GivesBack():
		return op.Look()
	default:
		op.Max = NoRoom
	}
	if op.Verb == Count {
		op.Verb = Charge
	}
	return op
}

// Settle puts the reply to the operation that charges operation i, or not, as [Batch.Charged] says into
// Batch.Replies. Admitted, RetryAt and Beside stay as they were when the operation was tried.
func (b *Batch) Settle(i int, r Reply) {
	r.Admitted, r.RetryAt, r.Beside = b.Replies[i].Admitted, b.Replies[i].RetryAt, b.Replies[i].Beside
	b.Replies[i] = r
}

// descriptorEnd is the index after the descriptor that begins at first.
func (b *Batch) descriptorEnd(first int) int {
	end := first + 1
	for end < len(b.Ops) && b.neighbours(first, end) {
		end++
	}
	return end
}

func (b *Batch) neighbours(i, j int) bool {
	return b.Ops[i].Group != 0 && b.Ops[i].Group == b.Ops[j].Group
}

func (b *Batch) any(first, end int, is func(*Batch, int) bool) bool {
	for i := first; i < end; i++ {
		if is(b, i) {
			return true
		}
	}
	return false
}

func (b *Batch) denies(i int) bool {
	if b.Replies[i].Err != nil {
		return b.Ops[i].IfUndecided == Refuses
	}
	return b.Replies[i].Admitted < b.Ops[i].Times
}

// fails reports that operation i does not fit, or may not fit.
func (b *Batch) fails(i int) bool {
	return b.denies(i) || b.Replies[i].Err != nil && b.Ops[i].IfUndecided == Open
}

// A Part is some of the operations of a batch, applied as a batch of its own.
// Its operations are copies, so a Part may be changed and may outlive the
// caller of the whole batch.
type Part struct {
	Batch
	at []int // the index of each operation in the whole batch
}

// Add copies operation i of whole into the part and returns the copy, which may
// be changed. Operations that stay in a group are added in their order. Operations of one group stay
// in one group, and groups that become neighbours stay apart.
func (p *Part) Add(whole *Batch, i int) *Op {
	op := whole.Ops[i]
	if n := len(p.at); op.Group > 0 && n > 0 {
		before := p.Ops[n-1].Group
		if whole.oneGroup(p.at[n-1], i) {
			op.Group = before
		} else if op.Group == before {
			op.Group = before%2 + 1 // 1 or 2, whichever the operation before has not
		}
	}
	p.Ops = append(p.Ops, op)
	p.Replies = append(p.Replies, Reply{})
	p.at = append(p.at, i)
	return &p.Ops[len(p.Ops)-1]
}

// oneGroup reports whether operations i < j are in one group.
func (b *Batch) oneGroup(i, j int) bool {
	for k := i; k <= j; k++ {
		if b.Ops[k].Group != b.Ops[i].Group {
			return false
		}
	}
	return b.Ops[i].Group > 0
}

// FitsBeside reports whether operation i has to fit beside k, an earlier one on its cell that fits:
// they are in one group, or both can refuse the batch.
func (b *Batch) FitsBeside(k, i int) bool {
	first, op := &b.Ops[k], &b.Ops[i]
	firm := b.AllOrNothing && first.Role == Firm && op.Role == Firm
	return first.Key == op.Key && b.Replies[k].Admitted > 0 && !first.Verb.GivesBack() && (firm || b.oneGroup(k, i))
}

// At is the index that the part's operation i has in the whole batch.
func (p *Part) At(i int) int { return p.at[i] }

// Answer copies the part's replies to their places in whole. It leaves
// whole.Refused as it is.
func (p *Part) Answer(whole *Batch) {
	for i, at := range p.at {
		whole.Replies[at] = p.Replies[i]
	}
}

// Err is the first Reply.Err of b, or nil. Apply returns it.
func (b *Batch) Err() error {
	for i := range b.Replies {
		if err := b.Replies[i].Err; err != nil {
			return err
		}
	}
	return nil
}
