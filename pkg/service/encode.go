package service

import (
	"math"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// encode writes the reply. It is the only place that writes Envoy's protobuf
// replies.
func (d *decision) encode() *pb.RateLimitResponse {
	resp := d.statuses()
	resp.OverallCode = pb.RateLimitResponse_OK
	if d.over {
		resp.OverallCode = pb.RateLimitResponse_OVER_LIMIT
	}
	if cfg := &d.service.cfg.Reply; *cfg != (Reply{}) {
		e := cfg.extras(d)
		resp.ResponseHeadersToAdd = encodeHeaders(e.response)
		resp.RequestHeadersToAdd = encodeHeaders(e.upstream)
		resp.RawBody = e.body
		if e.metadata != nil {
			// NewStruct fails only for strings that are not UTF-8, and strings
			// of a protobuf message are UTF-8.
			resp.DynamicMetadata, _ = structpb.NewStruct(e.metadata)
		}
	}
	return resp
}

// row is one status with everything that it points to.
type row struct {
	status     pb.RateLimitResponse_DescriptorStatus
	limit      pb.RateLimitResponse_RateLimit
	reset      durationpb.Duration
	multiplier wrapperspb.UInt32Value
}

// sheet is a whole reply with one status, in one allocation.
type sheet struct {
	resp     pb.RateLimitResponse
	statuses [1]*pb.RateLimitResponse_DescriptorStatus
	rows     [1]row
}

// statuses is a reply with one status for each descriptor, in the same order.
func (d *decision) statuses() *pb.RateLimitResponse {
	s := new(sheet)
	rows, resp := s.rows[:], &s.resp
	resp.Statuses = s.statuses[:]
	if n := len(d.outcomes); n != 1 {
		rows = make([]row, n)
		resp.Statuses = make([]*pb.RateLimitResponse_DescriptorStatus, n)
	}
	for i := range d.outcomes {
		rows[i].encode(&d.outcomes[i])
		resp.Statuses[i] = &rows[i].status
	}
	return resp
}

func (r *row) encode(o *outcome) {
	s := &r.status
	switch {
	case o.open():
		s.Code = pb.RateLimitResponse_UNKNOWN
		return
	case o.denied && !o.shadow():
		s.Code = pb.RateLimitResponse_OVER_LIMIT
	default:
		s.Code = pb.RateLimitResponse_OK
	}
	if o.unlimited() {
		s.LimitRemaining = math.MaxUint32
		return
	}
	if o.shows == nil || o.shadow() && o.is.Remaining <= 0 {
		// The status has no limit: from it Envoy would tell its clients that
		// nothing remains, although the limit is not enforced.
		return
	}
	s.LimitRemaining = uint32(min(o.remaining(), math.MaxUint32))
	r.limit.Name = o.shows.Name
	r.limit.RequestsPerUnit = o.shows.Requests
	r.limit.Unit = pb.RateLimitResponse_RateLimit_Unit(o.shows.Unit)
	if o.shows.Multiplier > 1 {
		r.multiplier.Value = o.shows.Multiplier
		r.limit.UnitMultiplier = &r.multiplier
	}
	s.CurrentLimit = &r.limit
	r.reset.Seconds = o.resetSeconds()
	s.DurationUntilReset = &r.reset
}

func encodeHeaders(list []header) []*corev3.HeaderValue {
	if len(list) == 0 {
		return nil
	}
	values := make([]*corev3.HeaderValue, len(list))
	for i, h := range list {
		values[i] = &corev3.HeaderValue{Key: h.name, Value: h.value}
	}
	return values
}
