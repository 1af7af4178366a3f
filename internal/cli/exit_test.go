package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestExitCode(t *testing.T) {
	for _, test := range []struct {
		err  error
		code int
		said string
	}{
		{nil, 0, ""},
		{errors.New("cannot"), 1, "rls: cannot\n"},
		{UsageError("read %s: %w", "a.yaml", errors.New("none")), 2, "rls: read a.yaml: none\n"},
		{fmt.Errorf("test: %w", UsageError("twice")), 2, "rls: test: twice\n"},
		{UsageError("%w", errors.Join(errors.New("one"), errors.New("two"))), 2, "rls: one\nrls: two\n"},
		{ErrFailed, 1, ""},
		{ErrOverLimit, 3, ""},
	} {
		var said strings.Builder
		if test.err != nil {
			WriteError(&said, test.err)
		}
		if code := ExitCode(test.err); code != test.code || said.String() != test.said {
			t.Errorf("%v: got %d %q, want %d %q", test.err, code, said.String(), test.code, test.said)
		}
	}
}

// TestPlain: that nothing listens is said of the server alone, and not of the store that the server asks.
func TestPlain(t *testing.T) {
	refused := "dial tcp 127.0.0.1:1: connect: connection refused"
	for message, want := range map[string]string{
		`connection error: desc = "transport: Error while dialing: ` + refused + `"`: "Unavailable: nothing listens there (the service's gRPC port is 8081",
		`connection error: desc = "error reading server preface: EOF"`:               "Unavailable: the server there does not speak gRPC",
		"rate limit not decided: redis: " + refused:                                  "Unavailable: rate limit not decided: redis: dial",
	} {
		if got := Plain(status.Error(codes.Unavailable, message)).Error(); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %s, want %s", message, got, want)
		}
	}
}
