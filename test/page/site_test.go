package page_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"example.org/rls/internal/testenv"
)

// site is the folder of the site that make site writes.
var site = sync.OnceValues(func() (string, error) {
	folder := filepath.Join(binaryDir, "site")
	command := exec.Command("../../scripts/site.sh", folder)
	command.Stderr = os.Stderr
	return folder, command.Run()
})

// serveSite serves the site from a folder of its server, as pages of a project are.
func serveSite(t *testing.T) (folder, address string) {
	t.Helper()
	folder, err := site()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.StripPrefix("/rls/", http.FileServer(http.Dir(folder))))
	t.Cleanup(server.Close)
	return folder, server.URL + "/rls/"
}

// TestSiteLinks follows each link within the site, to its heading, from the first page on.
func TestSiteLinks(t *testing.T) {
	folder, _ := serveSite(t)
	href := regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	pages, links := map[string]string{}, 0
	var read func(page string) string
	read = func(page string) string {
		text, known := pages[page]
		if known {
			return text
		}
		b, err := os.ReadFile(filepath.Join(folder, page))
		if err != nil {
			t.Errorf("there is no %s", page)
		}
		pages[page] = string(b)
		if !strings.HasSuffix(page, ".html") {
			return string(b)
		}
		for _, m := range href.FindAllStringSubmatch(string(b), -1) {
			to, err := url.Parse(strings.ReplaceAll(m[1], "&amp;", "&"))
			if err != nil || to.Scheme != "" || to.Host != "" {
				continue
			}
			links++
			target := page
			if to.Path != "" {
				target = path.Join(path.Dir(page), to.Path)
			}
			if at := to.Fragment; at != "" && !strings.Contains(read(target), `id="`+at+`"`) {
				t.Errorf("%s leads to %s, which has no %s", page, target, at)
			} else if at == "" {
				read(target)
			}
		}
		return string(b)
	}
	read("index.html")
	if len(pages) < 40 || links < 1000 {
		t.Errorf("%d pages with %d links", len(pages), links)
	}
	for _, document := range []string{"README", "docs/rules", "docs/settings", "docs/runbook", "docs/adr/0001-one-step-many-strategies", "deploy/helm/rls/README"} {
		if _, ok := pages[document+".html"]; !ok {
			t.Errorf("no link leads to %s", document)
		}
	}
}

// TestSiteSearch searches for words that users have: the first or second hit is the document that answers.
func TestSiteSearch(t *testing.T) {
	_, address := serveSite(t)
	p := open(t, address+"search.html")
	for words, document := range map[string]string{
		"429": "docs/troubleshooting", "too many requests": "docs/troubleshooting", "redis down": "docs/store-away", "burst": "docs/strategies", "per user": "docs/recipes",
		"retry-after": "docs/strategies", "memcached": "docs/backends", "helm": "deploy/helm/rls/README", "failover": "docs/backends", "tenant": "docs/plans",
		"window reset": "docs/strategies", "allow one customer": "docs/admin", "dry run": "docs/trying", "envoy timeout": "docs/envoy",
	} {
		p.visit(address + "search.html?q=" + url.QueryEscape(words))
		p.waits(`document.querySelector("#search-results ul.search li a")`)
		// The summary says so at last; the results above it have any words.
		p.waits(`/found|matching/.test(document.querySelector("#search-results .search-summary").innerText)`)
		if found := js[string](p, `[...document.querySelectorAll("#search-results ul.search li a")].slice(0, 2).map(a => a.href).join(" ")`); !strings.Contains(found, document+".html") {
			t.Errorf("%q finds %s, not %s", words, found, document)
		}
	}
}

// TestSiteForAll: pages fit a telephone, axe finds nothing that keeps people out, in light and in dark
// colours, and commands can be copied.
func TestSiteForAll(t *testing.T) {
	_, address := serveSite(t)
	axe, err := os.ReadFile(testenv.Binary(t, "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, address)
	for _, document := range []string{"README", "docs/README", "docs/rules", "docs/match", "docs/settings", "docs/admin", "docs/strategies", "search"} {
		for colours, width := range map[string]int64{"light": 1280, "dark": 390} {
			p.size(width, 900)
			p.visit(address + document + ".html")
			js[bool](p, `document.body.dataset.theme = `+quote(colours)+`, true`)
			if wide := js[int64](p, "document.documentElement.scrollWidth"); wide > width {
				t.Errorf("%s takes %d px of %d", document, wide, width)
			}
			js[bool](p, string(axe)+`; axe.run().then(r => window.violations = r.violations.map(
				v => v.id + ": " + v.nodes.map(n => n.html.slice(0, 120)).slice(0, 3).join(" | "))); true`)
			p.waits("window.violations")
			if found := js[[]string](p, "window.violations"); len(found) > 0 {
				t.Errorf("%s, %s, %d px:\n%s", document, colours, width, strings.Join(found, "\n"))
			}
		}
	}
	p.visit(address + "README.html")
	p.waits(`document.querySelector("div.highlight button.copybtn")`)
}
