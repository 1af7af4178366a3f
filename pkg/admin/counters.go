package admin

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "example.org/rls/pkg/admin/adminpb"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/explain"
	"example.org/rls/pkg/service"
)

// Count is the state of a cell, as changes show it.
type Count struct {
	Count     int64 `json:"count"`
	Remaining int64 `json:"remaining"`
}

// Counters is the document of /v1/get.
type Counters struct {
	Domain      string    `json:"domain"`
	Descriptors []Counted `json:"descriptors"`
}

// Counted is one descriptor of a request with its limits.
type Counted struct {
	Entries []explain.Entry `json:"entries"`
	Limits  []explain.Limit `json:"limits"`
}

func (a *API) explain(ctx context.Context, r *pb.LookRequest) (any, error) {
	in, err := a.inspect(ctx, r, service.Look)
	if err != nil {
		return nil, err
	}
	document := explain.New(in)
	if a.options.Rules != nil {
		document.Rules = a.options.Rules()
	}
	return document, nil
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
		counters.Descriptors[i] = Counted{d.Entries, d.Limits}
		matched = matched || len(d.Limits) > 0
	}
	if !matched {
		return nil, nothingMatches(in)
	}
	return counters, nil
}

func (a *API) reset(context.Context, *pb.ResetRequest) (any, error) { return nil, errNotServed }

func (a *API) grant(context.Context, *pb.GrantRequest) (any, error) { return nil, errNotServed }

// asker is a message that has a request.
type asker interface {
	GetDomain() string
	GetDescriptors() []*pb.Descriptor
	GetHitsAddend() uint32
}

// inspect asks the service about the request of a message.
func (a *API) inspect(ctx context.Context, m asker, do service.Action) (service.Inspection, error) {
	if a.options.Limits == nil {
		return service.Inspection{}, errNotServed
	}
	ask, err := askOf(m)
	if err != nil {
		return service.Inspection{}, err
	}
	return a.options.Limits.Inspect(ctx, service.NewRequest(&ask), do)
}

func askOf(m asker) (service.Ask, error) {
	ask := service.Ask{Domain: m.GetDomain(), Hits: m.GetHitsAddend()}
	for i, d := range m.GetDescriptors() {
		var asked service.AskDescriptor
		for _, e := range d.GetEntries() {
			asked.Entries = append(asked.Entries, descriptors.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		if l := d.GetLimit(); l != nil {
			unit := descriptors.ParseUnit(l.GetUnit())
			if !unit.Valid() {
				return ask, invalid("descriptors[%d].limit.unit is %q: want one of %s", i, l.GetUnit(), strings.Join(descriptors.UnitNames(), ", "))
			}
			asked.Limit = &service.AskLimit{RequestsPerUnit: l.GetRequestsPerUnit(), Unit: unit, Multiplier: l.GetUnitMultiplier()}
		}
		ask.Descriptors = append(ask.Descriptors, asked)
	}
	return ask, nil
}

// nothingMatches is the error of a request without a limit. It says why for each
// descriptor.
func nothingMatches(in service.Inspection) error {
	var why []string
	for _, d := range in.Descriptors {
		why = append(why, d.Trace.Why)
	}
	return status.Errorf(codes.NotFound, "no limit: %s", strings.Join(why, "; "))
}
