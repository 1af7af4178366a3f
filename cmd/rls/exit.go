package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

// Exit codes besides 0.
const (
	exitFailed    = 1 // a check failed, a process refused the request, or a process could not be reached
	exitUsage     = 2 // a wrong flag, argument or setting, or input that cannot be read
	exitOverLimit = 3 // the service answered OVER_LIMIT
)

// exitError is an error that names the exit code of the process. Without a cause
// it has no message, because the output of the command says everything.
type exitError struct {
	code  int
	cause error
}

// Errors of commands whose output says everything.
var (
	errFailed    = exitError{code: exitFailed}
	errOverLimit = exitError{code: exitOverLimit}
)

// usageError makes an error, as fmt.Errorf does, that ends the process with
// exitUsage.
func usageError(format string, args ...any) error {
	return exitError{exitUsage, fmt.Errorf(format, args...)}
}

func (e exitError) Error() string {
	if e.cause == nil {
		return ""
	}
	return e.cause.Error()
}

func (e exitError) Unwrap() error { return e.cause }

// exitCode returns the exit code of an error that kong or a command returned:
// exitFailed unless the error names another.
func exitCode(err error) int {
	var exit exitError
	var parse *kong.ParseError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &parse):
		return exitUsage
	}
	return exitFailed
}

// program is the name in front of errors, whatever the file of the program is called.
const program = "rls"

// writeError writes the message of an error, each of its lines behind the name of
// the program. An error that joins others has a line for each of them.
func writeError(w io.Writer, err error) {
	for line := range strings.Lines(err.Error()) {
		_, _ = fmt.Fprintf(w, "%s: %s\n", program, strings.TrimSuffix(line, "\n"))
	}
}
