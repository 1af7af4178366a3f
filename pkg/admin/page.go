package admin

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"
)

// pageFiles are the page in the browser, which shows what the admin API tells: static files without
// data, in plain HTML, CSS and JavaScript modules; only page/assets/vendor is of others (uPlot, which
// draws the charts). The page asks the API for data, with the token that its user types.
//
//go:embed page
var pageFiles embed.FS

// policy lets scripts, styles and images come from this server only, and data, too. No
// other page may frame this one.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// kinds are the media types of the files. The table of the system may have others.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
	".txt":  "text/plain; charset=utf-8",
}

// isPage reports whether a path is that of a file of the page.
func isPage(path string) bool { return path == "/" || strings.HasPrefix(path, "/assets/") }

// page serves the page at / and its files below /assets/ to anybody, by GET and HEAD. A
// Content-Security-Policy lets the page load and call nothing but this server.
func page(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	name := r.URL.Path
	if name == "/" {
		name = "/index.html"
	}
	content, err := pageFiles.ReadFile("page" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	// A browser that has the file is answered 304, so that a new version of the program is seen
	// at once.
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(content)))
	h.Set("Content-Type", kinds[path.Ext(name)])
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}
