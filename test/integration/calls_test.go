package integration

import (
	"context"
	"strings"
	"time"

	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	ok   = pb.RateLimitResponse_OK
	over = pb.RateLimitResponse_OVER_LIMIT
)

type (
	descriptor = rlcommon.RateLimitDescriptor
	status     = pb.RateLimitResponse_DescriptorStatus
)

// desc is a descriptor of keys and values, which alternate.
func desc(keysAndValues ...string) *descriptor {
	d := &descriptor{}
	for i := 0; i < len(keysAndValues); i += 2 {
		d.Entries = append(d.Entries, &rlcommon.RateLimitDescriptor_Entry{Key: keysAndValues[i], Value: keysAndValues[i+1]})
	}
	return d
}

func costing(hits uint64, d *descriptor) *descriptor {
	d.HitsAddend = wrapperspb.UInt64(hits)
	return d
}

func refund(hits uint64, d *descriptor) *descriptor {
	d.IsNegativeHits = true
	return costing(hits, d)
}

// try calls with a deadline.
func (s *service) try(within time.Duration, domain string, descs ...*descriptor) (*pb.RateLimitResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	return s.client.ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: domain, Descriptors: descs})
}

// call is try with a deadline that only a program that hangs misses.
func (s *service) call(domain string, descs ...*descriptor) *pb.RateLimitResponse {
	s.t.Helper()
	resp, err := s.try(patience, domain, descs...)
	if err != nil {
		s.t.Fatalf("ShouldRateLimit %s %v: %v", domain, descs, err)
	}
	if len(resp.Statuses) != len(descs) {
		s.t.Fatalf("%d statuses for %d descriptors", len(resp.Statuses), len(descs))
	}
	return resp
}

// undecided wants UNAVAILABLE, because of a text.
func (s *service) undecided(domain string, d *descriptor, why string) {
	s.t.Helper()
	if _, err := s.try(patience, domain, d); grpcstatus.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), why) {
		s.t.Errorf("%s %v: %v; want UNAVAILABLE because of %q", domain, d, err, why)
	}
}

// hit sends one descriptor and returns its status.
func (s *service) hit(domain string, d *descriptor) *status {
	s.t.Helper()
	return s.call(domain, d).Statuses[0]
}

// want sends one descriptor and fails the test unless its status is as expected.
func (s *service) want(domain string, d *descriptor, code pb.RateLimitResponse_Code, remaining uint32) {
	s.t.Helper()
	if got := s.hit(domain, d); got.Code != code || got.LimitRemaining != remaining {
		s.t.Fatalf("%s %v: %v with %d remaining; want %v with %d", domain, d, got.Code, got.LimitRemaining, code, remaining)
	}
}
