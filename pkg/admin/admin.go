// Package admin is the admin API, by which operators ask a running process and change
// counters: JSON over HTTP. A document is one Go type, which the server writes and clients read.
//
// It promises that a caller without a right token learns nothing and changes nothing,
// that no log line has a token, and no answer but that to a [Link], and that every change of a counter is
// an audit line. It leaves the counters to the service, the other documents to the
// packages that make them, and listening to package server. Nothing on the way of a
// request knows this package.
package admin

import (
	"context"
	"crypto/rand"
	"iter"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"example.org/rls/internal/bounded"
	"example.org/rls/pkg/admin/events"
	"example.org/rls/pkg/denials"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/operate"
	"example.org/rls/pkg/service/rlqs"
	"example.org/rls/pkg/top"
)

// Options are the parts of an [API].
type Options struct {
	Limits Limits
	Status Status
	Top    Top // nil is answered UNIMPLEMENTED
	Events *events.Log
	// Denials is answered UNIMPLEMENTED if it is nil.
	Denials *denials.Denials
	// Memories are asked for descriptors of requests.
	Memories []Memory
	// Rules says where the rules in force come from.
	Rules func() *explain.Rules
	// Quotas assigns shares to Envoys; nil if it does not run.
	Quotas *rlqs.Server

	// Fleet knows the other replicas; nil if there are none.
	Fleet *Fleet

	// Tokens are the callers over TCP, and Link one more; nil without them.
	Tokens *Tokens
	Link   *Link
	// Hosts are the names, in lower case, that a request may have as its Host, besides
	// localhost and the addresses of the machine.
	Hosts []string

	// Log is told of panics. Audit gets a line for each change, at the level info.
	Log, Audit *slog.Logger
	// Ending ends the streams. Other calls may finish.
	Ending context.Context
}

// Limits inspects and changes the cells of the service that decides requests; *[operate.Operator] is one.
type Limits interface {
	Inspect(context.Context, *operate.Question, operate.View) (explain.Document, error)
	Change(context.Context, *operate.Question, operate.Action) (explain.Document, []operate.Change, error)
	Forget(context.Context, *operate.Question) error
	Revoke(ctx context.Context, id string) (operate.Change, error)
	Grants(context.Context) ([]operate.GrantInForce, error)
	ResetMatching(ctx context.Context, domain, rule string, dryRun bool, tell func(operate.Progress) error) (operate.Progress, error)
	ForgetMatching(domain, rule string) error
	Usage(ctx context.Context, rule string, above float64, n int, cursor string) (operate.UsagePage, error)
	UsageOf(ctx context.Context, q *operate.Question, above float64) ([]operate.Used, error)
	// SharesStore reports whether the other replicas count in the same cells.
	SharesStore() bool
	// Tree has the rules in force; nil before they are loaded.
	Tree() *descriptors.Tree
}

// Status tells how the process is doing. Its documents are JSON.
type Status interface {
	// JSON is the document of GET /v1/status, with a history of this length, or without one if it is 0.
	JSON(history time.Duration) []byte
	// RulesJSON is the document of GET /v1/rules: of the rules that have all words of q,
	// n rules after the first offset.
	RulesJSON(q string, n, offset int) []byte
	// Watch gives an update about once a second until ctx ends.
	Watch(ctx context.Context) iter.Seq[[]byte]
}

// Top knows the heavy hitters.
type Top interface {
	// Table returns the document of GET /v1/top.
	Table(top.Query) top.Table
	// Override is the limit that the last request with these entries brought along, with
	// the time in Seen; nil if it brought none, or is not remembered.
	Override(domain string, entries []descriptors.Entry) *explain.Override
}

// Memory remembers descriptors of requests.
type Memory interface {
	// Find returns descriptors, each once, that have text in a key or a value, and that are
	// wanted; nil is all.
	Find(text string, wanted func(*service.Remembered) bool) []service.Remembered
}

// API is the admin API. It is safe for concurrent use.
type API struct {
	options  Options
	id, host string // tell replicas apart, whatever their addresses are
	// Log has the last changes. It is saved, and loaded, as the part of the API that outlives the process.
	*bounded.Log[AuditEntry]
	calls     *semaphore.Weighted
	explained *semaphore.Weighted
	streams   *semaphore.Weighted
	scanning  *semaphore.Weighted // one call at a time lists the keys of the store
}

// At most maxCalls calls and maxStreams streams are under way; more are refused at
// once, so that a crowd of operators does not take the processor from requests.
const (
	maxCalls     = 64
	maxExplained = 8
	maxStreams   = 1024
)

// New returns an API.
func New(o Options) *API {
	host, _ := os.Hostname()
	return &API{
		options:   o,
		id:        rand.Text(),
		host:      strings.Join(strings.Fields(host), "-"),
		Log:       bounded.NewLog[AuditEntry](maxAudited),
		calls:     semaphore.NewWeighted(maxCalls),
		explained: semaphore.NewWeighted(maxExplained),
		scanning:  semaphore.NewWeighted(1),
		streams:   semaphore.NewWeighted(maxStreams),
	}
}

// Handler serves the API to callers with tokens.
func (a *API) Handler() http.Handler { return &listener{API: a} }

// SocketHandler serves the API on a Unix socket, whose callers need no token and may
// write. The path names the socket in the audit.
func (a *API) SocketHandler(path string) http.Handler { return &listener{API: a, socket: path} }
