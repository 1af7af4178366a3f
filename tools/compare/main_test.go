package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"example.org/rls/internal/testenv"
	"example.org/rls/tools/launch"
)

// TestCompare compares the program with itself, and with a fake of limitador: each
// workload is measured on all of them, and takes processor time of the program and of
// Redis.
func TestCompare(t *testing.T) {
	rls, err := testenv.BuildService(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), testenv.Binary(t, "redis-server"), rls, rls, fakeLimitador(t), time.Second, &out); err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`^(.+?) +(reference|limitador|rls) +[1-9][0-9.]* +[0-9]*\.[0-9] +[1-9]\d* +[\d.]+[mµ]?s +[\d.]+[mµ]?s *$`)
	measured := 0
	for line := range strings.Lines(out.String()) {
		if row.MatchString(strings.TrimSuffix(line, "\n")) {
			measured++
		}
	}
	if measured != 3*len(workloads) || strings.Count(out.String(), "ratio to reference ") != len(workloads) ||
		strings.Count(out.String(), "ratio to limitador ") != len(workloads) {
		t.Errorf("%d programs measured:\n%s", measured, out.String())
	}
}

// TestCompareReportsWhatDoesNotRun: a program that ends is reported at once, with its
// output.
func TestCompareReportsWhatDoesNotRun(t *testing.T) {
	dir, redis := t.TempDir(), testenv.Binary(t, "redis-server")
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	fails := script("ratelimit", `touch "$0.ran"; echo no such rule >&2; exit 3`)
	noRedis := script("redis", `sleep 1; echo no such port; exit 1`)
	for _, c := range []struct{ redis, reference, want string }{
		{redis, "", "want -reference"},
		{redis, "/nowhere/ratelimit", "/nowhere/ratelimit"},
		{noRedis, fails, "redis ended: exit status 1\nno such port"}, // before the program is started
		{redis, fails, "ratelimit ended: exit status 3\nno such rule"},
	} {
		began := time.Now()
		if err := run(t.Context(), c.redis, "/bin/false", c.reference, "", time.Second, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
		if took := time.Since(began); took > launch.StartTimeout {
			t.Errorf("%+v: took %v", c, took)
		}
		if _, err := os.Stat(fails + ".ran"); err == nil && c.redis == noRedis {
			t.Errorf("%+v: the program was started without Redis", c)
		}
	}
}

// TestProfile: the profile names the function that decides, below both stores.
func TestProfile(t *testing.T) {
	rls, err := testenv.BuildService(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// A profile has a sample for each 10 ms of processor time. On a busy machine the
	// program gets too little of it in a second.
	var text, missing string
	for each := time.Second; each <= 8*time.Second; each *= 2 {
		text = recorded(t, rls, each)
		if missing = lacks(text, "service.(*Service).Decide", "memory.(*Store).Apply", "redis.(*Store).Apply"); missing == "" {
			break
		}
	}
	if missing != "" {
		t.Errorf("the profile lacks %s", missing)
	}
	if strings.Contains(text, rls) {
		t.Errorf("the profile has the path of the program, %s", rls)
	}
}

// recorded returns the text of a profile of each workload for a while.
func recorded(t *testing.T, rls string, each time.Duration) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pgo")
	if err := record(t.Context(), testenv.Binary(t, "redis-server"), rls, file, each); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	p, err := profile.Parse(in)
	if err != nil {
		t.Fatal(err)
	}
	return p.String()
}

// lacks returns the first of some words that a text does not have, or "".
func lacks(text string, words ...string) string {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return word
		}
	}
	return ""
}
