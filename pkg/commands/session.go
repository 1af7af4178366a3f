package commands

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/protobuf/encoding/protojson"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/load"
	"example.org/rls/internal/pace"
	"example.org/rls/internal/terminal"
)

// session sends the requests of the client, and writes the answers or how fast they came.
type session struct {
	*clientCmd
	conn      *grpc.ClientConn
	questions []question

	stdout, stderr io.Writer
}

// each sends each question once and prints the answers, and with --watch again each second,
// until ctx ends. It goes on after a request that failed. Its error has the exit
// code of the answers.
func (s *session) each(ctx context.Context) error {
	var outcome error
	warned := false
	for range pace.Every(ctx, time.Second) {
		for _, q := range s.questions {
			resp, err := s.ask(ctx, q.Request)
			switch {
			case s.Watch && ctx.Err() != nil:
				return outcome
			case err != nil:
				outcome = cli.ErrFailed
				cli.WriteError(s.stderr, fmt.Errorf("ask %s: %w", s.Addr, err))
				continue
			case resp.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT:
				outcome = cmp.Or(outcome, cli.ErrOverLimit)
			}
			if err := s.writeAnswer(q, resp); err != nil {
				return err
			}
			if !warned && unlimited(resp) {
				_, _ = fmt.Fprintf(s.stderr, "rls: no rule limits this request in the domain %q: is the domain right? rls rules lists the rules in force, and rls explain tells why none matches\n", q.Request.GetDomain())
				warned = true
			}
		}
		if !s.Watch {
			break
		}
	}
	return outcome
}

// unlimited reports whether no rule has matched any descriptor.
func unlimited(resp *rls.RateLimitResponse) bool {
	return !slices.ContainsFunc(resp.GetStatuses(), func(st *rls.RateLimitResponse_DescriptorStatus) bool {
		return st.GetCurrentLimit() != nil || st.GetLimitRemaining() > 0 // an unlimited rule lets 2^32−1 hits remain
	})
}

func (s *session) ask(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	resp, err := rls.NewRateLimitServiceClient(s.conn).ShouldRateLimit(ctx, req)
	if err != nil {
		err = cli.Plain(err)
	}
	return resp, err
}

// writeAnswer writes an answer, with --watch as text with the time.
func (s *session) writeAnswer(q question, resp *rls.RateLimitResponse) error {
	if s.JSON() {
		text, err := protojson.Marshal(resp)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(s.stdout, "%s\n", text)
		return err
	}
	text := answerText(q.Names, resp, terminal.ColorsFor(s.stdout))
	if s.Watch {
		text = time.Now().Format("15:04:05 ") + text
	}
	_, err := io.WriteString(s.stdout, text)
	return err
}

// load sends many requests, the questions in turn, and prints a summary. Without --n and
// --duration each question is sent once, and the summary in JSON has the answers. Its error has
// the exit code of the answers.
func (s *session) load(ctx context.Context) error {
	s.connect(ctx)
	o := s.Options
	var answers []json.RawMessage
	if o.Requests == 0 && o.Duration == 0 {
		o.Requests = len(s.questions)
		answers = make([]json.RawMessage, len(s.questions))
	}
	if o.Concurrency == 0 {
		o.Concurrency = 1
		if o.Rate > 0 {
			o.Concurrency = 1024
		}
	}
	o.Send = func(ctx context.Context, i int) (bool, error) {
		resp, err := s.ask(ctx, s.questions[i%len(s.questions)].Request)
		if err == nil && answers != nil {
			answers[i], err = protojson.Marshal(resp)
		}
		return resp.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT, err
	}
	l := load.New(o)
	stop := terminal.Progress(s.stderr, func() string {
		done, overLimit, failed := l.SoFar()
		return fmt.Sprintf("%d requests: %d OK, %d over the limit, %d failed", done, done-overLimit-failed, overLimit, failed)
	})
	sum := l.Run(ctx)
	sum.Answers = answers
	stop()
	for _, failure := range sum.Errors {
		cli.WriteError(s.stderr, fmt.Errorf("ask %s: %d of %d requests failed: %w", s.Addr, failure.Count, sum.Requests, failure.Err))
	}
	if sum.Unsent > 0 {
		cli.WriteError(s.stderr, fmt.Errorf("%d further requests were due and could not be sent, because %d were under way: "+
			"the service or this machine is too slow for the rate, or --concurrency is too low", sum.Unsent, o.Concurrency))
	}
	if err := s.Write(s.stdout, &sum, sum.Text); err != nil {
		return err
	}
	switch {
	case sum.Failed > 0:
		return cli.ErrFailed
	case sum.OverLimit > 0:
		return cli.ErrOverLimit
	}
	return nil
}

// connect waits until the connection is made, or failed, so that the first request
// does not measure it.
func (s *session) connect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	s.conn.Connect()
	state := s.conn.GetState()
	for state != connectivity.Ready && state != connectivity.TransientFailure && s.conn.WaitForStateChange(ctx, state) {
		state = s.conn.GetState()
	}
}

// answerText has the overall code, a line for each descriptor, the failure policy if
// the metadata have one, and a line for each header.
func answerText(names []string, resp *rls.RateLimitResponse, colors terminal.Colors) string {
	var b strings.Builder
	paint := colors.Green
	if resp.GetOverallCode() != rls.RateLimitResponse_OK {
		paint = colors.Red
	}
	fmt.Fprintln(&b, paint(resp.GetOverallCode().String()))
	for i, status := range resp.GetStatuses() {
		if i < len(names) {
			b.WriteString(names[i] + ": ")
		}
		b.WriteString(status.GetCode().String())
		switch limit := status.GetCurrentLimit(); {
		case limit != nil:
			per := strings.ToLower(limit.GetUnit().String())
			if n := limit.GetUnitMultiplier().GetValue(); n > 1 {
				per = fmt.Sprintf("%d %ss", n, per)
			}
			fmt.Fprintf(&b, ", limit %d per %s", limit.GetRequestsPerUnit(), per)
			if limit.GetName() != "" {
				fmt.Fprintf(&b, " (%s)", limit.GetName())
			}
			fmt.Fprintf(&b, ", remaining %d, reset in %v", status.GetLimitRemaining(), status.GetDurationUntilReset().AsDuration())
		case status.GetLimitRemaining() == math.MaxUint32:
			b.WriteString(", unlimited")
		default:
			b.WriteString(", no limit")
		}
		b.WriteString("\n")
	}
	if policy := resp.GetDynamicMetadata().GetFields()["policy"].GetStringValue(); policy != "" {
		fmt.Fprintf(&b, "policy: %s\n", policy)
	}
	for _, header := range resp.GetResponseHeadersToAdd() {
		fmt.Fprintf(&b, "%s: %s\n", header.GetKey(), header.GetValue())
	}
	return b.String()
}
