package admin_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/internal/reread"
	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/admin"
	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/operate"
)

// addr is the address of the API.
func (r *rig) addr() string { _, addr, _ := strings.Cut(r.url, "://"); return addr }

// inFleet starts an API that asks the replicas of a list, in which OWN is itself.
func inFleet(t *testing.T, how listening, listed ...string) *rig {
	t.Helper()
	how.port = testenv.FreePort(t)
	for i := range listed {
		listed[i] = strings.Replace(listed[i], "OWN", fmt.Sprint(how.port), 1)
	}
	change := how.change
	how.change = func(o *admin.Options) {
		fleet, err := admin.NewFleet(admin.FleetOptions{
			Listed: listed, Host: "127.0.0.1", Port: how.port, TLS: how.peer, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		if o.Fleet = fleet; change != nil {
			change(o)
		}
		go fleet.Run(o.Ending) //nolint:errcheck // always nil
	}
	r := start(t, how)
	if how.config != nil {
		r.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	}
	testenv.Eventually(t, 10*time.Second, func() bool {
		return !strings.Contains(r.ask("GET", "/v1/audit?fleet=true", "", bearer(readToken)).text, "no address")
	}, "the names have addresses")
	return r
}

// replicasOf reads the replicas of an answer.
func replicasOf(t *testing.T, a answered) (all []client.Replica) {
	t.Helper()
	var document struct{ Replicas []client.Replica }
	if err := json.Unmarshal([]byte(a.text), &document); err != nil || a.code != 200 {
		t.Fatalf("got %d %s, %v", a.code, a.text, err)
	}
	return document.Replicas
}

// A replica asks each other one once, whatever the list has, and merges the answers.
func TestFleet(t *testing.T) {
	b, c := start(t, listening{}), start(t, listening{})
	dead := fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t))
	for name, own := range map[string][]string{"not listed": nil, "listed": {"127.0.0.1:OWN"}, "listed twice": {"localhost:OWN", "127.0.0.1:OWN"}} {
		t.Run(name, func(t *testing.T) {
			listed := append([]string{b.addr(), c.addr(), "localhost:" + strings.TrimPrefix(b.addr(), "127.0.0.1:"), dead}, own...)
			a := inFleet(t, listening{}, listed...)
			host, _ := os.Hostname()
			want := []client.Replica{{Address: b.addr(), OK: true, Name: host}, {Address: c.addr(), OK: true, Name: host}, {Address: dead}}
			switch len(own) {
			case 0:
				want = slices.Insert(want, 0, client.Replica{Address: a.addr(), OK: true, Name: host})
			default:
				want = append(want, client.Replica{Address: listed[4], OK: true, Name: host})
			}
			got := a.ask("GET", "/v1/top?by=hits&fleet=true&n=1&rule=shop.user", "", bearer(readToken))
			replicas := replicasOf(t, got)
			for i := range replicas {
				if r := &replicas[i]; !r.OK && strings.Contains(r.Error, "connection refused") {
					r.Error = ""
				}
			}
			if !slices.Equal(replicas, want) {
				t.Errorf("got %+v, want %+v", replicas, want)
			}
			rows := got.json["rows"].([]any)
			if len(rows) != 1 || rows[0].(map[string]any)["hits"] != 9.0 {
				t.Errorf("got %s, want a row of 3 hits for each of 3 replicas", got.text)
			}
			alone := a.ask("GET", "/v1/top?fleet=false", "", bearer(readToken))
			if alone.json["replicas"] != nil {
				t.Errorf("without fleet: got %s", alone.text)
			}
		})
	}
}

// Every path that is read by GET answers for all replicas, but find and streams.
func TestPathsOfAFleet(t *testing.T) {
	a := inFleet(t, listening{}, "127.0.0.1:OWN")
	for _, to := range paths {
		if to.method != "GET" || to.path == "/v1/events" {
			continue
		}
		if got := a.ask("GET", to.path+"?fleet=true", "", bearer(readToken)); len(replicasOf(t, got)) != 1 {
			t.Errorf("%s has no replicas: %d %s", to.path, got.code, got.text)
		}
	}
}

// Rows of all replicas are in the order of time, with the address of their replica.
func TestFleetsAudit(t *testing.T) {
	b := start(t, listening{})
	a := inFleet(t, listening{}, b.addr(), "127.0.0.1:OWN")
	for i, on := range []*rig{a, b, a} {
		on.charge("ann", 1)
		if got := on.ask("POST", "/v1/reset", annsRequest+fmt.Sprintf(`,"reason":"%d"}`, i), bearer(writeToken)); got.code != 200 {
			t.Fatal(got.text)
		}
	}
	var log admin.AuditLog
	got := a.ask("GET", "/v1/audit?fleet=true&n=2", "", bearer(readToken))
	if err := json.Unmarshal([]byte(got.text), &log); err != nil {
		t.Fatal(err)
	}
	if len(log.Entries) != 2 || log.Entries[0].Reason != "2" || log.Entries[0].Replica != a.addr() || log.Entries[1].Replica != b.addr() {
		t.Errorf("got %s", got.text)
	}
}

// A caller can ask for one replica, by the address that the answer has for it.
func TestOneReplicaOfAFleet(t *testing.T) {
	b := start(t, listening{})
	dead := fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t))
	for _, own := range []string{"127.0.0.1:OWN", dead} {
		a := inFleet(t, listening{}, b.addr(), own, dead)
		for _, address := range []string{a.addr(), b.addr()} {
			got := a.ask("GET", "/v1/top?by=hits&fleet=true&rule=shop.user&replica="+address, "", bearer(readToken))
			if r := replicasOf(t, got); len(r) != 1 || r[0].Address != address || !r[0].OK || got.json["rows"].([]any)[0].(map[string]any)["hits"] != 3.0 {
				t.Errorf("%s: got %s", address, got.text)
			}
		}
		for address, code := range map[string]int{dead: 503, "elsewhere:1": 404} {
			if got := a.ask("GET", "/v1/status?fleet=true&replica="+address, "", bearer(readToken)); got.code != code || !strings.Contains(got.text, address) {
				t.Errorf("%s: got %d %s", address, got.code, got.text)
			}
		}
	}
}

// A wrong question is refused as without a fleet, and asks nobody.
func TestWrongQuestionsToAFleet(t *testing.T) {
	a := inFleet(t, listening{}, "127.0.0.1:OWN")
	for query, want := range map[string]string{
		"/v1/top?fleet=true&n=5000": "n is 5000", "/v1/top?fleet=true&by=x": "by is", "/v1/rules?fleet=true&n=-1": "n is -1",
		"/v1/audit?fleet=maybe": "want true or false", "/v1/audit?fleet=true&n=-1": "n is -1",
	} {
		if got := a.ask("GET", query, "", bearer(readToken)); got.code != 400 || !strings.Contains(got.text, want) {
			t.Errorf("%s: got %d %s", query, got.code, got.text)
		}
	}
}

// A replica that does not answer in a second, one that answers too much and one for which
// the token has no meaning are part of the answer.
func TestReplicasThatDoNotAnswer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	}))
	defer endless.Close()
	nonsense := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }))
	defer nonsense.Close()
	other := start(t, listening{})
	other.writeTokens("carol read another-token-of-carol\n")
	testenv.Eventually(t, 10*time.Second, func() bool { return other.ask("GET", "/v1/audit", "", bearer(readToken)).code == 401 }, "the token is gone")
	a := inFleet(t, listening{}, "127.0.0.1:OWN", silent.Addr().String(), endless.Listener.Addr().String(), nonsense.Listener.Addr().String(), other.addr())
	began := time.Now()
	stalls := testenv.WatchStalls(t)
	got := replicasOf(t, a.ask("GET", "/v1/audit?fleet=true", "", bearer(readToken)))
	if took := time.Since(began) - stalls.Since(began); took > 1500*time.Millisecond {
		t.Errorf("the answer took %v", took)
	}
	for i, want := range []string{"", "no answer within 1s", "more than", "cannot be read", "no meaning there"} {
		if r := got[i]; r.OK != (want == "") || !strings.Contains(r.Error, want) || strings.Contains(r.Error, readToken) {
			t.Errorf("got %+v, want %s", r, want)
		}
	}
}

// A caller of the socket has a token to pass on only if it gives one.
func TestFleetOverTheSocket(t *testing.T) {
	b := start(t, listening{})
	a := inFleet(t, listening{socket: filepath.Join(t.TempDir(), "s")}, b.addr(), "127.0.0.1:OWN")
	got := replicasOf(t, a.ask("GET", "/v1/audit?fleet=true", ""))
	if len(got) != 2 || got[0].OK || !strings.Contains(got[0].Error, "no token") || !got[1].OK {
		t.Errorf("without a token: got %+v", got)
	}
	if got := replicasOf(t, a.ask("GET", "/v1/audit?fleet=true", "", bearer(readToken))); len(got) != 2 || !got[0].OK || !got[1].OK {
		t.Errorf("with a token: got %+v", got)
	}
}

// told is a service that notes what it is told to forget.
type told struct {
	*operate.Operator
	mu     sync.Mutex
	forgot []string
}

func (s *told) Forget(ctx context.Context, r *operate.Question) error {
	d := r.Descriptors[0]
	what := d.Entries[0].Pair()
	if l := d.Limit; l != nil {
		what += fmt.Sprintf(", %d per %s", l.RequestsPerUnit, descriptors.Period(l.Unit, l.Multiplier))
	}
	s.note(what)
	return s.Operator.Forget(ctx, r)
}

func (s *told) ForgetMatching(domain, rule string) error {
	s.note(rule)
	return s.Operator.ForgetMatching(domain, rule)
}

func (s *told) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgot = append(s.forgot, what)
}

// overridden remembers a limit that requests of bob brought.
type overridden struct{ oneRow }

func (overridden) Override(_ string, entries []descriptors.Entry) *explain.Override {
	if entries[0].Value != "bob" {
		return nil
	}
	return &explain.Override{Rate: service.Override{RequestsPerUnit: 7, Unit: descriptors.Hour, Multiplier: 2}, Seen: time.Now()}
}

// Changes tell each other replica once, which changes and audits nothing. A replica that
// could not be told is part of the answer.
func TestChangesTellTheFleet(t *testing.T) {
	other := new(told)
	b := start(t, listening{change: func(o *admin.Options) {
		other.Operator = o.Limits.(*operate.Operator)
		o.Limits, o.Top = other, overridden{}
	}})
	dead := fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t))
	a := inFleet(t, listening{change: func(o *admin.Options) { o.Top = overridden{} }}, "127.0.0.1:OWN", b.addr(), dead)
	a.charge("ann", 3)
	b.charge("ann", 4)
	for _, test := range []struct{ path, body, want string }{
		{"/v1/reset", annsRequest + `,"dry_run":true}`, ""},
		{"/v1/reset", `{"domain":"shop","rule":"shop.user","all_matching":true,"dry_run":true}`, ""},
		{"/v1/reset", annsRequest + "}", "user=ann"},
		{"/v1/grant", annsRequest + `,"hits":5}`, "user=ann"},
		{"/v1/reset", strings.Replace(annsRequest, "ann", "bob", 1) + "}", "user=bob, 7 per 2 hours"},
		{"/v1/reset", `{"domain":"shop","rule":"shop.user","all_matching":true}`, "shop.user"},
	} {
		got := a.ask("POST", test.path, test.body, bearer(writeToken))
		replicas := replicasOf(t, got)
		if test.want == "" {
			if replicas != nil || other.forgot != nil {
				t.Errorf("%s: got %s, told %v", test.body, got.text, other.forgot)
			}
			continue
		}
		if len(replicas) != 3 || !replicas[0].OK || !replicas[1].OK || replicas[2].OK || replicas[2].Address != dead {
			t.Errorf("%s: got %s", test.body, got.text)
		}
		if !slices.Equal(other.forgot, []string{test.want}) {
			t.Errorf("%s: told %q", test.body, other.forgot)
		}
		other.forgot = nil
	}
	if got := b.remaining("ann"); got != 6.0 {
		t.Errorf("%v hits remain in a store of its own, want 6", got)
	}
	if got := b.ask("GET", "/v1/audit", "", bearer(readToken)); got.text != `{"entries":[]}`+"\n" {
		t.Errorf("the audit has %s", got.text)
	}
	if got := b.ask("POST", "/v1/forget", annsRequest+"}", bearer(writeToken)); got.code != 200 || got.text != "{}\n" {
		t.Errorf("got %d %s", got.code, got.text)
	}
	if got := b.ask("POST", "/v1/forget", `{"domain":"shop","rule":"shop.none","all_matching":true}`, bearer(writeToken)); got.code != 404 {
		t.Errorf("got %d %s", got.code, got.text)
	}
}

// Over TLS only a replica gets the token: one that shows the same certificate, or one of the
// CA for the same name.
func TestOnlyReplicasGetTheToken(t *testing.T) {
	own, renewed, foreign := testenv.Certs(t), testenv.Certs(t), testenv.Certs(t)
	open := func(files reread.CertFiles) *reread.Certs {
		c, err := reread.OpenCerts(reread.NewWatcher(slog.New(slog.DiscardHandler)), "peer", files)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var heard atomic.Int64
	wrong := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { heard.Add(1) }))
	wrong.TLS = foreign.Server
	wrong.StartTLS()
	defer wrong.Close()
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { heard.Add(1) }))
	defer plain.Close()
	mutual := func(c *testenv.TLS) *tls.Config { // every client needs a certificate of one of two CAs
		config := c.Server.Clone()
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, own.Server.ClientCAs
		return config
	}
	same, other := start(t, listening{config: mutual(own)}), start(t, listening{config: mutual(renewed)})
	for ca, right := range map[string][]bool{"": {true, true, false, false, false}, renewed.CAFile: {true, true, true, false, false}} {
		peer := open(reread.CertFiles{Cert: own.ServerCertFile, Key: own.ServerKeyFile, CA: ca}).Peer()
		a := inFleet(t, listening{config: own.Server, peer: peer}, "127.0.0.1:OWN", same.addr(), other.addr(), wrong.Listener.Addr().String(), plain.Listener.Addr().String())
		for i, r := range replicasOf(t, a.ask("GET", "/v1/audit?fleet=true", "", bearer(readToken))) {
			if r.OK != right[i] || r.OK != (r.Error == "") {
				t.Errorf("with the CA %q: got %+v", ca, r)
			}
		}
	}
	if n := heard.Load(); n != 0 {
		t.Errorf("%d requests reached servers that are no replicas", n)
	}
}
