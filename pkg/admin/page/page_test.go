package page_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"example.org/rls/pkg/admin/page"
)

func ask(t *testing.T, method, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	page.Handler().ServeHTTP(w, r)
	return w
}

func TestFiles(t *testing.T) {
	for path, kind := range map[string]string{
		"/":                                "text/html; charset=utf-8",
		"/assets/app.js":                   "text/javascript; charset=utf-8",
		"/assets/style.css":                "text/css; charset=utf-8",
		"/assets/icon.svg":                 "image/svg+xml",
		"/assets/vendor/uPlot.LICENSE.txt": "text/plain; charset=utf-8",
	} {
		resp := ask(t, http.MethodGet, path)
		if resp.Code != http.StatusOK || resp.Header().Get("Content-Type") != kind || resp.Body.Len() == 0 {
			t.Errorf("%s: %d, %q, %d bytes", path, resp.Code, resp.Header().Get("Content-Type"), resp.Body.Len())
		}
		if again := ask(t, http.MethodGet, path, "If-None-Match", resp.Header().Get("ETag")); again.Code != http.StatusNotModified {
			t.Errorf("%s again: %d", path, again.Code)
		}
	}
	for _, path := range []string{"/index.html", "/assets", "/assets/", "/assets/none.js", "/page.go", "/v1/status", "/assets/../page.go"} {
		if resp := ask(t, http.MethodGet, path); resp.Code != http.StatusNotFound {
			t.Errorf("%s: %d, want 404", path, resp.Code)
		}
	}
	if resp := ask(t, http.MethodPost, "/"); resp.Code != http.StatusMethodNotAllowed || resp.Header().Get("Allow") == "" {
		t.Errorf("POST: %d", resp.Code)
	}
}

func TestPolicy(t *testing.T) {
	for _, path := range []string{"/", "/assets/app.js", "/none"} {
		h := ask(t, http.MethodGet, path).Header()
		policy := h.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy %q lacks %s", path, policy, want)
			}
		}
		if strings.Contains(policy, "unsafe") || strings.Contains(policy, "//") {
			t.Errorf("%s: the policy is %q", path, policy)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", path, h)
		}
	}
}

// The policy would refuse scripts and styles within HTML, and other servers; and texts of
// callers must not become HTML.
func TestSources(t *testing.T) {
	own := 0
	err := filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, "vendor") || strings.HasSuffix(path, ".go") {
			return err
		}
		own++
		text, err := os.ReadFile(path)
		for _, forbidden := range []string{
			`innerHTML`, `outerHTML`, `insertAdjacentHTML`, `document\.write`, `\beval\(`, `new Function`, `\sstyle="`, `\son[a-z]+="`, `<script>`, `<style`,
			`https?://`, `setAttribute\('style`, `localStorage`, `cookie`,
		} {
			found := regexp.MustCompile(forbidden).FindAll(text, -1)
			for _, f := range found {
				// The names of SVG are URLs that nobody opens.
				if !strings.Contains(string(f), "http") || strings.Count(string(text), "http://www.w3.org/2000/svg") != len(found) {
					t.Errorf("%s has %s", path, f)
				}
			}
		}
		return err
	})
	if err != nil || own < 10 {
		t.Errorf("%d files: %v", own, err)
	}
}
