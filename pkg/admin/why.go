package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/rls/internal/spelling"
	"example.org/rls/internal/terminal"
	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/admin/events"
	"example.org/rls/pkg/denials"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/descriptors/match"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/operate"
)

// Why is the document of GET /v1/why: what is known of the descriptors that have Q as a whole value.
type Why struct {
	Q string `json:"q"`
	// Limits are of the descriptors that are denied most first, those with Q under one key together.
	Limits  []WhyLimit      `json:"limits"`  // at most maxFound
	Denials []denials.Group `json:"denials"` // the last ones first, at most maxFound
	// Events are what happened since the first denial, outages that went on then, changes of these
	// counters, and loads of rules that changed more limits than an event tells; the newest first.
	Events []events.Event         `json:"events"`
	Grants []operate.GrantInForce `json:"grants"` // to these counters
	// Candidates are values that have Q as a part. Only where no descriptor has Q as a whole value.
	Candidates []string `json:"candidates,omitempty"`
	// Suggestions are values that Q is probably misspelt from. Only without candidates.
	Suggestions []string `json:"suggestions,omitempty"`
	// Remembered is since when denials are remembered; zero if they are not.
	Remembered time.Time `json:"remembered,omitzero"`
	// Command is the command that an operator probably needs next.
	Command  string           `json:"command"`
	Replicas []client.Replica `json:"replicas,omitempty"` // only of a fleet
}

// WhyLimit is a limit of a descriptor, with its counter now and what happened to it.
type WhyLimit struct {
	Domain  string              `json:"domain"`
	Entries []descriptors.Entry `json:"entries"`
	explain.Limit
	Used       *int64    `json:"used,omitempty"` // hits; nil if the counter is not known
	LastDenial time.Time `json:"last_denial,omitzero"`
	Denied     int64     `json:"denied"` // denials that are remembered, of earlier amounts of the limit, too
	// Changed is the last time that rules changed the limit, or its rule's table; nil if it is not known.
	Changed *LimitChange `json:"changed,omitempty"`
}

// LimitChange is the change of a limit, and when its rules came into force.
type LimitChange struct {
	Time time.Time `json:"time"`
	explain.Change
}

const (
	maxCandidates  = 20
	maxSuggestions = 3
)

// Known reports whether anything is known of Q.
func (w *Why) Known() bool { return len(w.Limits)+len(w.Denials)+len(w.Grants) > 0 }

func (a *API) why(ctx context.Context, q *Query) (any, error) {
	if q.Q == "" {
		return nil, invalid("q is empty: want the value to explain, such as the name of a customer")
	}
	since, b := q.from(), callerOf(ctx).bound
	wanted := func(m *service.Remembered) bool { return a.wanted(b, m) }
	w := Why{
		Q: q.Q, Limits: []WhyLimit{}, Denials: []denials.Group{},
		Events: []events.Event{}, Grants: []operate.GrantInForce{},
	}
	if a.options.Denials != nil {
		list := a.options.Denials.Groups(denials.Query{Since: since, Value: q.Q, Wanted: wanted}, maxFound)
		w.Denials, w.Remembered = list.Groups, list.Remembered
	}
	grants, _ := a.options.Limits.Grants(ctx) // a store that is away cannot tell them
	for _, g := range grants {
		if valued(g.Entries, q.Q) && a.mayAsk(b, g.Domain, g.Entries) == nil {
			w.Grants = append(w.Grants, g)
		}
	}
	if err := a.addLimits(ctx, &w, wanted); err != nil {
		return nil, err
	}
	if !w.Known() {
		a.propose(&w, wanted)
		w.finish()
		return w, nil
	}
	w.count()
	happened := a.options.Events.Newest(since, events.Kept)
	for i := range w.Limits {
		w.Limits[i].history(happened)
	}
	w.Events = append(w.Events, concerning(happened, w.first())...)
	for _, e := range a.Last(maxAudited) {
		if valued(e.Entries, q.Q) {
			w.Events = append(w.Events, e.event())
		}
	}
	w.Events = events.Merge(w.Events, since, maxFound)
	w.finish()
	return w, nil
}

// addLimits adds the limits of at most maxFound descriptors that have the whole value: of those that
// the process remembers, of those with grants, and of those that rules name.
func (a *API) addLimits(ctx context.Context, w *Why, wanted func(*service.Remembered) bool) error {
	var all []descriptors.Place // of the rule "" the limits of all rules are wanted
	for _, m := range a.remembered(w.Q, maxFound, wanted) {
		if !m.Cut && valued(m.Entries, w.Q) {
			all = append(all, descriptors.Place{Domain: m.Domain, Path: m.Entries})
		}
	}
	for _, g := range w.Grants {
		all = append(all, descriptors.Place{Domain: g.Domain, Path: g.Entries})
	}
	open := func(e descriptors.Entry) bool {
		return e.Value == "" || match.IsPattern(e.Value) || strings.HasPrefix(e.Value, "~")
	}
	for _, p := range a.options.Limits.Tree().Places(w.Q, maxFound) {
		m := service.Remembered{Domain: p.Domain, Entries: p.Path}
		if valued(p.Path, w.Q) && !slices.ContainsFunc(p.Path, open) && wanted(&m) {
			all = append(all, p)
		}
	}
	known := map[string]bool{}
	for _, p := range all {
		id := idOf(p.Domain, p.Path)
		if known[id] || len(w.Limits) >= maxFound {
			continue
		}
		known[id] = true
		found, err := a.limitsOf(ctx, p.Domain, p.Path)
		if err != nil {
			return err
		}
		for _, l := range found[:min(len(found), maxFound-len(w.Limits))] {
			if p.Rule == "" || p.Rule == l.Rule {
				w.Limits = append(w.Limits, WhyLimit{Domain: p.Domain, Entries: p.Path, Limit: l})
			}
		}
	}
	return nil
}

// valued reports whether one of the entries has the whole value.
func valued(entries []descriptors.Entry, value string) bool {
	return slices.ContainsFunc(entries, func(e descriptors.Entry) bool { return e.Is(value) })
}

// propose fills in the candidates, or else the suggestions, from the values that are remembered.
func (a *API) propose(w *Why, wanted func(*service.Remembered) bool) {
	values := func(text string, fits func(string) bool) (all []string) {
		for _, m := range a.remembered(text, 10*maxFound, wanted) {
			for _, e := range m.Entries {
				value := descriptors.Printable(e.Value)
				if fits(value) && !slices.Contains(all, value) && len(all) < maxCandidates {
					all = append(all, value)
				}
			}
		}
		return all
	}
	if w.Candidates = values(w.Q, func(v string) bool { return strings.Contains(v, w.Q) }); w.Candidates == nil {
		near := values("", func(v string) bool { _, near := spelling.Near(w.Q, v); return near })
		w.Suggestions = near[:min(len(near), maxSuggestions)]
	}
}

// count fills in how often the limits denied, and when last, from the groups.
func (w *Why) count() {
	for i := range w.Limits {
		l := &w.Limits[i]
		l.Denied, l.LastDenial = 0, time.Time{}
		for _, g := range w.Denials {
			// Not by the rule: that of a limit which requests bring is another than that of its denials.
			if g.Domain == l.Domain && g.Name == l.terms().Name &&
				(l.Terms == nil || g.Window == l.Window) && slices.Equal(g.Entries, l.Entries) {
				l.Denied, l.LastDenial = l.Denied+g.Count, later(l.LastDenial, g.Last)
			}
		}
	}
}

// terms are the Terms of the limit, or empty ones.
func (l *WhyLimit) terms() *explain.Terms { return cmp.Or(l.Terms, new(explain.Terms)) }

// history fills in Used and the last change of the limit.
func (l *WhyLimit) history(happened []events.Event) {
	if l.State != nil && l.Cell != nil {
		l.Used = &l.Count
	}
	words, name := l.terms().Words, l.terms().Name
	if l.Grant != nil {
		words = l.Grant.Of
	}
	for _, e := range happened {
		// Other values of the rule may have the amounts of another plan or row.
		i := slices.IndexFunc(e.Changes, func(c explain.Change) bool {
			isOf := c.Name == name && (c.Plan == "" || c.Plan == l.Plan) && c.To != "" && strings.HasPrefix(words, c.To)
			return c.Rule == l.Rule && (isOf || c.Rows != nil)
		})
		if i >= 0 {
			l.Changed = &LimitChange{e.Time, e.Changes[i]}
			return
		}
	}
}

// first is the time of the first denial; far away if there is none.
func (w *Why) first() time.Time {
	first := time.Now().Add(time.Hour)
	for _, g := range w.Denials {
		if g.First.Before(first) {
			first = g.First
		}
	}
	return first
}

// concerning returns the events since first, and of those before, the outages that went on at first and
// the loads of rules that changed more limits than they list. The newest event is first.
func concerning(all []events.Event, first time.Time) (some []events.Event) {
	back := map[events.Server]bool{} // before first
	for _, e := range all {
		before := e.Time.Before(first)
		switch {
		case !before,
			e.Kind == events.RulesLoaded && e.Changed > len(e.Changes),
			e.Kind == events.StoreAway && !back[*e.Server]:
			some = append(some, e)
		}
		if before && e.Kind == events.StoreBack {
			back[*e.Server] = true
		}
	}
	return some
}

// finish puts limits with the value under one key together, and fills in the command.
func (w *Why) finish() {
	var blocks []string
	at := func(l *WhyLimit) int {
		block := l.Block(w.Q)
		if !slices.Contains(blocks, block) {
			blocks = append(blocks, block)
		}
		return slices.Index(blocks, block)
	}
	for i := range w.Limits {
		at(&w.Limits[i])
	}
	slices.SortStableFunc(w.Limits, func(k, l WhyLimit) int { return at(&k) - at(&l) })
	w.Command = w.command()
}

// Block is the domain, and the entry that has the value: shop customer=acme.
func (l *WhyLimit) Block(value string) string {
	i := slices.IndexFunc(l.Entries, func(e descriptors.Entry) bool { return e.Is(value) })
	return descriptors.Printable(l.Domain) + " " + l.Entries[max(0, i)].Pair()
}

// command lets the descriptor that was denied last pass again, or else asks for more.
func (w *Why) command() string {
	var full *WhyLimit
	for i := range w.Limits {
		l := &w.Limits[i]
		grantable := l.Used != nil && l.Remaining <= 0 && l.Terms.Limit > 0 && l.ReplacedBy == "" &&
			(l.Enforced == nil || *l.Enforced)
		if grantable && (full == nil || l.LastDenial.After(full.LastDenial)) {
			full = l
		}
	}
	switch {
	case full != nil:
		only := ""
		if slices.ContainsFunc(w.Limits, func(l WhyLimit) bool { return l.sibling(full) }) {
			title, _, _ := strings.Cut(full.Words, ",") // such as 60 per minute
			only = " --only=" + quoted(cmp.Or(full.Name, title))
		}
		descriptor := quoted(descriptors.Argument(full.Entries))
		until := ""
		if time.Duration(full.Window) < time.Hour && full.Rule != service.OverridePath(full.Domain) {
			until = " --for=1h" // one that ends with the window would be over soon
		}
		return fmt.Sprintf("rls grant --domain=%s --descriptor=%s%s --hits=%d%s",
			quoted(full.Domain), descriptor, only, full.Terms.Limit, until)
	case w.Known():
		return "rls denials --follow " + quoted(w.Q)
	case len(w.Candidates) > 0:
		return "rls why " + quoted(w.Candidates[0])
	case len(w.Suggestions) > 0:
		return "rls why " + quoted(w.Suggestions[0])
	}
	return "rls find " + quoted(w.Q)
}

// sibling reports whether l is another limit of the same descriptor.
func (l *WhyLimit) sibling(of *WhyLimit) bool {
	return l.Domain == of.Domain && l.terms().Key != of.terms().Key && slices.Equal(l.Entries, of.Entries)
}

// quoted is a text as a word for a shell.
func quoted(text string) string { return terminal.Word(descriptors.Printable(text)) }

// mergeWhy has each limit once, with the counter that the replica tells which made a grant to it, or else
// the first one, with the denials of all and the newest change. Candidates and suggestions are left out if
// a replica knows the value.
func mergeWhy(q *Query, all []client.Answer[Why], replicas []client.Replica) any {
	w := Why{Q: q.Q, Replicas: replicas}
	for i := range all {
		w.Remembered = later(w.Remembered, all[i].Document.Remembered)
	}
	limit := func(l *WhyLimit) [3]string { return [3]string{idOf(l.Domain, l.Entries), l.Rule, l.terms().Key} }
	w.Limits = client.Join(client.Rows(all, func(one *Why) []WhyLimit { return one.Limits }), limit, (*WhyLimit).add)
	w.Limits = w.Limits[:min(maxFound, len(w.Limits))]
	w.Denials = mergeGroups(all, maxFound, func(one *Why) []denials.Group { return one.Denials })
	w.count()
	w.Events = mergeEvents(all, maxFound, func(one *Why) []events.Event { return one.Events })
	w.Grants = mergedGrants(all, func(one *Why) []operate.GrantInForce { return one.Grants })
	some := func(most int, texts func(*Why) []string) []string {
		of := slices.Compact(slices.Sorted(slices.Values(client.Rows(all, texts))))
		return of[:min(most, len(of))]
	}
	if !w.Known() {
		w.Candidates = some(maxCandidates, func(one *Why) []string { return one.Candidates })
	}
	if !w.Known() && len(w.Candidates) == 0 {
		w.Suggestions = some(maxSuggestions, func(one *Why) []string { return one.Suggestions })
	}
	w.finish()
	return w
}

// add adds what another replica knows of a limit.
func (l *WhyLimit) add(more *WhyLimit) {
	if more.Used != nil && (l.Used == nil || more.Granted > l.Granted) { // a grant is known best where it was made
		l.State, l.Used = more.State, more.Used
	}
	if more.Changed != nil && (l.Changed == nil || more.Changed.Time.After(l.Changed.Time)) {
		l.Changed = more.Changed
	}
}
