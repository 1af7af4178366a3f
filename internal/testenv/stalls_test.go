package testenv_test

import (
	"os/exec"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
)

// TestStalls: two processes that both want one processor stall, and so does a test
// that waits for them.
func TestStalls(t *testing.T) {
	var pids []int
	for range 2 {
		loop := exec.Command("taskset", "-c", "0", "sh", "-c", "while :; do :; done")
		if err := testenv.Start(loop); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = loop.Process.Kill()
			_ = loop.Wait()
		})
		pids = append(pids, loop.Process.Pid)
	}
	before := time.Now()
	stalls := testenv.WatchStalls(t, pids...)
	began := time.Now()
	testenv.Eventually(t, patience, func() bool { return stalls.Since(began) > 100*time.Millisecond }, "the two stall")
	now := time.Now()
	if stalls.Calm(began, now) {
		t.Errorf("calm for %v, in which %v were lost", now.Sub(began), stalls.Between(began, now))
	}
	if lost := stalls.Between(before.Add(-time.Hour), before); lost > 0 {
		t.Errorf("%v were lost before anyone watched", lost)
	}

	seen := time.Now()
	testenv.Within(t, 100*time.Millisecond, func() bool { return time.Since(seen) > 150*time.Millisecond }, "a moment has passed", pids...)
}

// TestWithin: a condition that becomes true after the limit fails the test.
func TestWithin(t *testing.T) {
	r := &recorder{TB: t}
	began := time.Now()
	testenv.Within(r, time.Millisecond, func() bool { return time.Since(began) > time.Second }, "it comes")
	if !r.failed {
		t.Error("a second passes for a millisecond")
	}
}

// recorder notes that a test would have failed.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Errorf(string, ...any) { r.failed = true }
