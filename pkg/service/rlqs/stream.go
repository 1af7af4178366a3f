package rlqs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"sync"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
)

const (
	// interval is how often Envoy reports, in µs. A bucket is looked at without a report a margin
	// after it; before the second report, and while it is denied, a margin before.
	interval = int64(service.QuotaInterval / time.Microsecond)
	margin   = interval / 20
	second   = int64(time.Second / time.Microsecond)
	// minLook is the shortest time between two looks at the buckets of a stream.
	minLook = 100 * time.Millisecond
	// maxBuckets bounds the buckets of a stream.
	maxBuckets = 100_000
)

// stream is the buckets of one Envoy. It runs on the goroutine of its handler.
type stream struct {
	server *Server
	to     pb.RateLimitQuotaService_StreamRateLimitQuotasServer
	domain string
	timer  *time.Timer // for the buckets that are due
	next   int64       // when the timer fires, µs; 0 is an hour after the beginning

	// Others read the buckets, and their rules and rates. Who changes them holds mu.
	mu      sync.Mutex
	buckets map[string]*bucket // by id

	// Of the running report:
	usages  []service.Usage
	touched []*bucket // of usages
	entries []descriptors.Entry
	id      []byte
}

// bucket is a bucket of an Envoy.
type bucket struct {
	service.Quota
	id       string
	reported *pb.BucketId // in the running report; nil if it is not in it
	at       int          // its place in stream.usages; -1 if it has none
	sent     assignment   // the last one
	since    int64        // its first report on the stream, µs
	until    int64        // when the last assignment ends
	ended    int64        // when its stream ended
	due      int64        // when it is looked at if it is not reported before

	rule      *descriptors.Rule // nil if it limits nothing
	perSecond float64           // hits that are assigned
}

// message is a report as it is read from the wire.
type message struct {
	pb.RateLimitQuotaUsageReports
	err error
}

// UnmarshalBinary keeps the error for the stream's handler: with one of its own, gRPC would end the
// stream with INTERNAL.
func (m *message) UnmarshalBinary(data []byte) error {
	if err := envoy.Unmarshal(data, &m.RateLimitQuotaUsageReports); err != nil {
		m.err = wrong("the message is no RateLimitQuotaUsageReports: %v", err)
	}
	return nil
}

// serve takes in reports until the client ends the stream or ctx ends, which is no error.
func (s *stream) serve(ctx context.Context) error {
	reports := make(chan *message)
	go func() {
		for open := true; open; {
			m := new(message)
			if err := s.to.RecvMsg(m); err != nil {
				m.err, open = err, false
			}
			select {
			case reports <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		var err error
		select {
		case m := <-reports:
			if err = m.err; err == nil {
				err = s.report(&m.RateLimitQuotaUsageReports)
			}
		case <-s.timer.C:
			err = s.look()
		case <-ctx.Done():
			return nil
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

func wrong(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// report takes in a report and answers it. Nothing of a report that is wrong is charged.
func (s *stream) report(m *pb.RateLimitQuotaUsageReports) error {
	domain := cmp.Or(m.GetDomain(), s.domain)
	switch {
	case domain == "":
		return wrong("domain must not be empty in the first report; set it to a domain of the rules")
	case s.domain != "" && domain != s.domain:
		return wrong("domain must stay that of the stream's first report; open another stream for another domain")
	case len(m.GetBucketQuotaUsages()) == 0:
		return wrong("bucket_quota_usages must not be empty; report at least one bucket")
	}
	s.domain = domain
	now := s.server.Now()
	for i, usage := range m.BucketQuotaUsages {
		if err := s.add(usage, now); err != nil {
			return wrong("bucket_quota_usages[%d]: %v", i, err)
		}
	}
	return s.answer(now, nil)
}

// add adds what is reported of a bucket to the running report.
func (s *stream) add(m *pb.RateLimitQuotaUsageReports_BucketQuotaUsage, now int64) error {
	elapsed := m.GetTimeElapsed()
	if elapsed != nil && (elapsed.CheckValid() != nil || elapsed.AsDuration() < 0) {
		return errors.New("time_elapsed must be a duration of 0s or more")
	}
	s.entries = s.entries[:0]
	for key, value := range m.GetBucketId().GetBucket() {
		s.entries = append(s.entries, descriptors.Entry{Key: key, Value: value})
	}
	s.id = descriptors.AppendID(s.id[:0], s.domain, sorted(s.entries), nil)
	b := s.buckets[string(s.id)]
	switch {
	case b == nil:
		var err error
		if b, err = s.open(now, m.GetNumRequestsAllowed()); err != nil {
			return err
		}
	case now-b.since < 2*interval: // the stream that the client had before may have ended only then
		if before := s.server.take(b.id, b.since+second); before != nil {
			s.server.release([]*service.Quota{&before.Quota})
		}
	}
	if b.at >= 0 { // twice in one report
		u := &s.usages[b.at]
		u.Allowed, u.Denied = saturated(u.Allowed, m.GetNumRequestsAllowed()), saturated(u.Denied, m.GetNumRequestsDenied())
		u.Elapsed = max(u.Elapsed, elapsed.AsDuration())
		return nil
	}
	s.touch(b, service.Usage{
		Quota: &b.Quota, Allowed: m.GetNumRequestsAllowed(), Denied: m.GetNumRequestsDenied(),
		Elapsed: elapsed.AsDuration(), Returns: elapsed.AsDuration() > 0 && b.sent.kind == none,
	})
	b.reported = m.GetBucketId()
	return nil
}

// sorted sorts entries in place by their keys.
func sorted(entries []descriptors.Entry) []descriptors.Entry {
	slices.SortFunc(entries, func(a, b descriptors.Entry) int { return cmp.Compare(a.Key, b.Key) })
	return entries
}

func saturated(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	return sum | -carry
}

func (s *stream) touch(b *bucket, u service.Usage) {
	b.at = len(s.usages)
	s.usages, s.touched = append(s.usages, u), append(s.touched, b)
}

// open makes a bucket of s.entries and s.id, or takes it over from a stream that ended.
func (s *stream) open(now int64, allowed uint64) (*bucket, error) {
	if len(s.buckets) >= maxBuckets {
		return nil, fmt.Errorf("a stream has at most %d buckets", maxBuckets)
	}
	quota, err := s.server.Service.NewQuota(s.domain, slices.Clone(s.entries))
	if err != nil {
		return nil, err
	}
	id := string(s.id)
	b := s.server.take(id, now)
	if b == nil {
		b = &bucket{Quota: quota, id: id}
	} else {
		b.Inherit(now, allowed)
	}
	b.since, b.at = now, -1
	s.mu.Lock()
	s.buckets[id] = b
	s.mu.Unlock()
	return b, nil
}

// answer has the running report charged, and sends actions and the assignments that follow.
func (s *stream) answer(now int64, actions []*pb.RateLimitQuotaResponse_BucketAction) error {
	if err := s.server.Service.Report(s.to.Context(), s.server.TTL, s.usages); err != nil {
		return envoy.Error(err)
	}
	s.mu.Lock()
	for i, b := range s.touched {
		actions = s.server.assign(actions, b, &s.usages[i], now)
		if b.sent.kind == abandoned {
			delete(s.buckets, b.id)
		}
		s.wake(b.due, now)
		b.at, b.reported = -1, nil
	}
	s.mu.Unlock()
	clear(s.usages)
	s.usages, s.touched = s.usages[:0], s.touched[:0]
	if len(actions) == 0 {
		return nil
	}
	return s.to.Send(&pb.RateLimitQuotaResponse{BucketAction: actions})
}

// name is the id of b as Envoy has it.
func (b *bucket) name() *pb.BucketId {
	if b.reported != nil {
		return b.reported
	}
	id := &pb.BucketId{Bucket: make(map[string]string, len(b.Entries))}
	for _, e := range b.Entries {
		id.Bucket[e.Key] = e.Value
	}
	return id
}

// wake has the timer fire at a time, or before.
func (s *stream) wake(at, now int64) {
	if s.next == 0 || at < s.next {
		s.next = at
		s.timer.Reset(max(time.Duration(at-now)*time.Microsecond, minLook))
	}
}

// look looks at the buckets that are due: their rules or what remains may have changed. Those
// whose assignments have ended without a report give back their shares.
func (s *stream) look() error {
	now := s.server.Now()
	var silent []*service.Quota
	var gone []*pb.RateLimitQuotaResponse_BucketAction
	s.next = 0
	s.mu.Lock()
	for id, b := range s.buckets {
		switch {
		case b.due > now:
			s.wake(b.due, now)
		case now >= b.until:
			silent = append(silent, &b.Quota)
			gone = append(gone, abandon(b.name()))
			delete(s.buckets, id)
		default:
			s.touch(b, service.Usage{Quota: &b.Quota, Unasked: true})
		}
	}
	s.mu.Unlock()
	s.server.release(silent)
	return s.answer(now, gone)
}
