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
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"example.org/rls/internal/bounded"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/explain"
)

// Kept is the number of events that a [Log] keeps.
const Kept = 1000

// The kinds of events that a Log keeps. Package admin adds the actions of its audit.
const (
	Start        = "start"
	Drain        = "drain"
	StoreAway    = "store-away"
	StoreBack    = "store-back"
	RulesLoaded  = "rules-loaded"
	RulesRefused = "rules-refused"
	Certificate  = "certificate"
)

// Event is something that happened.
type Event struct {
	Time time.Time `json:"time"`
	Kind string    `json:"kind"`
	Text string    `json:"text"` // a sentence for people
	// Replica is the address of the replica that had the event. Replicas are the addresses of all
	// replicas that had it, if several had. Only the answer of a fleet has them.
	Replica  string   `json:"replica,omitempty"`
	Replicas []string `json:"replicas,omitempty"`

	// Domain and Entries are the descriptor of a change of a counter.
	Domain  string              `json:"domain,omitempty"`
	Entries []descriptors.Entry `json:"entries,omitempty"`

	*Server           // of StoreAway and StoreBack
	Error    string   `json:"error,omitempty"` // of StoreAway
	*Return           // of StoreBack
	*InForce          // of RulesLoaded
	Problems []string `json:"problems,omitempty"` // of RulesRefused
	// Changes are the limits that loading the rules changed, at most MaxChanges of them. Changed is the
	// number of all.
	Changes []explain.Change `json:"changes,omitempty"`
	Changed int              `json:"changed,omitempty"`
}

// Server is a server of the store.
type Server struct {
	Address string `json:"server"`
	Role    string `json:"role"`
}

// Return is the end of an outage.
type Return struct {
	Seconds   float64   `json:"seconds"` // since the server went away
	Decisions Decisions `json:"decisions"`
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
	Hash    string `json:"hash"`
	Domains int    `json:"domains"`
	Rules   int    `json:"rules"`
}

// Log keeps events. It is safe for concurrent use.
type Log struct {
	decided func() [descriptors.Policies]uint64

	mu   sync.Mutex
	last bounded.Ring[Event]
	away map[Server]*Outage
}

// New returns an empty Log. decided counts the decisions of policies since the start of the
// process, by policy; the Log calls it when a server begins to fail and when it is back.
func New(decided func() [descriptors.Policies]uint64) *Log {
	return &Log{decided: decided, last: bounded.NewRing[Event](Kept), away: map[Server]*Outage{}}
}

// Newest returns the last n events since a time, the newest first.
func (l *Log) Newest(since time.Time, n int) []Event {
	l.mu.Lock()
	all := l.last.Last(Kept)
	l.mu.Unlock()
	return Merge(all, since, n)
}

// Merge sorts events, the newest first, and returns the first n since a time. It may change
// the slice.
func Merge(all []Event, since time.Time, n int) []Event {
	all = slices.DeleteFunc(all, func(e Event) bool { return e.Time.Before(since) })
	slices.SortStableFunc(all, func(a, b Event) int { return b.Time.Compare(a.Time) })
	return all[:min(len(all), n)]
}

// Save writes the events, as Load reads them.
func (l *Log) Save(w io.Writer) error {
	return json.NewEncoder(w).Encode(l.Newest(time.Time{}, Kept))
}

// Load adds events of an earlier process.
func (l *Log) Load(r io.Reader) error {
	var older []Event
	if err := json.NewDecoder(r).Decode(&older); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last.Precede(older)
	return nil
}

// add keeps an event, which happens now if it has no time. The caller holds l.mu.
func (l *Log) add(e Event) {
	e.Time = cmp.Or(e.Time, time.Now()).UTC()
	*l.last.Next() = e
}

func (l *Log) addNow(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(e)
}

// Started says that the process has started.
func (l *Log) Started(version, backend string) {
	l.addNow(Event{Kind: Start, Text: fmt.Sprintf("The process started: rls %s with the backend %s.", version, backend)})
}

// Drains says that the process is about to end.
func (l *Log) Drains() {
	l.addNow(Event{Kind: Drain, Text: "The process is about to end: its health is NOT_SERVING."})
}

const (
	// MaxChanges is the most changes that an event has, and maxTold the most that its text has.
	MaxChanges = 20
	maxTold    = 3
)

// Loaded says which rules came into force, and which limits they changed.
func (l *Log) Loaded(r InForce, changes []explain.Change) {
	e := Event{Kind: RulesLoaded, InForce: &r, Changes: changes[:min(len(changes), MaxChanges)], Changed: len(changes)}
	e.Text = fmt.Sprintf("Rules came into force: %s in %s, with the hash %s.", number(r.Rules, "rule"), number(r.Domains, "domain"), r.Hash)
	var told []string
	for i, c := range changes {
		if i == maxTold {
			told = append(told, fmt.Sprintf("and %s", number(len(changes)-i, "more change")))
			break
		}
		told = append(told, descriptors.Shortened(descriptors.Printable(c.String()), maxProblem))
	}
	if told != nil {
		e.Text += " Changed: " + strings.Join(told, "; ") + "."
	}
	l.addNow(e)
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
	l.addNow(e)
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
	for _, earlier := range l.last.Last(Kept) {
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
		"The server %s of the store (%s) went away, and failure policies decide its limits: %s", o.server.Address, o.server.Role, why)})
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
