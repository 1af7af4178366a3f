package admin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/admin/events"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/service/envoy"
	"example.org/rls/pkg/service/operate"
)

// Changes is the document of /v1/reset, /v1/grant and /v1/revoke.
type Changes struct {
	DryRun bool `json:"dry_run"`
	// Matched is the number of cells of the rule; nil unless all of them are meant.
	Matched *int64 `json:"matched,omitempty"`
	// Changed is the number of cells that were changed, or would be in a dry run.
	Changed int64 `json:"changed"`
	// Changes is nil if all cells of a rule are meant.
	Changes []operate.Change `json:"changes,omitempty"`
	// Until is the first Until of Changes: when a grant, or the window after a reset, ends. ID is that of a
	// grant until a time.
	Until time.Time `json:"until,omitzero"`
	ID    string    `json:"id,omitempty"`
	// Warning is a sentence about a grant that ends soon.
	Warning string `json:"warning,omitempty"`
	// Replicas were told to forget the cells; nil without a fleet.
	Replicas []client.Replica `json:"replicas,omitempty"`
}

// maxReason bounds a reason, in bytes, because the audit keeps it.
const maxReason = 1024

func (a *API) reset(ctx context.Context, r *ResetRequest) (any, error) {
	switch {
	case r.AllMatching && len(r.Descriptors) > 0:
		return nil, invalid("descriptors and all_matching are both set: want descriptors, or rule with all_matching")
	case r.AllMatching && r.Pool != "":
		return nil, invalid("pool and all_matching are both set: want pool, or rule with all_matching")
	case r.AllMatching:
		done, err := a.resetMatching(ctx, r, func(Progress) error { return nil })
		return done.Done, err
	case r.Rule != "":
		return nil, invalid("rule is set without all_matching: want all_matching, or descriptors in place of the rule")
	}
	return a.change(ctx, events.Reset, r, operate.Reset)
}

func (a *API) grant(ctx context.Context, r *GrantRequest) (any, error) {
	given, err := r.granting()
	if err != nil {
		return nil, err
	}
	given.Who = callerOf(ctx).who
	cells := ResetRequest{Question: r.Question, DryRun: r.DryRun, Reason: r.Reason}
	return a.change(ctx, events.Grant, &cells, operate.Grant(given))
}

// revoke ends a grant until a time. Other replicas find that out by themselves.
func (a *API) revoke(ctx context.Context, r *RevokeRequest) (any, error) {
	if err := checkReason(r.Reason); err != nil {
		return nil, err
	}
	if r.ID == "" {
		return nil, invalid("id is missing: want the ID of a grant until a time, which /v1/grants lists")
	}
	change, err := a.options.Limits.Revoke(ctx, r.ID)
	if err != nil {
		return nil, envoy.Error(err)
	}
	a.audit(callerOf(ctx), entryOf(events.Revoke, change.Grant.Domain, &change, r.Reason))
	return Changes{Changed: 1, Changes: []operate.Change{change}, Until: change.Until, ID: r.ID}, nil
}

// soon is the time below which the end of a grant is worth a warning.
const soon = time.Minute

// ends sets Until, ID and Warning by the changes.
func (c *Changes) ends(granted bool) {
	for i := range c.Changes {
		change := &c.Changes[i]
		if change.Err != nil || !c.Until.IsZero() && !change.Until.Before(c.Until) {
			continue
		}
		c.Until = change.Until
		if change.Grant != nil {
			c.ID = change.Grant.ID
		} else if granted && change.Lasts < soon {
			lasts := max(change.Lasts, 0).Round(100 * time.Millisecond)
			c.Warning = fmt.Sprintf("the grant ends in %v: one until a time (--for 1h, \"for\") lasts longer", lasts)
		}
	}
}

// change changes the cells of a request's limits. Every change is audited, also if others fail.
// A dry run only tells the changes.
func (a *API) change(ctx context.Context, action string, r *ResetRequest, do operate.Action) (any, error) {
	if err := checkReason(r.Reason); err != nil {
		return nil, err
	}
	if r.DryRun {
		do = do.DryRun()
	}
	document, changes, err := a.options.Limits.Change(ctx, a.completed(&r.Question), do)
	if err != nil {
		return nil, envoy.Error(err)
	}
	done := Changes{DryRun: r.DryRun, Changes: changes}
	done.ends(action == events.Grant)
	var failed error
	for _, change := range changes {
		if change.Err != nil {
			failed = change.Err
			continue
		}
		done.Changed++
		if !done.DryRun {
			a.audit(callerOf(ctx), entryOf(action, document.Domain, &change, r.Reason))
		}
	}
	switch {
	case done.Changed > 0:
		if !done.DryRun {
			done.Replicas = a.tell(ctx, &ResetRequest{Question: r.Question})
		}
		return done, nil
	case errors.Is(failed, backends.ErrUnsupported):
		return nil, status.Error(codes.Unimplemented, failed.Error())
	case failed != nil:
		return nil, status.Errorf(codes.Unavailable, "the store cannot change the counter: %v", failed)
	}
	return nil, nothingMatches(&document)
}

// Grants is the document of GET /v1/grants.
type Grants struct {
	Grants   []operate.GrantInForce `json:"grants"` // newest first
	Replicas []client.Replica       `json:"replicas,omitempty"`
}

func (a *API) grants(ctx context.Context, _ *Query) (any, error) {
	inForce, err := a.options.Limits.Grants(ctx)
	return Grants{Grants: inForce}, envoy.Error(err)
}

func mergeGrants(_ *Query, all []client.Answer[Grants], replicas []client.Replica) any {
	return Grants{mergedGrants(all, func(g *Grants) []operate.GrantInForce { return g.Grants }), replicas}
}

// mergedGrants has a grant that several replicas know once, of no replica.
func mergedGrants[D any](all []client.Answer[D], of func(*D) []operate.GrantInForce) []operate.GrantInForce {
	rows := newest(all, math.MaxInt, of, func(g *operate.GrantInForce) (time.Time, *string) { return g.Time, &g.Replica })
	id := func(g *operate.GrantInForce) any {
		if g.ID == "" { // one that no other replica knows
			return g
		}
		return g.ID
	}
	return client.Join(rows, id, func(g, _ *operate.GrantInForce) { g.Replica = "" })
}

func checkReason(reason string) error {
	if n := len(reason); n > maxReason {
		return invalid("reason has %d bytes: want at most %d", n, maxReason)
	}
	return nil
}

// progressPause is the least time between two reports of progress.
const progressPause = 500 * time.Millisecond

// scanWait is the longest wait for another call of this process that lists the keys of the store.
const scanWait = 300 * time.Millisecond

// scan waits until no other call lists keys. Unless it fails the caller may, and releases a.scanning then.
func (a *API) scan(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, scanWait)
	defer cancel()
	if a.scanning.Acquire(ctx, 1) != nil {
		return errScanning
	}
	return nil
}

var errScanning = status.Error(codes.ResourceExhausted,
	"another usage, or another reset of all cells of a rule, lists the keys of the store: try again when it is done")

// Progress tells how far the reset of all cells of a rule has come.
type Progress struct {
	operate.Progress
	Done *Changes `json:"done,omitempty"` // in the last one only
}

// resetMatching resets all cells of a rule, and calls tell with its progress at
// most every progressPause. It ends early if tell fails. The cells that were reset until
// then are audited. The progress that it returns has Done.
func (a *API) resetMatching(ctx context.Context, r *ResetRequest, tell func(Progress) error) (Progress, error) {
	if err := checkReason(r.Reason); err != nil {
		return Progress{}, err
	}
	if r.Domain == "" || r.Rule == "" {
		return Progress{}, invalid("all_matching needs a domain and a rule: want the rule's path, such as shop.plan_free.user")
	}
	if err := a.scan(ctx); err != nil {
		return Progress{}, err
	}
	defer a.scanning.Release(1)
	told := time.Now()
	p, err := a.options.Limits.ResetMatching(ctx, r.Domain, r.Rule, r.DryRun, func(p operate.Progress) error {
		if time.Since(told) < progressPause {
			return nil
		}
		told = time.Now()
		return tell(Progress{Progress: p})
	})
	done := Changes{DryRun: r.DryRun, Matched: &p.Matched, Changed: p.Changed}
	if p.Changed > 0 {
		a.audit(callerOf(ctx), AuditEntry{Action: events.Reset, Domain: r.Domain, Rule: r.Rule, Reason: r.Reason, Changed: p.Changed})
	}
	if !done.DryRun && (err == nil || p.Changed > 0) {
		done.Replicas = a.tell(ctx, &ResetRequest{Question: operate.About(r.Domain), Rule: r.Rule, AllMatching: true})
	}
	return Progress{p, &done}, envoy.Error(err)
}

const forgetPath = "/v1/forget"

// tell has the other replicas forget cells that were changed, also if the caller no longer
// waits. It returns nil if there is no fleet.
func (a *API) tell(ctx context.Context, about *ResetRequest) (told []client.Replica) {
	if a.options.Fleet == nil {
		return nil
	}
	nothing := func() ([]byte, error) { return nil, nil }
	for _, p := range a.askPeers(context.WithoutCancel(ctx), "", forgetPath, about, nothing) {
		told = append(told, p.Replica)
	}
	return told
}

// forget drops what this process remembers of cells that another replica has changed.
func (a *API) forget(ctx context.Context, r *ResetRequest) (any, error) {
	if r.AllMatching {
		return struct{}{}, envoy.Error(a.options.Limits.ForgetMatching(r.Domain, r.Rule))
	}
	return struct{}{}, envoy.Error(a.options.Limits.Forget(ctx, &r.Question))
}

// resetMatchingStream is resetMatching as a stream, which ends with Done.
func (a *API) resetMatchingStream(ctx context.Context, r *ResetRequest, send send) error {
	if !r.AllMatching || len(r.Descriptors) > 0 || r.Pool != "" {
		return invalid("want all_matching with a domain and a rule, and no descriptors and no pool")
	}
	done, err := a.resetMatching(ctx, r, func(p Progress) error { return send(p) })
	if err != nil {
		return err
	}
	return send(done)
}
