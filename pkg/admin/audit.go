package admin

import (
	"time"

	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/admin/events"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service/operate"
)

// maxAudited is the number of entries that the API keeps.
const maxAudited = 1000

// AuditEntry is one change.
type AuditEntry struct {
	Time   time.Time `json:"time"`
	Who    string    `json:"who"`
	From   string    `json:"from"`
	Action string    `json:"action"` // reset, grant or revoke
	Domain string    `json:"domain"`
	Rule   string    `json:"rule"`
	// Until is when a grant, or the window after a reset, ends. Grant is the one until a time that was made
	// or revoked.
	Until time.Time          `json:"until,omitzero"`
	Grant *descriptors.Grant `json:"grant,omitempty"`
	// Entries are as of operate.Change. They and Key are empty for a reset of all cells of a rule.
	Entries []descriptors.Entry `json:"entries,omitempty"`
	Key     string              `json:"key"`
	Before  *explain.Usage      `json:"before,omitempty"`
	After   *explain.Usage      `json:"after,omitempty"`
	Reason  string              `json:"reason"`
	// Changed is the number of cells that were changed.
	Changed int64 `json:"changed"`
	// Replica is the address of the replica that made the change; only of a fleet.
	Replica string `json:"replica,omitempty"`
}

// entryOf is the entry of a change.
func entryOf(action, domain string, c *operate.Change, reason string) AuditEntry {
	return AuditEntry{
		Action: action, Domain: domain, Rule: c.Rule, Entries: c.Entries, Key: c.Key, Before: c.Before, After: c.After,
		Reason: reason, Changed: 1, Until: c.Until, Grant: c.Grant,
	}
}

// AuditLog is the document of GET /v1/audit.
type AuditLog struct {
	Entries  []AuditEntry     `json:"entries"`
	Replicas []client.Replica `json:"replicas,omitempty"` // only of a fleet
}

// maxKey bounds a key in the audit, in bytes.
const maxKey = 1024

// audit keeps and logs a change that the caller has just made.
func (a *API) audit(by caller, e AuditEntry) {
	e.Time, e.Who, e.From = time.Now().UTC(), by.who, by.from
	e.Key = descriptors.Shortened(e.Key, maxKey)
	a.Add(e)
	fields := []any{"action", e.Action, "who", e.Who, "from", e.From, "domain", e.Domain, "rule", e.Rule, "key", e.Key}
	if e.Before != nil && e.After != nil {
		fields = append(fields, "before", *e.Before, "after", *e.After)
	}
	fields = append(fields, "changed", e.Changed, "reason", e.Reason)
	if e.Grant != nil {
		fields = append(fields, "grant", e.Grant.ID, "granted", e.Grant.Words())
	}
	if !e.Until.IsZero() {
		fields = append(fields, "until", e.Until.Format(time.RFC3339))
	}
	a.options.Audit.Info("audit", fields...)
}

// Changes counts the events and the audited changes.
func (a *API) Changes() uint64 { return a.options.Events.Changes() + a.Log.Changes() }

// Recall adds the events that Merge has kept.
func (a *API) Recall(text []byte) { a.options.Events.Recall(text) }

// Merge returns the newest n events, audited changes among them, together with those that text has kept
// of other processes.
func (a *API) Merge(text []byte, n int) []byte {
	return a.options.Events.Merge(text, n, a.audited(n)...)
}

// audited are the last n changes as events.
func (a *API) audited(n int) (all []events.Event) {
	for _, e := range a.Last(n) {
		all = append(all, e.event())
	}
	return all
}

func mergeAudit(q *Query, all []client.Answer[AuditLog], replicas []client.Replica) any {
	return AuditLog{newest(all, q.N, func(l *AuditLog) []AuditEntry { return l.Entries },
		func(e *AuditEntry) (time.Time, *string) { return e.Time, &e.Replica }), replicas}
}
