package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/internal/pace"
	"example.org/rls/pkg/admin/client"
	"example.org/rls/pkg/admin/events"
	"example.org/rls/pkg/denials"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/explain"
	"example.org/rls/pkg/service"
	"example.org/rls/pkg/service/operate"
)

// binding is what a token is bound to: its caller learns of descriptors that it takes, and of nothing else.
type binding struct {
	domain  string // "" is any domain
	entries []descriptors.Entry
	pace    pace.Allowance
}

// parseBinding reads domain:NAME and KEY=VALUE, the words behind a token. Its errors name the number of a
// word and not the word, which may be a token in a wrong place.
func parseBinding(words []string) (*binding, error) {
	b := new(binding)
	for i, word := range words {
		if name, is := strings.CutPrefix(word, "domain:"); is {
			if name == "" || b.domain != "" || strings.Contains(name, "=") {
				return nil, fmt.Errorf("word %d is no domain:NAME, or the second one", i+4)
			}
			b.domain = name
			continue
		}
		key, value, _ := strings.Cut(word, "=")
		if key == "" || value == "" {
			return nil, fmt.Errorf("word %d is neither KEY=VALUE nor domain:NAME, to which a token can be bound", i+4)
		}
		if slices.ContainsFunc(b.entries, func(e descriptors.Entry) bool { return e.Key == key }) {
			return nil, fmt.Errorf("word %d has the key of a word before it: want each key once", i+4)
		}
		b.entries = append(b.entries, descriptors.Entry{Key: key, Value: value})
	}
	if len(b.entries) == 0 {
		return nil, fmt.Errorf("a binding without KEY=VALUE: want one at least, beside domain:NAME")
	}
	return b, nil
}

// String is the binding as files of tokens write it.
func (b *binding) String() string {
	var words []string
	if b.domain != "" {
		words = append(words, "domain:"+b.domain)
	}
	for _, e := range b.entries {
		words = append(words, e.Key+"="+e.Value)
	}
	return strings.Join(words, " ")
}

// takes reports whether every occurrence of each key has the value, byte for byte, and there is one.
func (b *binding) takes(domain string, entries []descriptors.Entry) bool {
	misses := func(bound descriptors.Entry) bool {
		differs := func(e descriptors.Entry) bool { return e.Key == bound.Key && e.Value != bound.Value }
		return !slices.Contains(entries, bound) || slices.ContainsFunc(entries, differs)
	}
	return (b.domain == "" || domain == b.domain) && !slices.ContainsFunc(b.entries, misses)
}

// refusal is the error of what a bound token may not ask.
func (b *binding) refusal(why string) error {
	s := status.Newf(codes.PermissionDenied, "this token is bound to %v: %s", b, why)
	return &misuse{status: s, http: http.StatusForbidden, bound: b.String()}
}

// mayAsk is an error unless a caller with the binding, nil for none, may learn of the counters of
// a descriptor: those that it takes alone. Callers with another value share a counter whose name has a
// pattern, a network or nothing in the place of the value.
func (a *API) mayAsk(b *binding, domain string, entries []descriptors.Entry) error {
	switch {
	case b == nil:
		return nil
	case !b.takes(domain, entries):
		return b.refusal("every entry with such a key must have this value, and there must be one")
	}
	rule := a.options.Limits.Tree().Domain(domain).MatchNamed(entries)
	for i, e := range entries {
		isBound := slices.ContainsFunc(b.entries, func(bound descriptors.Entry) bool { return bound.Key == e.Key })
		if rule != nil && isBound && *descriptors.NamingOf(rule.Shared, i) != (descriptors.Naming{}) {
			return b.refusal("others count in this counter, too")
		}
	}
	return nil
}

// mayAskAll is mayAsk for all descriptors of a question.
func (a *API) mayAskAll(b *binding, q *operate.Question) error {
	if b != nil && q.Pool != "" {
		return b.refusal("others count in a pool, too")
	}
	for _, d := range q.Descriptors {
		if err := a.mayAsk(b, q.Domain, d.Entries); err != nil {
			return err
		}
	}
	return nil
}

// wanted reports whether a caller with the binding may learn of the counters of m.
func (a *API) wanted(b *binding, m *service.Remembered) bool {
	return b == nil || !m.Cut && a.mayAsk(b, m.Domain, m.Entries) == nil
}

// narrow leaves out of a document what is not of the counters themselves: the way through the rules, names
// of files, suggestions, the counters of pools, and names of servers.
func narrow(document *explain.Document) {
	for i := range document.Descriptors {
		d := &document.Descriptors[i]
		d.Path, d.Row, d.Suggestions, d.Why = nil, "", nil, ""
		if len(d.Limits) == 0 {
			d.Why = "nothing limits it"
		}
		for j := range d.Limits {
			narrowLimit(&d.Limits[j])
		}
	}
}

// narrowLimit leaves out of a limit what is not of its counter: names of files and of servers, pools, and
// the operator who has raised it, with the reason.
func narrowLimit(l *explain.Limit) {
	if l.Overlay, l.Pool = nil, nil; l.State != nil && l.Error != "" {
		l.Error = "the store cannot tell"
	}
	if l.Grant != nil {
		told := *l.Grant.Grant // others have the grant, too
		told.Who, told.Reason = "", ""
		l.Grant = &explain.Grant{Grant: &told, Of: l.Grant.Of}
	}
}

// narrowing makes the answer for a bound token of an answer, again after the replicas have filtered theirs
// by their own files.
type narrowing func(a *API, b *binding, document any) any

// refused is the narrowing of routes that bound tokens may not ask.
var refused narrowing

// asIs is the narrowing of routes whose answer is about the descriptors of the request alone, which
// inspect checks.
func asIs(_ *API, _ *binding, document any) any { return document }

// narrowReplicas leaves out why a replica has not answered, which may name rules.
func narrowReplicas(all []client.Replica) {
	for i := range all {
		if !all[i].OK {
			all[i].Error = "it does not answer this token"
		}
	}
}

// narrowFound is the narrowing of a Found.
func narrowFound(a *API, b *binding, document any) any {
	f := document.(Found)
	f.Places = []descriptors.Place{}
	narrowReplicas(f.Replicas)
	f.Keys = slices.DeleteFunc(f.Keys, func(k FoundKey) bool { return !a.wanted(b, &k.Remembered) })
	for i := range f.Keys {
		for j := range f.Keys[i].Limits {
			narrowLimit(&f.Keys[i].Limits[j])
		}
	}
	return f
}

// narrowWhy is the narrowing of a Why. Events, suggestions and commands are for operators.
func narrowWhy(a *API, b *binding, document any) any {
	w := document.(Why)
	w.Limits = slices.DeleteFunc(w.Limits, func(l WhyLimit) bool { return a.mayAsk(b, l.Domain, l.Entries) != nil })
	w.Denials = slices.DeleteFunc(w.Denials, func(g denials.Group) bool { return a.mayAsk(b, g.Domain, g.Entries) != nil })
	w.Grants = slices.DeleteFunc(w.Grants, func(g operate.GrantInForce) bool {
		return a.mayAsk(b, g.Domain, g.Entries) != nil
	})
	w.Events, w.Candidates, w.Suggestions, w.Command = []events.Event{}, nil, nil, ""
	for i := range w.Limits {
		l := &w.Limits[i]
		narrowLimit(&l.Limit)
		switch {
		case l.Changed == nil:
		case l.Changed.Rows != nil: // of others, too
			l.Changed = nil
		default:
			l.Changed.File, l.Changed.Line = "", 0
		}
	}
	for i := range w.Grants {
		w.Grants[i].Who = ""
	}
	narrowReplicas(w.Replicas)
	return w
}

// narrowUsage is the narrowing of a Usage.
func narrowUsage(a *API, b *binding, document any) any {
	u := document.(Usage)
	u.Rows = slices.DeleteFunc(u.Rows, func(r operate.Used) bool { return a.mayAsk(b, r.Domain, r.Entries) != nil })
	u.Cursor, u.Hidden = "", 0
	narrowReplicas(u.Replicas)
	return u
}

// pass reports whether a call may pass: 10 a second, and as many at once.
func (b *binding) pass() bool { return b.pace.Take(time.Second/10, time.Second) }

var errPace = status.Error(codes.ResourceExhausted, "a bound token may ask 10 times a second: try again in a second")
