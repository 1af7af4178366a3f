package rlqs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

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

// stream is the buckets of one Envoy.
type stream struct {
	server *Server
	to     pb.RateLimitQuotaService_StreamRateLimitQuotasServer

	mu      sync.Mutex
	ended   bool
	domain  string
	buckets map[string]*bucket // by id
	timer   *time.Timer
	next    int64 // when the timer fires, µs; 0 is an hour after the beginning

	// Of the running report:
	usages  []service.Usage
	touched []*bucket      // of usages
	names   []*pb.BucketId // of usages
	entries []descriptors.Entry
	id      []byte
}

// bucket is a bucket of an Envoy.
type bucket struct {
	service.Quota
	id      string
	sent    assignment // the last one
	returns bool       // its Envoy had it on a stream of another process
	since   int64      // its first report on the stream, µs
	until   int64      // when the last assignment ends
	ended   int64      // when its stream ended
	due     int64      // when it is looked at if it is not reported before
	at      int        // its place in stream.usages; -1 if it is in no report
	of      *assigned  // its rule
	counted int64      // of the hits of its rule
}

// message is a report as it is read from the wire.
type message struct {
	pb.RateLimitQuotaUsageReports
	err error
}

// UnmarshalBinary keeps the error for the stream's handler: with one of its own, gRPC would end the
// stream with INTERNAL.
func (m *message) UnmarshalBinary(data []byte) error {
	m.err = proto.Unmarshal(data, &m.RateLimitQuotaUsageReports)
	return nil
}

// receive takes in reports until the client ends the stream, which is no error.
func (s *stream) receive() error {
	for {
		var m message
		if err := s.to.RecvMsg(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if m.err != nil {
			return wrong("the message is no RateLimitQuotaUsageReports: %v", m.err)
		}
		if err := s.report(&m.RateLimitQuotaUsageReports); err != nil {
			return err
		}
	}
}

func wrong(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// report takes in a report and answers it. Nothing of a report that is wrong is charged.
func (s *stream) report(m *pb.RateLimitQuotaUsageReports) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	domain := cmp.Or(m.GetDomain(), s.domain)
	switch {
	case s.ended:
		return nil
	case domain == "":
		return wrong("domain must not be empty in the first report; set it to a domain of the rules")
	case s.domain != "" && domain != s.domain:
		return wrong("domain must stay that of the stream's first report; open another stream for another domain")
	case len(m.GetBucketQuotaUsages()) == 0:
		return wrong("bucket_quota_usages must not be empty; report at least one bucket")
	}
	s.domain = domain
	s.begin()
	now := s.server.Now()
	for i, usage := range m.BucketQuotaUsages {
		if err := s.add(usage, now); err != nil {
			return wrong("bucket_quota_usages[%d]: %v", i, err)
		}
	}
	return s.answer(now)
}

// begin forgets the last report.
func (s *stream) begin() {
	for _, b := range s.touched {
		b.at = -1
	}
	clear(s.usages)
	s.usages, s.touched, s.names = s.usages[:0], s.touched[:0], s.names[:0]
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
		if b, err = s.open(now); err != nil {
			return err
		}
		b.returns = elapsed.AsDuration() > 0 && b.sent.kind == none
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
		Elapsed: elapsed.AsDuration(), Returns: b.returns && now-b.since < s.server.TTL.Microseconds(),
	}, m.GetBucketId())
	return nil
}

// sorted sorts entries in place by their keys.
func sorted(entries []descriptors.Entry) []descriptors.Entry {
	slices.SortFunc(entries, func(a, b descriptors.Entry) int { return cmp.Compare(a.Key, b.Key) })
	return entries
}

func saturated(a, b uint64) uint64 {
	if a+b < a {
		return math.MaxUint64
	}
	return a + b
}

func (s *stream) touch(b *bucket, u service.Usage, name *pb.BucketId) {
	b.at = len(s.usages)
	s.usages, s.touched, s.names = append(s.usages, u), append(s.touched, b), append(s.names, name)
}

// open makes a bucket of s.entries and s.id, or takes it over from a stream that ended.
func (s *stream) open(now int64) (*bucket, error) {
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
	}
	b.since, b.at = now, -1
	s.buckets[id] = b
	s.server.buckets.Add(1)
	return b, nil
}

// answer has the running report charged, and sends the assignments that follow.
func (s *stream) answer(now int64) error {
	if err := s.server.Service.Report(s.to.Context(), s.server.TTL, s.usages); err != nil {
		return envoy.Error(err)
	}
	reply := new(pb.RateLimitQuotaResponse)
	for i, b := range s.touched {
		if s.names[i] == nil {
			s.names[i] = b.name()
		}
		reply.BucketAction = s.server.assign(reply.BucketAction, b, s.names[i], &s.usages[i], now)
		if b.sent.kind == abandoned {
			s.drop(b)
		}
		if b.due < s.next || s.next == 0 {
			s.next = b.due
			s.timer.Reset(max(time.Duration(s.next-now)*time.Microsecond, minLook))
		}
	}
	if len(reply.BucketAction) == 0 {
		return nil
	}
	return s.to.Send(reply)
}

// name is the id of b as Envoy has it.
func (b *bucket) name() *pb.BucketId {
	id := &pb.BucketId{Bucket: make(map[string]string, len(b.Entries))}
	for _, e := range b.Entries {
		id.Bucket[e.Key] = e.Value
	}
	return id
}

// drop forgets a bucket.
func (s *stream) drop(b *bucket) {
	delete(s.buckets, b.id)
	s.server.buckets.Add(-1)
	s.server.count(b, nil)
}

// fire looks at the buckets that are due: their rules or what remains may have changed. Those
// whose assignments have ended without a report give back their shares.
func (s *stream) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.begin()
	now := s.server.Now()
	var silent []*service.Quota
	gone := new(pb.RateLimitQuotaResponse)
	for _, b := range s.buckets {
		switch {
		case b.due > now:
		case now >= b.until:
			silent = append(silent, &b.Quota)
			gone.BucketAction = append(gone.BucketAction, abandon(b.name()))
			s.drop(b)
		default:
			s.touch(b, service.Usage{Quota: &b.Quota, Unasked: true}, nil)
		}
	}
	s.next = 0
	var err error
	if len(silent) > 0 {
		s.server.release(silent)
		err = s.to.Send(gone)
	}
	if err == nil && len(s.usages) > 0 {
		err = s.answer(now)
	}
	for _, b := range s.buckets {
		if s.next == 0 || b.due < s.next {
			s.next = b.due
		}
	}
	if s.next > 0 && err == nil {
		s.timer.Reset(max(time.Duration(s.next-now)*time.Microsecond, minLook))
	}
}

// end ends the stream and returns its buckets.
func (s *stream) end() map[string]*bucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.timer.Stop()
	all := maps.Clone(s.buckets)
	for _, b := range all {
		s.drop(b)
		b.ended = s.server.Now()
	}
	return all
}
