package rules

import (
	"fmt"
	"maps"
	"math/bits"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"example.org/rls/internal/document"
	"example.org/rls/internal/spelling"
	"example.org/rls/pkg/descriptors"
)

// Lint is the name of a warning of [Load].
type Lint = document.Lint

// The lints. docs/testing.md says when each of them warns.
const (
	Unreachable     Lint = "unreachable"
	UnknownReplaces Lint = "unknown-replaces"
	RegexpValue     Lint = "regexp-value"
	CIDRValue       Lint = "cidr-value"
	RegexpCost      Lint = "regexp-cost"
	EmptyValue      Lint = "empty-value"
	NoLimit         Lint = "no-limit"
	DanglingLink    Lint = "dangling-link" // found by the reader of files
	DuplicateLimit  Lint = "duplicate-limit"
	FixedReserve    Lint = "fixed-reserve"
	UnusedPool      Lint = "unused-pool"
	PlainTable      Lint = "plain-table"
	ForRatelimit    Lint = "for-ratelimit" // also found by the reader of files
)

// costly is the number of instructions of an expression above which RegexpCost warns.
const costly = 200

// lintDescriptor warns of faults of one descriptor. v is the mapping
// that d was read from.
func (r *reader) lintDescriptor(v *document.Value, d *descriptor) {
	if name, value := v.Pair("value"); value != nil {
		r.lintValue(name, value)
		r.lintNetwork(d.Key, "value", value)
	}
	if m := d.Match; m != nil && m.Cost > costly {
		at, field := d.match.text(0)
		r.warnings.AddLint(RegexpCost, at.At, field, "has a program of %d instructions, more than %d: each of them can cost time at every character of a value; repeat less, or use prefix, suffix, contains or values where they do", m.Cost, costly)
	}
	if m := d.match; m != nil && !m.wrong && m.kind.Name != "regex" && m.kind.Name != "cidr" {
		for i := range m.texts() {
			text, field := m.text(i)
			r.lintNetwork(d.Key, field, text)
			if sign := regexpSign(text.Text); sign != "" {
				r.warnings.AddLint(RegexpValue, text.At, field, "%q looks like a regular expression (%s) and is compared as text; write match: {regex: …}, or the text as values have it", text.Text, sign)
			}
		}
	}
	if !v.Has("rate_limit") && !v.Has("rate_limits") && len(d.items) == 0 {
		r.warnings.AddLint(NoLimit, d.Pos, "", "has neither a limit nor descriptors: requests that end here have no limit; add rate_limit, or rate_limit: {unlimited: true} if that is meant")
	}
	const settles = "of this descriptor, so that the second request settles the first; remove %[1]s, or write a pattern with *"
	switch {
	case !d.Rule.Reserves() || d.Rule.Plan != "":
	case d.Value != "" && !strings.Contains(d.Value, "*"):
		_, value := v.Pair("value")
		r.warnings.AddLint(FixedReserve, value.At, "value", "%[2]q is the id of every reservation "+settles, "value", d.Value)
	case d.Match != nil && d.Match.Exact():
		r.warnings.AddLint(FixedReserve, v.Position("match"), "match", "its values are the ids of all reservations "+settles, "match")
	}
	if d.Rule != nil && len(d.Rule.Limits) == len(d.several) {
		r.lintSeveral(d.several, d.Rule.Limits)
	}
}

func (r *reader) lintValue(name, value *document.Value) {
	switch {
	case value.Text == "" && (value.Kind == document.String || value.Kind == document.Null):
		r.warnings.AddLint(EmptyValue, name.At, "value", "is empty and matches any value, as if the key were not there; remove the key, or write the value")
	case value.Kind == document.String:
		if sign := regexpSign(value.Text); sign != "" {
			r.warnings.AddLint(RegexpValue, value.At, "value", "%q looks like a regular expression (%s) and is compared as text, in which only * has a meaning: any text; write a pattern with *, or match: {regex: …}", value.Text, sign)
		}
	}
}

// lintNetwork warns of a network as a text, unless Envoy sends networks as the key's value.
func (r *reader) lintNetwork(key, field string, value *document.Value) {
	network, err := netip.ParsePrefix(value.Text)
	if err != nil || key == "masked_remote_address" || key == "remote_address_match" {
		return
	}
	r.warnings.AddLint(CIDRValue, value.At, field, "%q is compared as text and matches no address of that network; did you mean match: {cidr: [%s]}?", value.Text, network.Masked())
}

// regexpSigns are the parts of a text that hardly anything but a regular expression
// has. A dot, a+b, $5, get|head and Go_(game) are values that people use.
var regexpSigns = []struct {
	pattern *regexp.Regexp
	sign    string // as a message names it
}{
	{regexp.MustCompile(`^\^.`), "^ at the start"},
	{regexp.MustCompile(`.\$$`), "$ at the end"},
	{regexp.MustCompile(`\.\*`), ".*"},
	{regexp.MustCompile(`\.\+`), ".+"},
	// Not the \d of CORP\dave.
	{regexp.MustCompile(`\\[dwsDWS]([^A-Za-z0-9_]|$)`), `\d, \w or \s`},
	// At the start of the brackets, or one of the usual ranges anywhere in them.
	{regexp.MustCompile(`\[\^?([a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9])[^\]]*\]|\[[^\]]*(a-z|A-Z|\b0-9)[^\]]*\]`), "a range such as [a-z]"},
	{regexp.MustCompile(`\([^()]+\|[^()]+\)`), "alternatives such as (a|b)"},
}

// addresses is the pattern of numbers, or * in place of a number, with dots between:
// 10.0.*.
var addresses = regexp.MustCompile(`^\d+(\.(\d+|\*))+$`)

// regexpSign is the part of a text that makes it look like a regular expression,
// "" if none does.
func regexpSign(text string) string {
	if !strings.ContainsAny(text, `^$.\[(`) || addresses.MatchString(text) {
		return ""
	}
	for _, s := range regexpSigns {
		if s.pattern.MatchString(text) {
			return s.sign
		}
	}
	return ""
}

// lintSeveral warns of limits that always decide as one before them does. limits
// are the compiled ones, in the order of several.
func (r *reader) lintSeveral(several []*limit, limits []descriptors.Limit) {
	for i := range limits {
		for j := range limits[:i] {
			if alike(&limits[i], &limits[j]) {
				r.warnings.AddLint(DuplicateLimit, several[i].from.At, several[i].path, "always decides as %s (%s) does: rate and burst are the same; remove one of them", several[j].path, rate(&limits[j]))
				break
			}
		}
	}
}

// alike reports whether two limits of one descriptor admit the same hits at all
// times. Limits that can be replaced each for itself, that have different failure
// policies or thresholds, that borrow, or that are tried for different keys do not.
func alike(a, b *descriptors.Limit) bool {
	aHigh, aLow := bits.Mul64(uint64(a.Requests), uint64(b.Window))
	bHigh, bLow := bits.Mul64(uint64(b.Requests), uint64(a.Window))
	return a.Strategy.HasBurst() && b.Strategy.HasBurst() && a.MaxDelay == 0 && b.MaxDelay == 0 &&
		aHigh == bHigh && aLow == bLow && a.Burst == b.Burst && a.Overdraft == b.Overdraft && a.Reserve == b.Reserve &&
		a.Name == b.Name && slices.Equal(a.Replaces, b.Replaces) && a.OnError == b.OnError && a.Shadow == b.Shadow && a.WatchedPart == b.WatchedPart &&
		a.Borrow == nil && b.Borrow == nil && reflect.DeepEqual(a.Thresholds, b.Thresholds)
}

// lintTree warns of faults that show only when all files are read.
func (r *reader) lintTree() {
	if len(r.local) > 0 {
		r.warnings.Add(slices.MinFunc(r.local, document.Position.Compare), "on_error", "local gives this limit, and every other limit with that policy, to each process in full while the store is away; set REPLICAS or REPLICAS_DNS, so that processes that share the store divide it")
	}
	for _, d := range r.domains {
		if r.opts.Lint || r.opts.ForRatelimit {
			r.lintBelow(d.Root())
		}
		r.lintReplaces(d)
		for name, pool := range d.pools {
			if !pool.used && pool.rule != nil && r.opts.Lint {
				r.warnings.AddLint(UnusedPool, pool.at, "pools."+name, "no limit borrows from the pool; name it in borrow_from of the limits that may, or remove it")
			}
		}
	}
	for _, o := range r.over.list {
		switch {
		case o.used:
		case !o.inDomain:
			r.warnings.Add(o.at, o.field, "is laid over no rule: no domain matches %q", o.domain)
		default:
			r.warnings.Add(o.at, o.field, "is laid over no rule: no limit has such a path and name; /rlconfig shows the keys and values of rules")
		}
	}
}

// lintBelow warns of descriptors below n that can never match, and of two descriptors that
// envoyproxy/ratelimit takes for one, because it joins a key and its value by an underscore.
func (r *reader) lintBelow(n *descriptors.Node) {
	seen := map[string]*descriptors.Node{}
	for _, child := range n.Children() {
		if hides := child.HiddenBy(); hides != nil && r.opts.Lint {
			what := "comes first and matches every value that this one could; move this descriptor before that one, or remove it"
			if child.AnyValue() && !child.HasWildcard() {
				what = "goes before a key without a value and matches every value, also none; remove one of the two"
			}
			r.warnings.AddLint(Unreachable, child.Pos, "", "can never match: %s of %s %s", name(&hides.Descriptor), hides.Pos, what)
		}
		joined := child.Entry.String()
		switch first := seen[joined]; {
		case child.Match != nil || !r.opts.ForRatelimit: // it knows no match
		case first != nil:
			r.warnings.AddLint(ForRatelimit, child.Pos, "key", "envoyproxy/ratelimit joins key and value to %q, which %s of %s is already, and refuses the file; rename one of the two while both run", joined, name(&first.Descriptor), first.Pos)
		default:
			seen[joined] = child
		}
		r.lintBelow(child)
	}
}

// maxCompared bounds the names that are compared to find one that is spelt alike.
const maxCompared = 100_000

// lintReplaces warns of names in replaces that no limit of the domain has.
func (r *reader) lintReplaces(d *domain) {
	names := map[string]bool{}
	for _, plan := range d.plans {
		if plan.rule != nil {
			for i := range plan.rule.Limits {
				names[plan.rule.Limits[i].Name] = true
			}
		}
	}
	for _, l := range d.written {
		if l.Name != "" {
			names[l.Name] = true
		}
	}
	sorted, compared := slices.Sorted(maps.Keys(names)), 0
	for _, l := range d.written {
		for i, re := range l.replaces {
			if names[re.name] {
				continue
			}
			advice := "; give it to the limit that is meant, or remove this item"
			if compared += len(sorted); compared <= maxCompared {
				if nearest := spelling.Nearest(re.name, sorted); nearest != "" {
					advice = fmt.Sprintf("; did you mean %q?", nearest)
				}
			}
			r.warnings.AddLint(UnknownReplaces, re.at, re.path(l, i), "no limit of domain %q has the name %q%s", d.Name, re.name, advice)
		}
	}
}
