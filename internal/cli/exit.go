package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// Exit codes besides 0.
const (
	ExitFailed    = 1 // a check failed, a process refused the request, or a process could not be reached
	ExitUsage     = 2 // a wrong flag, argument or setting, or input that cannot be read
	ExitOverLimit = 3 // the service answered OVER_LIMIT
)

// exitError is an error that names the exit code of the process.
type exitError struct {
	code int
	error
}

// Unwrap returns the cause.
func (e exitError) Unwrap() error { return e.error }

// Errors of commands whose output says everything. They have no text.
var (
	ErrFailed    error = exitError{ExitFailed, errors.New("")}
	ErrOverLimit error = exitError{ExitOverLimit, errors.New("")}
)

// UsageError makes an error, as fmt.Errorf does, that ends the process with [ExitUsage].
func UsageError(format string, args ...any) error {
	return exitError{ExitUsage, fmt.Errorf(format, args...)}
}

// ExitCode returns the exit code of an error that kong or a command returned:
// [ExitFailed] unless the error names another.
func ExitCode(err error) int {
	var exit exitError
	var parse *kong.ParseError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &parse):
		return ExitUsage
	}
	return ExitFailed
}

// ProgramName is the name in front of errors, whatever the file of the program is called.
const ProgramName = "rls"

// WriteError writes the message of an error, each of its lines behind the name of
// the program. An error that joins others has a line for each of them.
func WriteError(w io.Writer, err error) {
	for line := range strings.Lines(err.Error()) {
		_, _ = fmt.Fprintf(w, "%s: %s\n", ProgramName, strings.TrimSuffix(line, "\n"))
	}
}
