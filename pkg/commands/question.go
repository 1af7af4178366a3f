package commands

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"example.org/rls/pkg/descriptors"
)

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
