// Package explain shows people and programs how the service comes to the limits of
// a request: the descriptors of the rules that were looked at, why one of them won,
// and the limits with their keys and states.
//
// A [Document] is made by package operate, or read from its JSON. It
// does not ask the service or a store itself.
package explain

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"example.org/rls/pkg/descriptors"
)

// Document is the answer of `rls explain` and `rls get`, and of the admin API; its JSON is theirs.
// The strings are as they stand in the rules and in the request, control characters
// included.
type Document struct {
	Domain string `json:"domain"`
	// Rules is nil unless a running process was asked.
	Rules       *Rules       `json:"rules,omitempty"`
	Descriptors []Descriptor `json:"descriptors"`
}

// Rules says where the rules in force come from.
type Rules struct {
	Source string    `json:"source"` // file or xds
	Path   string    `json:"path"`
	Hash   string    `json:"hash"`
	Loaded time.Time `json:"loaded"`
}

// Descriptor is one descriptor of the request.
type Descriptor struct {
	Entries []descriptors.Entry `json:"entries"`
	Hits    int64               `json:"hits"` // that the request would charge; below 0 it gives them back
	// Path has the descriptors of the rules that were looked at, in the order of
	// depths and then of the rules. Of many it has the first hundred and the winners. It is nil
	// where only the limits were asked for.
	Path []descriptors.Step `json:"path,omitzero"`
	// Rule is the path of the rule that limits the descriptor; "" if none does, and
	// then Why says why.
	Rule string `json:"rule"`
	Why  string `json:"why"`
	// Suggestions are texts that the request may have meant: the name of a domain, or
	// descriptors as commands take them. There are none unless nothing limits.
	Suggestions []string `json:"suggestions,omitempty"`
	// Row is the place of the row of the rule's table that says its limits, such as
	// tenants.csv:17; "" without one.
	Row string `json:"row,omitempty"`
	// Override is the limit that counts in place of the rule's; nil if the rule's do.
	Override *Override `json:"override,omitempty"`
	Shadow   bool      `json:"shadow_mode,omitempty"`
	Quota    bool      `json:"quota_mode,omitempty"`
	Limits   []Limit   `json:"limits"`
	// RLQS is what Envoys that enforce limits themselves are assigned; nil unless it was asked.
	RLQS *Assigned `json:"rlqs,omitempty"`
}

// Assigned is the buckets on the streams of a process, and the hits per second that they may let
// pass together until their next reports.
type Assigned struct {
	Buckets       int64   `json:"buckets"`
	HitsPerSecond float64 `json:"assigned_hits_per_second"`
}

// Override is a limit that a request brought along. A Multiplier of 0 is 1.
type Override struct {
	descriptors.Rate
	// Seen is when the last request with these entries brought it; zero if the request that
	// is explained does.
	Seen time.Time `json:"seen,omitzero"`
}

// Limit is one limit of a descriptor. An unlimited one has a Rule, and perhaps a Plan and an
// Overlay only.
type Limit struct {
	Rule      string `json:"rule"`
	Unlimited bool   `json:"unlimited,omitempty"`
	Plan      string `json:"plan,omitempty"` // of the domain, that the limit is from
	// Overlay has the places of the fields that overlays have set, by name.
	Overlay descriptors.Laid `json:"overlay,omitempty"`
	*Terms
	*State
	// Grant is the grant until a time that has raised the limit; nil without one.
	Grant *Grant `json:"grant,omitempty"`
	// Pool is the pool that the limit borrows from, Borrowed what this key has borrowed, and
	// MaxBorrow the part of the pool that it may.
	Pool      *Limit `json:"pool,omitempty"`
	Borrowed  *Limit `json:"borrowed,omitempty"`
	MaxBorrow string `json:"max_borrow,omitempty"`
}

// Grant is a grant until a time, and the words of the limit of the rule that it raises.
type Grant struct {
	*descriptors.Grant
	Of string `json:"of"`
}

// Terms describes a limit: its rate, its strategy and the key of its cell.
type Terms struct {
	// Words are what the limit admits, its rate first: 10 per minute, token_bucket, burst 20.
	Words    string   `json:"words"`
	Name     string   `json:"name,omitempty"`
	Strategy string   `json:"strategy"`
	Limit    uint32   `json:"limit"` // requests_per_unit
	Window   Duration `json:"window"`
	// Calendar is the unit of a window that is a period of the calendar, and Period the
	// running one. Window is its nominal length.
	Calendar string   `json:"calendar,omitempty"`
	Period   *Period  `json:"period,omitempty"`
	Burst    uint32   `json:"burst,omitempty"`
	MaxDelay Duration `json:"max_delay,omitempty"`
	// Overdraft is the largest debt in hits, Precision the number of parts of the window, and
	// Reserve how long a reservation is held.
	Overdraft int64    `json:"overdraft,omitempty"`
	Precision uint32   `json:"precision,omitempty"`
	Reserve   Duration `json:"reserve,omitempty"`
	// Shadow: the limit is watched for every key. Rollout is the share of its keys for which
	// it is enforced, if not all. Enforced says of both whether this key is one of them.
	Shadow   bool   `json:"shadow_mode,omitempty"`
	Rollout  string `json:"rollout,omitempty"`
	Enforced *bool  `json:"enforced,omitempty"`
	// Thresholds are the parts of the limit from which its thresholds apply, such as 80%.
	Thresholds []string `json:"thresholds,omitempty"`
	Key        string   `json:"key,omitempty"`         // in the store
	ReplacedBy string   `json:"replaced_by,omitempty"` // the rule because of which the limit is not decided
}

// Period is a period of the calendar. The times are in the time zone.
type Period struct {
	Timezone string    `json:"timezone"`
	Began    time.Time `json:"began"`
	Ends     time.Time `json:"ends"`
}

// State is the state of a limit's cell, from a running process.
type State struct {
	*Cell
	// Policy decides the limit whenever the store cannot; "" where the cells are kept
	// by a store that is never away.
	Policy string `json:"policy,omitempty"`
	// Error says why there is no Cell.
	Error string `json:"error,omitempty"`
}

// Usage is the use of a cell at one moment.
type Usage struct {
	// Count is the number of hits in use, at least 0: the capacity of the limit and Granted,
	// less Remaining. It may be more than fit: debt, hits that wait in a queue, denied hits that
	// a fixed window counts, or hits from before a lower limit.
	Count int64 `json:"count"`
	// Granted is the number of hits left of the grants of this process to the cell, which
	// hits use up before the limit. Of the grants of others it has the hits beyond the limit
	// only, and Count is lower by the rest; so of all grants to a limit with an overdraft.
	Granted int64 `json:"granted,omitempty"`
	// Remaining is the number of hits that would pass now.
	Remaining int64 `json:"remaining"`
}

// String is the usage as the log's text format and the commands have it.
func (u Usage) String() string {
	granted := ""
	if u.Granted > 0 {
		granted = fmt.Sprintf("granted %d, ", u.Granted)
	}
	return fmt.Sprintf("count %d, %sremaining %d", u.Count, granted, u.Remaining)
}

// Cell is the state of a limit's cell. Reset is the time until the full quota is back, or until a
// fixed window ends.
type Cell struct {
	Usage
	Reset Duration `json:"reset"`
	// Next is the time until the hits of the request would pass this limit if no others
	// came: 0 if they pass now, perhaps after a wait in a queue. It is nil, and Never is
	// true, if no wait helps: the limit is 0, or they are more than its capacity.
	Next  *Duration `json:"next,omitempty"`
	Never bool      `json:"never,omitempty"`
	// Threshold is the highest of the limit's thresholds that is reached.
	Threshold string `json:"threshold,omitempty"`
}

// Duration is a duration whose JSON is a number of seconds with the unit: "60s" or
// "0.1s".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler. The number is exact and has at most
// nine digits after the point, as protobuf's JSON wants it.
func (d Duration) MarshalText() ([]byte, error) {
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	number := fmt.Sprintf("%s%d.%09d", sign, d/1e9, d%1e9)
	return []byte(strings.TrimRight(strings.TrimRight(number, "0"), ".") + "s"), nil
}

// UnmarshalText implements encoding.TextUnmarshaler. It takes the texts of
// time.ParseDuration.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// TermsOf describes a limit, without a key.
func TermsOf(l *descriptors.Limit) *Terms {
	t := &Terms{
		Name: l.Name, Strategy: l.Strategy.String(), Limit: l.Requests, Window: Duration(l.Window), Calendar: l.Calendar.Unit(l.Window),
		Overdraft: l.MaxDebt(), Precision: l.Precision, Reserve: Duration(l.Reserve.TTL), Burst: l.Burst, MaxDelay: Duration(l.MaxDelay),
	}
	for i := range l.Thresholds {
		t.Thresholds = append(t.Thresholds, l.Thresholds[i].At.String())
	}
	t.Words = t.wordsOf(l)
	return t
}

// wordsOf says in words how many hits l, which t describes, admits.
func (t *Terms) wordsOf(l *descriptors.Limit) string {
	words := fmt.Sprintf("%d per %s, %s", l.Requests, descriptors.Window(t.Calendar, l.Window), l.Strategy)
	add := func(is bool, format string, args ...any) {
		if is {
			words += ", " + fmt.Sprintf(format, args...)
		}
	}
	add(l.Share != 0, "%s of %d", spaced(l.Share.String()), l.WrittenRequests)
	add(l.Burst > 0, "burst %d", l.Burst)
	add(l.FromFirstHit, "from the first hit")
	add(l.Extend, "extended by each hit")
	add(l.MaxDelay > 0, "a queue of at most %s", l.MaxDelay)
	add(l.Calendar.On, "in %s", cmp.Or(l.Calendar.Zone, "UTC"))
	add(l.Precision > 0, "precision %d", l.Precision)
	add(l.MaxDebt() > 0, "overdraft %d", l.MaxDebt())
	add(l.Reserve.TTL > 0, "reserve %s", l.Reserve.TTL)
	add(len(t.Thresholds) > 0, "thresholds %s", spaced(strings.Join(t.Thresholds, ", ")))
	if b := l.Borrow; b != nil {
		add(true, "borrows up to %s of %s", spaced(b.Most.String()), b.From)
	}
	if add(l.Shadow, "shadow"); !l.Shadow {
		add(l.Tried(), "rollout %s", spaced(l.Rollout().String()))
	}
	return words
}
