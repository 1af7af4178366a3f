// Package events remembers what happened to the process: its start and its end, the servers
// of the store that went away and came back, the rules that were loaded and refused, and the
// certificates that were renewed.
//
// It promises bounded memory, the newest [Kept] events; that each sentence is understood
// alone; and that a server is away once, however many breakers stand before it. Its callers
// are the parts that see these things happen, connected by the program. Changes of counters
// are in the audit of package admin, which puts both together.
package events

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/rls/internal/bounded"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
)

// Kept is the number of events that a [Log] keeps.
const Kept = 1000

// The kinds of events. A Log keeps all but the last three, which package admin adds from its audit. The
// comments of the kinds and of the fields of events are those of docs/events.md.
const (
	Start        = "start"         // the process started
	Drain        = "drain"         // the process is about to end: its health is NOT_SERVING
	StoreAway    = "store-away"    // a server of the store does not answer, or never did
	StoreBack    = "store-back"    // the server answers again, or has left the store
	RulesLoaded  = "rules-loaded"  // rules came into force
	RulesRefused = "rules-refused" // the newest rules have errors; the last good ones stay
	Certificate  = "certificate"   // changed files of a certificate or of CAs are in use
	Grant        = "grant"         // an operator let more hits pass
	Reset        = "reset"         // an operator emptied counters
	Revoke       = "revoke"        // an operator ended a grant until a time
)

// Event is something that happened.
type Event struct {
	Time     time.Time `json:"time"`               // when it happened, in UTC
	Kind     string    `json:"kind"`               // one of the kinds above
	Text     string    `json:"text"`               // a sentence for people
	Replica  string    `json:"replica,omitempty"`  // of a fleet: the address of the replica that had the event
	Replicas []string  `json:"replicas,omitempty"` // of a fleet: the addresses, if several replicas had it within two minutes
	Earlier  bool      `json:"earlier,omitempty"`  // the store remembers the event of another process, which may have ended

	Domain  string              `json:"domain,omitempty"`  // of a changed counter
	Entries []descriptors.Entry `json:"entries,omitempty"` // of a changed counter: its descriptor, unless that is hashed or too long

	*Server
	Error string `json:"error,omitempty"` // why calls to the server fail
	*Return
	*InForce
	Problems []string         `json:"problems,omitempty"` // the errors of the rules, at most ten
	Changes  []explain.Change `json:"changes,omitempty"`  // limits that changed, as `rls diff` tells them, at most 20
	Changed  int              `json:"changed,omitempty"`  // the number of all limits that changed
}

// Server is a server of the store.
type Server struct {
	Address string `json:"server"` // HOST:PORT
	Role    string `json:"role"`   // of the store: `main` or `per-second`
}

// Return is the end of an outage.
type Return struct {
	Seconds   float64   `json:"seconds"`   // since the server went away
	Decisions Decisions `json:"decisions"` // meanwhile, of limits: by `allow`, `deny`, `local`, or undecided by `error`
}

// Decisions counts decisions of limits that failure policies made in place of the store.
// Error counts the limits that the policy error left undecided.
type Decisions struct {
	Allow uint64 `json:"allow"`
	Deny  uint64 `json:"deny"`
	Local uint64 `json:"local"`
	Error uint64 `json:"error"`
}

// InForce describes the rules in force.
type InForce struct {
	Hash    string `json:"hash"`    // equal in processes with the same rules
	Domains int    `json:"domains"` // the number of domains
	Rules   int    `json:"rules"`   // the number of rules
	// Policies counts the rules whose limits are on the servers of a role, by their failure policy.
	Policies map[string][descriptors.Policies]int `json:"-"`
}

// Log keeps events. It is safe for concurrent use.
type Log struct {
	*bounded.Log[Event]
	decided func() [descriptors.Policies]uint64

	mu       sync.Mutex
	away     map[Server]*Outage
	policies map[string][descriptors.Policies]int // of the rules in force
}

// New returns an empty Log. decided counts the decisions of policies since the start of the
// process, by policy; the Log calls it when a server begins to fail and when it is back.
func New(decided func() [descriptors.Policies]uint64) *Log {
	return &Log{Log: bounded.NewLog[Event](Kept), decided: decided, away: map[Server]*Outage{}}
}

// Newest returns the last n events since a time, the newest first.
func (l *Log) Newest(since time.Time, n int) []Event { return Merge(l.Last(Kept), since, n) }

// Merge sorts events, the newest first, and returns the first n since a time. It may change
// the slice.
func Merge(all []Event, since time.Time, n int) []Event {
	all = slices.DeleteFunc(all, func(e Event) bool { return e.Time.Before(since) })
	slices.SortStableFunc(all, func(a, b Event) int { return b.Time.Compare(a.Time) })
	return all[:min(len(all), n)]
}

// Recall adds the events that Merge has kept.
func (l *Log) Recall(text []byte) { l.Precede(eventsIn(text)) }

// Merge returns the newest n of the events of this process, of more, which it had, too, and of those
// that text has kept of others.
func (l *Log) Merge(text []byte, n int, more ...Event) []byte {
	all := append(l.Newest(time.Time{}, Kept), more...)
	all = Distinct(append(all, eventsIn(text)...))
	for i := range all {
		all[i].Earlier = false
	}
	slices.SortStableFunc(all, func(a, b Event) int { return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.Text, b.Text)) })
	merged, _ := json.Marshal(all[:min(len(all), n, Kept)]) // of numbers and texts
	return merged
}

// Distinct leaves out each earlier event that another one before it tells, too: of the same moment and
// text. It may change the slice.
func Distinct(all []Event) []Event {
	type event struct {
		micros int64
		text   string
	}
	seen := make(map[event]bool, len(all))
	return slices.DeleteFunc(all, func(e Event) bool {
		of := event{e.Time.UnixMicro(), e.Text}
		known := seen[of]
		seen[of] = true
		return known && e.Earlier
	})
}

// maxText bounds the text of an event that the store remembers, in bytes.
const maxText = 4 << 10

// eventsIn reads what Merge has kept, as earlier events. It leaves out what no Log has written.
func eventsIn(text []byte) (all []Event) {
	if json.Unmarshal(text, &all) != nil {
		return nil
	}
	all = slices.DeleteFunc(all, func(e Event) bool {
		return e.Time.IsZero() || e.Kind == "" || e.Text == "" || len(e.Text) > maxText
	})
	for i := range all {
		all[i].Earlier = true
	}
	return all[:min(len(all), Kept)]
}

// add keeps an event, which happens now if it has no time.
func (l *Log) add(e Event) {
	e.Time = cmp.Or(e.Time, time.Now()).UTC()
	l.Add(e)
}

// Started says that the process has started.
func (l *Log) Started(version, backend string) {
	l.add(Event{Kind: Start, Text: fmt.Sprintf("The process started: rls %s with the backend %s.", version, backend)})
}

// Drains says that the process is about to end.
func (l *Log) Drains() {
	l.add(Event{Kind: Drain, Text: "The process is about to end: its health is NOT_SERVING."})
}

const (
	// MaxChanges is the most changes that an event has, and maxTold the most that its text has.
	MaxChanges = 20
	maxTold    = 3
)

// Loaded says which rules came into force, and which limits they changed.
func (l *Log) Loaded(r InForce, changes []explain.Change) {
	e := Event{Kind: RulesLoaded, InForce: &r, Changed: explain.Count(changes)}
	e.Changes = changes[:min(len(changes), MaxChanges)]
	e.Text = fmt.Sprintf("Rules came into force: %s in %s, with the hash %s.", number(r.Rules, "rule"), number(r.Domains, "domain"), r.Hash)
	var told []string
	for i, c := range changes {
		if i == maxTold {
			told = append(told, fmt.Sprintf("and %s", number(explain.Count(changes[i:]), "more change")))
			break
		}
		told = append(told, descriptors.Shortened(descriptors.Printable(c.String()), maxProblem))
	}
	if told != nil {
		e.Text += " Changed: " + strings.Join(told, "; ") + "."
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.policies = r.Policies
	l.add(e)
}

const (
	maxProblems = 10
	maxProblem  = 300 // bytes of one
)

// Refused says why rules did not come into force, by at least one problem. Of many or long
// problems it keeps the beginning.
func (l *Log) Refused(problems []string) {
	e := Event{Kind: RulesRefused}
	for i, problem := range problems {
		if i == maxProblems {
			e.Problems = append(e.Problems, fmt.Sprintf("and %s", number(len(problems)-i, "more problem")))
			break
		}
		e.Problems = append(e.Problems, descriptors.Shortened(descriptors.Printable(problem), maxProblem))
	}
	e.Text = "The newest rules were refused: " + e.Problems[0]
	if n := len(problems) - 1; n > 0 {
		e.Text += fmt.Sprintf(", and %s", number(n, "more problem"))
	}
	l.add(e)
}

// sameRenewal is the time within which parts of the process that use the same certificate
// note that its files have changed.
const sameRenewal = time.Second

// Renewed says that the certificate or the CAs of a use of TLS were renewed. whose is the
// subject of the certificate, which is valid until a time. Without a certificate of its own
// the use has CAs only, and until is zero.
func (l *Log) Renewed(use, whose string, until time.Time) {
	e := Event{Kind: Certificate, Time: time.Now(), Text: fmt.Sprintf("The CAs of %s were renewed.", use)}
	if !until.IsZero() {
		e.Text = fmt.Sprintf("The certificate of %s (%s) was renewed; it is valid until %s.", use, whose, until.UTC().Format("2006-01-02 15:04 MST"))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, earlier := range l.Last(Kept) {
		if earlier.Time.Before(e.Time.Add(-sameRenewal)) {
			break
		}
		if earlier.Text == e.Text {
			return
		}
	}
	l.add(e)
}

// Failing notes that calls to a server begin to fail. The result is told if the server goes
// away because of that, by any of the breakers before it; [breaker.Watch] says when.
func (l *Log) Failing(s Server) *Outage { return &Outage{of: l, server: s, before: l.decided()} }

// Outage makes the events of a server that goes away.
type Outage struct {
	of       *Log
	server   Server
	before   [descriptors.Policies]uint64
	began    time.Time
	breakers int // that have told
}

// Away says that the server went away at a time because of err.
func (o *Outage) Away(at time.Time, err error) {
	l := o.of
	l.mu.Lock()
	defer l.mu.Unlock()
	if first := l.away[o.server]; first != nil {
		first.breakers++
		return
	}
	o.began, o.breakers, l.away[o.server] = at, 1, o
	why := descriptors.Shortened(descriptors.Printable(err.Error()), maxProblem)
	l.add(Event{Time: at, Kind: StoreAway, Server: &o.server, Error: why, Text: fmt.Sprintf(
		"The server %s of the store (%s) does not answer (%s). Until it is back, %s.",
		o.server.Address, o.server.Role, why, meanwhile(l.policies[o.server.Role]))})
}

// meanwhile says what happens to the hits of rules, counted by their failure policy, while a server is away.
func meanwhile(rules [descriptors.Policies]int) string {
	var said []string
	for p, does := range [descriptors.Policies][2]string{
		descriptors.PolicyError: {"answers an error", "answer an error"}, descriptors.PolicyAllow: {"lets hits pass", "let hits pass"},
		descriptors.PolicyDeny: {"denies", "deny"}, descriptors.PolicyLocal: {"counts in each process", "count in each process"},
	} {
		switch n := rules[p]; n {
		case 0:
		case 1:
			said = append(said, "1 rule "+does[0])
		default:
			said = append(said, fmt.Sprintf("%d rules %s", n, does[1]))
		}
	}
	if said == nil {
		return "failure policies decide for its keys"
	}
	return "for its keys " + strings.Join(said, ", ")
}

// Back says, after Away, that the server answers again, or that it has left the store.
func (o *Outage) Back(at time.Time, left bool) {
	l := o.of
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.away[o.server]
	if first.breakers--; first.breakers > 0 {
		return
	}
	delete(l.away, o.server)
	took, how := at.Sub(first.began).Round(time.Millisecond), "is back"
	if left {
		how = "has left the store"
	}
	n, were := l.decided(), first.before
	since := func(p descriptors.Policy) uint64 { return n[p] - were[p] }
	r := Return{took.Seconds(), Decisions{
		Allow: since(descriptors.PolicyAllow), Deny: since(descriptors.PolicyDeny),
		Local: since(descriptors.PolicyLocal), Error: since(descriptors.PolicyError),
	}}
	l.add(Event{Time: at, Kind: StoreBack, Server: &o.server, Return: &r, Text: fmt.Sprintf(
		"The server %s of the store (%s) %s after %v; meanwhile %s.", o.server.Address, o.server.Role, how, took, r.Decisions)})
}

// String is the end of a sentence.
func (d Decisions) String() string {
	var said []string
	for _, by := range []struct {
		policy string
		n      uint64
	}{{"allow", d.Allow}, {"deny", d.Deny}, {"local", d.Local}, {"error", d.Error}} {
		if by.n > 0 {
			said = append(said, fmt.Sprintf("%d by %s", by.n, by.policy))
		}
	}
	if said == nil {
		return "failure policies decided no limit"
	}
	return "failure policies decided limits: " + strings.Join(said, ", ")
}

func number(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}
