package sources_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/rls/internal/reread"
	"example.org/rls/internal/testenv"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/sources"
	"example.org/rls/pkg/sources/tables"
)

// tableServer serves a table over TLS.
type tableServer struct {
	*httptest.Server
	authority  atomic.Pointer[testenv.TLS] // whose certificate it shows
	answer     atomic.Pointer[http.HandlerFunc]
	asked      atomic.Int32 // requests
	unmodified atomic.Int32 // answers 304
	running    atomic.Int32
	overlaps   atomic.Bool
}

// serveTable starts a server with the certificate of an authority.
func serveTable(t *testing.T, authority *testenv.TLS) *tableServer {
	t.Helper()
	s := &tableServer{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.running.Add(1) > 1 {
			s.overlaps.Store(true)
		}
		defer s.running.Add(-1)
		defer s.asked.Add(1)
		(*s.answer.Load())(w, r)
	}))
	s.authority.Store(authority)
	s.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.authority.Load().Server, nil }}
	s.TLS.Certificates = authority.Server.Certificates
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// is has the server answer so from now on.
func (s *tableServer) is(answer http.HandlerFunc) { s.answer.Store(&answer) }

// has has the server answer with a text and its ETag.
func (s *tableServer) has(text string) {
	tag := fmt.Sprintf("%q", fmt.Sprint(len(text), text[len(text)-2]))
	s.is(func(w http.ResponseWriter, r *http.Request) {
		if w.Header().Set("ETag", tag); r.Header.Get("If-None-Match") == tag {
			s.unmodified.Add(1)
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = io.WriteString(w, text)
	})
}

func (s *tableServer) fails(status int) {
	s.is(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
}

// asks waits until the server was asked n times more.
func (s *tableServer) asks(t *testing.T, n int32) {
	t.Helper()
	before := s.asked.Load()
	testenv.Eventually(t, soon, func() bool { return s.asked.Load() >= before+n }, "the server is asked")
}

// fetching has rules with tables in force.
type fetching struct {
	t      *testing.T
	folder string
	tables *tables.Fetcher
	log    testenv.Log
	tree   atomic.Pointer[descriptors.Tree]
	mu     sync.Mutex
	errs   []error // outcome of each load
}

// fetch loads the rules from a folder, whose tables are fetched every few milliseconds, until the
// test ends.
func fetch(t *testing.T, text string, tables *tables.Fetcher, options rules.Options) *fetching {
	t.Helper()
	f := &fetching{t: t, folder: t.TempDir(), tables: tables}
	write(t, f.folder+"/rules.yaml", text)
	log := slog.New(slog.NewTextHandler(&f.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	again := make(chan struct{}, 1)
	tables.Log, tables.Changed, tables.Timeout = log, func() { sources.Wake(again) }, cmp.Or(tables.Timeout, soon)
	tables.MaxBytes = cmp.Or(tables.MaxBytes, 1<<10)
	options.Fetched = func(url string, _ time.Duration) (*rules.Table, error) {
		return tables.Table(url, 5*time.Millisecond)
	}
	published := &sources.Rules{
		Options: options, Tables: tables, Log: log,
		Loaded: func(l sources.Load) {
			if l.Tree != nil {
				f.tree.Store(l.Tree)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			f.errs = append(f.errs, l.Err)
		},
	}
	files := &sources.Files{Root: f.folder, Every: often, Again: again, Gone: func(bool) {}, Log: log}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- files.Run(ctx, published.Publish) }()
	go func() { done <- tables.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, <-done); err != nil {
			t.Error(err)
		}
	})
	return f
}

// become waits until the last load has such an error, "" for none, and the value "acme" the plan.
func (f *fetching) become(plan, err string) {
	f.t.Helper()
	defer func() {
		if f.t.Failed() {
			f.t.Logf("plan %q, outcomes %v", f.plan("acme"), f.errs)
		}
	}()
	testenv.Eventually(f.t, soon, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.errs) == 0 || f.plan("acme") != plan {
			return false
		}
		last := f.errs[len(f.errs)-1]
		return err == "" && last == nil || err != "" && last != nil && strings.Contains(last.Error(), err)
	}, "plan "+plan+", error "+err)
}

// plan is the plan of a tenant in the rules in force, "" without any.
func (f *fetching) plan(tenant string) string {
	tree := f.tree.Load()
	if tree == nil || tree.Domain("d") == nil {
		return ""
	}
	if rule := tree.Domain("d").Match([]descriptors.Entry{{Key: "tenant", Value: tenant}}); rule != nil {
		return rule.Plan
	}
	return ""
}

func (f *fetching) loads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.errs)
}

// ofTenants are rules whose table is at the addresses.
func ofTenants(urls ...string) string {
	text := "domain: d\nplans: {free: {unit: day, requests_per_unit: 1}, pro: {unit: day, requests_per_unit: 9}, team: {unit: day, requests_per_unit: 5}}\ndescriptors:\n"
	for i, url := range urls {
		key := []string{"tenant", "customer", "user"}[i]
		text += fmt.Sprintf("- {key: %s, rate_limit: {plan: free, table: {url: %q}}}\n", key, url)
	}
	return text
}

func TestTablesFromAnAddress(t *testing.T) {
	authority := testenv.Certs(t)
	s := serveTable(t, authority)
	url := s.URL + "/tenants.csv"
	s.has("value,plan\nacme,pro\n")
	f := fetch(t, ofTenants(url, url), &tables.Fetcher{TLS: authority.ForClient}, rules.Options{})
	f.become("pro", "")

	// 304 changes nothing.
	loads := f.loads()
	s.asks(t, 5)
	if s.unmodified.Load() < 3 || f.loads() != loads || loads != 1 {
		t.Errorf("%d answers 304, and %d loads after %d", s.unmodified.Load(), f.loads(), loads)
	}
	s.has("value,plan\nacme,team\n")
	f.become("team", "")

	// A table that cannot be fetched or used leaves the last good one, and says so once.
	large := strings.Repeat("x", 2000)
	for _, tt := range []struct {
		answer http.HandlerFunc
		why    string
	}{
		{func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }, "the server answers 500 Internal Server Error"},
		{func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }, ""}, // it was asked with an ETag
		{func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, "the server answers 204 No Content"},
		{func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
		{func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "2000") }, "it is larger than 1024 bytes (TABLE_MAX_BYTES)"},
		{func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "value,plan\n")
			w.(http.Flusher).Flush() // in chunks, without a length
			_, _ = io.WriteString(w, large)
		}, "it is larger than 1024 bytes (TABLE_MAX_BYTES)"},
		{func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "40")
			_, _ = io.WriteString(w, "value,plan\nacme,pro\n")
		}, "unexpected EOF"},
		{func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>\n") }, url + `:1:1: unknown column "<html>"`},
		{func(http.ResponseWriter, *http.Request) {}, url + ":1:1: has no header"},
		{func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "value,plan\nx,pro\nacme,por\n")
		}, url + `:3: plan: unknown plan "por"; did you mean "pro"?`},
		{func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "value,plan\nacme,pro\nacme,pro\n")
		}, url + `:3:1: value: "acme" is already in line 2`},
	} {
		s.is(tt.answer)
		f.become("team", tt.why)
	}
	// Rules that change meanwhile are in force, with the last good rows.
	write(t, f.folder+"/other.yaml", rule("other"))
	testenv.Eventually(t, soon, func() bool { return f.tree.Load().Domain("other") != nil }, "other")
	f.become("team", url+`:3:1: value: "acme" is already in line 2`)
	if said := f.log.With("table refused"); len(said) != 2 {
		t.Errorf("of two wrong tables the log says %q", said)
	}
	s.fails(503)
	f.become("team", "the server answers 503")
	loads = f.loads()
	s.asks(t, 5)
	said := len(f.log.With("its last good rows stay in force"))
	s.has("value,plan\nacme,pro\n")
	f.become("pro", "")
	if again := f.log.With("table is fetched again"); f.loads() != loads+1 || said > 14 || len(again) > 5 {
		t.Errorf("%d loads after %d, %d lines about failures, and %q", f.loads(), loads, said, again)
	}
	if s.overlaps.Load() {
		t.Error("one address was fetched twice at the same time")
	}

	// Nobody fetches an address that no rule names.
	write(t, f.folder+"/rules.yaml", "domain: d\ndescriptors: []")
	testenv.Eventually(t, soon, func() bool { return !f.tables.Any() }, "no address is named")
}

// keepFetching runs a fetcher until the test ends.
func keepFetching(t *testing.T, fetcher *tables.Fetcher) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- fetcher.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-done)
	})
}

// Again fetches a table before its interval is over.
func TestTablesAreFetchedWhenAsked(t *testing.T) {
	authority := testenv.Certs(t)
	s := serveTable(t, authority)
	s.has("value,plan\nacme,pro\n")
	changed := make(chan struct{}, 1)
	fetcher := &tables.Fetcher{TLS: authority.ForClient, MaxBytes: 1 << 10, Timeout: soon, Changed: func() { sources.Wake(changed) }, Log: slog.New(slog.DiscardHandler)}
	keepFetching(t, fetcher)
	_, err := fetcher.Table(s.URL, time.Hour)
	must(t, err)
	s.has("value,plan\nacme,team\n")
	fetcher.Again()
	select {
	case <-changed:
	case <-time.After(soon):
		t.Error("the table is not fetched again")
	}
}

// Rules that name one address wait for one fetch; the next one comes at the shortest of their intervals.
func TestTheIntervalsOfOneAddress(t *testing.T) {
	authority := testenv.Certs(t)
	s := serveTable(t, authority)
	s.has("value,plan\nacme,pro\n")
	fetcher := &tables.Fetcher{TLS: authority.ForClient, MaxBytes: 1 << 10, Timeout: soon, Log: slog.New(slog.DiscardHandler)}
	keepFetching(t, fetcher)
	for _, every := range []time.Duration{time.Hour, time.Second, time.Minute} {
		_, err := fetcher.Table(s.URL, every)
		must(t, err)
	}
	first := time.Now()
	if s.asks(t, 1); time.Since(first) < time.Second/2 {
		t.Errorf("the server is asked again after %v", time.Since(first))
	}
}

// Without a first table the rules are refused until it comes. With SkipWrong the rule has its own
// limit until then.
func TestFirstTableThatCannotBeFetched(t *testing.T) {
	authority := testenv.Certs(t)
	for _, skip := range []bool{false, true} {
		s := serveTable(t, authority)
		s.fails(404)
		f := fetch(t, ofTenants(s.URL), &tables.Fetcher{TLS: authority.ForClient}, rules.Options{SkipWrong: skip})
		if skip {
			f.become("free", "")
			if lines := f.log.With("rules: left out"); len(lines) == 0 || !strings.Contains(lines[0], "cannot be read: the server answers 404") {
				t.Errorf("got %q", lines)
			}
		} else {
			f.become("", f.folder+"/rules.yaml:4:55: rate_limit.table.url: "+s.URL+" cannot be read: the server answers 404 Not Found")
		}
		s.has("value,plan\nacme,pro\n")
		f.become("pro", "")
	}
}

// The files of the CA and the token are read again; the token goes to no other host.
func TestTablesWithATokenThatChanges(t *testing.T) {
	dir, authorities := t.TempDir(), []*testenv.TLS{testenv.Certs(t), testenv.Certs(t)}
	watch := reread.NewWatcher(slog.New(slog.DiscardHandler))
	go func() { _ = watch.Run(t.Context()) }()
	copied := func(i int) {
		ca, err := os.ReadFile(authorities[i].CAFile)
		must(t, err)
		write(t, dir+"/ca.crt", string(ca))
		write(t, dir+"/token", []string{"first", "second"}[i])
	}
	copied(0)
	own, err := reread.OpenCerts(watch, "tables", reread.CertFiles{CA: dir + "/ca.crt"})
	must(t, err)
	token, err := reread.Open(watch, "token", []string{filepath.Join(dir, "token")}, func(contents []string) (string, error) { return contents[0], nil }, nil)
	must(t, err)

	var leaked atomic.Pointer[string]
	other := serveTable(t, authorities[0])
	other.is(func(w http.ResponseWriter, r *http.Request) {
		got := r.Header.Get("Authorization")
		leaked.Store(&got)
		_, _ = io.WriteString(w, "value,plan\nacme,team\n")
	})
	s := serveTable(t, authorities[0])
	bearer := "Bearer first"
	var valid atomic.Pointer[string]
	valid.Store(&bearer)
	var location atomic.Pointer[string]
	s.is(func(w http.ResponseWriter, r *http.Request) {
		switch to := location.Load(); {
		case r.Header.Get("Authorization") != *valid.Load():
			w.WriteHeader(http.StatusUnauthorized)
		case to != nil && *to != r.URL.String():
			http.Redirect(w, r, *to, http.StatusFound)
		default:
			_, _ = io.WriteString(w, "value,plan\nacme,pro\n")
		}
	})
	f := fetch(t, ofTenants(s.URL), &tables.Fetcher{TLS: own.Client, Token: token.Now}, rules.Options{})
	f.become("pro", "")

	// To another port of the same host, and back.
	to := other.URL
	location.Store(&to)
	f.become("team", "")
	if *leaked.Load() != "" {
		t.Errorf("the token went to another host: %q", *leaked.Load())
	}
	plain := strings.Replace(other.URL, "https", "http", 1)
	location.Store(&plain)
	f.become("team", "redirects from https to http")
	here := "/elsewhere"
	location.Store(&here)
	f.become("pro", "")

	// The server's certificate and the token are replaced, and then the files.
	bearer2 := "Bearer second"
	valid.Store(&bearer2)
	f.become("pro", "401 Unauthorized")
	s.authority.Store(authorities[1])
	f.become("pro", "certificate signed by unknown authority")
	copied(1)
	f.become("pro", "")
}

func TestATableThatTakesTooLong(t *testing.T) {
	authority := testenv.Certs(t)
	s := serveTable(t, authority)
	s.is(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	f := fetch(t, ofTenants(s.URL), &tables.Fetcher{TLS: authority.ForClient, Timeout: 50 * time.Millisecond}, rules.Options{})
	f.become("", "it takes longer than 50ms (TABLE_TIMEOUT)")
	s.has("value,plan\nacme,pro\n")
	f.become("pro", "")
	s.Close()
	f.become("pro", "dial: connect: connection refused")
	if _, err := (&tables.Fetcher{TLS: func() *tls.Config { return nil }, Timeout: soon}).Once("http://"+s.Listener.Addr().String(), 0); err == nil {
		t.Error("a closed server answers")
	}
}

// A body of the largest size that is one line costs little memory, also if it can hardly be compressed.
func TestATableThatIsOneLine(t *testing.T) {
	authority := testenv.Certs(t)
	s := serveTable(t, authority)
	part := []byte(strings.Repeat("x", 1<<16))
	random := testenv.Random(t)
	for i := range part {
		part[i] = byte('0' + random.IntN(64))
	}
	s.is(func(w http.ResponseWriter, _ *http.Request) {
		_, err := io.WriteString(w, "value,plan\nacme,pro\n")
		for n := 0; n < 64<<20 && err == nil; n += len(part) {
			_, err = w.Write(part)
		}
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	table, err := (&tables.Fetcher{TLS: authority.ForClient, MaxBytes: 1 << 30, Timeout: time.Minute}).Once(s.URL, 0)
	runtime.ReadMemStats(&after)
	must(t, err)
	if got, want := table.Problems.Error(), s.URL+":3:1: the field that begins here has more than 65536 bytes; write a shorter one, or end its quote or its line"; got != want {
		t.Errorf("got %.300s\nwant %s", got, want)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 32<<20 {
		t.Errorf("it takes %d MiB", used>>20)
	}
}

// swap replaces the files of a ConfigMap's volume as the kubelet does: a new folder, to which ..data
// then leads, and after that links to files that are new.
func swap(t *testing.T, mount string, files map[string]string) {
	t.Helper()
	old, _ := os.Readlink(mount + "/..data")
	now := "..2026_11_23" + strings.Repeat("x", len(old))
	for name, content := range files {
		write(t, filepath.Join(mount, now, name), content)
	}
	link(t, now, mount+"/..data")
	for name := range files {
		if _, err := os.Lstat(filepath.Join(mount, name)); err != nil {
			must(t, os.Symlink(filepath.Join("..data", name), filepath.Join(mount, name)))
		}
	}
	if old != "" {
		must(t, os.RemoveAll(filepath.Join(mount, old)))
	}
}

// Rules and their tables may come from several ConfigMaps: a folder each, or a projected volume of
// them all. Plans of the domain may stand in another one.
func TestTablesOfSeveralConfigMaps(t *testing.T) {
	const list = "descriptors: [{key: tenant, rate_limit: {plan: free, table: tenants.csv}}]\n"
	const tenants = "domain: d\n" + list
	plans := ofTenants()
	f := fetch(t, plans, &tables.Fetcher{}, rules.Options{MergeDomains: true})
	testenv.Eventually(t, soon, func() bool { return f.loads() > 0 }, "the first load")
	shop := f.folder + "/rls-shop"
	swap(t, shop, map[string]string{"tenants.yaml": tenants, "tenants.csv": "value,plan\nacme,pro\n"})
	f.become("pro", "")
	swap(t, shop, map[string]string{"tenants.yaml": tenants, "tenants.csv": "value,plan\nacme,team\n"})
	f.become("team", "")
	swap(t, shop, map[string]string{"tenants.yaml": tenants, "tenants.csv": "value,plan\nacme,gold\n"})
	f.become("team", shop+`/tenants.csv:2: plan: unknown plan "gold"`)
	// The other ConfigMap brings the plan, a while later.
	write(t, f.folder+"/rules.yaml", strings.Replace(plans, "team:", "gold:", 1))
	f.become("gold", "")

	// Both in one folder: rules and table change at one moment.
	projected := fetch(t, "domain: other\ndescriptors: []", &tables.Fetcher{}, rules.Options{})
	text := strings.Replace(plans, "descriptors:\n", list, 1)
	for _, plan := range []string{"pro", "team"} {
		swap(t, projected.folder+"/rls", map[string]string{
			"tenants.yaml": strings.Replace(text, "tenants.csv", plan+".csv", 1), plan + ".csv": "value,plan\nacme," + plan + "\n",
		})
		projected.become(plan, "")
	}
}

// A row of a table from an address costs at most 100 bytes, with the text that is kept.
func TestMemoryOfFetchedRows(t *testing.T) {
	const count = 400_000 // the slots are three eighths full
	authority := testenv.Certs(t)
	s := serveTable(t, authority)
	s.is(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "value,requests_per_unit\n")
		for i := range count {
			name := sha256.Sum256([]byte{byte(i), byte(i >> 8), byte(i >> 16)}) // which can hardly be compressed
			fmt.Fprintf(w, "%x,%d\n", name[:8], i%1000)
		}
	})
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	table, err := (&tables.Fetcher{TLS: authority.ForClient, MaxBytes: 1 << 30, Timeout: time.Minute}).Once(s.URL, 0)
	must(t, err)
	used := heap() - before
	t.Logf("%d bytes a row", used/count)
	if table.Rows.Len != count || used > 100*count {
		t.Errorf("%d bytes for each of %d rows", used/count, table.Rows.Len)
	}
	runtime.KeepAlive(table)
}
