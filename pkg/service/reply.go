package service

import (
	"math"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.org/rls/pkg/descriptors"
)

// reply says the outcomes to the caller.
func (d *decision) reply() *pb.RateLimitResponse {
	resp := d.statuses()
	resp.OverallCode = d.overall()
	d.service.cfg.Reply.add(d, resp)
	return resp
}

// overall is OVER_LIMIT when one enforced descriptor is over, or when all
// descriptors in quota mode are.
func (d *decision) overall() pb.RateLimitResponse_Code {
	over, quotas, quotasOver := false, 0, 0
	for i := range d.outcomes {
		o := &d.outcomes[i]
		if o.unlimited() {
			continue
		}
		quota := d.service.cfg.QuotaMode || o.quota()
		denied := o.denied && !o.shadow()
		if quota {
			quotas++
			if denied {
				quotasOver++
			}
		}
		over = over || denied && !quota
	}
	over = over || quotas > 0 && quotas == quotasOver
	d.spared = over && d.service.cfg.ShadowMode
	if over && !d.spared {
		return pb.RateLimitResponse_OVER_LIMIT
	}
	return pb.RateLimitResponse_OK
}

// row is one status with all that it points to.
type row struct {
	status     pb.RateLimitResponse_DescriptorStatus
	limit      pb.RateLimitResponse_RateLimit
	reset      durationpb.Duration
	multiplier wrapperspb.UInt32Value
}

// sheet is a whole reply with one status in one allocation.
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
		rows[i].fill(&d.outcomes[i])
		resp.Statuses[i] = &rows[i].status
	}
	return resp
}

func (r *row) fill(o *outcome) {
	s := &r.status
	s.Code = pb.RateLimitResponse_OK
	if o.unlimited() {
		s.LimitRemaining = math.MaxUint32
		return
	}
	if o.shows == nil || o.shadow() && o.is.Remaining <= 0 {
		// Envoy would tell its clients that nothing remains, of a limit that
		// is not enforced.
		return
	}
	if o.denied {
		s.Code = pb.RateLimitResponse_OVER_LIMIT
	} else {
		s.LimitRemaining = uint32(min(o.is.Remaining, math.MaxUint32))
	}
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

// resetSeconds is the wait until the same cost would pass for a denial, and
// until the full quota is back otherwise, in whole seconds, rounded up because
// Envoy truncates, and at least 1.
func (o *outcome) resetSeconds() int64 {
	if o.denied {
		return seconds(o.is.RetryAfter)
	}
	return seconds(o.is.Reset)
}

func seconds(d time.Duration) int64 {
	return max(1, int64((d+time.Second-1)/time.Second))
}

// headline is the outcome that headers, body and metadata describe: of those
// that denied the one with the longest wait, else the one with the least
// remaining, the first on a tie. What is not enforced never shows.
func (d *decision) headline() *outcome {
	var best *outcome
	for i := range d.outcomes {
		o := &d.outcomes[i]
		if o.shows == nil || o.shadow() || d.service.cfg.ShadowMode && o.denied {
			continue
		}
		switch {
		case best == nil:
			best = o
		case o.denied != best.denied:
			if o.denied {
				best = o
			}
		case o.denied && o.is.RetryAfter > best.is.RetryAfter,
			!o.denied && o.is.Remaining < best.is.Remaining:
			best = o
		}
	}
	return best
}

// window is a limit's window in seconds.
func window(l *descriptors.Limit) int64 { return int64(l.Window / time.Second) }
