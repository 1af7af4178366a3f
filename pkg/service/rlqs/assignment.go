package rlqs

import (
	"math"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// kind is what an assignment does.
type kind string

const (
	none      kind = "" // nothing was assigned
	allowAll  kind = "allow_all"
	denyAll   kind = "deny_all"
	tokens    kind = "token_bucket"
	abandoned kind = "abandoned"
)

// assignment is what a bucket is told.
type assignment struct {
	kind               kind
	maxTokens, perFill uint32
	fill               int64 // s
}

const (
	// unruledTTL is the shortest time for which a bucket without a rule is let alone.
	unruledTTL = time.Minute
	// noFill is a fill_interval in which no second token comes while an assignment holds.
	noFill = 24 * 60 * 60
)

// assignmentOf is the assignment of a share. Envoy fills max_tokens at tokens_per_fill in each
// fill_interval, which it cuts to whole seconds, a fraction of a token at a time.
func assignmentOf(share *Share) assignment {
	switch share.Kind {
	case Exhausted:
		return assignment{kind: denyAll}
	case Unruled, Unenforced:
		return assignment{kind: allowAll}
	}
	a := assignment{kind: tokens, maxTokens: whole(float64(share.Burst)), perFill: 1, fill: noFill}
	seconds := int64(QuotaInterval / time.Second)
	switch perSecond := share.Hits / seconds; {
	case share.Steady && (share.Hits%seconds == 0 || perSecond >= 100):
		a.perFill, a.fill = whole(float64(perSecond)), 1
	case share.Steady:
		a.perFill, a.fill = whole(float64(share.Hits)), seconds
	case share.Rate >= 1:
		a.perFill, a.fill = whole(share.Rate), int64(share.Window.Seconds())
	case share.Rate > 0:
		a.fill = int64(min(math.Ceil(share.Window.Seconds()/share.Rate), float64(100*365*noFill)))
	}
	return a
}

// whole is the number of tokens, at least 1.
func whole(hits float64) uint32 { return uint32(min(max(hits, 1), math.MaxUint32)) }

// assign appends the actions that tell a bucket its new share. In Envoy 1.40 a token bucket is
// full when it begins, unless it takes the place of one with other numbers: then it is empty. So
// what remains of a long window is given after a DENY_ALL, which no request meets, because Envoy
// makes all changes of a response together. A bucket of which only fill_interval differs takes no
// one's place.
func (s *Server) assign(to []*pb.RateLimitQuotaResponse_BucketAction, b *bucket, u *Usage, now int64) []*pb.RateLimitQuotaResponse_BucketAction {
	b.due = now + interval + margin
	if b.until == 0 {
		b.until = now + s.TTL.Microseconds()
	}
	hadRule, share := b.rule != nil, &b.Share
	b.rule, b.perSecond = nil, float64(share.Hits)/QuotaInterval.Seconds()
	if b.Rule != nil && len(b.Rule.Limits) > 0 {
		b.rule = b.Rule
	}
	if share.Kind == Unchanged {
		return to
	}
	if hadRule && share.Kind == Unruled {
		b.sent = assignment{kind: abandoned}
		return append(to, abandon(b.name()))
	}
	a, was, id := assignmentOf(share), b.sent, b.name()
	ttl := s.TTL
	switch {
	case share.Kind == Unruled:
		ttl = max(ttl, unruledTTL)
	case b.Refused && a.kind == denyAll:
		ttl = refusedTTL
	case share.Kind == Exhausted && share.Wait > 0:
		b.due = min(b.due, now+share.Wait.Microseconds()+1000)
	}
	sameTokens := a.maxTokens == was.maxTokens && a.perFill == was.perFill
	anew := a.kind == tokens && (share.Fresh && (was.kind == tokens || u.Returns && was.kind == none) || was.kind == tokens && sameTokens && a != was)
	if renews := a.kind == denyAll && b.until-now < 2*interval; u.Unasked && a == was && !anew && !renews {
		return to
	}
	if was.kind == none || a.kind == denyAll {
		b.due = min(b.due, now+interval-margin)
	}
	b.sent, b.until = a, now+ttl.Microseconds()
	b.due = min(b.due, b.until)
	if anew {
		to = append(to, assignment{kind: denyAll}.action(id, ttl))
	}
	return append(to, a.action(id, ttl))
}

func abandon(id *pb.BucketId) *pb.RateLimitQuotaResponse_BucketAction {
	return &pb.RateLimitQuotaResponse_BucketAction{
		BucketId:     id,
		BucketAction: &pb.RateLimitQuotaResponse_BucketAction_AbandonAction_{AbandonAction: &pb.RateLimitQuotaResponse_BucketAction_AbandonAction{}},
	}
}

// action is the assignment for a bucket, as a message that is allocated at once.
func (a assignment) action(id *pb.BucketId, ttl time.Duration) *pb.RateLimitQuotaResponse_BucketAction {
	m := new(struct {
		action   pb.RateLimitQuotaResponse_BucketAction
		is       pb.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_
		assigned pb.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction
		ttl      durationpb.Duration
		strategy typev3.RateLimitStrategy
		blanket  typev3.RateLimitStrategy_BlanketRule_
		bucket   typev3.RateLimitStrategy_TokenBucket
		tokens   typev3.TokenBucket
		perFill  wrapperspb.UInt32Value
		fill     durationpb.Duration
	})
	m.action.BucketId, m.action.BucketAction = id, &m.is
	m.is.QuotaAssignmentAction = &m.assigned
	m.assigned.AssignmentTimeToLive, m.assigned.RateLimitStrategy = &m.ttl, &m.strategy
	m.ttl.Seconds = int64(ttl / time.Second)
	switch a.kind {
	case allowAll:
		m.strategy.Strategy = &m.blanket
	case denyAll:
		m.blanket.BlanketRule = typev3.RateLimitStrategy_DENY_ALL
		m.strategy.Strategy = &m.blanket
	default:
		m.strategy.Strategy, m.bucket.TokenBucket = &m.bucket, &m.tokens
		m.tokens.MaxTokens, m.tokens.TokensPerFill, m.tokens.FillInterval = a.maxTokens, &m.perFill, &m.fill
		m.perFill.Value, m.fill.Seconds = a.perFill, a.fill
	}
	return &m.action
}
