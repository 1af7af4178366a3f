package top

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"time"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// Table is the document of GET /v1/top: counters in an order, the highest first.
type Table struct {
	By string `json:"by"`
	// Window is the time that is counted, up to now: 60s. Hits of up to five seconds more may
	// be counted, too, and are in Error then.
	Window string `json:"window"`
	// Error is the largest error of the rows.
	Error int64 `json:"error"`
	Rows  []Row `json:"rows"`
	Total Total `json:"total"`
}

// Row is a counter, with the descriptor of the requests that it counts.
type Row struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"` // path; "" if no rule matched
	// Entries are the entries of the descriptor, with the pattern in place of a value that
	// shares a counter with others. Long keys and values are cut, and end with …
	Entries []descriptors.Entry `json:"entries"`
	Hits    int64               `json:"hits"`   // requests
	Denied  int64               `json:"denied"` // requests
	Cost    int64               `json:"cost"`   // hits
	Rate    float64             `json:"rate"`   // of the measure that orders the table, a second
	// Error is the most by which that measure may be too high. Of more than 2,500 requests a
	// second it holds for 999 of 1,000 rows.
	Error int64 `json:"error"`
	// Of several limits, Key, Limit, Plan and Remaining are those of the one that decided the last
	// request that was looked at: that denied it with the longest wait, or has the least remaining.
	Key   string `json:"key"`            // in the store; cut above 512 bytes
	Limit string `json:"limit"`          // in words, see [descriptors.Limit.Title]
	Plan  string `json:"plan,omitempty"` // that the limit is from
	// Remaining is nil if neither the store nor a policy decided the request.
	Remaining *int64 `json:"remaining,omitempty"`
	// Buckets are those of Envoys that enforce their shares themselves, and Assigned the hits per
	// second that these are assigned together.
	Buckets  int64   `json:"buckets,omitempty"`
	Assigned float64 `json:"assigned,omitempty"`
}

// Total has the sums over all descriptors with limits.
type Total struct {
	Hits   int64 `json:"hits"`
	Denied int64 `json:"denied"`
	Cost   int64 `json:"cost"`
}

// MaxRows is the most rows of an answer. Each process is asked for as many when the tables of
// several processes are summed up. It is more than a person wants, because a key can be low in each process and high
// in the sum.
const MaxRows = 1000

// Sum is the sum of the tables of several processes, at least one, all in the order of the
// first, with the rows of all of them that are not 0 in this order.
func Sum(tables []Table) Table {
	sum := Table{By: tables[0].By, Window: tables[0].Window, Rows: []Row{}}
	order := orderOf(sum.By)
	measure := func(r *Row) int64 { return [orders]int64{r.Denied, r.Hits, r.Cost}[order] }
	place := map[[2]string]int{} // by rule and caller
	var most []int64             // of each row, the measure of the process that says how it was decided
	for _, t := range tables {
		sum.Total.Hits += t.Total.Hits
		sum.Total.Denied += t.Total.Denied
		sum.Total.Cost += t.Total.Cost
		for _, r := range t.Rows {
			key := [2]string{r.Rule, string(descriptors.AppendID(nil, r.Domain, r.Entries, nil))}
			i, known := place[key]
			if !known {
				place[key] = len(sum.Rows)
				sum.Rows, most = append(sum.Rows, r), append(most, measure(&r))
				continue
			}
			at := &sum.Rows[i]
			if of := measure(&r); of > most[i] {
				most[i], at.Key, at.Limit, at.Plan, at.Remaining = of, r.Key, r.Limit, r.Plan, r.Remaining
			}
			at.Hits, at.Denied, at.Cost, at.Rate, at.Error = at.Hits+r.Hits, at.Denied+r.Denied, at.Cost+r.Cost, at.Rate+r.Rate, at.Error+r.Error
			at.Buckets, at.Assigned = at.Buckets+r.Buckets, at.Assigned+r.Assigned
		}
	}
	sum.Rows = slices.DeleteFunc(sum.Rows, func(r Row) bool { return measure(&r) == 0 })
	slices.SortStableFunc(sum.Rows, func(a, b Row) int { return cmp.Compare(measure(&b), measure(&a)) })
	for i := range sum.Rows {
		sum.Error = max(sum.Error, sum.Rows[i].Error)
	}
	return sum
}

// Query says which rows of a table are wanted: the N highest.
type Query struct {
	By   string // denied, hits or cost, else denied
	Rule string // path; "" is all rules
	N    int
	// Zeros adds the keys whose count is 0 in this order at the end: a key that is denied by another
	// process has its hits here in the sum.
	Zeros bool
}

// Table returns the rows that are wanted, the highest first.
func (t *Top) Table(q Query) Table {
	table := t.table(q)
	for i := range table.Rows {
		if row := &table.Rows[i]; t.options.Assigned != nil {
			row.Buckets, row.Assigned = t.options.Assigned(row.Domain, row.Entries)
		}
	}
	return table
}

func orderOf(by string) Order { return Order(max(0, slices.Index(names[:], by))) }

func (t *Top) table(q Query) Table {
	order := orderOf(q.By)
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.advance(now)
	table := Table{
		By: names[order], Window: fmt.Sprintf("%.0fs", span.Seconds()), Rows: []Row{},
		Total: Total{Hits: t.totals[Hits].sum(), Denied: t.totals[Denied].sum(), Cost: t.totals[Cost].sum()},
	}
	found := slices.Clone(t.kept[order].nodes)
	for _, n := range t.nodes {
		if q.Zeros && n.position[order] == 0 {
			n.sum[order] = t.kept[order].total(n)
			found = append(found, n)
		}
	}
	found = slices.DeleteFunc(found, func(n *node) bool { return q.Rule != "" && n.rule != q.Rule })
	slices.SortFunc(found, func(a, b *node) int {
		return cmp.Or(cmp.Compare(b.sum[order], a.sum[order]), cmp.Compare(b.sum[Hits], a.sum[Hits]), cmp.Compare(a.hash, b.hash))
	})
	begin := t.start.Add(time.Duration(max(0, t.slot-int64(slots)+1)) * part)
	seconds := max(1, now.Sub(begin).Seconds())
	for _, n := range found[:min(q.N, len(found))] {
		row := t.row(n, order)
		row.Rate = math.Round(float64(n.sum[order])/seconds*100) / 100
		table.Error = max(table.Error, row.Error)
		table.Rows = append(table.Rows, row)
	}
	return table
}

// Find returns the descriptors that have text in a key or a value, in no particular order, of those that
// are wanted; nil is all.
// Of long keys and values only the part that is kept is compared.
func (t *Top) Find(text string, wanted func(*service.Remembered) bool) (found []service.Remembered) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advance(time.Now())
	for _, n := range t.nodes {
		m := service.Remembered{Domain: n.domain, Rule: n.rule, Entries: n.entries, Cut: n.cut}
		has := text == "" || slices.ContainsFunc(n.entries, func(e descriptors.Entry) bool { return e.Contains(text) })
		if !has || wanted != nil && !wanted(&m) {
			continue
		}
		m.Entries, m.Denied = slices.Clone(n.entries), t.row(n, Denied).Denied
		found = append(found, m)
	}
	return found
}

func (t *Top) row(n *node, by Order) Row {
	var count [orders]int64
	for order := range count {
		count[order] = n.counted[order].sum()
	}
	row := Row{Domain: descriptors.Printable(n.domain), Rule: n.rule, Entries: slices.Clone(n.entries), Error: n.inherited[by], Key: descriptors.Printable(n.key), Limit: n.limit.Title(), Plan: n.plan}
	if n.remaining >= 0 {
		row.Remaining = new(n.remaining)
	}
	count[by] += row.Error
	row.Error += n.counted[by][t.oldest()]
	if weight := slices.Max(t.weights[:]); weight > 1 {
		step := float64(weight)
		if by == Cost {
			step = max(step, math.Exp2(float64(slices.Max(n.bits[:]))))
		}
		row.Error = min(count[by], row.Error+int64(math.Ceil(deviations*math.Sqrt(step*float64(count[by])))))
	}
	row.Denied, row.Cost = count[Denied], count[Cost]
	row.Hits = max(count[Hits], row.Denied)
	return row
}

// deviations is the number of standard deviations of a sample that an error has (docs/adr/0010-operators.md).
// The variance of a count that grew by steps is at most the highest step times the count.
const deviations = 5

// Tell tells the rows as metrics name them: tell is called with the path of the rule, the label of the key,
// the denied requests, and Remaining. hashed puts a hash in place of each label.
func (t Table) Tell(hashed bool, tell func(rule, key string, denied int64, remaining *int64)) {
	seen := map[[2]string]bool{} // keys that were cut may be equal
	for i := range t.Rows {
		row := &t.Rows[i]
		labels := [2]string{row.Rule, row.label(hashed)}
		if !seen[labels] {
			tell(row.Rule, labels[1], row.Denied, row.Remaining)
		}
		seen[labels] = true
	}
}

// label is the entries of a row as KEY=VALUE,KEY=VALUE, or the first 16
// hexadecimal digits of their SHA-256. The hash of log lines (metrics.DecisionLog) depends on a secret, and
// that of the store's keys hides each value alone: neither can name a series.
func (r *Row) label(hashed bool) string {
	pairs := descriptors.Pairs(r.Entries)
	if !hashed {
		return pairs
	}
	sum := sha256.Sum256([]byte(r.Domain + "\x00" + pairs))
	return hex.EncodeToString(sum[:8])
}
