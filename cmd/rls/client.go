package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/alecthomas/kong"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

type clientCmd struct {
	Addr    string        `default:"localhost:8081" help:"Where the service listens: HOST:PORT, or unix:PATH."`
	Timeout time.Duration `default:"5s" min:"1ms" help:"Longest wait for an answer."`
	Format  string        `default:"text" enum:"text,json" help:"How the output is written: text or json."`

	Domain     string   `placeholder:"NAME" help:"Domain to ask in."`
	Descriptor []string `sep:"none" placeholder:"KEY=VALUE,..." help:"Entries of a descriptor, separated by commas, or in JSON where a comma is part of a value: '{\"KEY\": \"VALUE\"}' or '[{\"key\": \"KEY\", \"value\": \"VALUE\"}]'. Repeat the flag for several descriptors."`
	Hits       uint32   `default:"1" help:"Cost of the request; 0 charges nothing and tells what remains."`
	Refund     bool     `help:"Give the hits back instead of charging them."`
	Limit      string   `placeholder:"N/UNIT" help:"Limit in place of those of the rules, such as 100/minute or 100/2*minute."`
	Request    string   `placeholder:"FILE" help:"File with requests in JSON as /json takes them, one after the other, instead of the five flags above; - is the standard input."`

	N           int           `name:"n" placeholder:"N" min:"1" help:"Send N requests, and print a summary instead of the answers."`
	Duration    time.Duration `placeholder:"TIME" min:"1ms" help:"Send requests for so long, such as 30s, and print a summary. With --n it ends with what comes first."`
	Rate        float64       `placeholder:"R" min:"0.001" max:"1000000" help:"Send R requests a second, evenly. Latency counts from the moment at which a request was due, also if it had to wait for others (no coordinated omission). Without --rate a request follows the answer to the one before, and latency counts from its sending."`
	Concurrency int           `placeholder:"C" min:"1" max:"100000" help:"Send up to C requests at once; by default 1, and 1024 with --rate."`
	Watch       bool          `help:"Ask again each second, until a signal such as Ctrl-C. In JSON each answer is a line."`

	tlsFlags
}

// Help implements [kong.HelpProvider].
func (*clientCmd) Help() string {
	return `Several requests of a file are sent in turn. A summary has the number of answers,
their rate, the percentiles and a histogram of their latency, without requests that
failed. All requests share one connection, which is made before the first one.

Exit codes:
  0  every answer is OK
  1  a request failed: the service was not reached in time, or answered with an error
  2  a flag is wrong, or a file cannot be read
  3  an answer is OVER_LIMIT, and no request failed

Examples:
  rls client --domain quickstart --descriptor generic_key=hello
  rls client --domain quickstart --descriptor generic_key=hello --hits 0 --watch
  rls client --domain quickstart --descriptor generic_key=hello --rate 100 --duration 10s
  rls client --request requests.json --n 1000 --concurrency 8 --format json`
}

// session is a run of the command.
type session struct {
	*clientCmd
	stdout, stderr io.Writer
	service        rls.RateLimitServiceClient
	conn           *grpc.ClientConn // of the service
	questions      []question
}

// Run sends the requests and prints answers, or a summary.
func (c *clientCmd) Run(ctx context.Context, k *kong.Kong) error {
	questions, err := c.questions()
	if err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	config, err := c.config()
	if err != nil {
		return err
	}
	conn, err := dial(c.Addr, config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	s := session{c, k.Stdout, k.Stderr, rls.NewRateLimitServiceClient(conn), conn, questions}
	if c.N > 0 || c.Duration > 0 || len(questions) > 1 && c.Format == "json" && !c.Watch {
		return s.load(ctx)
	}
	return s.each(ctx)
}

// check refuses flags that exclude each other, or mean nothing.
func (c *clientCmd) check() error {
	counted := c.N > 0 || c.Duration > 0
	switch {
	case c.Watch && (counted || c.Rate > 0 || c.Concurrency > 0):
		return usageError("--watch excludes --n, --duration, --rate and --concurrency")
	case !counted && c.Rate > 0:
		return usageError("--rate: say how long, with --n or --duration")
	case !counted && c.Concurrency > 0:
		return usageError("--concurrency: say how long, with --n or --duration")
	}
	return nil
}

// result collects which exit code the answers give.
type result struct{ failed, overLimit bool }

func (r result) err() error {
	switch {
	case r.failed:
		return errFailed
	case r.overLimit:
		return errOverLimit
	}
	return nil
}

// each sends each question once and prints the answer, and with --watch again each
// second. It goes on after a request that failed.
func (s *session) each(ctx context.Context) error {
	var sum result
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		for _, q := range s.questions {
			resp, err := s.ask(ctx, q.request)
			switch {
			case s.Watch && ctx.Err() != nil:
				return sum.err()
			case err != nil:
				sum.failed = true
				writeError(s.stderr, fmt.Errorf("ask %s: %w", s.Addr, err))
				continue
			case resp.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT:
				sum.overLimit = true
			}
			if err := s.writeAnswer(q, resp); err != nil {
				return err
			}
		}
		if !s.Watch {
			return sum.err()
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return sum.err()
		}
	}
}

func (s *session) ask(ctx context.Context, req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	resp, err := s.service.ShouldRateLimit(ctx, req)
	if err != nil {
		err = plain(err)
	}
	return resp, err
}
