package admin

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/admin/events"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service/operate"
)

// History is the document of GET /v1/history.
type History struct {
	Events   []events.Event   `json:"events"`             // the newest first
	Replicas []client.Replica `json:"replicas,omitempty"` // only of a fleet
}

// history puts the changes of the audit among the events.
func (a *API) history(_ context.Context, q *Query) (any, error) {
	since, n := q.from(), q.N
	all := append(a.options.Events.Newest(since, n), a.audited(n)...)
	return History{Events: events.Merge(all, since, n)}, nil
}

// sameEvent is the time within which replicas tell the same event, such as rules that reach them one
// by one.
const sameEvent = 2 * time.Minute

func mergeHistory(q *Query, all []client.Answer[History], replicas []client.Replica) any {
	return History{mergeEvents(all, q.N, func(h *History) []events.Event { return h.Events }), replicas}
}

// mergeEvents has an event of several replicas once, with the time of the last of them. An event that the
// store remembers of a process that does not answer names no replica. It returns the newest n.
func mergeEvents[D any](all []client.Answer[D], n int, of func(*D) []events.Event) []events.Event {
	rows := newest(all, math.MaxInt, of, func(e *events.Event) (time.Time, *string) { return e.Time, &e.Replica })
	// Of the same event that of the replica which had it goes first.
	own := slices.DeleteFunc(slices.Clone(rows), func(e events.Event) bool { return e.Earlier })
	earlier := slices.DeleteFunc(rows, func(e events.Event) bool { return !e.Earlier })
	rows = slices.Concat(own, earlier)
	merged := []events.Event{}
	for _, e := range events.Merge(events.Distinct(rows), time.Time{}, math.MaxInt) {
		if e.Earlier {
			e.Replica = ""
		}
		same := slices.IndexFunc(merged, func(o events.Event) bool {
			return o.Kind == e.Kind && o.Text == e.Text && o.Time.Sub(e.Time) <= sameEvent &&
				(e.Earlier || o.Earlier || o.Replica != e.Replica && !slices.Contains(o.Replicas, e.Replica))
		})
		switch {
		case same < 0:
			merged = append(merged, e)
			continue
		case e.Earlier:
			continue
		case merged[same].Earlier:
			merged[same] = e
			continue
		}
		of := &merged[same]
		if of.Replicas == nil {
			of.Replica, of.Replicas = "", []string{of.Replica}
		}
		of.Replicas = append(of.Replicas, e.Replica)
	}
	for i := range merged {
		slices.Sort(merged[i].Replicas)
	}
	return merged[:min(n, len(merged))]
}

// from is the time that lies back by Since, or the zero time without it.
func (q *Query) from() time.Time {
	if q.Since == nil {
		return time.Time{}
	}
	return time.Now().Add(-*q.Since)
}

// event is a change as an event.
func (e *AuditEntry) event() events.Event {
	what := e.Rule
	switch {
	case e.Entries != nil:
		what = fmt.Sprintf("%s (%s)", e.Rule, descriptors.Argument(e.Entries))
	case e.Key != "":
		what = fmt.Sprintf("%s (key %s)", e.Rule, e.Key)
	}
	text := fmt.Sprintf("%s reset %s", e.Who, what)
	ends := ""
	if at := e.Until.Format(time.RFC3339); e.Action == events.Reset && !e.Until.IsZero() {
		ends = fmt.Sprintf(" The new window ends at %s.", at)
	} else if e.Action == events.Grant && !e.Until.IsZero() {
		ends = fmt.Sprintf(" The grant ends at %s.", at)
	}
	switch known := e.Before != nil && e.After != nil; {
	case e.Grant != nil && e.Action == events.Revoke:
		text = fmt.Sprintf("%s revoked the grant %s of %s to %s", e.Who, e.Grant.ID, e.Grant.Words(), what)
	case e.Grant != nil:
		text = fmt.Sprintf("%s granted %s to %s (%s)", e.Who, e.Grant.Words(), what, e.Grant.ID)
	case known && e.Action == events.Grant:
		text = fmt.Sprintf("%s granted %d hits to %s: %v → %v", e.Who, e.After.Remaining-e.Before.Remaining, what, *e.Before, *e.After)
	case known:
		text += fmt.Sprintf(": %v → %v", *e.Before, *e.After)
	default:
		text += fmt.Sprintf(": %d counters", e.Changed)
	}
	if e.Reason != "" {
		text += fmt.Sprintf(", because of %q", e.Reason)
	}
	told := events.Event{Time: e.Time, Kind: e.Action, Text: text + "." + ends}
	if e.Entries != nil {
		told.Domain, told.Entries = e.Domain, e.Entries
	}
	return told
}

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

// Merge returns the newest n events of this process, with the audited changes, and of the processes whose
// events are in text.
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
