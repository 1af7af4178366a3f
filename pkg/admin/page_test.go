package admin_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestFilesOfThePage(t *testing.T) {
	r := start(t, listening{})
	for path, kind := range map[string]string{
		"/":                                "text/html; charset=utf-8",
		"/assets/app.js":                   "text/javascript; charset=utf-8",
		"/assets/style.css":                "text/css; charset=utf-8",
		"/assets/icon.svg":                 "image/svg+xml",
		"/assets/vendor/uPlot.LICENSE.txt": "text/plain; charset=utf-8",
	} {
		got := r.ask("GET", path, "")
		if got.code != 200 || got.header.Get("Content-Type") != kind || got.text == "" {
			t.Errorf("%s: %d, %q, %d bytes", path, got.code, got.header.Get("Content-Type"), len(got.text))
		}
		if again := r.ask("GET", path, "", with("If-None-Match", got.header.Get("ETag"))); again.code != 304 {
			t.Errorf("%s again: %d", path, again.code)
		}
	}
	for path, code := range map[string]int{"/assets/": 404, "/assets/none.js": 404, "/assets/../page.go": 404, "/index.html": 401, "/assets": 401, "/page.go": 401} {
		if got := r.ask("GET", path, ""); got.code != code {
			t.Errorf("%s: %d, want %d", path, got.code, code)
		}
	}
}

func TestPolicyOfThePage(t *testing.T) {
	r := start(t, listening{})
	for _, path := range []string{"/", "/assets/app.js", "/assets/none"} {
		h := r.ask("GET", path, "").header
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
func TestSourcesOfThePage(t *testing.T) {
	own := 0
	err := filepath.WalkDir("page", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, "vendor") {
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
