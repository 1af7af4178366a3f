package service

import (
	"context"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/backends"
)

// chargeTime is how long a denial, which is decided, waits to learn what its
// charge leaves.
const chargeTime = 100 * time.Millisecond

// chargeDenials charges fixed windows for what they have just denied, so that
// a cost that did not fit uses them up. What was decided stays, also when the
// store fails meanwhile.
func (d *decision) chargeDenials(ctx context.Context) {
	var b backends.Batch
	var at []int // the operations' places in the request's batch
	for i := range d.checks {
		op, r := &d.batch.Ops[i], &d.batch.Replies[i]
		if d.checks[i].limit.Strategy == algorithms.FixedWindow && r.Err == nil && r.Admitted < op.Times && !r.Recalled {
			charge := *op
			charge.Max = backends.NoMax
			b.Ops, at = append(b.Ops, charge), append(at, i)
		}
	}
	if len(b.Ops) == 0 {
		return
	}
	b.Replies = make([]backends.Reply, len(b.Ops))
	ctx, cancel := context.WithTimeout(ctx, chargeTime)
	defer cancel()
	if d.service.cfg.Store.Apply(ctx, &b) != nil {
		return
	}
	for j, i := range at {
		d.batch.Replies[i].Value = b.Replies[j].Value
	}
}
