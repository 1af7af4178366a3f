package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "example.org/rls/pkg/admin/adminpb"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/explain"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
)

// Counters is the document of /v1/get.
type Counters struct {
	Domain      string    `json:"domain"`
	Descriptors []Counted `json:"descriptors"`
}

// Counted is one descriptor of a request with its limits.
type Counted struct {
	Entries []descriptors.Entry `json:"entries"`
	Limits  []explain.Limit     `json:"limits"`
	Why     string              `json:"why,omitempty"` // there is no limit
	// Suggestions are texts that the request may have meant; there are none unless nothing limits.
	Suggestions []string `json:"suggestions,omitempty"`
	// Override is the limit that counts in place of the rule's.
	Override *explain.Override `json:"override,omitempty"`
}

// maxExplanation bounds an explanation, in bytes, to what gRPC's clients read. Only long
// texts of the request or of rules can exceed it.
const maxExplanation = 4 << 20

// explain waits until fewer than maxExplained explanations are under way, because an
// explanation is long where the rules are many.
func (a *API) explain(ctx context.Context, r *pb.LookRequest) (any, error) {
	select {
	case a.explained <- struct{}{}:
		defer func() { <-a.explained }()
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	in, err := a.inspect(ctx, r, service.Explain)
	if err != nil {
		return nil, err
	}
	document := explain.New(in)
	document.Rules = a.options.Rules()
	if r.GetRlqs() && a.options.Quotas != nil {
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

func (a *API) get(ctx context.Context, r *pb.LookRequest) (any, error) {
	in, err := a.inspect(ctx, r, service.Look)
	if err != nil {
		return nil, err
	}
	document := explain.New(in)
	counters := Counters{Domain: in.Domain, Descriptors: make([]Counted, len(in.Descriptors))}
	matched := false
	for i, d := range document.Descriptors {
		counters.Descriptors[i] = Counted{d.Entries, d.Limits, d.Why, d.Suggestions, d.Override}
		matched = matched || len(d.Limits) > 0
	}
	if !matched {
		return nil, nothingMatches(in)
	}
	return counters, nil
}

// asker is a message that has a request.
type asker interface {
	GetDomain() string
	GetDescriptors() []*pb.Descriptor
	GetHitsAddend() uint32
	GetPool() string
}

// inspect is inspectRequest for the request of a message.
func (a *API) inspect(ctx context.Context, m asker, do service.Action) (service.Inspection, error) {
	request, err := requestOf(m)
	if err != nil {
		return service.Inspection{}, err
	}
	return a.inspectRequest(ctx, &request, do)
}

// inspectRequest asks the service about a request. A descriptor without a limit has the
// limit that the last request with its entries brought along, if it brought one, so that
// what is shown and changed is what decides.
func (a *API) inspectRequest(ctx context.Context, request *service.Request, do service.Action) (service.Inspection, error) {
	for i := range request.Descriptors {
		if d := &request.Descriptors[i]; d.Limit == nil && a.options.Top != nil {
			d.Limit = a.options.Top.Override(request.Domain, d.Entries)
		}
	}
	in, err := a.options.Limits.Inspect(ctx, request, do)
	return in, envoy.Error(err)
}

func requestOf(m asker) (service.Request, error) {
	request := service.Request{Domain: m.GetDomain(), Hits: m.GetHitsAddend(), Pool: m.GetPool()}
	for i, d := range m.GetDescriptors() {
		asked := service.Descriptor{Hits: d.HitsAddend, Refund: d.GetIsNegativeHits()}
		for _, e := range d.GetEntries() {
			shown := descriptors.Shown{Key: e.GetKey(), Value: e.GetValue(), Raw: e.GetRaw(), RawKey: e.GetRawKey()}
			asked.Entries = append(asked.Entries, shown.Entry())
		}
		if l := d.GetLimit(); l != nil {
			unit := descriptors.ParseUnit(l.GetUnit())
			if !unit.Valid() {
				return request, invalid("descriptors[%d].limit.unit is %q: want one of %s", i, l.GetUnit(), strings.Join(descriptors.UnitNames(), ", "))
			}
			asked.Limit = &service.Override{RequestsPerUnit: l.GetRequestsPerUnit(), Unit: unit, Multiplier: max(l.GetUnitMultiplier(), 1)}
		}
		request.Descriptors = append(request.Descriptors, asked)
	}
	return request, nil
}

// nothingMatches is the error of a request without a counter. It says why for each
// descriptor.
func nothingMatches(in service.Inspection) error {
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
