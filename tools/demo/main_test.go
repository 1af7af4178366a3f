package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/rls/internal/testenv"
)

// service is cmd/rls, built once for all tests.
var service = sync.OnceValues(func() (string, error) { return testenv.BuildService(serviceDir) })

var serviceDir string

func TestMain(m *testing.M) {
	var err error
	if serviceDir, err = os.MkdirTemp("", "rls-demo-test-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(serviceDir)
	os.Exit(code)
}

func newDemo(t *testing.T, recipe string) *demo {
	t.Helper()
	rls, err := service()
	if err != nil {
		t.Fatal(err)
	}
	return &demo{root: "../..", rls: rls, envoy: testenv.Binary(t, "envoy"), recipe: recipe}
}

func TestDemoShowsTheLimit(t *testing.T) {
	var out bytes.Buffer
	d := newDemo(t, "")
	d.once = true
	if err := d.run(t.Context(), &out); err != nil {
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
	d := newDemo(t, "")
	d.rls = "/bin/false"
	err := d.run(t.Context(), &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "start the service: /bin/false ended: exit status 1") {
		t.Fatalf("error %v", err)
	}
	if took := time.Since(started); took > startTimeout {
		t.Fatalf("it took %v to see that the service had ended", took)
	}
}

// The page is up with the token that is printed, and the shop has customers, some of whom
// are denied.
func TestDemoShowsThePage(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var out testenv.Log
	ended := make(chan error, 1)
	go func() { ended <- newDemo(t, "").run(ctx, &out) }()
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

// Each recipe's try.sh prints, through a real Envoy, what its README shows; the tests of
// its rules pass, and its rules have no findings.
func TestRecipes(t *testing.T) {
	names, err := newDemo(t, "").recipes()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"login", "api-key", "jwt", "shadow", "queue", "tokens", "reserve", "concurrency", "exempt-networks", "networks", "tenants", "custom-body"} {
		if !slices.Contains(names, name) {
			t.Errorf("there is no recipe %s", name)
		}
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDemo(t, name)
			d.once = true
			readme, err := os.ReadFile(filepath.Join(d.folder(), "README.md"))
			if err != nil {
				t.Fatal(err)
			}
			_, shown, _ := strings.Cut(string(readme), "```text\n")
			shown, _, found := strings.Cut(shown, "```\n")
			if !found {
				t.Fatal("the README does not show what try.sh prints")
			}
			for _, command := range [][]string{{"check", "--strict", d.folder() + "/rules"}, {"test", d.folder()}} {
				if out, err := exec.CommandContext(t.Context(), d.rls, command...).CombinedOutput(); err != nil {
					t.Errorf("rls %s: %v\n%s", command[0], err, out)
				}
			}
			var out bytes.Buffer
			if err := d.run(t.Context(), &out); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			_, got, _ := strings.Cut(out.String(), "try.sh\n")
			if got != shown {
				t.Errorf("try.sh prints\n%s\nand README.md shows\n%s", got, shown)
			}
		})
	}
}

// After the recipe was played, all starts anew for the user, who gets the same answers.
func TestDemoLeavesTheRecipeToTheUser(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var out testenv.Log
	ended := make(chan error, 1)
	go func() { ended <- newDemo(t, "api-key").run(ctx, &out) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	printed := regexp.MustCompile(`sh deploy/recipes/(api-key/try.sh http://\S+)`)
	testenv.Eventually(t, time.Minute, func() bool { return strings.Contains(out.String(), "Ctrl-C") }, "the command is printed")
	_, played, _ := strings.Cut(out.String(), "try.sh\n")
	played, _, _ = strings.Cut(played, "\n\n")
	words := strings.Fields(printed.FindStringSubmatch(out.String())[1])
	answers, err := exec.CommandContext(ctx, "sh", "../../deploy/recipes/"+words[0], words[1]).Output()
	if err != nil || !strings.Contains(played, "429") || strings.TrimSpace(string(answers)) != played {
		t.Errorf("answers (%v)\n%s\nwhen played before\n%s", err, answers, played)
	}
	if !strings.Contains(out.String(), "Waiting for Envoy") {
		t.Errorf("it does not say what it waits for:\n%s", out.String())
	}
}

func TestDemoNamesTheRecipes(t *testing.T) {
	program := filepath.Join(t.TempDir(), "demo")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program, "-recipe", "logn")
	cmd.Dir = "../.."
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 2 || !strings.Contains(string(out), `no recipe "logn"; the recipes are: addresses, api-key, concurrency`) {
		t.Errorf("exit code %d, %s", code, out)
	}
}
