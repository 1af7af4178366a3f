package replay

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/offline"
	"example.org/rls/pkg/service"
)

// Result is the document of `rls replay`.
type Result struct {
	Lines     int64      `json:"lines"`    // that are not empty
	Requests  int64      `json:"requests"` // lines that made a request
	Malformed int64      `json:"malformed"`
	Denied    int64      `json:"denied"` // requests
	From      *time.Time `json:"from"`   // of the first request; null without requests
	To        *time.Time `json:"to"`
	Seconds   float64    `json:"seconds"` // that the replay took
	Rules     []*Rule    `json:"rules"`
	Against   *Against   `json:"against,omitempty"`
	Back      Strayed    `json:"back"`  // lines with a time before that of an earlier line
	Ahead     Strayed    `json:"ahead"` // lines whose time stands out from those behind them
}

// Strayed counts lines with times that are not in order. Such a line is decided at the time that the
// clock has, and does not move the clock.
type Strayed struct {
	Lines int64            `json:"lines"`
	By    explain.Duration `json:"by"` // the largest distance from the clock
}

func (s *Strayed) add(by time.Duration) {
	s.Lines++
	s.By = max(s.By, explain.Duration(by))
}

// Against has the decisions of other rules about the same requests.
type Against struct {
	Rules        []*Rule `json:"rules"`
	Denied       int64   `json:"denied"`
	NewlyDenied  int64   `json:"newly_denied"`  // requests that only the other rules deny
	NewlyAllowed int64   `json:"newly_allowed"` // requests that the other rules let pass
	// NewlyDeniedTop has at most 20 keys of requests that only the other rules deny, most
	// denied first, then by rule and entries.
	NewlyDeniedTop []NewKey `json:"newly_denied_top"`
}

// Rule has the decisions of one rule. It counts descriptors, not requests. A rule whose table gives plans
// has one for each of them, and one for values without a row.
type Rule struct {
	Rule     string  `json:"rule"`
	Plan     string  `json:"plan,omitempty"`
	File     string  `json:"file"`
	Line     int     `json:"line"`
	Requests int64   `json:"requests"`
	Denied   int64   `json:"denied"`
	Share    float64 `json:"share"` // Denied of Requests
	// ShadowDenied is the number of descriptors that a rule in shadow mode, or a limit that is
	// watched, would have denied and did not.
	ShadowDenied int64      `json:"shadow_denied,omitempty"`
	FirstDenial  *time.Time `json:"first_denial"` // null without one
	Top          []Key      `json:"top"`          // keys denied most, also those in shadow mode
	Hourly       []Hour     `json:"hourly"`       // hours with requests

	name string // for people: as [descriptors.Rule.PathOfPart] has it
	keys map[string]*Key
}

// Key is the counter of a descriptor of requests: values that share it, and the ids of
// reservations, are no part of its entries.
type Key struct {
	Entries []descriptors.Entry `json:"entries"`
	Denied  int64               `json:"denied"`

	newly int64 // requests that only these rules deny
}

// NewKey is a key of requests that only the other rules deny.
type NewKey struct {
	Rule string `json:"rule"` // of the other rules
	Key         // Denied counts these requests
}

func compareEntries(a, b []descriptors.Entry) int {
	return slices.CompareFunc(a, b, func(a, b descriptors.Entry) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Value, b.Value))
	})
}

// Hour is an hour of UTC.
type Hour struct {
	Hour     time.Time `json:"hour"`
	Requests int64     `json:"requests"`
	Denied   int64     `json:"denied"`
}

const (
	maxTop      = 10 // keys that a rule shows
	maxNewlyTop = 20 // keys of Against
)

// side is one set of rules.
type side struct {
	engine *offline.Engine
	rules  map[counted]*Rule
	list   []*Rule // in the order of files and lines
	denied int64
}

// counted is a rule, and the plan that rows of its table give.
type counted struct {
	rule *descriptors.Rule
	plan string
}

func partOf(r *descriptors.Rule) counted { return counted{r.Base(), r.RowPlan} }

func newSide(tree *descriptors.Tree) *side {
	s := &side{engine: offline.New(tree, maxKeys), rules: map[counted]*Rule{}}
	for _, r := range s.engine.Rules() {
		for _, r := range r.Parts() {
			shown := &Rule{Rule: r.Path, Plan: r.Plan, name: r.PathOfPart(), File: r.Pos.File, Line: r.Pos.Line, Top: []Key{}, Hourly: []Hour{}, keys: map[string]*Key{}}
			s.rules[partOf(r)] = shown
			s.list = append(s.list, shown)
		}
	}
	return s
}

// decide decides a request and counts it. The caller may release the outcome. The error says
// why the request is wrong.
func (s *side) decide(r *request, at, hour time.Time) (*service.Outcome, error) {
	s.engine.At(at)
	e, err := s.engine.Decide(&r.ask)
	if err != nil {
		return nil, err
	}
	for i := range e.Statuses {
		st := &e.Statuses[i]
		if rule := s.ruleOf(st); rule != nil {
			rule.count(st, r.ask.Descriptors[i].Entries, at, hour)
		}
	}
	if e.Over {
		s.denied++
	}
	return e, nil
}

// ruleOf is the rule whose limits decided; nil if none did.
func (s *side) ruleOf(st *service.Status) *Rule {
	if st.Rule == nil || st.Override {
		return nil
	}
	return s.rules[partOf(st.Rule)]
}

func (r *Rule) count(st *service.Status, entries []descriptors.Entry, at, hour time.Time) {
	r.Requests++
	if n := len(r.Hourly); n == 0 || !r.Hourly[n-1].Hour.Equal(hour) {
		r.Hourly = append(r.Hourly, Hour{Hour: hour})
	}
	last := &r.Hourly[len(r.Hourly)-1]
	last.Requests++
	switch {
	case st.ShadowDenied, st.WatchedDenied && !st.Denied:
		r.ShadowDenied++
	case st.Denied:
		r.Denied++
		last.Denied++
		if r.FirstDenial == nil {
			r.FirstDenial = &at
		}
	default:
		return
	}
	r.key(st, entries).Denied++
}

// key is the counter of a descriptor.
func (r *Rule) key(st *service.Status, entries []descriptors.Entry) *Key {
	var room [128]byte
	id := descriptors.AppendID(room[:0], "", entries, st.Rule.Shared)
	known := r.keys[string(id)]
	if known == nil {
		known = new(Key)
		_, known.Entries, _ = descriptors.ParseID(string(id))
		r.keys[string(id)] = known
	}
	return known
}

// newlyDenied counts the keys that are denied in a request that only these rules deny, each once. All
// limits are those of rules: requests of a log bring none.
func (s *side) newlyDenied(r *request, o *service.Outcome) {
	var counted []*Key
	for i := range o.Statuses {
		st := &o.Statuses[i]
		if !st.Denied {
			continue
		}
		if k := s.ruleOf(st).key(st, r.ask.Descriptors[i].Entries); !slices.Contains(counted, k) {
			k.newly++
			counted = append(counted, k)
		}
	}
}

// newlyDeniedMost returns the keys of most requests that only these rules deny.
func (s *side) newlyDeniedMost() []NewKey {
	keys := []NewKey{}
	for _, r := range s.list {
		for _, k := range r.keys {
			if k.newly > 0 {
				keys = append(keys, NewKey{r.Rule, Key{Entries: k.Entries, Denied: k.newly}})
			}
		}
	}
	slices.SortFunc(keys, func(a, b NewKey) int {
		return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(a.Rule, b.Rule), compareEntries(a.Entries, b.Entries))
	})
	return keys[:min(len(keys), maxNewlyTop)]
}

// finish fills in the shares and the keys denied most.
func (s *side) finish() []*Rule {
	for _, r := range s.list {
		if r.Requests > 0 {
			r.Share = float64(r.Denied) / float64(r.Requests)
		}
		keys := slices.SortedFunc(maps.Values(r.keys), func(a, b *Key) int {
			return cmp.Or(cmp.Compare(b.Denied, a.Denied), compareEntries(a.Entries, b.Entries))
		})
		for _, k := range keys[:min(len(keys), maxTop)] {
			r.Top = append(r.Top, *k)
		}
	}
	return s.list
}

// Text writes the result for a person.
func (r *Result) Text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d lines, %d requests, %d malformed, %d denied (%s)", r.Lines, r.Requests, r.Malformed, r.Denied, percent(r.Denied, r.Requests))
	if r.From != nil {
		fmt.Fprintf(&b, ", %s to %s", r.From.Format(time.RFC3339), r.To.Format(time.RFC3339))
	}
	b.WriteByte('\n')
	r.Back.write(&b, "went back in time")
	r.Ahead.write(&b, "are ahead of the lines behind them")
	b.WriteByte('\n')
	writeRules(&b, r.Rules)
	if a := r.Against; a != nil {
		fmt.Fprintf(&b, "against the other rules: %d denied (%s), %d newly denied, %d newly allowed\n\n",
			a.Denied, percent(a.Denied, r.Requests), a.NewlyDenied, a.NewlyAllowed)
		writeNewlyDenied(&b, a.NewlyDeniedTop)
		writeRules(&b, a.Rules)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s *Strayed) write(b *strings.Builder, what string) {
	if s.Lines > 0 {
		fmt.Fprintf(b, "%d lines %s, by up to %v: each counts at the time of the line before it\n", s.Lines, what, time.Duration(s.By))
	}
}

func writeRules(b *strings.Builder, rules []*Rule) {
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(table, "REQUESTS\tDENIED\tSHARE\tFIRST DENIAL\t  RULE")
	for _, r := range rules {
		first := "-"
		if r.FirstDenial != nil {
			first = r.FirstDenial.Format(time.RFC3339)
		}
		shadow := ""
		if r.ShadowDenied > 0 {
			shadow = fmt.Sprintf(", %d denied in shadow mode", r.ShadowDenied)
		}
		_, _ = fmt.Fprintf(table, "%d\t%d\t%s\t%s\t  %s (%s:%d)%s\n", r.Requests, r.Denied, percent(r.Denied, r.Requests), first,
			terminal.Visible(r.name), terminal.Visible(r.File), r.Line, shadow)
	}
	_ = table.Flush()
	b.WriteByte('\n')
	for _, r := range rules {
		if len(r.Top) == 0 {
			continue
		}
		fmt.Fprintf(b, "%s: denied most\n", terminal.Visible(r.name))
		for _, k := range r.Top {
			fmt.Fprintf(b, "%10d  %s\n", k.Denied, terminal.Visible(descriptors.Argument(k.Entries)))
		}
		if r.Denied > 0 {
			line, each := sparkline(r.Hourly)
			fmt.Fprintf(b, "  denials from %s, %s each: %s\n", r.Hourly[0].Hour.Format(time.RFC3339), each, line)
		}
		b.WriteByte('\n')
	}
}

func writeNewlyDenied(b *strings.Builder, keys []NewKey) {
	if len(keys) == 0 {
		return
	}
	b.WriteString("newly denied most\n")
	for _, k := range keys {
		fmt.Fprintf(b, "%10d  %s: %s\n", k.Denied, terminal.Visible(k.Rule), terminal.Visible(descriptors.Argument(k.Entries)))
	}
	b.WriteByte('\n')
}

func percent(part, all int64) string {
	if all == 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.2f %%", 100*float64(part)/float64(all))
}

// sparkline draws the denials of the hours, also of hours without requests, in at most 60
// columns of so many hours each.
func sparkline(hours []Hour) (line, each string) {
	const columns = 60
	first, last := hours[0].Hour, hours[len(hours)-1].Hour
	count := int(last.Sub(first)/time.Hour) + 1
	step := (count + columns - 1) / columns
	sums := make([]int64, (count+step-1)/step)
	for _, h := range hours {
		sums[int(h.Hour.Sub(first)/time.Hour)/step] += h.Denied
	}
	highest := slices.Max(sums)
	bars := []rune(" ▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, n := range sums {
		level := 0
		if n > 0 {
			level = 1 + int(n*int64(len(bars)-2)/highest)
		}
		b.WriteRune(bars[level])
	}
	if step == 1 {
		return b.String(), "an hour"
	}
	return b.String(), fmt.Sprintf("%d hours", step)
}
