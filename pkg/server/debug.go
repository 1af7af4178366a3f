package server

import (
	"io"
	"net/http"
	"net/http/pprof"
)

// DebugPages are the pages for operators, with a list of them at /. They are
// not for the public: profiles show what the process is doing. The command line
// (pprof's cmdline) is left out because flags may hold passwords.
func DebugPages(rules func() string, stats http.Handler) map[string]http.Handler {
	pages := map[string]http.Handler{}
	var index string
	add := func(path, help string, page http.Handler) {
		index += path + ": " + help + "\n"
		pages[path] = page
	}
	// In alphabetical order, as the list shows them.
	add("/debug/pprof/", "profiles of goroutines, memory and locks", http.HandlerFunc(pprof.Index))
	add("/debug/pprof/profile", "profile of the CPU, ?seconds=30", http.HandlerFunc(pprof.Profile))
	add("/debug/pprof/symbol", "names of functions, for pprof", http.HandlerFunc(pprof.Symbol))
	add("/debug/pprof/trace", "trace of the scheduler, ?seconds=1", http.HandlerFunc(pprof.Trace))
	add("/rlconfig", "the rules in force", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, rules())
	}))
	add("/stats", "the metrics, as Prometheus reads them", stats)
	pages["/{$}"] = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, index) })
	return pages
}
