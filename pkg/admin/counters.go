package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service/envoy"
	"example.org/rls/pkg/service/operate"
)

// maxExplanation bounds an explanation, in bytes, so that clients can read it. Only long
// texts of the request or of rules can exceed it.
const maxExplanation = 4 << 20

// explain waits until fewer than maxExplained explanations are under way, because an
// explanation is long where the rules are many.
func (a *API) explain(ctx context.Context, r *LookRequest) (any, error) {
	if err := a.explained.Acquire(ctx, 1); err != nil {
		return nil, status.FromContextError(err).Err()
	}
	defer a.explained.Release(1)
	document, err := a.inspect(ctx, &r.Question, operate.Explain)
	if err != nil {
		return nil, err
	}
	bound := callerOf(ctx).bound != nil
	if !bound {
		document.Rules = a.options.Rules()
	}
	if r.RLQS && a.options.Quotas != nil && !bound {
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
	document, err := a.inspect(ctx, &r.Question, operate.Look)
	if err == nil && !slices.ContainsFunc(document.Descriptors, func(d explain.Descriptor) bool { return len(d.Limits) > 0 }) {
		err = nothingMatches(&document)
	}
	return document, err
}

// inspect asks the service about a request. A bound token learns of its own descriptors alone.
func (a *API) inspect(ctx context.Context, q *operate.Question, view operate.View) (explain.Document, error) {
	b := callerOf(ctx).bound
	if err := a.mayAskAll(b, q); err != nil {
		return explain.Document{}, err
	}
	document, err := a.options.Limits.Inspect(ctx, a.completed(q), view)
	if b != nil {
		narrow(&document)
	}
	return document, envoy.Error(err)
}

// completed gives each descriptor of q without a limit the limit that the last request with its
// entries brought along, if it brought one: operators see and change the counter that decides such
// requests. It returns q.
func (a *API) completed(q *operate.Question) *operate.Question {
	q.Seen = map[int]time.Time{}
	for i := range q.Descriptors {
		switch d := &q.Descriptors[i]; {
		case d.Limit != nil:
			d.Limit.Multiplier = max(d.Limit.Multiplier, 1)
		case a.options.Top != nil:
			if last := a.options.Top.Override(q.Domain, d.Entries); last != nil {
				d.Limit, q.Seen[i] = &last.Rate, last.Seen
			}
		}
	}
	return q
}

// nothingMatches is the error of a request without a counter. It says why for each
// descriptor.
func nothingMatches(document *explain.Document) error {
	var why, all []string
	for _, d := range document.Descriptors {
		switch {
		case len(d.Limits) == 0:
			why = append(why, d.Why)
			if len(d.Suggestions) > 0 {
				why = append(why, explain.DidYouMean(d.Suggestions))
				all = append(all, d.Suggestions...)
			}
		case !d.Limits[0].Unlimited:
			why = append(why, "the limits of "+d.Rule+" are replaced by "+d.Limits[0].ReplacedBy)
		case d.Limits[0].Plan != "":
			why = append(why, d.Rule+" is unlimited: its plan is "+d.Limits[0].Plan)
		default:
			why = append(why, d.Rule+" is unlimited")
		}
	}
	reason := status.New(codes.NotFound, "the request has no counter: "+strings.Join(why, "; "))
	return &misuse{status: reason, http: http.StatusNotFound, suggestions: all}
}
