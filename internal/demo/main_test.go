package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/launch"
	"example.org/rls/internal/testenv"
)

func TestDemoShowsTheLimit(t *testing.T) {
	var out bytes.Buffer
	rls, err := testenv.BuildService(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), rls, testenv.Binary(t, "envoy"), true, &out); err != nil {
		t.Fatal(err)
	}
	answers := strings.Split(out.String(), "$ curl -i ")[1:]
	if len(answers) != 5 {
		t.Fatalf("%d answers, want 5:\n%s", len(answers), out.String())
	}
	for i, answer := range answers {
		wants := []string{"200 OK\n", "hello from the upstream", "x-ratelimit-limit: 3, 3;w=60", "ratelimit-limit: 3"}
		if i >= 3 {
			wants = []string{
				"429 Too Many Requests\n", "x-envoy-ratelimited: true", "retry-after: ",
				"x-ratelimit-limit: 3, 3;w=60", "x-ratelimit-remaining: 0", "x-ratelimit-reset: ",
				"ratelimit-remaining: 0", "application/problem+json",
			}
		}
		for _, want := range wants {
			if !strings.Contains(answer, want) {
				t.Errorf("answer %d lacks %q:\n%s", i+1, want, answer)
			}
		}
	}
}

func TestDemoReportsWhatDoesNotStart(t *testing.T) {
	started := time.Now()
	err := run(t.Context(), "/bin/false", testenv.Binary(t, "envoy"), true, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "start the service: /bin/false ended: exit status 1") {
		t.Fatalf("error %v", err)
	}
	if took := time.Since(started); took > launch.StartTimeout {
		t.Fatalf("it took %v to see that the service had ended", took)
	}
}
