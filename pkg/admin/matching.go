package admin

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "example.org/rls/pkg/admin/adminpb"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
)

// progressPause is the least time between two reports of progress.
const progressPause = 500 * time.Millisecond

var errScanning = status.Error(codes.ResourceExhausted, "another reset of all cells of a rule is under way: try again when it is done")

// Progress tells how far the reset of all cells of a rule has come.
type Progress struct {
	service.Progress
	Done *Changes `json:"done,omitempty"` // in the last one only
}

// resetMatching resets all cells of a rule, and calls tell with its progress at
// most every progressPause. It ends early if tell fails. The cells that were reset until
// then are audited. The progress that it returns has Done.
func (a *API) resetMatching(ctx context.Context, r *pb.ResetRequest, tell func(Progress) error) (Progress, error) {
	if err := checkReason(r.GetReason()); err != nil {
		return Progress{}, err
	}
	if r.GetDomain() == "" || r.GetRule() == "" {
		return Progress{}, invalid("all_matching needs a domain and a rule: want the rule's path, such as shop.plan_free.user")
	}
	if !a.scanning.TryLock() {
		return Progress{}, errScanning
	}
	defer a.scanning.Unlock()
	told := time.Now()
	p, err := a.options.Limits.ResetMatching(ctx, r.GetDomain(), r.GetRule(), r.GetDryRun(), func(p service.Progress) error {
		if time.Since(told) < progressPause {
			return nil
		}
		told = time.Now()
		return tell(Progress{Progress: p})
	})
	if p.Changed > 0 {
		a.audit.add(callerOf(ctx), AuditEntry{Action: "reset", Domain: r.GetDomain(), Rule: r.GetRule(), Reason: r.GetReason(), Changed: p.Changed})
	}
	return Progress{p, &Changes{DryRun: r.GetDryRun(), Matched: &p.Matched, Changed: p.Changed}}, envoy.Error(err)
}

// resetMatchingStream is resetMatching as a stream, which ends with Done.
func (a *API) resetMatchingStream(ctx context.Context, r *pb.ResetRequest, send send) error {
	if !r.GetAllMatching() || len(r.GetDescriptors()) > 0 {
		return invalid("want all_matching with a domain and a rule, and no descriptors")
	}
	done, err := a.resetMatching(ctx, r, func(p Progress) error { return send(p) })
	if err != nil {
		return err
	}
	return send(done)
}
