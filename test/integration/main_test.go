// Package integration runs the real program, built as users build it, between
// real stores and a real Envoy, and looks at it from outside only: settings,
// rule files, calls, headers, logs, signals and keys.
//
// It promises that every kind of store, every strategy and every fault that
// operators meet was tried on the whole. It leaves boundary cases of the parts
// to their own tests, which have clocks that can be set.
package integration

import (
	"fmt"
	"os"
	"testing"

	"example.org/rls/internal/testenv"
)

// program is the path of the binary under test.
var program string

func TestMain(m *testing.M) {
	os.Exit(withProgram(m.Run))
}

func withProgram(run func() int) int {
	dir, err := os.MkdirTemp("", "rls-integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if program, err = testenv.BuildService(dir); err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	return run()
}
