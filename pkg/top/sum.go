package top

import (
	"cmp"
	"slices"

	"example.org/rls/pkg/descriptors"
)

// Sum is the sum of the tables of several processes, at least one, all in the order of the
// first, with the rows of all of them.
func Sum(tables []Table) Table {
	sum := Table{By: tables[0].By, Window: tables[0].Window, Rows: []Row{}}
	place := map[[2]string]int{} // by rule and caller
	for _, t := range tables {
		sum.Total.Hits += t.Total.Hits
		sum.Total.Denied += t.Total.Denied
		sum.Total.Cost += t.Total.Cost
		for _, r := range t.Rows {
			key := [2]string{r.Rule, string(descriptors.AppendID(nil, r.Domain, r.Entries, nil))}
			i, known := place[key]
			if !known {
				place[key] = len(sum.Rows)
				sum.Rows = append(sum.Rows, r)
				continue
			}
			at := &sum.Rows[i]
			at.Hits, at.Denied, at.Cost, at.Rate, at.Error = at.Hits+r.Hits, at.Denied+r.Denied, at.Cost+r.Cost, at.Rate+r.Rate, at.Error+r.Error
		}
	}
	measure := map[string]func(*Row) int64{
		"denied": func(r *Row) int64 { return r.Denied },
		"hits":   func(r *Row) int64 { return r.Hits },
		"cost":   func(r *Row) int64 { return r.Cost },
	}[sum.By]
	slices.SortStableFunc(sum.Rows, func(a, b Row) int { return cmp.Compare(measure(&b), measure(&a)) })
	for i := range sum.Rows {
		sum.Error = max(sum.Error, sum.Rows[i].Error)
	}
	return sum
}
