package explain

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"example.org/rls/internal/document"
	"example.org/rls/pkg/descriptors"
)

// InForce is a limit of the rules in force.
type InForce struct {
	Rule string `json:"rule"`           // path
	Plan string `json:"plan,omitempty"` // that rows of the rule's table give
	Name string `json:"name"`
	// Words are Terms.Words, or "unlimited".
	Words  string   `json:"words"`
	Limit  uint32   `json:"limit,omitempty"`
	Window Duration `json:"window,omitempty"`
	File   string   `json:"file,omitempty"`
	Line   int      `json:"line,omitempty"`
}

// Change is a limit that is another one than before, or a table whose rows are.
type Change struct {
	Rule string `json:"rule"`
	Plan string `json:"plan,omitempty"` // that rows of the rule's table give
	Name string `json:"name"`
	// From and To are the limit in words, From may be Unknown; without From it came, without To it went.
	From string      `json:"from,omitempty"`
	To   string      `json:"to,omitempty"`
	File string      `json:"file,omitempty"`
	Line int         `json:"line,omitempty"`
	Rows *RowChanges `json:"rows,omitempty"`
	// Stricter: the limit came, lets fewer hits pass in the same time, or fewer at the same rate.
	Stricter bool `json:"-"`
	// Limits is how many limits the change is of, if it is of limits whose names are not known: they went.
	Limits int `json:"limits,omitempty"`
}

// Unknown is the limit before a change if only its hash was remembered.
const Unknown = "unknown"

// RowChanges are numbers of rows of a table.
type RowChanges struct {
	Came    int `json:"came"`
	Went    int `json:"went"`
	Changed int `json:"changed"`
}

// LimitsOf lists the limits of a tree in the order of its rules, pools first.
func LimitsOf(tree *descriptors.Tree) (all []InForce) {
	add := func(r *descriptors.Rule, at document.Position) {
		limit := InForce{Rule: r.Path, Plan: r.RowPlan, File: at.File, Line: at.Line}
		if r.Unlimited {
			limit.Words = "unlimited"
			all = append(all, limit)
		}
		for i := range r.Limits {
			l := &r.Limits[i]
			limit.Name, limit.Words, limit.Limit, limit.Window = l.Name, TermsOf(l).Words, l.Requests, Duration(l.Window)
			all = append(all, limit)
		}
	}
	tree.EachWithPools(func(_ *descriptors.Domain, r *descriptors.Rule) {
		for _, part := range r.Parts() {
			add(part, r.Pos)
		}
	})
	return all
}

// name tells a limit from the others.
type name struct {
	rule, limit string
	number      int // of those with the same name
}

func namesOf(limits []InForce) (names []name) {
	seen := map[name]int{}
	for _, l := range limits {
		n := name{withPlan(l.Rule, l.Plan), l.Name, 0}
		n.number = seen[n]
		seen[name{n.rule, l.Name, 0}]++
		names = append(names, n)
	}
	return names
}

// withPlan is a rule's path, with the plan that rows of its table give.
func withPlan(rule, plan string) string {
	if plan != "" {
		rule += " plan " + plan
	}
	return rule
}

// Changes returns the limits that changed, the limits that only after has, and the limits that only
// before has.
func Changes(before, after []InForce) (all []Change) {
	old := map[name]*InForce{}
	were := namesOf(before)
	for i, n := range were {
		old[n] = &before[i]
	}
	for i, n := range namesOf(after) {
		now, was := &after[i], old[n]
		delete(old, n)
		c := now.came()
		switch {
		case was == nil:
		case was.Words == now.Words:
			continue
		default:
			c.From, c.To = shorter(was.Words, now.Words)
			c.Stricter = now.below(was)
		}
		all = append(all, c)
	}
	for _, n := range were {
		if was := old[n]; was != nil {
			c := Change{Rule: was.Rule, Plan: was.Plan, Name: was.Name, From: was.Words, File: was.File, Line: was.Line}
			all = append(all, c)
		}
	}
	return all
}

// came is the change that l came.
func (l *InForce) came() Change {
	return Change{
		Rule: l.Rule, Plan: l.Plan, Name: l.Name, To: l.Words, File: l.File, Line: l.Line,
		Stricter: l.Limit > 0 || l.Window > 0,
	}
}

// InForceHashes are limits by hash, hashBytes each: of the name of the limit, and of its name and words.
type InForceHashes []byte

const (
	hashOfName = 4 // two limits of 100,000 have one by chance
	hashBytes  = hashOfName + 2
)

// HashesOf returns the hashes of limits.
func HashesOf(limits []InForce) (all InForceHashes) {
	for i, n := range namesOf(limits) {
		text := fmt.Appendf(nil, "%q %q %d", n.rule, n.limit, n.number)
		of, words := sha256.Sum256(text), sha256.Sum256(fmt.Append(text, limits[i].Words))
		all = append(append(all, of[:hashOfName]...), words[:hashBytes-hashOfName]...)
	}
	return all
}

// Changes is Changes from the limits of h. The limits that went are one change, and the first.
func (h InForceHashes) Changes(after []InForce) (all []Change) {
	had := map[string]bool{} // by hash of limit, and then by hash of name
	for hash := range slices.Chunk(h, hashBytes) {
		had[string(hash)] = true
	}
	var others []int
	hashes := slices.Collect(slices.Chunk(HashesOf(after), hashBytes))
	for i, hash := range hashes {
		if !had[string(hash)] {
			others = append(others, i)
		}
		delete(had, string(hash))
	}
	names := map[string]bool{}
	for hash := range had {
		names[hash[:min(len(hash), hashOfName)]] = true
	}
	for _, i := range others {
		c := after[i].came()
		if name := string(hashes[i][:hashOfName]); names[name] {
			delete(names, name)
			c.From, c.Stricter = Unknown, false
		}
		all = append(all, c)
	}
	if n := len(names); n > 0 {
		all = slices.Insert(all, 0, Change{From: Unknown, Limits: n})
	}
	return all
}

// Count is the number of limits and tables that changed.
func Count(changes []Change) (n int) {
	for _, c := range changes {
		n += max(c.Limits, 1)
	}
	return n
}

// below reports whether l lets fewer hits pass than was: at a lower rate, or fewer at the same rate.
// An unlimited one has no window.
func (l *InForce) below(was *InForce) bool {
	if l.Window == 0 || was.Window == 0 {
		return was.Window == 0
	}
	rate := func(l *InForce) float64 { return float64(l.Limit) / float64(l.Window) }
	return rate(l) < rate(was) || rate(l) == rate(was) && l.Limit < was.Limit
}

// shorter are two limits in words, without what both say behind their rates.
func shorter(from, to string) (string, string) {
	rate, rest, _ := strings.Cut(from, ", ")
	if other, same, _ := strings.Cut(to, ", "); same == rest && other != rate {
		return rate, other
	}
	return from, to
}

// TableChanges counts, for each table, the rows that came, went and changed from before to after. This
// process made both trees.
func TableChanges(before, after *descriptors.Tree) (all []Change) {
	tables := map[string]*descriptors.Table{}
	before.Each(func(_ *descriptors.Domain, r *descriptors.Rule) {
		if r.Table != nil {
			tables[r.Path] = r.Table
		}
	})
	after.Each(func(_ *descriptors.Domain, r *descriptors.Rule) {
		if was := tables[r.Path]; r.Table != nil && was != nil && was.Sum != r.Table.Sum {
			came, went, changed := r.Table.Changed(was.Rows)
			all = append(all, Change{Rule: r.Path, File: r.Table.File, Rows: &RowChanges{came, went, changed}})
		}
	})
	return all
}

// String is the change in words: shop.plan_pro.customer per-minute 600 → 60 per minute (shop.yaml:13).
func (c Change) String() (text string) {
	for _, name := range []string{withPlan(c.Rule, c.Plan), c.Name} {
		if name != "" {
			text += name + " "
		}
	}
	return text + c.Words()
}

// Words is the change without the limit's name: 600 → 60 per minute (shop.yaml:13).
func (c Change) Words() (text string) {
	switch from, window, _ := strings.Cut(c.From, " per "); {
	case c.Rows != nil:
		return fmt.Sprintf("%s +%d −%d, %d changed", c.File, c.Rows.Came, c.Rows.Went, c.Rows.Changed)
	case c.Limits > 0:
		return fmt.Sprintf("went: %d of the earlier limits", c.Limits)
	case c.From == "":
		text = "came: " + c.To
	case c.To == "":
		text = "went: " + c.From
	case c.From == Unknown:
		text = "changed to " + c.To
	case strings.HasSuffix(c.To, " per "+window) && !strings.Contains(c.From, ","):
		text = from + " → " + c.To
	default:
		text = c.From + " → " + c.To
	}
	if c.File != "" {
		text += fmt.Sprintf(" (%s:%d)", c.File, c.Line)
	}
	return text
}
