package denials

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"example.org/rls/internal/pace"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service"
)

// List is the document of GET /v1/denials: the newest denials, or the groups that were denied last.
type List struct {
	Denials []Denial `json:"denials,omitzero"`
	Groups  []Group  `json:"groups,omitzero"`
	Kept    int      `json:"kept"` // denials or groups that are remembered
	// Sampled is the largest of the rows; 1 if each denial has its row.
	Sampled int64 `json:"sampled"`
	// From is the time of the oldest denial that is remembered; nil if none is.
	From *time.Time `json:"from,omitempty"`
	// Remembered is since when denials are remembered.
	Remembered time.Time `json:"remembered"`
}

// Denied is a descriptor and a limit that has denied it.
type Denied struct {
	Domain string `json:"domain"`
	// Entries are the entries of the descriptor. Long keys and values are cut, and end with ….
	Entries []descriptors.Entry `json:"entries"`
	// Rule is the path of the rule that matched, also where the request brought a limit
	// along. Without such a rule it is domain.override.
	Rule  string `json:"rule"`
	Words string `json:"words"` // the rate: 10 per minute
	Limit uint32 `json:"limit"` // hits a window
	Name  string `json:"name"`
	Plan  string `json:"plan,omitempty"` // that the limit is from; of a group, the last one
}

// Denial is the denial of a request by one limit.
type Denial struct {
	Time time.Time `json:"time"`
	Denied
	Strategy string           `json:"strategy"`
	Window   explain.Duration `json:"window"`
	// Calendar is the unit of a window that is a period of the calendar.
	Calendar   string           `json:"calendar,omitempty"`
	Cost       int64            `json:"cost"`
	RetryAfter explain.Duration `json:"retry_after"`
	// Policy is service.Counted if the store decided, else the failure policy that did.
	Policy string `json:"policy"`
	Shadow bool   `json:"shadow"` // the request was answered OK
	// Sampled is the number of denials that the row stands for; 0 is 1.
	Sampled int64 `json:"sampled,omitempty"`
	// Replica is the address of the replica that denied; only in the answer of a fleet.
	Replica string `json:"replica,omitempty"`
}

// Query says which denials are wanted.
type Query struct {
	Since time.Time
	Rule  string // path; "" is all rules
	Text  string // in a key or a value
	Value string // the whole value of an entry
	// Wanted chooses among descriptors; nil is all. It must not ask the Denials.
	Wanted func(*service.Remembered) bool

	hash string // of the text or the value, where rows have hashes; "" elsewhere
}

// hashed is q with the hash by which a whole value is found.
func (d *Denials) hashed(q Query) Query {
	if d.hash != nil {
		q.hash = d.hash.Hash(cmp.Or(q.Value, q.Text))
	}
	return q
}

func (d *Denials) wants(q *Query, r *row) bool {
	byHash := q.hash != "" && r.contains(q.hash)
	fits := r.At >= q.Since.UnixMicro() && (q.Rule == "" || q.Rule == r.path()) && (byHash || r.contains(q.Text)) &&
		(q.Value == "" || byHash || r.contains(q.Value) &&
			slices.ContainsFunc(r.entries(), func(e descriptors.Entry) bool { return e.Is(q.Value) }))
	if !fits || q.Wanted == nil {
		return fits
	}
	m := d.remembered(r)
	return q.Wanted(&m)
}

// path is the Rule of a Denial.
func (r *row) path() string {
	if r.Rule != "" {
		return r.Rule
	}
	domain, _ := field(r.Text)
	return service.OverridePath(string(domain))
}

func (r *row) time() time.Time { return time.UnixMicro(r.At).UTC() }

func (r *row) denial() Denial {
	domain, _ := field(r.Text)
	calendar := algorithms.Calendar{On: r.Calendar}.Unit(r.Window)
	d := Denial{
		Time: r.time(), Strategy: r.strategy.String(), Window: explain.Duration(r.Window), Calendar: calendar,
		Denied: Denied{
			Domain: descriptors.Printable(string(domain)), Entries: r.entries(), Rule: r.path(),
			Words: fmt.Sprintf("%d per %s", r.Limit, descriptors.Window(calendar, r.Window)),
			Limit: r.Limit, Name: r.Name, Plan: r.Plan,
		},
		Cost: r.cost, RetryAfter: explain.Duration(r.Wait), Policy: service.Counted, Shadow: r.shadow,
	}
	if !r.counted {
		d.Policy = r.onError.String()
	}
	if r.sampled > 1 {
		d.Sampled = int64(r.sampled)
	}
	return d
}

func (r *row) entries() []descriptors.Entry {
	all := []descriptors.Entry{}
	for _, rest := field(r.Text); len(rest) > 0; {
		var key, value []byte
		key, rest = field(rest)
		value, rest = field(rest)
		all = append(all, descriptors.Entry{Key: string(key), Value: string(value)})
	}
	return all
}

// atOnce is the number of rows that are looked at while decisions wait.
const atOnce = 256

// List returns the newest n denials that are wanted, sorted by their times.
func (d *Denials) List(q Query, n int) List {
	q = d.hashed(q)
	l := List{Denials: []Denial{}, Sampled: 1, Remembered: d.began}
	for _, r := range d.newest() {
		if len(l.Denials) == n {
			break
		}
		if d.wants(&q, r) {
			found := r.denial()
			l.Sampled = max(l.Sampled, found.Sampled)
			l.Denials = append(l.Denials, found)
		}
	}
	slices.SortStableFunc(l.Denials, func(a, b Denial) int { return b.Time.Compare(a.Time) })
	d.mu.Lock()
	defer d.mu.Unlock()
	if l.Kept = d.rows.Len(); l.Kept > 0 {
		l.From = new(d.rows.At(d.rows.Count() - l.Kept).time())
	}
	if n := len(l.Denials); n > 0 && l.Denials[n-1].Time.Before(*l.From) { // requests were decided at once
		l.From = &l.Denials[n-1].Time
	}
	return l
}

// newest gives the rows, the newest first, each with the number of rows before it. The caller
// must not keep a row. Denials that come meanwhile are left out.
func (d *Denials) newest() iter.Seq2[int, *row] {
	return func(yield func(int, *row) bool) {
		d.mu.Lock()
		defer d.mu.Unlock()
		for i, looked := d.rows.Count()-1, 1; i >= d.rows.Count()-d.rows.Len(); i, looked = i-1, looked+1 {
			if !yield(i, d.rows.At(i)) {
				return
			}
			if looked%atOnce == 0 {
				d.mu.Unlock()
				d.mu.Lock()
			}
		}
	}
}

// followEvery is the time between two looks for new denials. Followers look, instead of being
// told, so that a denial costs the same whoever follows.
const followEvery = 200 * time.Millisecond

// Follow gives the denials from now on that are wanted, the oldest first, until ctx ends. A
// caller that is too slow misses rows that newer ones have replaced. Since has no meaning.
func (d *Denials) Follow(ctx context.Context, q Query) iter.Seq[Denial] {
	d.mu.Lock()
	next := d.rows.Count()
	d.mu.Unlock()
	q = d.hashed(q)
	return func(yield func(Denial) bool) {
		for range pace.Every(ctx, followEvery) {
			var found []Denial
			seen := next
			for i, r := range d.newest() {
				if i < seen {
					break
				}
				next = max(next, i+1)
				if d.wants(&q, r) {
					found = append(found, r.denial())
				}
			}
			for _, denial := range slices.Backward(found) {
				if ctx.Err() != nil || !yield(denial) {
					return
				}
			}
		}
	}
}

// maxFound bounds the descriptors that Find returns.
const maxFound = 1000

// Find returns the newest descriptors that have text in a key or a value, at most 1,000 of those that are
// wanted; nil is all: of the rows, and then of the groups, which outlive the rows. Where values are hashed
// they are marked as cut, because their counters are not found by hashes.
func (d *Denials) Find(text string, wanted func(*service.Remembered) bool) (found []service.Remembered) {
	minute := time.Now().Add(-time.Minute).UnixMicro()
	type place struct {
		index int   // in found
		at    int64 // of the denial that was counted last
	}
	known := map[string]*place{} // nil: it is not wanted
	find := func(r *row) *place {
		seen, again := known[string(r.Text)]
		if again || len(found) == maxFound || !r.contains(text) {
			return seen
		}
		if m := d.remembered(r); wanted == nil || wanted(&m) {
			seen = &place{index: len(found)}
			found = append(found, m)
		}
		known[string(r.Text)] = seen
		return seen
	}
	for _, r := range d.newest() {
		seen := find(r)
		if seen != nil && r.At >= minute && !r.shadow && r.At != seen.at { // once a request, however many limits denied it
			seen.at = r.At
			found[seen.index].Denied += int64(max(1, r.sampled))
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for e := d.groups.recent.Front(); e != nil && len(found) < maxFound; e = e.Next() {
		find(&e.Value.(*grouped).last)
	}
	return found
}

// remembered is the descriptor of a row, without the number of its denials.
func (d *Denials) remembered(r *row) service.Remembered {
	denial := r.denial()
	return service.Remembered{
		Domain: denial.Domain, Rule: r.Rule, Entries: denial.Entries, Cut: r.Cut || d.hash != nil, LastDenial: denial.Time,
	}
}
