package admin_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"example.org/rls/internal/reread"
	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/events"
	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/backends/memory"
	"example.org/rls/pkg/denials"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/server"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/operate"
	"example.org/rls/pkg/top"
)

const (
	writeToken = "write-token-of-alice"
	readToken  = "read-token-of-bob"
	tokenFile  = "# the operators\n\nalice write " + writeToken + "\nbob  read  " + readToken + "\n"
)

const rules = `domain: shop
descriptors:
- key: user
  rate_limit: {unit: minute, requests_per_unit: 10}
- key: route
  rate_limit: {unit: hour, requests_per_unit: 5}
- key: vip
  rate_limit: {unlimited: true}
`

// rig is the API behind a real listener, with a service on the memory store.
type rig struct {
	t       testing.TB
	limits  *operate.Operator
	happens *events.Log
	denied  *denials.Denials
	url     string
	tokens  string // the path of the file
	client  *http.Client
	log     *testenv.Log
	stopped chan error
	end     context.CancelFunc
}

// silent is a [server.Measure].
type silent struct{}

func (silent) Called(string, time.Duration) {}
func (silent) Answered(codes.Code)          {}
func (silent) Panicked()                    {}
func (silent) CutOff()                      {}

type listening struct {
	config *tls.Config
	peer   *tls.Config // with which replicas ask each other, beside config
	socket string
	port   int // 0 takes a free one
	change func(*admin.Options)
}

func start(t testing.TB, how listening) *rig {
	t.Helper()
	r := &rig{t: t, log: new(testenv.Log), tokens: filepath.Join(t.TempDir(), "tokens"), stopped: make(chan error, 1)}
	seen := denials.New(denials.Options{Keep: 100})
	r.denied = seen
	r.limits = newLimits(t, newStore(t), rules, seen)
	r.happens = events.New(func() (none [descriptors.Policies]uint64) { return none })
	r.writeTokens(tokenFile)
	log := slog.New(slog.NewJSONHandler(r.log, nil))
	watch := reread.NewWatcher(log)
	tokens, err := admin.OpenTokens(watch, r.tokens)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.end = cancel
	go watch.Run(ctx) //nolint:errcheck // always nil
	o := admin.Options{
		Rules:  func() *explain.Rules { return nil },
		Limits: r.limits, Status: idle{}, Top: oneRow{}, Denials: seen, Events: r.happens, Tokens: tokens, Hosts: []string{"rls.example"},
		Log: log, Audit: log, Ending: ctx,
	}
	if how.change != nil {
		how.change(&o)
	}
	if limits, changed := o.Limits.(*operate.Operator); changed {
		r.limits = limits
	}
	api := admin.New(o)
	listener := server.HTTP{Name: "admin", Address: fmt.Sprintf("127.0.0.1:%d", how.port), TLS: how.config, Handler: api.Handler()}
	if how.socket != "" {
		listener = server.HTTP{Name: "admin", UnixSocket: how.socket, Handler: api.SocketHandler(how.socket)}
	}
	s, err := server.New(server.Options{
		HTTP: []server.HTTP{listener}, Health: server.NewHealth(), Measure: silent{}, Log: log, StopWithin: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() { r.stopped <- s.Run(ctx) }()
	t.Cleanup(cancel)
	transport := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true}
	transport.Protocols.SetHTTP1(true)
	r.client = &http.Client{Transport: transport, Timeout: 20 * time.Second}
	r.url = "http://" + s.Addr("admin").String()
	if how.socket != "" {
		r.url = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", how.socket)
		}
	}
	if how.config != nil {
		r.url = "https" + strings.TrimPrefix(r.url, "http")
	}
	t.Cleanup(r.client.CloseIdleConnections)
	return r
}

func newStore(t testing.TB) backends.Store {
	t.Helper()
	store, err := memory.New(memory.Options{MaxKeys: 1000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func newLimits(t testing.TB, store backends.Store, rules string, observers ...service.Observer) *operate.Operator {
	return limitsOf(t, service.Config{Store: store, Observers: observers}, rules)
}

func limitsOf(t testing.TB, config service.Config, rules string) *operate.Operator {
	t.Helper()
	limits := service.New(config)
	var texts []yaml.Text
	for text := range strings.SplitSeq(rules, "---\n") {
		texts = append(texts, yaml.Text{Name: "rules.yaml", Content: []byte(text)})
	}
	tree, _, err := yaml.Load(texts, yaml.Options{})
	if err != nil {
		t.Fatal(err)
	}
	limits.SetTree(tree)
	return operate.New(limits, strings.Clone)
}

func (r *rig) writeTokens(text string) {
	r.t.Helper()
	if err := os.WriteFile(r.tokens, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// charge sends a request with a cost as Envoy would.
func (r *rig) charge(user string, hits uint32) { r.t.Helper(); r.chargeEntry("user", user, hits) }

func (r *rig) chargeEntry(key, value string, hits uint32) {
	r.t.Helper()
	ask := service.Request{Domain: "shop", Hits: hits, Descriptors: []service.Descriptor{{Entries: []descriptors.Entry{{Key: key, Value: value}}}}}
	if _, err := r.limits.Evaluate(r.t.Context(), &ask); err != nil {
		r.t.Fatal(err)
	}
}

// answered is the answer to a request over HTTP.
type answered struct {
	code   int
	header http.Header
	text   string
	// json is nil unless the body is a JSON object.
	json map[string]any
}

// header changes a request before it is sent.
type header func(*http.Request)

func bearer(token string) header {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

func with(name, value string) header { return func(r *http.Request) { r.Header.Set(name, value) } }

func host(name string) header { return func(r *http.Request) { r.Host = name } }

// send sends a request until ctx ends; the test closes the body.
func (r *rig) send(ctx context.Context, method, path, body string, headers ...header) *http.Response {
	r.t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, r.url+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, change := range headers {
		change(request)
	}
	response, err := r.client.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	return response
}

func (r *rig) ask(method, path, body string, headers ...header) answered {
	r.t.Helper()
	response := r.send(r.t.Context(), method, path, body, headers...)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	a := answered{code: response.StatusCode, header: response.Header, text: string(text)}
	_ = json.Unmarshal(text, &a.json)
	return a
}

// idle is a process that does nothing.
type idle struct{}

func (idle) JSON(time.Duration) []byte { return []byte(`{"health":{"state":"ok"}}`) }
func (idle) RulesJSON(q string, n, offset int) []byte {
	return fmt.Appendf(nil, `{"rules":[{"rule":"%s, %d after %d"}]}`, q, n, offset)
}

func (idle) Watch(ctx context.Context) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if yield(idle{}.JSON(0)) {
			<-ctx.Done()
		}
	}
}

func (oneRow) Override(string, []descriptors.Entry) *explain.Override { return nil }

// oneRow is a table of one row, which shows how it was asked.
type oneRow struct{}

func (oneRow) Table(q top.Query) top.Table {
	return top.Table{By: q.By, Window: "60s", Error: int64(q.N), Rows: []top.Row{{Rule: q.Rule, Hits: 3}}}
}
