package service

import (
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

// check refuses what cannot be decided. The generated validators are not run:
// they refuse descriptors without entries, which Envoy sends.
func (c *Caps) check(req *pb.RateLimitRequest) error {
	switch {
	case req.GetDomain() == "":
		return status.Error(codes.InvalidArgument, "rate limit domain must not be empty")
	case len(req.GetDescriptors()) == 0:
		return status.Error(codes.InvalidArgument, "rate limit descriptor list must not be empty")
	case c.Descriptors > 0 && len(req.Descriptors) > c.Descriptors:
		return status.Errorf(codes.InvalidArgument, "%d descriptors in one request, at most %d are allowed (REQUEST_MAX_DESCRIPTORS)",
			len(req.Descriptors), c.Descriptors)
	}
	for i, d := range req.Descriptors {
		if c.Entries > 0 && len(d.GetEntries()) > c.Entries {
			return status.Errorf(codes.InvalidArgument, "descriptor %d has %d entries, at most %d are allowed (REQUEST_MAX_ENTRIES)",
				i, len(d.Entries), c.Entries)
		}
		for j, e := range d.GetEntries() {
			if n := len(e.GetKey()) + len(e.GetValue()); c.EntryBytes > 0 && n > c.EntryBytes {
				return status.Errorf(codes.InvalidArgument, "entry %d of descriptor %d has %d bytes, at most %d are allowed (REQUEST_MAX_ENTRY_BYTES)",
					j, i, n, c.EntryBytes)
			}
		}
	}
	return nil
}

// appendEntries appends d's entries to dst.
func appendEntries(dst []descriptors.Entry, d *rlcommon.RateLimitDescriptor) []descriptors.Entry {
	for _, e := range d.GetEntries() {
		dst = append(dst, descriptors.Entry{Key: e.GetKey(), Value: e.GetValue()})
	}
	return dst
}

// hits is what a descriptor charges: its own hits_addend, else the request's,
// else 1. An explicit 0 of its own only checks.
func hits(req *pb.RateLimitRequest, d *rlcommon.RateLimitDescriptor) uint64 {
	switch {
	case d.GetHitsAddend() != nil:
		return d.HitsAddend.GetValue()
	case req.HitsAddend != 0:
		return uint64(req.HitsAddend)
	}
	return 1
}

// override builds the limit that the request itself brings for descriptor i.
// It changes the amount and the window of a matched rule, not its strategy, so
// that with the same window it goes on with the rule's counter.
func override(i int, o *rlcommon.RateLimitDescriptor_RateLimitOverride, rule *descriptors.Rule) (descriptors.Limit, error) {
	invalid := func(format string, args ...any) (descriptors.Limit, error) {
		return descriptors.Limit{}, status.Errorf(codes.InvalidArgument, "limit of descriptor %d: "+format, append([]any{i}, args...)...)
	}
	unit := descriptors.Unit(min(uint32(o.GetUnit()), 255))
	if !unit.Valid() {
		return invalid("unit %d is unknown; want SECOND (1), MINUTE (2), HOUR (3), DAY (4), MONTH (5), YEAR (6) or WEEK (7)", o.GetUnit())
	}
	multiplier := uint32(1)
	if o.GetUnitMultiplier() != nil {
		multiplier = o.UnitMultiplier.GetValue()
	}
	if most := uint32(algorithms.MaxWindow / unit.Duration()); multiplier == 0 || multiplier > most {
		return invalid("unit_multiplier is %d; want 1 to %d with %s", multiplier, most, unit)
	}
	spec := algorithms.Spec{Requests: o.GetRequestsPerUnit(), Window: time.Duration(multiplier) * unit.Duration()}
	if rule != nil && len(rule.Limits) > 0 {
		of := rule.Limits[0].Spec
		spec.Strategy, spec.MaxDelay, spec.FromFirstHit, spec.Extend = of.Strategy, of.MaxDelay, of.FromFirstHit, of.Extend
	}
	l, err := algorithms.New(spec)
	if err != nil {
		return invalid("%v", err)
	}
	return descriptors.Limit{Limit: l, Unit: unit, Multiplier: multiplier}, nil
}
