// Package page_test looks at the page of the admin listener in a real headless Chromium:
// the program serves it with real rules, and real requests fill it.
//
// Where the variable PAGE_SCREENSHOTS names a directory, each test leaves pictures there.
package page_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"example.org/rls/internal/testenv"
)

// patience is how long a test waits for the page on a busy machine.
const patience = 30 * time.Second

// chromium is one browser for all tests, each of which has a tab of its own.
var chromium context.Context

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "rls-page-")
	if err != nil {
		panic(err)
	}
	binaryDir = dir
	code := func() int {
		path, err := exec.LookPath("chromium")
		if err != nil {
			fmt.Fprintln(os.Stderr, "chromium is not in PATH: `make tools` installs it")
			return 1
		}
		options := append(chromedp.DefaultExecAllocatorOptions[:],
			chromedp.ExecPath(path), chromedp.UserDataDir(filepath.Join(dir, "profile")), chromedp.NoSandbox,
			chromedp.WSURLReadTimeout(time.Minute),
			// Chromium leaves files there when it is killed.
			chromedp.Env("TMPDIR="+dir),
			chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
		allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
		defer stop()
		var cancel context.CancelFunc
		chromium, cancel = chromedp.NewContext(allocator)
		defer cancel()
		if err := chromedp.Do(chromium); err != nil {
			fmt.Fprintln(os.Stderr, "start Chromium:", err)
			return 1
		}
		return m.Run()
	}()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// tab is a page in the browser.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string

	mu     sync.Mutex
	faults []string // exceptions, and requests that the browser refused
}

// open opens a URL in a new tab, which has a storage of its own. When the test ends, the
// tab may have had no exception and no violation of the Content-Security-Policy.
func open(t *testing.T, url string) *tab {
	t.Helper()
	p := &tab{t: t, url: url}
	ctx, cancel := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext(), chromedp.WithListener(p.hear))
	p.ctx = ctx
	t.Cleanup(func() {
		if t.Failed() {
			p.shot("failed")
			t.Logf("the page shows:\n%s", js[string](p, `(document.body?.innerText ?? "").replace(/(.{1,40}?)\1{5,}/g, "$1…").slice(0, 4000)`))
		}
		cancel()
		for _, fault := range p.faults {
			t.Errorf("the browser says: %s", fault)
		}
	})
	// The end of the first context that a tab runs with would close the tab.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	p.size(1280, 900)
	p.visit(url)
	return p
}

func (p *tab) hear(event any) {
	var fault string
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		fault = fmt.Sprint(e.ExceptionDetails)
	case *cdplog.EventEntryAdded:
		// Answers with an error are logged, too; tests ask for some of them.
		if e.Entry.Level != cdplog.EntryLevelError || e.Entry.Source == cdplog.EntrySourceNetwork {
			return
		}
		fault = e.Entry.Text
	default:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, fault)
}

// visit opens another address in the tab, once more if the browser gives the navigation up,
// which it does now and then on a busy machine.
func (p *tab) visit(address string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	var given *chromedp.LoadError
	err := chromedp.Do(ctx, chromedp.Navigate(address))
	if errors.As(err, &given) && given.ErrorText == "net::ERR_ABORTED" {
		err = chromedp.Do(ctx, chromedp.Navigate(address))
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// reload loads the page again, and waits until the one before is gone: else a test may find what it waits
// for on that one, and click on it.
func (p *tab) reload() { p.t.Helper(); p.do(chromedp.Reload()) }

func (p *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatal(err)
	}
}

// js is the value of an expression of JavaScript in the page.
func js[T any](p *tab, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// quote writes a string for JavaScript.
func quote(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// waits waits until an expression is true.
func (p *tab) waits(expression string) {
	p.t.Helper()
	testenv.Eventually(p.t, patience, func() bool { return js[bool](p, "Boolean("+expression+")") }, expression)
}

// sees waits until the visible text has all parts.
func (p *tab) sees(parts ...string) {
	p.t.Helper()
	for _, part := range parts {
		p.waits("document.body?.innerText.includes(" + quote(part) + ")")
	}
}

// place is the middle of the element of an expression, which is scrolled to.
func (p *tab) place(element string) (x, y float64) {
	p.t.Helper()
	p.waits(element)
	at := js[[]float64](p, `(() => { const e = `+element+`; e.scrollIntoView({block: "center"});
		const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] })()`)
	return at[0], at[1]
}

// click clicks with the mouse on the element of an expression.
func (p *tab) click(element string) {
	p.t.Helper()
	x, y := p.place(element)
	p.do(chromedp.MouseClickXY(x, y))
}

// named is the expression of the visible link or button with a text.
func named(kind, text string) string {
	return `[...document.querySelectorAll("` + kind + `")].find(e => e.innerText.trim() === ` + quote(text) + ` && e.checkVisibility())`
}

// labelled is the expression of the field with a label.
func labelled(label string) string {
	return `[...document.querySelectorAll("label")].find(l => l.innerText.trim() === ` + quote(label) + `)?.control`
}

// fill replaces the text of the field with the label.
func (p *tab) fill(label, text string) {
	p.t.Helper()
	p.click(labelled(label))
	js[bool](p, labelled(label)+".select() || true")
	p.do(command(input.InsertText, input.InsertTextParams{Text: text}))
	if got := js[string](p, labelled(label)+".value"); got != text {
		p.t.Fatalf("the field %s has %q after %q was typed", label, got, text)
	}
}

func (p *tab) press(key string) { p.t.Helper(); p.do(chromedp.KeyEvent(key)) }

// command makes an action of a command of the browser.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

func (p *tab) size(width, height int64) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(width, height))
}

// scheme makes the browser prefer dark or light pages.
func (p *tab) scheme(name string) {
	p.t.Helper()
	p.do(command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	}))
}

// shot leaves a picture in the directory PAGE_SCREENSHOTS.
func (p *tab) shot(name string) {
	p.t.Helper()
	dir := os.Getenv("PAGE_SCREENSHOTS")
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err == nil {
		name = strings.ReplaceAll(p.t.Name()+"-"+name, "/", "-")
		err = os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600)
	}
	if err != nil {
		p.t.Errorf("screenshot: %v", err)
	}
}

// signIn types a token.
func (p *tab) signIn(token string) {
	p.t.Helper()
	p.fill("Token", token)
	p.press("\r")
}

// view goes to a view by its link.
func (p *tab) view(name string) {
	p.t.Helper()
	p.click(named("nav a", name))
	p.waits(`document.querySelector("nav a[aria-current=page]")?.innerText === ` + quote(name))
}
