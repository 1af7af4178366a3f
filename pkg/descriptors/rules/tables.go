package rules

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.org/rls/internal/document"
	"example.org/rls/internal/fields"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
)

// TableFile is the end of the names of tables. They are no rules.
const TableFile = ".csv"

// tableOf is the value of table, as written, and as rules have it.
type tableOf struct {
	file, url, entry string
	every            time.Duration
	rows             *descriptors.Rows // of a rule
}

// name is the file or the address; "" without a table.
func (t *tableOf) name() string { return cmp.Or(t.file, t.url) }

// tableFile is the path of a table below the folder of the rules.
var tableFile = parsed("a path", Schema{"type": "string", "pattern": `\.csv$`}, func(text string) (string, error) {
	if !filepath.IsLocal(text) || !strings.HasSuffix(text, TableFile) {
		return "", fmt.Errorf("must be the name of a file beside this one that ends in %s, such as tenants.csv, not %q; an address is written {url: https://example.org/tenants.csv}", TableFile, text)
	}
	return filepath.Clean(text), nil
})

// tableURL is the address of a table.
var tableURL = parsed("an address", Schema{"type": "string", "pattern": `^[hH][tT]{2}[pP][sS]?://[^/?#@]+([/?][^#]*)?#?$`}, func(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Fragment != "":
		return "", fmt.Errorf("must be an address such as https://example.org/tenants.csv, not %q", text)
	case u.User != nil:
		return "", errors.New("must not have a user or a password, which messages would show; TABLE_TOKEN_FILE has a token for tables")
	}
	return text, nil
})

// defaultEvery is the interval of tables whose rules have none.
const defaultEvery = time.Minute

// tables is the name of a file, or a mapping.
var tables = fields.Type[target]{
	Name: "a path, or a mapping", Schema: Schema{"type": []string{"string", "object"}, "pattern": tableFile.Schema["pattern"], "$ref": "#/$defs/table"},
	Set: func(r *fields.Reader, t target, v *document.Value) {
		into := &t.limit.table
		if v.Kind != document.Map {
			into.file, _ = tableFile.Read(r, v)
			return
		}
		t.mapping(v, inTable, target{table: into})
		switch {
		case !v.Has("file") && !v.Has("url"):
			r.ProblemOf("file", v.At, "is missing; the name of a file beside this one, such as tenants.csv, or url in its place")
		case v.Has("file") && v.Has("url"):
			r.ProblemOf("url", v.Position("url"), "must not be given with file; a table has one of them")
			into.url = ""
		case v.Has("file") && v.Has("every"):
			r.ProblemOf("every", v.Position("every"), "needs url; changes of a file are noticed at once")
		case v.Has("entry") && into.entry == "":
			r.ProblemOf("entry", v.Position("entry"), "must not be empty; leave it out for the key of the descriptor")
		}
		if into.every == 0 { // also where it is wrong, because an address is fetched at some interval
			into.every = defaultEvery
		}
		if t.opts.Lint && strings.HasPrefix(strings.ToLower(into.url), "http:") {
			t.warnings.AddLint(PlainTable, v.Position("url"), join(r.Path(), "url"), "is fetched without TLS: who stands between can change limits, and TABLE_TOKEN_FILE is not sent; want https")
		}
	},
	Append: func(b []byte, t target) []byte {
		of, key := &t.limit.table, "file"
		if of.rows == nil {
			return b
		}
		if strings.Contains(of.file, "://") {
			key = "url"
		}
		return fmt.Appendf(b, "{%s: %q, entry: %q, rows: %d, hash: %016x}", key, of.file, of.entry, of.rows.Len, of.rows.Sum)
	},
}

// read is a table that was read. Both are nil if its rows are not known here.
type read struct {
	*Table
	err   error
	every time.Duration // of an address, the shortest so far
}

// readTable reads the table that a limit names, each one once.
func (r *reader) readTable(l *limit) read {
	at, field, name := l.from.Position("table.file"), join(l.path, "table"), l.table.url
	switch {
	case name != "":
		at, field = l.from.Position("table.url"), join(field, "url")
	case at.Line == 0:
		r.Problems.Add(at, field, "a table is a file beside a file of rules, and these rules come in a message: name an address as url")
		return read{err: fs.ErrNotExist}
	default:
		name = filepath.Join(filepath.Dir(at.File), l.table.file)
	}
	known, seen := r.tables[name]
	if every := l.table.every; l.table.url != "" && r.opts.Fetched != nil && (!seen || every < known.every) {
		table, err := r.opts.Fetched(name, every)
		if known.every = every; !seen {
			known.Table, known.err = table, err
		}
	} else if l.table.url == "" && !seen {
		known.Table, known.err = OpenTable(name)
	}
	r.tables[name] = known
	if !seen && known.Table != nil {
		r.Problems = append(r.Problems, known.Problems...)
	}
	if err := known.err; err != nil {
		var path *fs.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		r.Problems.Add(at, field, "%s cannot be read: %v", name, err)
	}
	return known
}

// addTable gives the rule of d, whose mapping is v and which comes below parent, the table that its limit names. It
// returns false if the rule cannot have it, which is reported. A rule whose table cannot be read,
// or was never fetched, is left with its own limit.
func (r *reader) addTable(v *document.Value, parent *descriptors.Node, d *descriptor) bool {
	l, domain := d.single, r.file.in
	entry, ok := r.tableEntry(parent, d)
	table := r.readTable(l)
	switch {
	case !ok:
		return false
	case table.Table == nil || table.Rows == nil:
		return true
	}
	rows := table.Rows
	plans, wrongPlans := r.planRows(domain, d, rows)
	likes, wrong, ok := r.amountRows(domain, d, rows, plans, wrongPlans)
	if !ok {
		return false
	}
	if len(wrong) > 0 {
		wrong.report(rows, &r.Problems)
	}
	before := len(r.Problems)
	for _, rule := range append(slices.Clone(plans), d.Rule) {
		if len(r.Problems) == before {
			r.checkReserved(v, d, rule)
			if rule.Reserves() && entry == len(parent.Way()) {
				r.problemOf(l, "table", "the value of %q is the id of a reservation: name another key of the descriptor's path as entry", d.Key)
			}
		}
	}
	d.Rule.SetTable(descriptors.Table{Rows: rows, Name: l.table.name(), Key: append(keys(parent), d.Key)[entry], Entry: entry}, plans, likes)
	return len(r.Problems) == before
}

// tableEntry is the index of the entry whose value the table has.
func (r *reader) tableEntry(parent *descriptors.Node, d *descriptor) (entry int, ok bool) {
	l, way := d.single, append(keys(parent), d.Key)
	entry = len(way) - 1
	for l.table.entry != "" && entry >= 0 && way[entry] != l.table.entry {
		entry--
	}
	if entry < 0 {
		r.problemOf(l, "table.entry", "%q is no key of the descriptor's path; want one of %s", l.table.entry, strings.Join(way, ", "))
		return 0, false
	}
	of := &d.Descriptor
	if nodes := parent.Nodes(); entry < len(nodes) {
		of = &nodes[entry].Descriptor
	}
	shared := of.Shared || of.Mask != descriptors.Mask{}
	if shared {
		r.problemOf(l, "table", "has no meaning where values of %q share a counter; remove share_threshold or mask", way[entry])
	}
	return entry, !shared
}

// keys are the keys of the descriptors down to n.
func keys(n *descriptors.Node) (keys []string) {
	for _, n := range n.Nodes() {
		keys = append(keys, n.Key)
	}
	return keys
}

// planRows are the variants of d's rule for the plans of rows, by index, and the faults of plans.
// A plan with a fault has d's rule.
func (r *reader) planRows(domain *domain, d *descriptor, rows *descriptors.Rows) ([]*descriptors.Rule, faults) {
	plans, wrong := make([]*descriptors.Rule, len(rows.Plans)), faults{}
	for index := range plans {
		plans[index] = d.Rule
	}
	if !rows.Planned {
		return plans, wrong
	}
	together := d.Rule.Reserves() || d.Rule.Several()
	for _, plan := range domain.plans {
		together = together || plan.rule != nil && (plan.rule.Several() || plan.rule.Reserves())
	}
	d.Rule.Together = together
	for index, name := range rows.Plans {
		plan := domain.plan(name)
		switch {
		case name == "":
			continue
		case plan == nil:
			message := fmt.Sprintf("unknown plan %.100q%s", name, domain.suggestPlan(name))
			wrong[uint32(index)] = &algorithms.SpecError{Field: "plan", Message: message}
			continue
		case plan.rule == nil: // reported
			continue
		}
		variant := planRule(&d.rule, d.single, plan, besidePlan[1:]) // the row names the plan
		variant.Together = together
		if fault := replacesItself(variant); fault != nil && !d.wrong {
			wrong[uint32(index)] = fault
			continue
		}
		plans[index] = variant
	}
	return plans, wrong
}

// amountRows checks what rows say for d's rule. It returns the limits whose amounts rows of each plan
// change, nil for a plan with several, and the faults by number. It returns false if all rows are wrong.
func (r *reader) amountRows(
	domain *domain, d *descriptor, rows *descriptors.Rows, plans []*descriptors.Rule, wrongPlans faults,
) (likes []*descriptors.Limit, wrong faults, ok bool) {
	l := d.single
	for _, plan := range plans {
		switch {
		case plan.Unlimited:
			likes = append(likes, likeUnlimited(domain, plan))
		case len(plan.Limits) > 1:
			likes = append(likes, nil)
		default:
			likes = append(likes, &plan.Limits[0])
		}
	}
	wrong, gaveWay := faults{}, false
	for number, says := range rows.Says {
		r.turns.Next()
		of := likes[says.Plan]
		switch fault := wrongPlans[says.Plan]; {
		case fault != nil:
			wrong[uint32(number)] = fault
			continue
		case says.Amounts == descriptors.Amounts{} && (rows.Planned || !d.Rule.Unlimited):
			continue
		case of == nil && rows.Plans[says.Plan] == "":
			r.problemOf(l, "table", "%s has amounts for one limit, and the plan %q has %d: want a column plan, or another plan here", rows.File, l.plan, len(d.Rule.Limits))
			return nil, nil, false
		case of == nil:
			wrong[uint32(number)] = &algorithms.SpecError{Field: "plan", Message: fmt.Sprintf("the plan %q has %d limits, and amounts are for one: leave the amounts out, or name another plan", rows.Plans[says.Plan], len(plans[says.Plan].Limits))}
			continue
		}
		var spec *algorithms.SpecError
		row, err := of.With(says.Amounts)
		if errors.As(err, &spec) {
			wrong[uint32(number)] = spec
			continue
		}
		gaveWay = gaveWay || row.Strategy != of.Strategy || row.WrittenBurst == 0 && of.WrittenBurst > 0
	}
	if gaveWay {
		r.warnings.Add(l.from.Position("table"), join(l.path, "table"), "%s has rows whose amounts cannot have DEFAULT_STRATEGY and DEFAULT_BURST: they have the strategy's own burst, or are sliding_window or fixed_window", rows.File)
	}
	return likes, wrong, true
}

// likeUnlimited is the limit whose amounts rows change that give an unlimited rule one.
func likeUnlimited(domain *domain, rule *descriptors.Rule) *descriptors.Limit {
	like := new(descriptors.Limit)
	if *like = domain.Default; like.Limit == nil {
		like.Limit, _ = algorithms.New(algorithms.Spec{Window: like.Unit.Duration()})
	}
	like.Name, like.Unit = "table", descriptors.UnitUnknown // the name is for metrics
	like.Laid = rule.Laid
	return like
}
