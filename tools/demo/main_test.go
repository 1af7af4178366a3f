package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
	"example.org/rls/tools/launch"
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

// The page is up with the token that is printed, and the shop has customers, some of whom
// are denied.
func TestDemoShowsThePage(t *testing.T) {
	rls, err := testenv.BuildService(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var out testenv.Log
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, rls, testenv.Binary(t, "envoy"), false, &out) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	printed := regexp.MustCompile(`page:  (http://\S+/)\s+token: (\S+)`)
	testenv.Eventually(t, time.Minute, func() bool { return printed.MatchString(out.String()) }, "the page's URL is printed")
	page := printed.FindStringSubmatch(out.String())
	var status struct {
		Traffic struct{ Requests, Denied, Errors float64 }
		Rules   struct{ Rules int }
	}
	testenv.Eventually(t, time.Minute, func() bool {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, page[1]+"v1/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+page[2])
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if err := json.NewDecoder(resp.Body).Decode(&status); err != nil {
			t.Fatal(err)
		}
		return status.Traffic.Requests > 1 && status.Traffic.Denied > 0
	}, "customers are denied")
	if status.Traffic.Errors > 0 || status.Rules.Rules != 6 {
		t.Errorf("%+v, want 6 rules and no errors", status)
	}
}
