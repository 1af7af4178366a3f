package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/alecthomas/kong"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.org/rls/internal/cli"
	"example.org/rls/internal/load"
	"example.org/rls/pkg/descriptors"
)

const clientHelp = `Several requests of a file are sent in turn. A summary has the number of answers,
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

type clientCmd struct {
	Addr       string        `default:"localhost:8081" help:"Where the service listens: HOST:PORT, or unix:PATH."`
	Timeout    time.Duration `default:"5s" min:"1ms" help:"Longest wait for an answer."`
	cli.Output `set:"output=output"`

	Domain     string   `placeholder:"NAME" default:"${domain}" help:"Domain to ask in, or $RLS_DOMAIN."`
	Descriptor []string `sep:"none" placeholder:"KEY=VALUE,..." help:"${descriptor}"`
	Hits       int64    `default:"1" help:"Cost of the request; 0 charges nothing and tells what remains."`
	Refund     bool     `help:"Give the hits back instead of charging them."`
	Limit      string   `placeholder:"N/UNIT" help:"Limit in place of those of the rules, such as 100/minute or 100/2*minute."`
	Request    string   `placeholder:"FILE" help:"File with requests in JSON, as /json takes them; - is the standard input. They stand one after the other, and take the place of the five flags above."`

	load.Options
	Watch bool `help:"Ask again each second, until a signal such as Ctrl-C. In JSON each answer is a line."`

	cli.TLSFlags
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
	config, err := c.Config()
	if err != nil {
		return err
	}
	conn, err := cli.Dial(c.Addr, config)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	s := session{c, conn, questions, k.Stdout, k.Stderr}
	if c.Requests > 0 || c.Duration > 0 || len(questions) > 1 && c.JSON() && !c.Watch {
		return s.load(ctx)
	}
	return s.each(ctx)
}

// check refuses flags that exclude each other, or mean nothing.
func (c *clientCmd) check() error {
	counted := c.Requests > 0 || c.Duration > 0
	switch {
	case c.Watch && (counted || c.Rate > 0 || c.Concurrency > 0):
		return cli.UsageError("--watch excludes --n, --duration, --rate and --concurrency")
	case !counted && c.Rate > 0:
		return cli.UsageError("--rate: say how long, with --n or --duration")
	case !counted && c.Concurrency > 0:
		return cli.UsageError("--concurrency: say how long, with --n or --duration")
	}
	return nil
}

// questions returns the requests that the flags describe, at least one. Its errors
// are usage errors.
func (c *clientCmd) questions() ([]question, error) {
	ofFlags := c.Domain != "" || len(c.Descriptor) > 0 || c.Hits != 1 || c.Refund || c.Limit != ""
	switch {
	case c.Request != "" && ofFlags:
		return nil, cli.UsageError("--request excludes --domain, --descriptor, --hits, --refund and --limit")
	case c.Request != "":
		questions, err := readQuestions(c.Request)
		if err != nil {
			return nil, cli.UsageError("--request: %w", err)
		}
		return questions, nil
	case c.Domain == "" || len(c.Descriptor) == 0:
		return nil, cli.UsageError("name a --domain and a --descriptor, or a file with a --request")
	case c.Hits < 0 || c.Hits > math.MaxUint32:
		return nil, cli.UsageError("--hits is %d: want 0 to %d; --refund gives hits back", c.Hits, uint32(math.MaxUint32))
	case c.Refund && c.Hits == 0:
		return nil, cli.UsageError("--refund: --hits is 0, so there is nothing to give back")
	}
	limit, err := parseLimit(c.Limit)
	if err != nil {
		return nil, cli.UsageError("--limit: %w", err)
	}
	descriptors, err := ParseDescriptors(c.Descriptor, nil)
	if err != nil {
		return nil, err
	}
	request := &rls.RateLimitRequest{Domain: c.Domain, HitsAddend: uint32(c.Hits)}
	for _, asked := range descriptors {
		d := &ratelimit.RateLimitDescriptor{Limit: limit, IsNegativeHits: c.Refund}
		for _, e := range asked.Entries {
			d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
		}
		if c.Hits == 0 { // in the request 0 means 1
			d.HitsAddend = wrapperspb.UInt64(0)
		}
		request.Descriptors = append(request.Descriptors, d)
	}
	return []question{{Request: request, Names: c.Descriptor}}, nil
}

// question is a request, and the names of its descriptors in the output.
type question struct {
	Request *rls.RateLimitRequest
	Names   []string
}

// parseLimit reads N/UNIT or N/M*UNIT as [descriptors.ParseLimit]; an empty text is no limit.
// Envoy's message has no week.
func parseLimit(text string) (*ratelimit.RateLimitDescriptor_RateLimitOverride, error) {
	if text == "" {
		return nil, nil
	}
	rate, err := descriptors.ParseLimit(text)
	if err == nil && rate.Unit == descriptors.Week {
		err = fmt.Errorf("%q is wrong: a request cannot have a limit per week; want a number of days, such as 100/7*day", text)
	}
	if err != nil {
		return nil, err
	}
	limit := &ratelimit.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: rate.RequestsPerUnit, Unit: typev3.RateLimitUnit(rate.Unit)}
	if rate.Multiplier > 1 {
		limit.UnitMultiplier = wrapperspb.UInt32(rate.Multiplier)
	}
	return limit, nil
}

// readQuestions reads the requests of a file, or of the standard input if the path is "-".
func readQuestions(path string) ([]question, error) {
	name, read := path, func() ([]byte, error) { return os.ReadFile(path) }
	if path == "-" {
		name, read = "<stdin>", func() ([]byte, error) { return io.ReadAll(os.Stdin) }
	}
	text, err := read()
	if err != nil {
		return nil, err
	}
	return parseQuestions(name, text)
}

func parseQuestions(name string, text []byte) (questions []question, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		var raw json.RawMessage
		switch err := decoder.Decode(&raw); {
		case errors.Is(err, io.EOF):
			if len(questions) == 0 {
				return nil, fmt.Errorf("%s has no request", name)
			}
			return questions, nil
		case err != nil:
			return nil, fmt.Errorf("%s:%d: %w", name, lineAt(text, wrongAt(text, decoder.InputOffset(), err)), err)
		}
		line := func() int { return lineAt(text, decoder.InputOffset()-int64(len(raw))) }
		if bytes.HasPrefix(raw, []byte("[")) {
			return nil, fmt.Errorf("%s:%d: a list: want the requests one after the other, without [ and ]", name, line())
		}
		q := question{Request: &rls.RateLimitRequest{}}
		if err := protojson.Unmarshal(raw, q.Request); err != nil {
			return nil, inFile(name, line(), err)
		}
		for _, d := range q.Request.GetDescriptors() {
			var entries []descriptors.Entry
			for _, e := range d.GetEntries() {
				entries = append(entries, descriptors.Entry{Key: e.GetKey(), Value: e.GetValue()})
			}
			q.Names = append(q.Names, descriptors.Pairs(entries))
		}
		questions = append(questions, q)
	}
}

// wrongAt is the offset of an error of the decoder: of the byte that is wrong, or of the
// request that is not complete. The decoder has read as far as offset.
func wrongAt(text []byte, offset int64, err error) int64 {
	if wrong := new(json.SyntaxError); errors.As(err, &wrong) {
		return wrong.Offset - 1
	}
	rest := bytes.TrimLeft(text[offset:], " \t\r\n")
	return int64(len(text) - len(rest))
}

// lineAt is the number of the line with the byte at an offset, from 1.
func lineAt(text []byte, offset int64) int {
	return 1 + bytes.Count(text[:offset], []byte("\n"))
}

// protojson's errors have the line within the request.
var placeInRequest = regexp.MustCompile(`\(line (\d+):\d+\): (.*)$`)

// inFile returns an error about the request that begins in a line of a file, with
// the place in the file.
func inFile(name string, line int, err error) error {
	message := err.Error()
	if match := placeInRequest.FindStringSubmatch(message); match != nil {
		within, _ := strconv.Atoi(match[1])
		line, message = line+within-1, match[2]
	}
	return fmt.Errorf("%s:%d: %s", name, line, message)
}
