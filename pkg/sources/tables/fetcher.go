// Package tables fetches the tables that rules name by an address, while the process runs. It does
// not know which rules are in force: it is told the outcome of each load.
package tables

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"example.org/rls/internal/reread"
	"example.org/rls/pkg/descriptors/rules"
)

// Fetcher fetches tables, each address again and again in a goroutine of its own. A table that
// cannot be fetched or used leaves the last good one in force. Every change, and each failure that
// is another than before, is told to Changed, which has the rules loaded again.
type Fetcher struct {
	// TLS returns the configuration of a new connection.
	TLS func() *tls.Config
	// Token, if not nil, returns the bearer token, which only the hosts that rules name get, over
	// TLS.
	Token func() string
	// MaxBytes bounds a table, and Timeout the time in which it must have come.
	MaxBytes int64
	Timeout  time.Duration
	// Changed is called without waiting for its effect.
	Changed func()
	Log     *slog.Logger

	mu      sync.Mutex
	all     map[string]*fetched // by address
	running sync.WaitGroup
	ended   bool
}

// fetched is the table at an address. The fields below first are guarded by Fetcher.mu.
type fetched struct {
	url  string
	stop context.CancelFunc
	soon chan struct{} // has a value when the table is to be fetched at once
	due  *time.Timer   // until the next fetch
	// first is closed when the first fetch is over.
	first chan struct{}

	every time.Duration
	asked time.Duration // the shortest interval of the rules that are being loaded; 0 until they name it
	good  *rules.Table  // of the rules in force
	next  *rules.Table  // fetched since then
	left  bool          // next is left out of this load, because rules find rows of it wrong
	// failed says why the last fetch failed, and refused why next is not in force.
	failed, refused error
}

// body is what identifies the contents of the last answer: that which the server says of it, and a
// hash of the text.
type body struct {
	etag, modified string
	sum            uint64
}

// Run waits until ctx ends, and then ends all fetches. It returns nil.
func (t *Fetcher) Run(ctx context.Context) error {
	<-ctx.Done()
	t.mu.Lock()
	t.ended = true
	for _, f := range t.all {
		f.stop()
	}
	t.mu.Unlock()
	t.running.Wait()
	return nil
}

// Table returns the newest table at an address that can be used, and has it fetched at that
// interval. It waits for the first fetch.
func (t *Fetcher) Table(url string, every time.Duration) (*rules.Table, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.all[url]
	if f == nil {
		f = t.start(url, every)
	}
	if every < f.every {
		f.every = every
		f.due.Reset(every)
	}
	if f.asked == 0 || every < f.asked {
		f.asked = every
	}
	t.mu.Unlock()
	<-f.first
	t.mu.Lock()
	switch {
	case f.next != nil && (!f.left || f.good == nil):
		return f.next, nil
	case f.good != nil:
		return f.good, nil
	}
	return nil, f.failed
}

// Again has all tables fetched at once.
func (t *Fetcher) Again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.all {
		f.hurry()
	}
}

func (f *fetched) hurry() {
	select {
	case f.soon <- struct{}{}:
	default:
	}
}

// Any reports whether rules name an address.
func (t *Fetcher) Any() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all) > 0
}

// start begins to fetch an address at that interval.
func (t *Fetcher) start(url string, every time.Duration) *fetched {
	ctx, stop := context.WithCancel(context.Background())
	f := &fetched{url: url, every: every, stop: stop, soon: make(chan struct{}, 1), due: time.NewTimer(every), first: make(chan struct{})}
	if t.all == nil {
		t.all = map[string]*fetched{}
	}
	if t.all[url] = f; t.ended {
		stop()
	}
	t.running.Go(func() { t.keep(ctx, f) })
	return f
}

// keep fetches a table until ctx ends.
func (t *Fetcher) keep(ctx context.Context, f *fetched) {
	var last body
	for failures, first := 0, true; ; first = false {
		table, now, err := t.fetch(ctx, f.url, last)
		failures++
		if err == nil {
			failures, last = 0, now
		}
		changed := t.note(f, table, err, failures)
		if first {
			close(f.first)
		} else if changed {
			t.Changed()
		}
		select {
		case <-ctx.Done():
			return
		case <-f.soon:
		case <-f.due.C:
		}
	}
}

// note keeps the outcome of a fetch, whose table is nil if it is the one before, and sets the time of the
// next one. It reports whether the rules have to be loaded again.
func (t *Fetcher) note(f *fetched, table *rules.Table, err error, failures int) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed = table != nil || fmt.Sprint(err) != fmt.Sprint(f.failed)
	switch {
	case errors.Is(err, context.Canceled): // nobody wants it any more
		changed = false
	case err != nil && changed && (f.good != nil || f.next != nil):
		t.Log.Error("table cannot be fetched, its last good rows stay in force", "url", f.url, "error", err.Error())
	case err != nil && changed:
		t.Log.Error("table cannot be fetched, and none of its rows are known", "url", f.url, "error", err.Error())
	case err == nil && f.failed != nil:
		t.Log.Warn("table is fetched again", "url", f.url)
	}
	if f.failed = err; table != nil {
		f.next, f.refused = table, nil
	}
	wait := f.every
	if failures > 0 {
		wait = min(wait, time.Second<<min(failures-1, 6))
	}
	f.due.Reset(wait - rand.N(wait/10)) // replicas do not all ask at once
	return changed
}

// Once fetches a table once.
func (t *Fetcher) Once(url string, _ time.Duration) (*rules.Table, error) {
	table, _, err := t.fetch(context.Background(), url, body{})
	return table, err
}

// fetch fetches a table. It returns nil without an error if the contents are those of last.
func (t *Fetcher) fetch(ctx context.Context, url string, last body) (*rules.Table, body, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, t.Timeout, fmt.Errorf("it takes longer than %v (TABLE_TIMEOUT)", t.Timeout))
	defer cancel()
	table, now, err := t.get(ctx, url, last)
	var network *net.OpError
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.As(err, &network):
		err = fmt.Errorf("%s: %w", network.Op, network.Err) // without a port, which differs each time
	}
	return table, now, err
}

func (t *Fetcher) get(ctx context.Context, url string, last body) (*rules.Table, body, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, body{}, err
	}
	request.Header.Set("Accept", "text/csv, */*;q=0.1")
	request.Header.Set("User-Agent", "rls")
	switch {
	case last.etag != "":
		request.Header.Set("If-None-Match", last.etag)
	case last.modified != "":
		request.Header.Set("If-Modified-Since", last.modified)
	}
	if t.Token != nil && request.URL.Scheme == "https" {
		request.Header.Set("Authorization", "Bearer "+t.Token())
	}
	// A transport for each fetch: certificates and CAs are those of now.
	client := http.Client{CheckRedirect: redirect, Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: t.TLS(), DisableKeepAlives: true,
	}}
	response, err := client.Do(request)
	if err != nil {
		return nil, body{}, errors.Unwrap(err) // the address is known
	}
	defer func() { _ = response.Body.Close() }()
	switch {
	case response.StatusCode == http.StatusNotModified && (last.etag != "" || last.modified != ""):
		return nil, last, nil
	case response.StatusCode != http.StatusOK:
		return nil, body{}, fmt.Errorf("the server answers %s", response.Status)
	}
	return t.read(url, response, last)
}

const maxRedirects = 5

// redirect follows a redirection, to another host without the token, and never from https to http.
func redirect(request *http.Request, via []*http.Request) error {
	switch first := via[0].URL; {
	case len(via) > maxRedirects:
		return fmt.Errorf("more than %d redirections", maxRedirects)
	case first.Scheme == "https" && request.URL.Scheme != "https":
		return fmt.Errorf("the server redirects from https to %s", request.URL.Scheme)
	case request.URL.Host != first.Host:
		request.Header.Del("Authorization")
	}
	return nil
}

// read reads the table in an answer.
func (t *Fetcher) read(url string, response *http.Response, last body) (*rules.Table, body, error) {
	tooLarge := fmt.Errorf("it is larger than %d bytes (TABLE_MAX_BYTES)", t.MaxBytes)
	if response.ContentLength > t.MaxBytes {
		return nil, body{}, tooLarge
	}
	sum, text := xxhash.New(), io.LimitedReader{R: response.Body, N: t.MaxBytes + 1}
	table, err := rules.ReadTable(url, io.TeeReader(&text, sum))
	switch {
	case text.N == 0:
		return nil, body{}, tooLarge
	case err != nil:
		return nil, body{}, err
	case table.Rows == nil:
		return nil, body{}, table.Problems
	}
	now := body{response.Header.Get("ETag"), response.Header.Get("Last-Modified"), sum.Sum64()}
	if now.sum == last.sum {
		table = nil
	}
	return table, now, nil
}

// Leave leaves the tables out of the next load of the same rules that have one of the problems and
// replaced a good one, and reports whether there are any.
func (t *Fetcher) Leave(problems rules.Problems) (some bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.all {
		wrong := slices.DeleteFunc(slices.Clone(problems), func(p rules.Problem) bool { return p.File != f.url })
		if f.asked > 0 && f.next != nil && !f.left && len(wrong) > 0 {
			if some = some || f.good != nil; f.good != nil && fmt.Sprint(f.refused) != wrong.Error() {
				t.Log.Error("table refused, its last good rows stay in force", "url", f.url, "problems", wrong.Error())
			}
			f.left, f.refused = true, wrong
		}
	}
	return some
}

// Loaded notes whether the rules that were loaded are in force. Addresses that they do not name are
// fetched no more. It returns what is wrong with tables whose last good rows stay in force.
func (t *Fetcher) Loaded(inForce bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var wrong []string
	for url, f := range t.all {
		switch {
		case !inForce:
		case f.asked == 0:
			f.stop()
			delete(t.all, url)
			continue
		case f.next != nil && !f.left:
			f.good, f.next, f.refused = f.next, nil, nil
		}
		if f.refused != nil && f.good != nil {
			wrong = append(wrong, f.refused.Error())
		}
		if f.failed != nil && f.good != nil {
			wrong = append(wrong, fmt.Sprintf("%s: cannot be fetched, its last good rows stay in force: %v", url, f.failed))
		}
		f.every, f.asked, f.left = cmp.Or(f.asked, f.every), 0, false
	}
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	return errors.New(strings.Join(wrong, "\n"))
}

// Options are the settings of a [Fetcher].
type Options struct {
	MaxBytes int           `env:"MAX_BYTES" default:"268435456" min:"1024" max:"4294967296" unit:"bytes" help:"Largest table that is fetched."`
	Timeout  time.Duration `env:"TIMEOUT" default:"30s" min:"100ms" max:"10m" help:"Longest fetch. Rules with a new address take effect after its first."`

	TokenFile string `env:"TOKEN_FILE" help:"File with a bearer token for the servers, sent only over TLS, never to another host. Changes of it and the next three files count."`
}

// Open returns a Fetcher that fetches nothing yet. config returns the configuration of a new connection. Its
// errors are about the file with the token.
func Open(o Options, config func() *tls.Config, watch *reread.Watcher, log *slog.Logger) (t *Fetcher, err error) {
	t = &Fetcher{TLS: config, MaxBytes: int64(o.MaxBytes), Timeout: o.Timeout, Log: log}
	if o.TokenFile == "" {
		return t, nil
	}
	t.Token, err = reread.File(watch, "TABLE_TOKEN_FILE", o.TokenFile, func(content string) (string, error) {
		token := strings.TrimRight(content, "\r\n")
		if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return "", errors.New("has no token: want one line with a token, such as eyJhbGciOi")
		}
		return token, nil
	})
	return t, err
}
