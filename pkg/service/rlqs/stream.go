package rlqs

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"math/bits"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service/envoy"
)

const (
	// interval is how often Envoy reports, in µs. A bucket is looked at without a report a margin
	// after it; before the second report, and while it is denied, a margin before.
	interval = int64(QuotaInterval / time.Microsecond)
	margin   = interval / 20
	second   = int64(time.Second / time.Microsecond)
	// minLook is the shortest time between two looks at the buckets of a stream.
	minLook = 100 * time.Millisecond
	// maxBuckets bounds the buckets of a stream, and maxKept those of all streams of a process.
	maxBuckets, maxKept = 100_000, 250_000
	// refusedTTL is how long a bucket beyond these bounds is denied: until its next report.
	refusedTTL = QuotaInterval + time.Second
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
	size    int                // of the buckets
	named   bool               // a bucket with an id was reported

	// Of the running report:
	actions []*pb.RateLimitQuotaResponse_BucketAction
	usages  []Usage
	touched []*bucket // of usages
	entries []descriptors.Entry
	id      []byte
}

// bucket is a bucket of an Envoy.
type bucket struct {
	Quota
	id       string
	size     int          // bytes in a report
	unnamed  bool         // Envoy takes no answer with its id, which is not UTF-8 or empty
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
	reports pb.RateLimitQuotaUsageReports
	err     error
}

// UnmarshalBinary keeps the error for the stream's handler: with one of its own, gRPC would end the
// stream with INTERNAL.
func (m *message) UnmarshalBinary(data []byte) error {
	if err := envoy.Unmarshal(data, &m.reports); err != nil {
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
				err = s.report(&m.reports)
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
	s.named = s.named || slices.ContainsFunc(m.BucketQuotaUsages, func(u *pb.RateLimitQuotaUsageReports_BucketQuotaUsage) bool {
		return len(u.GetBucketId().GetBucket()) > 0
	})
	now := s.server.Now()
	for i, usage := range m.BucketQuotaUsages {
		if err := s.add(usage, now); err != nil {
			return wrong("bucket_quota_usages[%d]: %v", i, err)
		}
	}
	return s.answer(now)
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
		if b, err = s.open(now, m); b == nil {
			return err
		}
	case now-b.since < 2*interval: // the stream that the client had before may have ended only then
		if before := s.server.take(b.id, b.since+second); before != nil {
			s.server.kept.Add(-before.weight())
			s.server.release([]*Quota{&before.Quota})
		}
	}
	if b.at >= 0 { // twice in one report
		u := &s.usages[b.at]
		u.Allowed, u.Denied = saturated(u.Allowed, m.GetNumRequestsAllowed()), saturated(u.Denied, m.GetNumRequestsDenied())
		u.Elapsed = max(u.Elapsed, elapsed.AsDuration())
		return nil
	}
	s.touch(b, Usage{
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

func (s *stream) touch(b *bucket, u Usage) {
	b.at = len(s.usages)
	s.usages, s.touched = append(s.usages, u), append(s.touched, b)
}

// open makes a bucket of s.entries and s.id, or takes it over from a stream that ended. An error is a
// bucket that no client of Envoy can cause, or an empty one before any other: a header with an empty
// value makes an empty bucket. A bucket that cannot be decided is denied, and nil. One that is beyond
// a bound, or that no answer can name, is refused and not kept.
func (s *stream) open(now int64, m *pb.RateLimitQuotaUsageReports_BucketQuotaUsage) (*bucket, error) {
	quota, err := s.server.NewQuota(s.domain, slices.Clone(s.entries))
	empty := len(s.entries) == 0
	if err != nil && (m.BucketId == nil || empty && !s.named || !empty && s.entries[0].Key == "") {
		return nil, err
	}
	b := &bucket{Quota: quota, id: string(s.id), since: now, at: -1, size: proto.Size(m), unnamed: empty || !isText(s.entries)}
	switch before := s.server.take(b.id, now); {
	case b.unnamed:
		s.server.refused.Add(1)
		b.Refused = true
	case err != nil:
		s.actions = append(s.actions, assignment{kind: denyAll}.action(m.GetBucketId(), s.server.TTL))
		return nil, nil
	case before != nil:
		b = before
		b.Inherit(now, m.GetNumRequestsAllowed())
		b.since, b.at = now, -1
		s.keep(b)
	case len(s.buckets) < maxBuckets && s.size+b.size <= cmp.Or(s.server.MaxBytes, math.MaxInt) && s.server.hasRoom(b):
		s.keep(b)
	case m.GetNumRequestsAllowed() == 0 && m.GetNumRequestsDenied() == 0 && m.GetTimeElapsed().AsDuration() >= QuotaInterval:
		s.actions = append(s.actions, abandon(m.GetBucketId())) // else its reports grow without end
		return nil, nil
	default:
		b.Refused = true
	}
	return b, nil
}

// isText reports whether entries are UTF-8.
func isText(entries []descriptors.Entry) bool {
	return !slices.ContainsFunc(entries, func(e descriptors.Entry) bool { return !utf8.ValidString(e.Key) || !utf8.ValidString(e.Value) })
}

func (s *stream) keep(b *bucket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets[b.id] = b
	s.size += b.size
}

// drop forgets a bucket. s.mu is held.
func (s *stream) drop(b *bucket) {
	delete(s.buckets, b.id)
	s.size -= b.size
	s.server.kept.Add(-b.weight())
}

// answer has the running report charged, and sends its actions and the assignments that follow.
func (s *stream) answer(now int64) error {
	if err := s.server.Report(s.to.Context(), s.usages); err != nil {
		return envoy.Error(err)
	}
	s.mu.Lock()
	for i, b := range s.touched {
		if !b.unnamed {
			s.actions = s.server.assign(s.actions, b, &s.usages[i], now)
		}
		switch {
		case b.Refused:
		case b.Rule == nil:
			s.drop(b)
		default:
			s.wake(b.due, now)
		}
		b.at, b.reported = -1, nil
	}
	s.mu.Unlock()
	clear(s.usages)
	actions := s.actions
	s.actions, s.usages, s.touched = nil, s.usages[:0], s.touched[:0]
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
	var silent []*Quota
	s.next = 0
	s.mu.Lock()
	for _, b := range s.buckets {
		switch {
		case b.due > now:
			s.wake(b.due, now)
		case now >= b.until:
			silent = append(silent, &b.Quota)
			s.actions = append(s.actions, abandon(b.name()))
			s.drop(b)
		default:
			s.touch(b, Usage{Quota: &b.Quota, Unasked: true})
		}
	}
	s.mu.Unlock()
	s.server.release(silent)
	return s.answer(now)
}
