package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"
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
