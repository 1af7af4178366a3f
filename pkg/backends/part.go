package backends

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
