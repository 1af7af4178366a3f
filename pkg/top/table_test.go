package top_test

import (
	"reflect"
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
