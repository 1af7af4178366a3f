package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func buildService(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rls")
	if out, err := exec.Command("go", "build", "-o", path, "example.org/rls/cmd/rls").CombinedOutput(); err != nil {
		t.Fatalf("build cmd/rls: %v\n%s", err, out)
	}
	return path
}

// Against itself: each workload is measured on both, and takes time of the
// program and of Redis.
func TestCompare(t *testing.T) {
	var out bytes.Buffer
	rls := buildService(t)
	if err := run(t.Context(), rls, rls, time.Second, &out); err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`^(.+?) +(reference|rls) +[1-9][0-9.]* +[0-9]*\.[0-9] +[1-9]\d* +[\d.]+m?s +[\d.]+m?s *$`)
	measured := 0
	for line := range strings.Lines(out.String()) {
		if row.MatchString(strings.TrimSuffix(line, "\n")) {
			measured++
		}
	}
	if measured != 2*len(workloads) || strings.Count(out.String(), "ratio of both") != len(workloads) {
		t.Errorf("%d programs measured:\n%s", measured, out.String())
	}
}

func TestCompareReportsWhatDoesNotRun(t *testing.T) {
	for path, want := range map[string]string{"": "want -reference", "/nowhere/ratelimit": "/nowhere/ratelimit"} {
		if err := run(t.Context(), "/bin/false", path, time.Second, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", path, err)
		}
	}
}
