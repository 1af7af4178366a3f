package service

import (
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"example.org/rls/pkg/descriptors"
)

// decode reads a message into r. It is the only place that reads Envoy's
// protobuf requests. Strings are shared with the message, not copied.
//
// Of three sources for the hits of a descriptor the first one that is present
// counts: the descriptor's own hits_addend (an explicit 0 only checks), the
// request's hits_addend unless it is 0, and 1.
func (r *request) decode(message *pb.RateLimitRequest) {
	r.domain, r.hitsAddend = message.GetDomain(), message.GetHitsAddend()
	hits := uint64(max(r.hitsAddend, 1))

	entries := 0
	for _, from := range message.GetDescriptors() {
		entries += len(from.GetEntries())
	}
	r.entries = resized(r.entries, entries)[:0]
	r.descriptors = resized(r.descriptors, len(message.GetDescriptors()))
	for i, from := range message.GetDescriptors() {
		first := len(r.entries)
		for _, e := range from.GetEntries() {
			r.entries = append(r.entries, descriptors.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		d := descriptor{entries: r.entries[first:], hits: hits, refund: from.GetIsNegativeHits()}
		if own := from.GetHitsAddend(); own != nil {
			d.hits, d.ownHits = own.GetValue(), true
		}
		if limit := from.GetLimit(); limit != nil {
			d.override = override{given: true, requests: limit.GetRequestsPerUnit(), unit: int32(limit.GetUnit()), multiplier: 1}
			if m := limit.GetUnitMultiplier(); m != nil {
				d.override.multiplier = m.GetValue()
			}
		}
		r.descriptors[i] = d
	}
}
