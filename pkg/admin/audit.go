package admin

import (
	"log/slog"
	"sync"
	"time"
)

// maxAudited is the number of entries that the API keeps.
const maxAudited = 1000

// audit keeps the last changes, and logs each of them.
type audit struct {
	log *slog.Logger

	mu      sync.Mutex
	entries [maxAudited]AuditEntry // a ring
	n       int                    // entries that were ever added
}

// AuditEntry is one change.
type AuditEntry struct {
	Time   time.Time `json:"time"`
	Who    string    `json:"who"`
	From   string    `json:"from"`
	Action string    `json:"action"` // reset or grant
	Domain string    `json:"domain"`
	Rule   string    `json:"rule"`
	// Key is empty for a reset of all cells of a rule.
	Key    string `json:"key"`
	Before *Count `json:"before,omitempty"`
	After  *Count `json:"after,omitempty"`
	Reason string `json:"reason"`
	// Changed is the number of cells that were changed.
	Changed int64 `json:"changed"`
}

// AuditLog is the document of GET /v1/audit.
type AuditLog struct {
	Entries []AuditEntry `json:"entries"`
}

func newAudit(log *slog.Logger) *audit { return &audit{log: log} }

// maxKey bounds a key in the audit, in bytes.
const maxKey = 1024

// add keeps and logs a change that the caller has just made.
func (a *audit) add(by caller, e AuditEntry) {
	e.Time, e.Who, e.From = time.Now().UTC(), by.who, by.from
	if len(e.Key) > maxKey {
		e.Key = e.Key[:maxKey] + "..."
	}
	a.mu.Lock()
	a.entries[a.n%maxAudited] = e
	a.n++
	a.mu.Unlock()
	fields := []any{"action", e.Action, "who", e.Who, "from", e.From, "domain", e.Domain, "rule", e.Rule, "key", e.Key}
	if e.Before != nil && e.After != nil {
		fields = append(fields, "before", *e.Before, "after", *e.After)
	}
	a.log.Info("audit", append(fields, "changed", e.Changed, "reason", e.Reason)...)
}

// last returns the last n changes, the newest first.
func (a *audit) last(n int) AuditLog {
	a.mu.Lock()
	defer a.mu.Unlock()
	n = min(n, a.n, maxAudited)
	log := AuditLog{Entries: make([]AuditEntry, 0, n)}
	for i := range n {
		log.Entries = append(log.Entries, a.entries[(a.n-1-i)%maxAudited])
	}
	return log
}
