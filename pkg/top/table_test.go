package top_test

import (
	"reflect"
	"strings"
	"testing"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/top"
)

func row(value string, denied, hits, wrong int64, rate float64) top.Row {
	return top.Row{Domain: "shop", Rule: "shop.user", Entries: []descriptors.Entry{{Key: "user", Value: value}}, Denied: denied, Hits: hits, Cost: hits, Rate: rate, Error: wrong}
}

func TestSums(t *testing.T) {
	got := top.Sum([]top.Table{
		{By: "denied", Window: "60s", Rows: []top.Row{row("ann", 5, 6, 1, 0.5), row("bob", 4, 4, 1, 0.5)}, Total: top.Total{Hits: 10, Denied: 9, Cost: 10}},
		{By: "denied", Window: "60s", Rows: []top.Row{row("bob", 3, 3, 1, 0.5)}, Total: top.Total{Hits: 3, Denied: 3, Cost: 3}},
	})
	want := top.Table{By: "denied", Window: "60s", Error: 2, Rows: []top.Row{row("bob", 7, 7, 2, 1), row("ann", 5, 6, 1, 0.5)}, Total: top.Total{Hits: 13, Denied: 12, Cost: 13}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A key that only one process denies has the hits of all of them, and so its true share.
func TestSumsOfKeysThatOneProcessDenies(t *testing.T) {
	var tables []top.Table
	for _, denied := range []int{0, 3} {
		s := top.New(top.Options{Keys: 10, StoredKey: strings.Clone})
		for i := range 6 {
			s.Observe(asked("ann", 1, i >= denied))
			s.Observe(asked("bob", 1, true))
		}
		tables = append(tables, s.Table(top.Query{By: "denied", N: 1000, Zeros: true}))
		expect(t, "of one", lines(s.Table(top.Query{By: "denied", N: 1000})), map[int]string{3: "shop.user ann 6 3 6 ±0\n"}[denied])
	}
	*tables[1].Rows[0].Remaining = 0
	sum := top.Sum(tables)
	expect(t, "sum", lines(sum), "shop.user ann 12 3 12 ±0\n")
	if *sum.Rows[0].Remaining != 0 {
		t.Errorf("%d remain, want what the process that denied most says", *sum.Rows[0].Remaining)
	}
}
