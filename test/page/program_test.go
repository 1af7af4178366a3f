package page_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"example.org/rls/internal/testenv"
)

const (
	writeToken = "operator-token-0123456789"
	readToken  = "reader-token-0123456789"
)

const rules = `domain: shop
descriptors:
  - key: plan
    value: free
    descriptors:
      - key: user
        rate_limits:
          - {unit: hour, requests_per_unit: 10, strategy: fixed_window, window: from_first_hit}
          - {unit: day, requests_per_unit: 1000, name: daily}
  - key: plan
    value: "*"
    descriptors:
      - key: user
        rate_limit: {unit: second, requests_per_unit: 100, strategy: gcra}
  - key: banner
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
`

// binary is cmd/rls, built once for all tests of this package.
var binary = sync.OnceValues(func() (string, error) { return testenv.BuildService(binaryDir) })

var binaryDir string // TestMain removes it

// program is a running rls with the rules above. In front of its admin listener stands a
// server that tests can take away.
type program struct {
	t      *testing.T
	json   string // the URL of /json
	grpc   string // the address
	rules  string // the file
	tokens string // the file
	pid    int
	url    string // of the page
	admin  string // the same, without the server in front

	cut     atomic.Bool  // requests fail
	drop    func()       // closes connections
	streams atomic.Int64 // listeners of events
	fakes   sync.Map     // *[]byte, answers in place of the program's, by path and query or path

	beforeFollowing atomic.Pointer[func()] // is called before the next stream of denials opens, once
}

// serve runs rls until the test ends.
func serve(t *testing.T, env ...string) *program {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := &program{t: t, rules: filepath.Join(dir, "config", "shop.yaml")}
	if err := os.Mkdir(filepath.Dir(p.rules), 0o755); err != nil {
		t.Fatal(err)
	}
	p.write(rules)
	p.tokens = filepath.Join(dir, "tokens")
	p.writeTokens("alice write " + writeToken + "\nbob read " + readToken + "\n")
	port := func() string { return strconv.Itoa(testenv.FreePort(t)) }
	web, admin, grpc := port(), port(), port()
	p.grpc = "127.0.0.1:" + grpc
	p.json, p.admin = "http://127.0.0.1:"+web+"/json", "http://127.0.0.1:"+admin
	cmd := exec.Command(path, "serve")
	cmd.Env = append([]string{
		"RUNTIME_ROOT=" + dir, "RUNTIME_SUBDIRECTORY=", "RUNTIME_APPDIRECTORY=config", "RUNTIME_WATCH_ROOT=false",
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1", "USE_STATSD=false", "DRAIN_PERIOD=0s",
		"PORT=" + web, "GRPC_PORT=" + grpc, "DEBUG_PORT=" + port(), "ADMIN_PORT=" + admin, "ADMIN_TOKEN_FILE=" + p.tokens,
	}, env...)
	var log testenv.Log
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.pid = cmd.Process.Pid
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("rls ended: %v\n%s", err, log.String())
		}
		if strings.Contains(log.String(), writeToken) || strings.Contains(log.String(), readToken) {
			t.Error("the log has a token")
		}
	})
	// The listeners answer before the rules are read; /healthcheck tells when they are.
	for _, url := range []string{"http://127.0.0.1:" + web + "/healthcheck", p.admin} {
		testenv.Eventually(t, patience, func() bool {
			resp, err := http.Get(url)
			if err != nil {
				return false
			}
			_ = resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		}, url+" answers 200")
	}
	p.front()
	return p
}

// front starts the server in front of the admin listener.
func (p *program) front() {
	to, err := url.Parse(p.admin)
	if err != nil {
		p.t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Transport: new(http.Transport), // another test's server closes connections of the default one
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fake, faked := p.fakes.Load(r.URL.RequestURI())
		if !faked {
			fake, faked = p.fakes.Load(r.URL.Path)
		}
		switch {
		case p.cut.Load():
			panic(http.ErrAbortHandler)
		case faked:
			_, _ = w.Write(*fake.(*[]byte))
		default:
			if r.URL.Path == "/v1/events" {
				p.streams.Add(1)
				defer p.streams.Add(-1)
			}
			if r.FormValue("follow") == "true" {
				if first := p.beforeFollowing.Swap(nil); first != nil {
					(*first)()
				}
			}
			proxy.ServeHTTP(w, r)
		}
	}))
	p.t.Cleanup(server.Close)
	p.t.Cleanup(server.CloseClientConnections)
	p.url = server.URL
	p.drop = server.CloseClientConnections
}

// away lets the server in front refuse everything, or nothing again.
func (p *program) away(is bool) {
	p.cut.Store(is)
	if is {
		p.drop()
	}
}

// write puts rules into their file, as an editor does.
func (p *program) write(text string) { p.t.Helper(); p.save(p.rules, text) }

// writeTokens puts tokens into their file.
func (p *program) writeTokens(text string) { p.t.Helper(); p.save(p.tokens, text) }

func (p *program) save(path, text string) {
	p.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// entry is one entry of a descriptor.
type entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func user(name string) []entry { return []entry{{"plan", "free"}, {"user", name}} }

// hit sends requests as Envoy does.
func (p *program) hit(times int, entries []entry) {
	p.t.Helper()
	type descriptor struct {
		Entries []entry `json:"entries"`
	}
	body, err := json.Marshal(struct {
		Domain      string       `json:"domain"`
		Descriptors []descriptor `json:"descriptors"`
	}{"shop", []descriptor{{entries}}})
	if err != nil {
		p.t.Fatal(err)
	}
	for range times {
		resp, err := http.Post(p.json, "application/json", bytes.NewReader(body))
		if err != nil {
			p.t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
}

// signedIn opens the page at a view with the token that may write.
func (p *program) signedIn(view string) *tab {
	p.t.Helper()
	page := open(p.t, p.url+"/"+view)
	page.signIn(writeToken)
	page.waits(`document.querySelector("nav")?.checkVisibility()`)
	return page
}

// listen reads that many events, and returns the number that came. It calls opened when
// the program has answered.
func (p *program) listen(opened func(), wanted int) (events int) {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.admin+"/v1/events", nil)
	if err != nil {
		panic(err) // the URL is right
	}
	req.Header.Set("Authorization", "Bearer "+readToken)
	resp, err := http.DefaultClient.Do(req)
	opened()
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	buffer := make([]byte, 64<<10)
	for events < wanted {
		n, err := resp.Body.Read(buffer)
		events += bytes.Count(buffer[:n], []byte("\n\n"))
		if err != nil {
			break
		}
	}
	return events
}

// spent is the processor time of the program.
func (p *program) spent() time.Duration {
	p.t.Helper()
	process, err := procfs.NewProc(p.pid)
	if err != nil {
		p.t.Fatal(err)
	}
	stat, err := process.Stat()
	if err != nil {
		p.t.Fatal(err)
	}
	return time.Duration(stat.CPUTime() * float64(time.Second))
}
