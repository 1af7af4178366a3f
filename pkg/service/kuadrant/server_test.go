package kuadrant_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/envoy"
	"example.org/rls/pkg/service/kuadrant"
	pb "example.org/rls/pkg/service/kuadrant/kuadrantpb"
	"example.org/rls/pkg/service/operate"
)

const (
	ok   = rls.RateLimitResponse_OK
	over = rls.RateLimitResponse_OVER_LIMIT
)

// rig is both services behind a connection, on the memory store with a clock that the test moves.
type rig struct {
	t       testing.TB
	ctx     context.Context
	service *service.Service
	pb.RateLimitServiceClient
	envoy rls.RateLimitServiceClient
	clock *atomic.Int64 // µs
}

func start(t testing.TB, rules string, change ...func(*service.Config)) *rig {
	t.Helper()
	r := &rig{t: t, ctx: t.Context(), clock: new(atomic.Int64)}
	r.clock.Store(1_800_057_610_000_000) // ten seconds into a minute, an hour and a day
	store, err := memory.New(memory.Options{MaxKeys: 100_000, Now: r.clock.Load})
	if err != nil {
		t.Fatal(err)
	}
	cfg := service.Config{Store: store, MaxHold: 10 * time.Minute}
	for _, c := range change {
		c(&cfg)
	}
	r.service = service.New(cfg)
	tree, _, err := yaml.Load([]yaml.Text{{Name: "rules.yaml", Content: []byte(rules)}}, yaml.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r.service.SetTree(tree)
	e := envoy.New(r.service, envoy.Reply{}, service.Caps{})
	l := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.ForceServerCodecV2(envoy.Codec()))
	e.Register(server)
	kuadrant.Register(server, e)
	go server.Serve(l) //nolint:errcheck // ends with Stop
	conn, err := grpc.NewClient("passthrough:///service", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	r.RateLimitServiceClient, r.envoy = pb.NewRateLimitServiceClient(conn), rls.NewRateLimitServiceClient(conn)
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		store.Close()
	})
	return r
}

func (r *rig) pass(d time.Duration) { r.clock.Add(d.Microseconds()) }

// desc is a descriptor of keys, each with the value v or KEY=VALUE.
func desc(entries ...string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

func request(hits uint64, descs ...*common.RateLimitDescriptor) *rls.RateLimitRequest {
	m := &rls.RateLimitRequest{Domain: "d"}
	for _, d := range descs {
		own := &common.RateLimitDescriptor{Entries: d.Entries, HitsAddend: wrapperspb.UInt64(hits)}
		m.Descriptors = append(m.Descriptors, own)
	}
	return m
}

// charge sends ShouldRateLimit.
func (r *rig) charge(hits uint64, descs ...*common.RateLimitDescriptor) *rls.RateLimitResponse {
	r.t.Helper()
	m, err := r.envoy.ShouldRateLimit(r.ctx, request(hits, descs...))
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

func (r *rig) check(hits uint64, descs ...*common.RateLimitDescriptor) *rls.RateLimitResponse {
	r.t.Helper()
	m, err := r.CheckRateLimit(r.ctx, request(hits, descs...))
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

func (r *rig) report(hits uint64, descs ...*common.RateLimitDescriptor) {
	r.t.Helper()
	m, err := r.Report(r.ctx, request(hits, descs...))
	if err != nil || m.OverallCode != ok {
		r.t.Fatalf("Report of %d: %v, %v; want OK", hits, m.GetOverallCode(), err)
	}
}

// reserve returns the id of a Reserve that is OK, "" if it is over the limit.
func (r *rig) reserve(hits uint64, ttl time.Duration, descs ...*common.RateLimitDescriptor) string {
	r.t.Helper()
	m := &pb.ReserveRequest{Domain: "d", Descriptors: descs, Amount: hits}
	if ttl > 0 {
		m.Ttl = durationpb.New(ttl)
	}
	reply, err := r.Reserve(r.ctx, m)
	if err != nil {
		r.t.Fatal(err)
	}
	if (reply.Code == ok) != (len(reply.ReservationId) == 32) || reply.Code != ok && reply.Code != over {
		r.t.Fatalf("Reserve of %d: %v with the id %q", hits, reply.Code, reply.ReservationId)
	}
	return reply.ReservationId
}

// commit reports whether the id held hits.
func (r *rig) commit(id string, hits uint64, descs ...*common.RateLimitDescriptor) (released bool) {
	r.t.Helper()
	reply, err := r.Commit(r.ctx, &pb.CommitRequest{Domain: "d", Descriptors: descs, ReservationId: id, ActualAmount: hits})
	if err != nil || reply.Code != ok {
		r.t.Fatalf("Commit of %d: %v, %v; want OK", hits, reply.GetCode(), err)
	}
	return reply.ReservationReleased
}

// remains fails the test unless so many hits remain for a descriptor.
func (r *rig) remains(want uint32, d *common.RateLimitDescriptor) {
	r.t.Helper()
	s := r.charge(0, d).Statuses[0]
	if s.LimitRemaining != want {
		r.t.Fatalf("%d hits remain; want %d", s.LimitRemaining, want)
	}
}

const perHour = `{unit: hour, requests_per_unit: 100}`

func rulesOf(limit string) string {
	return "domain: d\ndescriptors:\n- key: user\n  rate_limit: " + limit + "\n"
}

var strategies = map[string]string{
	"fixed_window":        perHour,
	"sliding_window":      `{unit: hour, requests_per_unit: 100, strategy: sliding_window}`,
	"precision":           `{unit: hour, requests_per_unit: 100, strategy: sliding_window, precision: 10}`,
	"sliding_log":         `{unit: hour, requests_per_unit: 100, strategy: sliding_log}`,
	"token_bucket":        `{unit: hour, requests_per_unit: 100, strategy: token_bucket}`,
	"gcra":                `{unit: hour, requests_per_unit: 100, strategy: gcra, burst: 100}`,
	"leaky_bucket":        `{unit: hour, requests_per_unit: 100, strategy: leaky_bucket}`,
	"concurrency":         `{unit: hour, requests_per_unit: 100, strategy: concurrency}`,
	"overdraft window":    `{unit: hour, requests_per_unit: 100, overdraft: true}`,
	"overdraft bucket":    `{unit: hour, requests_per_unit: 100, strategy: token_bucket, overdraft: true}`,
	"calendar":            `{unit: month, requests_per_unit: 100, window: calendar}`,
	"reserve of the rule": `{unit: hour, requests_per_unit: 100, reserve: {on_expiry: give_back}}`,
}

func TestHeldHitsCountAsUsedUntilCommit(t *testing.T) {
	for name, limit := range strategies {
		t.Run(name, func(t *testing.T) {
			r, user := start(t, rulesOf(limit)), desc("user=ann")
			id := r.reserve(60, 0, user)
			r.remains(40, user)
			if r.reserve(41, 0, user) != "" {
				t.Fatal("41 hits were held where 40 remain")
			}
			if c := r.check(41, user).OverallCode; (c == ok) != strings.Contains(name, "overdraft") {
				t.Fatalf("a check of 41: %v", c)
			}
			if c := r.check(40, user).OverallCode; c != ok {
				t.Fatalf("a check of 40: %v", c)
			}
			r.remains(40, user)
			other := r.reserve(40, 0, user)
			r.commit(other, 0, user)
			r.remains(40, user)
			r.commit(id, 25, user)
			r.remains(75, user)
			r.commit(id, 25, user) // again
			r.commit(id, 99, user)
			r.remains(75, user)
			id = r.reserve(10, 0, user)
			r.commit(id, 30, user)
			r.remains(45, user)
			r.commit(r.reserve(10, 0, user), 60, user) // more than remains
			r.remains(0, user)
			if r.reserve(1, 0, user) != "" || r.check(1, user).OverallCode != over {
				t.Fatal("a hit passes where more is used than the limit")
			}
		})
	}
}

func TestReportChargesWhateverRemains(t *testing.T) {
	for name, limit := range strategies {
		t.Run(name, func(t *testing.T) {
			r, user := start(t, rulesOf(limit)), desc("user=ann")
			r.report(30, user)
			r.remains(70, user)
			r.report(120, user)
			r.remains(0, user)
			if c := r.charge(1, user).OverallCode; c != over {
				t.Fatalf("a hit beside a debt of 50: %v", c)
			}
		})
	}
}

func TestACheckOfTheLastHit(t *testing.T) {
	for name, limit := range strategies {
		r, user := start(t, rulesOf(limit)), desc("user=ann")
		for used, want := range []rls.RateLimitResponse_Code{ok, over} {
			r.report(uint64(99-98*used), user)
			if got := r.check(1, user).OverallCode; got != want {
				t.Errorf("%s: a check of 1 hit where %d remain: %v, want %v", name, 1-used, got, want)
			}
		}
	}
}

func TestDebtOfABucketIsPaidAtItsRate(t *testing.T) {
	r, user := start(t, rulesOf(`{unit: second, requests_per_unit: 10, strategy: token_bucket}`)), desc("user=ann")
	r.report(35, user)
	r.pass(2500 * time.Millisecond)
	if m := r.check(1, user); m.OverallCode != over {
		t.Fatalf("%v after 2.5s", m)
	}
	r.remains(0, user)
	r.pass(100 * time.Millisecond)
	r.remains(1, user)
	if m := r.charge(1, user); m.OverallCode != ok {
		t.Fatalf("%v after 2.6s", m)
	}
}

func TestHeldHitsComeBackAfterTheirTTL(t *testing.T) {
	for name, limit := range strategies {
		t.Run(name, func(t *testing.T) {
			r, user := start(t, rulesOf(limit)), desc("user=ann")
			short, long := r.reserve(30, time.Second, user), r.reserve(20, time.Hour, user) // cut to 10m
			r.pass(900 * time.Millisecond)
			r.remains(50, user)
			r.pass(120 * time.Millisecond)
			r.remains(80, user)
			r.commit(short, 5, user) // as Report
			r.remains(75, user)
			r.pass(10*time.Minute + 10*time.Second - 1020*time.Millisecond)
			if strings.Contains(name, "bucket") || name == "gcra" { // 16 and a half hits leaked
				r.remains(100, user)
				return
			}
			r.remains(95, user)
			r.commit(long, 95, user)
			r.remains(0, user)
		})
	}
}

// TestASecondCommitChangesNothing: of an id that held hits, one that has lapsed, one of a
// Reserve with amount 0, and one that is unknown.
func TestASecondCommitChangesNothing(t *testing.T) {
	for name, limit := range strategies {
		t.Run(name, func(t *testing.T) {
			r, user := start(t, rulesOf(limit)), desc("user=ann")
			lapsed, held, nothing := r.reserve(1, time.Second, user), r.reserve(20, 0, user), r.reserve(0, 0, user)
			r.pass(1100 * time.Millisecond)
			for id, holds := range map[string]bool{held: true, lapsed: false, nothing: false, strings.Repeat("cd", 16): false} {
				for again := range 3 {
					if released := r.commit(id, 10, user); released != (holds && again == 0) {
						t.Errorf("Commit %d of %s: released %v", again, id, released)
					}
				}
			}
			r.remains(60, user)
		})
	}
}

// TestACommitInALaterWindow charges all of its amount: what was held counted in the earlier one.
func TestACommitInALaterWindow(t *testing.T) {
	for name, limit := range map[string]string{
		"fixed_window": `{unit: minute, requests_per_unit: 100}`,
		"overdraft":    `{unit: minute, requests_per_unit: 100, overdraft: true}`,
		"sliding_log":  `{unit: minute, requests_per_unit: 100, strategy: sliding_log}`,
		"precision":    `{unit: minute, requests_per_unit: 100, strategy: sliding_window, precision: 2}`,
		"sliding":      `{unit: minute, requests_per_unit: 100, strategy: sliding_window}`,
		"concurrency":  `{unit: minute, requests_per_unit: 100, strategy: concurrency}`,
	} {
		t.Run(name, func(t *testing.T) {
			r, user := start(t, rulesOf(limit)), desc("user=ann")
			less, more := r.reserve(20, 0, user), r.reserve(20, 0, user)
			r.pass(2 * time.Minute)
			r.remains(100, user)
			r.commit(less, 15, user)
			r.commit(more, 25, user)
			r.remains(60, user)
			r.commit(less, 15, user)
			r.commit(more, 25, user)
			r.remains(60, user)
			r.pass(10 * time.Minute) // nothing comes back
			r.report(10, user)
			r.remains(90, user)
		})
	}
}

func TestAnIDIsOfItsDomainAndDescriptors(t *testing.T) {
	r := start(t, rulesOf(perHour)+"---\ndomain: e\ndescriptors:\n- key: user\n  rate_limit: "+perHour+"\n")
	ann, bob := desc("user=ann"), desc("user=bob")
	id := r.reserve(60, 0, ann)
	r.commit(id, 10, bob)
	r.remains(40, ann)
	r.remains(90, bob)
	reply, err := r.Commit(r.ctx, &pb.CommitRequest{Domain: "e", Descriptors: []*common.RateLimitDescriptor{ann}, ReservationId: id, ActualAmount: 1})
	if err != nil || reply.Code != ok {
		t.Fatal(reply, err)
	}
	r.remains(40, ann)
	for _, unknown := range []string{"", "x", strings.Repeat("0", 32), strings.Repeat("é", 16)} {
		r.commit(unknown, 5, bob)
	}
	r.remains(70, bob)
	if again := r.reserve(1, 0, ann); again == id {
		t.Fatal("two holds with one id")
	}
}

func TestReserveHoldsInAllLimitsOrInNone(t *testing.T) {
	r := start(t, `domain: d
descriptors:
- key: user
  rate_limits:
  - {unit: hour, requests_per_unit: 100}
  - {unit: minute, requests_per_unit: 10, strategy: token_bucket}
- key: model
  rate_limit: {unit: hour, requests_per_unit: 30, name: m}
`)
	user, model := desc("user=ann"), desc("model=x")
	id := r.reserve(8, 0, user, model)
	r.remains(22, model)
	if r.reserve(3, 0, user, model) != "" {
		t.Fatal("held beyond the bucket")
	}
	r.remains(22, model)
	r.commit(id, 2, user, model)
	r.remains(8, user)
	r.remains(28, model)
	if r.reserve(29, 0, model, desc("user=bob")) != "" {
		t.Fatal("held beyond the model's limit")
	}
	r.remains(10, desc("user=bob"))
}

func TestDescriptorsThatShareACounterEachHold(t *testing.T) {
	for name, limit := range strategies {
		t.Run(name, func(t *testing.T) {
			rules := "domain: d\ndescriptors:\n- {key: user, value: 'a*', share_threshold: true, rate_limit: " + limit + "}\n"
			if name == "reserve of the rule" { // no value is part of its counter
				rules = rulesOf(limit)
			}
			r, ann, abe := start(t, rules), desc("user=ann"), desc("user=abe")
			if r.reserve(51, 0, ann, abe) != "" {
				t.Fatal("102 of 100 hits are held")
			}
			id := r.reserve(20, time.Minute, ann, abe)
			r.remains(60, ann)
			for range 2 {
				r.commit(id, 5, abe, ann)
				r.remains(90, ann)
			}
			r.reserve(20, 2*time.Second, ann, ann)
			r.remains(50, ann)
			r.pass(2100 * time.Millisecond)
			r.remains(90, ann)
			r.commit("", 5, ann, ann)
			r.commit(strings.Repeat("ab", 16), 5, ann, ann)
			r.remains(70, ann)
		})
	}
}

func TestAReserveThatIsOverTheLimitHoldsNothing(t *testing.T) {
	r := start(t, "domain: d\ndescriptors:\n"+
		"- {key: a, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 100}}\n"+
		"- {key: b, quota_mode: true, rate_limits: [{unit: minute, requests_per_unit: 20}, {unit: hour, requests_per_unit: 1000}]}\n")
	a, b := desc("a=x"), desc("b=x")
	id := r.reserve(30, 0, a, b) // one of several quotas is enough
	r.remains(70, a)
	r.remains(20, b)
	if r.reserve(75, 0, a, b) != "" {
		t.Fatal("75 hits are held, and 70 remain")
	}
	r.remains(70, a)
	r.commit(id, 0, a)
	r.remains(100, a)
	r.report(95, a, b)
	for range 5 {
		if r.reserve(10, 0, a, b) != "" {
			t.Fatal("10 hits are held, and 5 remain")
		}
	}
	r.pass(time.Minute)
	if r.reserve(100, 0, a, b) == "" || r.reserve(20, 0, b) == "" {
		t.Fatal("denied hits count as held")
	}
}

func TestReserveOfNothingIsACheckWithAnID(t *testing.T) {
	r, user := start(t, rulesOf(perHour)), desc("user=ann")
	id := r.reserve(0, 0, user)
	if id == "" {
		t.Fatal("no id")
	}
	r.remains(100, user)
	r.commit(id, 120, user)
	r.remains(0, user)
	if r.reserve(0, 0, user) != "" {
		t.Fatal("OK while more is used than the limit")
	}
	if r.reserve(7, 0, desc("nobody=x")) == "" {
		t.Fatal("no id where nothing limits")
	}
}

func TestAResetForgetsWhatIsHeld(t *testing.T) {
	for name, limit := range strategies {
		t.Run(name, func(t *testing.T) {
			r, user := start(t, rulesOf(limit)), desc("user=ann")
			id := r.reserve(100, 0, user)
			asked := &service.Request{Domain: "d", Descriptors: []service.Descriptor{{Entries: []descriptors.Entry{{Key: "user", Value: "ann"}}}}}
			if _, _, err := operate.New(r.service, strings.Clone).Change(r.ctx, &operate.Question{Request: *asked}, operate.Reset); err != nil {
				t.Fatal(err)
			}
			r.remains(100, user)
			if r.reserve(29, time.Second, user) == "" {
				t.Fatal("what was held before the reset is held still")
			}
			if r.commit(id, 10, user) {
				t.Fatal("the reset has not forgotten the id")
			}
			r.remains(61, user)
			r.pass(1100 * time.Millisecond)
			r.remains(90, user)
		})
	}
}

func TestWhatCannotBeHeld(t *testing.T) {
	for name, limit := range map[string]string{
		"max_delay":      `{unit: second, requests_per_unit: 10, strategy: leaky_bucket, max_delay: 1s}`,
		"from_first_hit": `{unit: hour, requests_per_unit: 100, window: from_first_hit}`,
		"lease":          `{unit: hour, requests_per_unit: 100, lease: true}`,
	} {
		t.Run(name, func(t *testing.T) {
			r, user := start(t, rulesOf(limit)), desc("user=ann")
			_, err := r.Reserve(r.ctx, &pb.ReserveRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{user}, Amount: 1})
			if s := status.Convert(err); s.Code() != codes.Unimplemented || !strings.Contains(s.Message(), "the rule d.user cannot hold hits because of its ") || !strings.Contains(s.Message(), name) {
				t.Fatal(err)
			}
			r.commit("", 1000, user)
			r.report(1000, user)
			if c := r.check(1, user).OverallCode; c != over && name != "max_delay" {
				t.Fatalf("a hit after reports: %v", c)
			}
		})
	}
	t.Run("reserve", func(t *testing.T) {
		r := start(t, "domain: d\ndescriptors:\n- key: user\n  descriptors:\n  - key: id\n    rate_limit: {unit: hour, requests_per_unit: 100, reserve: true}\n")
		user := desc("user=ann", "id=1")
		_, err := r.Reserve(r.ctx, &pb.ReserveRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{user}, Amount: 1})
		if s := status.Convert(err); s.Code() != codes.Unimplemented || !strings.Contains(s.Message(), "on_expiry: give_back") {
			t.Fatal(err)
		}
		r.charge(60, user)
		r.report(10, user)
		r.commit(strings.Repeat("1", 32), 10, user)
		r.charge(20, user) // settles
		r.remains(60, user)
	})
}

func TestWrongCalls(t *testing.T) {
	r, user := start(t, rulesOf(perHour)), desc("user=ann")
	back := desc("user=ann")
	back.IsNegativeHits = true
	for want, call := range map[string]func() error{
		"ttl": func() error {
			_, err := r.Reserve(r.ctx, &pb.ReserveRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{user}, Ttl: durationpb.New(-1)})
			return err
		},
		"descriptors[0].is_negative_hits": func() error {
			_, err := r.Reserve(r.ctx, &pb.ReserveRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{back}})
			return err
		},
		"domain": func() error {
			_, err := r.Commit(r.ctx, &pb.CommitRequest{Descriptors: []*common.RateLimitDescriptor{user}})
			return err
		},
		"descriptor list": func() error {
			_, err := r.CheckRateLimit(r.ctx, &rls.RateLimitRequest{Domain: "d"})
			return err
		},
	} {
		if s := status.Convert(call()); s.Code() != codes.InvalidArgument || !strings.Contains(s.Message(), want) {
			t.Errorf("%v; want a sentence about %s", s, want)
		}
	}
}

// away is a store that does not answer.
type away struct{ backends.Store }

func (away) Apply(_ context.Context, b *backends.Batch) error {
	return b.Fail(fmt.Errorf("away: %w", backends.ErrUnavailable))
}

func TestTheStoreAwayIsUnavailableWhateverThePolicies(t *testing.T) {
	for _, policy := range []string{"error", "allow", "deny", "local"} {
		limit := `{unit: hour, requests_per_unit: 100, on_error: ` + policy + `}`
		r := start(t, rulesOf(limit), func(c *service.Config) { c.Store, c.Local = away{c.Store}, true })
		user := []*common.RateLimitDescriptor{desc("user=ann")}
		for name, call := range map[string]func() error{
			"CheckRateLimit": func() error {
				_, err := r.CheckRateLimit(r.ctx, &rls.RateLimitRequest{Domain: "d", Descriptors: user})
				return err
			},
			"Report": func() error {
				_, err := r.Report(r.ctx, &rls.RateLimitRequest{Domain: "d", Descriptors: user})
				return err
			},
			"Reserve": func() error {
				_, err := r.Reserve(r.ctx, &pb.ReserveRequest{Domain: "d", Descriptors: user, Amount: 1})
				return err
			},
			"Commit": func() error {
				_, err := r.Commit(r.ctx, &pb.CommitRequest{Domain: "d", Descriptors: user, ActualAmount: 1})
				return err
			},
		} {
			if s := status.Convert(call()); s.Code() != codes.Unavailable {
				t.Errorf("%s with on_error: %s: %v", name, policy, s)
			}
		}
	}
}

func TestCallsAtOneMoment(t *testing.T) {
	r, user := start(t, rulesOf(perHour)), desc("user=ann")
	ids := make(chan string, 40)
	var calls sync.WaitGroup
	for range cap(ids) {
		calls.Go(func() {
			reply, err := r.Reserve(r.ctx, &pb.ReserveRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{user}, Amount: 7})
			if err != nil {
				t.Error(err)
			} else if reply.Code == ok {
				ids <- reply.ReservationId
			}
		})
	}
	calls.Wait()
	if close(ids); len(ids) != 14 {
		t.Fatalf("%d holds of 7 hits in a limit of 100; want 14", len(ids))
	}
	for id := range ids { // each three times
		for range 3 {
			calls.Go(func() {
				_, err := r.Commit(r.ctx, &pb.CommitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{user}, ReservationId: id, ActualAmount: 5})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	calls.Wait()
	r.remains(30, user)
}

func TestRandomCallsAgainstAModelOfTheWholeHistory(t *testing.T) {
	type hold struct {
		hits      uint64
		ends      int64
		committed int64 // until when a second Commit changes nothing
	}
	random := testenv.Random(t)
	for range 20 {
		r, user := start(t, rulesOf(`{unit: day, requests_per_unit: 100}`)), desc("user=ann")
		r.clock.Store(1_800_057_600_000_000)
		var used uint64
		holds, ids := map[string]*hold{}, []string(nil)
		sum := func() uint64 {
			all := used
			for _, h := range holds {
				if h.committed == 0 && r.clock.Load() < h.ends {
					all += h.hits
				}
			}
			return all
		}
		for step := range 60 {
			r.pass(time.Duration(random.IntN(4000)) * time.Millisecond)
			hits := random.Uint64N(40)
			switch random.IntN(5) {
			case 0:
				before := sum()
				got := r.check(hits, user).OverallCode
				if (got == ok) != (before+hits <= 100) {
					t.Fatalf("step %d: a check of %d beside %d: %v", step, hits, before, got)
				}
			case 1:
				r.report(hits/4, user)
				used += hits / 4
			case 2, 3:
				ttl := time.Duration(64*(1+random.IntN(200))) * 100 * time.Millisecond
				before, id := sum(), r.reserve(hits+1, ttl, user)
				if (id != "") != (before+hits+1 <= 100) {
					t.Fatalf("step %d: a hold of %d beside %d: %q", step, hits+1, before, id)
				}
				if id != "" {
					part := ttl.Microseconds() / 64
					ends := (r.clock.Load() + ttl.Microseconds() + part - 1) / part * part
					holds[id], ids = &hold{hits: hits + 1, ends: ends}, append(ids, id)
				}
			case 4:
				if len(ids) == 0 {
					continue
				}
				id := ids[random.IntN(len(ids))]
				h, now := holds[id], r.clock.Load()
				if h.committed > 0 && now >= h.committed {
					continue
				}
				r.commit(id, hits, user)
				switch {
				case h.committed > 0:
				case now >= h.ends:
					used += hits
					h.committed = now // it is unknown from now on
				default:
					used += hits
					h.committed = now + (10 * time.Minute).Microseconds()
				}
			}
			want := uint32(max(0, 100-int64(sum())))
			if s := r.charge(0, user).Statuses[0]; s.LimitRemaining != want {
				t.Fatalf("step %d: %d remain; want %d", step, s.LimitRemaining, want)
			}
		}
	}
}

// TestTextsOfAnyBytes: all calls decide text that is not UTF-8, each text by its own counter.
func TestTextsOfAnyBytes(t *testing.T) {
	r := start(t, "domain: d\ndescriptors:\n  - {key: user, rate_limit: {unit: hour, requests_per_unit: 3}}\n")
	odd := func(code byte) grpc.CallOption { return grpc.ForceCodec(oddCodec{code}) }
	if reply, err := r.Report(r.ctx, request(2, desc("user=ann~")), odd(0xff)); err != nil || reply.OverallCode != ok {
		t.Fatal(reply, err)
	}
	for code, want := range map[byte]rls.RateLimitResponse_Code{0xff: over, 0xfe: ok, '~': ok} {
		if reply, err := r.CheckRateLimit(r.ctx, request(2, desc("user=ann~")), odd(code)); err != nil || reply.OverallCode != want {
			t.Errorf("%#x: %v, %v", code, reply, err)
		}
	}
	held, err := r.Reserve(r.ctx, &pb.ReserveRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{desc("user=ann~")}, Amount: 1}, odd(0xff))
	if err != nil || held.Code != ok {
		t.Fatal(held, err)
	}
	commit := &pb.CommitRequest{Domain: "d", Descriptors: []*common.RateLimitDescriptor{desc("user=ann~")}, ReservationId: held.ReservationId}
	if reply, err := r.Commit(r.ctx, commit, odd(0xff)); err != nil || !reply.ReservationReleased {
		t.Error(reply, err)
	}
}

// oddCodec writes messages with a byte in the place of each ~.
type oddCodec struct{ code byte }

func (c oddCodec) Marshal(m any) ([]byte, error) {
	data, err := proto.Marshal(m.(proto.Message))
	return bytes.ReplaceAll(data, []byte("~"), []byte{c.code}), err
}

func (oddCodec) Unmarshal(data []byte, m any) error { return proto.Unmarshal(data, m.(proto.Message)) }
func (oddCodec) Name() string                       { return "proto" }
