package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "example.org/rls/pkg/admin/adminpb"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

const (
	// mostResets bounds the cells that one batch for the store resets.
	mostResets = 100
	// progressPause is the least time between two reports of progress.
	progressPause = 500 * time.Millisecond
)

var errScanning = status.Error(codes.ResourceExhausted, "another reset of all cells of a rule is under way: try again when it is done")

// Progress tells how far the reset of all cells of a rule has come.
type Progress struct {
	Scanned int64    `json:"scanned"` // keys of the store that were looked at
	Matched int64    `json:"matched"`
	Changed int64    `json:"changed"`
	Done    *Changes `json:"done,omitempty"` // in the last one only
}

// matching resets all cells of a rule, or counts them in a dry run.
type matching struct {
	store  backends.Store
	reset  func(key string) (op backends.Op, ok bool)
	dryRun bool
	tell   func(Progress) error
	told   time.Time
	Progress
}

// resetMatching resets all cells of a rule, and calls tell with its progress at
// most every progressPause. It ends early if tell fails. The cells that were reset until
// then are audited. The progress that it returns has Done.
func (a *API) resetMatching(ctx context.Context, r *pb.ResetRequest, tell func(Progress) error) (Progress, error) {
	if err := checkReason(r.GetReason()); err != nil {
		return Progress{}, err
	}
	scanner, prefix, reset, err := a.cellsOf(r.GetDomain(), r.GetRule())
	if err != nil {
		return Progress{}, err
	}
	if !a.scanning.TryLock() {
		return Progress{}, errScanning
	}
	defer a.scanning.Unlock()
	m := &matching{store: a.options.Store, reset: reset, dryRun: r.GetDryRun(), tell: tell, told: time.Now()}
	err = scanner.Scan(ctx, prefix, func(keys []string) error { return m.take(ctx, keys) })
	if m.Changed > 0 {
		a.audit.add(callerOf(ctx), AuditEntry{Action: "reset", Domain: r.GetDomain(), Rule: r.GetRule(), Reason: r.GetReason(), Changed: m.Changed})
	}
	if err != nil {
		if ctx.Err() != nil {
			return Progress{}, status.FromContextError(ctx.Err()).Err()
		}
		return Progress{}, status.Errorf(codes.Unavailable, "%d cells of the rule were reset, then the store failed: %v", m.Changed, err)
	}
	m.Done = &Changes{DryRun: r.GetDryRun(), Matched: &m.Matched, Changed: m.Changed}
	return m.Progress, nil
}

// cellsOf returns the scanner of the store, and what [Limits.RuleCells] says of a rule.
func (a *API) cellsOf(domain, rule string) (backends.Scanner, string, func(string) (backends.Op, bool), error) {
	if domain == "" || rule == "" {
		return nil, "", nil, invalid("all_matching needs a domain and a rule: want the rule's path, such as shop.plan_free.user")
	}
	if a.options.Limits == nil || a.options.Store == nil {
		return nil, "", nil, errNotServed
	}
	found := false
	if tree := a.options.Limits.Tree(); tree != nil {
		tree.Each(func(d *descriptors.Domain, r *descriptors.Rule) { found = found || d.Name == domain && r.Path == rule })
	}
	if !found {
		return nil, "", nil, status.Errorf(codes.NotFound, "the domain %s has no rule %s", domain, rule)
	}
	scanner, err := backends.ScannerOf(a.options.Store)
	if err != nil {
		return nil, "", nil, status.Error(codes.Unimplemented, err.Error())
	}
	prefix, reset, err := a.options.Limits.RuleCells(rule)
	if err != nil {
		return nil, "", nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return scanner, prefix, reset, nil
}

// take resets the cells of the rule among some keys of the store.
func (m *matching) take(ctx context.Context, keys []string) error {
	m.Scanned += int64(len(keys))
	var b backends.Batch
	for _, key := range keys {
		op, ok := m.reset(key)
		if !ok {
			continue
		}
		m.Matched++
		if m.dryRun {
			continue
		}
		if b.Ops = append(b.Ops, op); len(b.Ops) == mostResets {
			if err := m.apply(ctx, &b); err != nil {
				return err
			}
		}
	}
	if err := m.apply(ctx, &b); err != nil {
		return err
	}
	if time.Since(m.told) < progressPause {
		return nil
	}
	m.told = time.Now()
	return m.tell(m.Progress)
}

// apply applies a batch and empties it. It returns the first error of its replies.
func (m *matching) apply(ctx context.Context, b *backends.Batch) error {
	if len(b.Ops) == 0 {
		return nil
	}
	b.Replies = make([]backends.Reply, len(b.Ops))
	_ = m.store.Apply(ctx, b)
	var errs []error
	for i := range b.Replies {
		if err := b.Replies[i].Err; err != nil {
			errs = append(errs, err)
		} else {
			m.Changed++
		}
	}
	b.Ops = b.Ops[:0]
	if len(errs) > 0 {
		return fmt.Errorf("%w (%d of %d)", errs[0], len(errs), len(b.Replies))
	}
	return nil
}

// ResetMatching implements [pb.AdminServer].
func (s rpc) ResetMatching(r *pb.ResetRequest, to grpc.ServerStreamingServer[pb.Progress]) error {
	return s.streamMatching(to.Context(), "ResetMatching", r, func(p Progress) error {
		message := new(pb.Progress)
		if err := fill(message, p); err != nil {
			return err
		}
		return to.Send(message)
	})
}

// eventStream is the media type of server-sent events.
const eventStream = "text/event-stream"

// matchingEvents serves a reset of all cells of a rule as server-sent events: the
// progress, and at last the event done or the event error.
func (l *listener) matchingEvents(w http.ResponseWriter, r *http.Request, request *pb.ResetRequest) {
	begun := false
	send := func(document any, event string) error {
		if !begun {
			begun = true
			w.Header().Set("Content-Type", eventStream)
		}
		data, err := json.Marshal(document)
		if err == nil {
			_, err = fmt.Fprintf(w, "%sdata: %s\n\n", event, data)
		}
		return errors.Join(err, http.NewResponseController(w).Flush())
	}
	err := l.streamMatching(r.Context(), r.URL.Path, request, func(p Progress) error { return send(p, "") })
	switch {
	case err == nil:
	case begun:
		_ = send(problemOf(err), "event: error\n")
	default:
		refuse(w, r, err)
	}
}

func wantsEvents(r *http.Request) bool { return strings.HasPrefix(r.Header.Get("Accept"), eventStream) }

// streamMatching is resetMatching as a stream, which ends with Done.
func (a *API) streamMatching(ctx context.Context, method string, r *pb.ResetRequest, tell func(Progress) error) error {
	if !r.GetAllMatching() || len(r.GetDescriptors()) > 0 {
		return invalid("want all_matching with a domain and a rule, and no descriptors")
	}
	return a.stream(ctx, method, func(ctx context.Context) error {
		done, err := a.resetMatching(ctx, r, tell)
		if err != nil {
			return err
		}
		return tell(done)
	})
}
