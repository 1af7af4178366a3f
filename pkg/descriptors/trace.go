package descriptors

import "fmt"

// Trace is how [Domain.Match] came to its answer.
type Trace struct {
	Rule  *Rule  // nil when no limit applies
	Steps []Step // one for each entry that was looked at, outermost first
	// Why says why no limit applies; "" with a Rule.
	Why string
}

// Step is one depth of a Trace.
type Step struct {
	Entry Entry // of the request
	// Seen has the descriptors of the rules that match Entry, best first; only
	// the first of the wildcards that match. Without any it has one item with
	// the By Nothing and no position.
	Seen []Seen
}

// Seen is a descriptor of the rules that was looked at.
type Seen struct {
	Entry Entry // as written
	Pos   Position
	By    By
	Won   bool
	Why   string // why it won or lost
}

// Explain is [Domain.Match] with the way to the answer.
func (d *Domain) Explain(entries []Entry) Trace {
	var t Trace
	if t.Rule = d.match(entries, &t); t.Rule != nil {
		return t
	}
	switch {
	case d == nil:
		t.Why = "the domain has no rules"
	case len(entries) == 0:
		t.Why = "the request's descriptor has no entries"
	case t.Why == "":
		t.Why = fmt.Sprintf("no descriptor takes entry %d", len(t.Steps))
		if last := t.Steps[len(t.Steps)-1]; last.Seen[0].Why == deepest {
			t.Why += ": the request has more entries than the rule on its way"
		}
	}
	return t
}

const deepest = "no descriptor stands below the one before"

// look adds a step with the descriptors below n that match e. It also asks the
// matchers after the winner, so that the trace shows the descriptors that lost.
func (t *Trace) look(n *Node, e Entry) {
	step := Step{Entry: e}
	for i, m := range matchers {
		switch found := n.ask(i, e); {
		case found == nil:
		case len(step.Seen) == 0:
			step.Seen = append(step.Seen, Seen{found.Entry, found.Pos, m.by, true, m.why})
		case found.Entry != step.Seen[0].Entry:
			step.Seen = append(step.Seen, Seen{found.Entry, found.Pos, m.by, false, fmt.Sprintf("%s goes before %s", step.Seen[0].By, m.by)})
		}
	}
	if len(step.Seen) == 0 {
		why := fmt.Sprintf("no descriptor here matches key %q, value %q", e.Key, e.Value)
		if n.size == 0 {
			why = deepest
		}
		step.Seen = []Seen{{By: Nothing, Why: why}}
	}
	t.Steps = append(t.Steps, step)
}

// end notes that the request has no more entries.
func (t *Trace) end(n *Node) {
	switch {
	case n.Rule != nil || n.parent == nil:
	case n.size > 0:
		t.Why = "the last descriptor has no limit of its own, and the request has no entry for the descriptors below it"
	default:
		t.Why = "the last descriptor has no limit"
	}
}
