// Package page is the page in the browser, which shows what the admin API tells: static
// files without data, embedded in the program. They are plain HTML, CSS and JavaScript
// modules; only assets/vendor is of others (uPlot, which draws the charts).
//
// [Handler] serves the files to anybody, with a Content-Security-Policy that lets the
// page load and call nothing but this server. The data and the token that they need are
// left to package admin.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"time"
)

//go:embed index.html assets
var files embed.FS

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

// file is one file as it is served.
type file struct {
	kind, tag string
	content   []byte
}

// Handler serves the page at / and its files below /assets/. Every other path is 404, and
// every method but GET and HEAD 405.
func Handler() http.Handler {
	all := map[string]file{}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		all["/"+name] = file{kind: kinds[path.Ext(name)], tag: `"` + hex.EncodeToString(sum[:8]) + `"`, content: content}
		return nil
	})
	if err != nil {
		panic(err) // embedded files can be read
	}
	all["/"] = all["/index.html"]
	delete(all, "/index.html")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		f, found := all[r.URL.Path]
		switch {
		case !found:
			http.NotFound(w, r)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		default:
			// A browser that has the file is answered 304, so that a new version of the
			// program is seen at once.
			h.Set("Cache-Control", "no-cache")
			h.Set("ETag", f.tag)
			h.Set("Content-Type", f.kind)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.content))
		}
	})
}
