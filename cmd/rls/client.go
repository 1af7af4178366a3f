package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	rlcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.org/rls/pkg/ask"
)

type clientCmd struct {
	Addr       string        `default:"localhost:8081" help:"Where the service listens: host:port, or unix:PATH."`
	Domain     string        `required:"" help:"Domain to ask in."`
	Descriptor []string      `required:"" sep:"none" placeholder:"KEY=VALUE,..." help:"Entries of a descriptor, separated by commas, or in JSON where a comma is part of a value: '{\"KEY\": \"VALUE\"}' or '[{\"key\": \"KEY\", \"value\": \"VALUE\"}]'. Repeat the flag for several descriptors."`
	Hits       uint32        `default:"1" help:"Cost of the request; 0 charges nothing and tells what remains."`
	Timeout    time.Duration `default:"5s" help:"Longest wait for the answer."`
	Format     string        `default:"text" enum:"text,json" help:"How the answer is written: text or json."`

	tlsFlags
}

// Help implements [kong.HelpProvider].
func (*clientCmd) Help() string {
	return `Exit codes:
  0  OK
  1  the service could not be reached, or answered with an error
  2  a flag is wrong, or a file cannot be read
  3  OVER_LIMIT

Example:
  rls client --domain quickstart --descriptor generic_key=hello`
}

func (c *clientCmd) Run(k *kong.Kong) error {
	req := &rls.RateLimitRequest{Domain: c.Domain, HitsAddend: c.Hits}
	for _, text := range c.Descriptor {
		entries, err := ask.ParseDescriptor(text)
		if err != nil {
			return usageError("%w", err)
		}
		d := new(rlcommon.RateLimitDescriptor)
		for _, e := range entries {
			d.Entries = append(d.Entries, &rlcommon.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
		}
		if c.Hits == 0 { // in the request 0 means 1
			d.HitsAddend = wrapperspb.UInt64(0)
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	resp, err := c.ask(req)
	if err != nil {
		return fmt.Errorf("ask %s: %w", c.Addr, err)
	}
	write := writeAnswer
	if c.Format == "json" {
		write = writeAnswerJSON
	}
	if err := write(k.Stdout, c.Descriptor, resp); err != nil {
		return err
	}
	if resp.GetOverallCode() == rls.RateLimitResponse_OVER_LIMIT {
		return errOverLimit
	}
	return nil
}

func (c *clientCmd) ask(req *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	conn, err := dial(c.Addr, config)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), c.Timeout)
	defer cancel()
	return rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, req)
}

// writeAnswer writes the overall code, a line for each descriptor, the failure
// policy if the metadata have one, and a line for each header.
func writeAnswer(w io.Writer, asked []string, resp *rls.RateLimitResponse) error {
	var b strings.Builder
	fmt.Fprintln(&b, resp.GetOverallCode())
	for i, status := range resp.GetStatuses() {
		fmt.Fprintf(&b, "%s: %v", asked[min(i, len(asked)-1)], status.GetCode())
		switch limit := status.GetCurrentLimit(); {
		case limit != nil:
			fmt.Fprintf(&b, ", limit %d per %s", limit.GetRequestsPerUnit(), strings.ToLower(limit.GetUnit().String()))
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
	_, err := io.WriteString(w, b.String())
	return err
}

func writeAnswerJSON(w io.Writer, _ []string, resp *rls.RateLimitResponse) error {
	text, err := protojson.Marshal(resp)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}
