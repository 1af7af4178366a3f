package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/explain"
	"example.org/rls/pkg/service/envoy"
	"example.org/rls/pkg/service/operate"
)

// maxExplanation bounds an explanation, in bytes, so that clients can read it. Only long
// texts of the request or of rules can exceed it.
const maxExplanation = 4 << 20

// explain waits until fewer than maxExplained explanations are under way, because an
// explanation is long where the rules are many.
func (a *API) explain(ctx context.Context, r *LookRequest) (any, error) {
	select {
	case a.explained <- struct{}{}:
		defer func() { <-a.explained }()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	in, err := a.inspect(ctx, &r.Question, operate.Explain)
	if err != nil {
		return nil, err
	}
	document := explain.New(in)
	document.Rules = a.options.Rules()
	if r.RLQS && a.options.Quotas != nil {
		for i := range document.Descriptors {
			d := &document.Descriptors[i]
			d.RLQS = new(explain.Assigned)
			d.RLQS.Buckets, d.RLQS.HitsPerSecond = a.options.Quotas.Assigned(document.Domain, d.Entries)
		}
	}
	data, err := json.Marshal(document)
	if len(data) > maxExplanation {
		return nil, status.Errorf(codes.ResourceExhausted, "the explanation has %d bytes, which is more than %d: ask for fewer descriptors", len(data), maxExplanation)
	}
	return json.RawMessage(data), err
}

func (a *API) get(ctx context.Context, r *LookRequest) (any, error) {
	in, err := a.inspect(ctx, &r.Question, operate.Look)
	if err != nil {
		return nil, err
	}
	document := explain.New(in)
	matched := false
	for i := range document.Descriptors {
		d := &document.Descriptors[i]
		d.Path, matched = nil, matched || len(d.Limits) > 0
	}
	if !matched {
		return nil, nothingMatches(in)
	}
	return document, nil
}

// inspect asks the service about a request. A descriptor without a limit has the
// limit that the last request with its entries brought along, if it brought one, so that
// what is shown and changed is what decides.
func (a *API) inspect(ctx context.Context, q *operate.Question, do operate.Action) (operate.Inspection, error) {
	q.Seen = make([]time.Time, len(q.Descriptors))
	for i := range q.Descriptors {
		switch d := &q.Descriptors[i]; {
		case d.Limit != nil:
			d.Limit.Multiplier = max(d.Limit.Multiplier, 1)
		case a.options.Top != nil:
			if last := a.options.Top.Override(q.Domain, d.Entries); last != nil {
				d.Limit, q.Seen[i] = &last.Override, last.Seen
			}
		}
	}
	in, err := a.options.Limits.Inspect(ctx, q, do)
	return in, envoy.Error(err)
}

// nothingMatches is the error of a request without a counter. It says why for each
// descriptor.
func nothingMatches(in operate.Inspection) error {
	var why, all []string
	for _, d := range in.Descriptors {
		switch {
		case d.Unlimited:
			because := ""
			if d.Plan != "" {
				because = ": its plan is " + d.Plan
			}
			why = append(why, d.Rule+" is unlimited"+because)
		case len(d.Limits) > 0:
			why = append(why, "the limits of "+d.Rule+" are replaced by "+d.Limits[0].ReplacedBy)
		default:
			why = append(why, d.Trace.Why)
			if suggestions := d.Trace.Suggestions; len(suggestions) > 0 {
				why = append(why, explain.DidYouMean(suggestions))
				all = append(all, suggestions...)
			}
		}
	}
	reason := status.New(codes.NotFound, "the request has no counter: "+strings.Join(why, "; "))
	return &misuse{reason, http.StatusNotFound, all}
}
