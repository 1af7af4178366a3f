package descriptors_test

import (
	"fmt"
	"strings"
	"testing"

	"example.org/rls/pkg/descriptors"
)

func TestShortened(t *testing.T) {
	long := strings.Repeat("ü", 40)
	for want, entries := range map[string][]descriptors.Entry{
		"user=ann,plan": {{Key: "user", Value: "ann"}, {Key: "plan"}},
		"user=" + strings.Repeat("ü", 18) + "…":                              {{Key: "user", Value: long}},
		"kü" + strings.Repeat("ü", 8) + "…=" + strings.Repeat("ü", 10) + "…": {{Key: "k" + long, Value: long}},
		"": nil,
		strings.Repeat(`\xff`, 20) + "…=" + strings.Repeat(`\xc3`, 20) + "…": {{Key: strings.Repeat("\xff", 30), Value: strings.Repeat("\xc3", 31)}}, // keeps its bytes
	} {
		if got := descriptors.Pairs(descriptors.AppendShortened(nil, entries, 40)); got != want {
			t.Errorf("%v: got %s, want %s", entries, got, want)
		}
	}
	var many []descriptors.Entry
	for i := range 20 {
		many = append(many, descriptors.Entry{Key: fmt.Sprint(i, long), Value: long})
		bytes := 0
		short := descriptors.AppendShortened(nil, many, 160)
		for _, e := range short {
			bytes += len(e.Key) + len(e.Value)
		}
		if kept := min(i+1, descriptors.MaxShortened); len(short) != kept || bytes > 160+2*3*kept {
			t.Errorf("%d entries: got %d of %d bytes", i+1, len(short), bytes)
		}
		if cut := strings.HasSuffix(short[len(short)-1].Value, "…"); !cut && i >= descriptors.MaxShortened {
			t.Errorf("%d entries: got %v, want … at the end", i+1, short)
		}
	}
}
