package denials_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"example.org/rls/pkg/denials"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// groupLines are groups, one in a line.
func groupLines(all []denials.Group) string {
	var b strings.Builder
	for _, g := range all {
		fmt.Fprintf(&b, "%s–%s %s %s %s %d %q %v %d× %v\n", g.First.Format(time.TimeOnly), g.Last.Format(time.TimeOnly), g.Domain, g.Rule,
			descriptors.Pairs(g.Entries), g.Limit, g.Name, time.Duration(g.Window), g.Count, time.Duration(g.Wait))
	}
	return b.String()
}

// TestGroups: the denials of a descriptor by one limit are one group, the last one first.
func TestGroups(t *testing.T) {
	d := denials.New(denials.Options{Keep: 3})
	for i, name := range []string{"ann", "bob", "ann", "ann", "cyd"} {
		o := denied(name, time.Duration(i)*time.Hour)
		if i == 3 {
			o.Verdicts[0].Limit = oneADay
		}
		d.Observe(o)
	}
	expect(t, "of ann, the day, and cyd", groupLines(d.Groups(denials.Query{}, 10).Groups), `07:12:07–07:12:07 shop shop.user user=cyd 10 "" 1m0s 1× 41s
06:12:07–06:12:07 shop shop.user user=ann 100 "per-day" 24h0m0s 1× 41s
03:12:07–05:12:07 shop shop.user user=ann 10 "" 1m0s 2× 41s
`)
	for want, q := range map[string]denials.Query{
		"cyd": {Text: "cy"}, "cyd ann": {Since: began.Add(2*time.Hour + time.Minute)}, "": {Rule: "shop.other"}, "cyd ann ann": {Rule: "shop.user"},
		"ann ann": {Value: "ann"},
	} {
		var got []string
		for _, g := range d.Groups(q, 10).Groups {
			got = append(got, g.Entries[0].Value)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%+v: got %v, want %s", q, got, want)
		}
	}
	if g := d.Groups(denials.Query{Value: "an"}, 10); len(g.Groups) != 0 {
		t.Errorf("a part of a value: got %+v", g)
	}
	if g := d.Groups(denials.Query{}, 1); len(g.Groups) != 1 || g.Kept != 3 || !g.From.Equal(began) {
		t.Errorf("got %+v", g)
	}
}

// TestACrowdPushesNobodyOut: while one customer is denied 20,000 times a second, the first and the
// last denial of each other customer are exact to the second, and the counts of both about right.
func TestACrowdPushesNobodyOut(t *testing.T) {
	const seed, second = 7, 20_000
	d := denials.New(denials.Options{Keep: 1000, Random: rand.New(rand.NewPCG(seed, 0)).Uint32})
	d.Observe(keyed(denied("acme", -30*time.Minute)))
	for i := range 60 * second {
		at := time.Duration(i) * time.Second / second
		d.Observe(keyed(denied("crowd", at)))
		if i%(7*second) == 123 {
			d.Observe(keyed(denied("acme", at)))
		}
	}
	if found := d.Find("acme", nil); len(found) != 1 || found[0].LastDenial.Sub(began.Add(56*time.Second)).Abs() > time.Second {
		t.Errorf("seed %d: found %+v", seed, found)
	}
	groups := d.Groups(denials.Query{}, 10).Groups
	if len(groups) != 2 {
		t.Fatalf("seed %d: got %d groups", seed, len(groups))
	}
	for _, g := range groups {
		first, last, count := began, began.Add(59*time.Second), int64(60*second)
		if g.Entries[0].Value == "acme" {
			first, last, count = began.Add(-30*time.Minute), began.Add(56*time.Second), 10
		}
		if !g.First.Equal(first) || g.Last.Sub(last) < 0 || g.Last.Sub(last) > time.Second || g.Count < count*9/10 || g.Count > count*11/10 {
			t.Errorf("seed %d: got %s", seed, groupLines([]denials.Group{g}))
		}
	}
}

// keyed is o with the key of its counter.
func keyed(o *service.Observation) *service.Observation {
	o.Verdicts[0].Key = o.Verdicts[0].Entries[0].Value
	return o
}

// TestOthersAreRemembered: a text that two processes have merged, again and again, has the first and the
// last denial of each counter, and a third process begins with them.
func TestOthersAreRemembered(t *testing.T) {
	one, two, three := denials.New(denials.Options{Keep: 10}), denials.New(denials.Options{Keep: 10}), denials.New(denials.Options{Keep: 10})
	for i, d := range []*denials.Denials{one, two, one, two} {
		d.Observe(denied("ann", time.Duration(i)*time.Hour))
	}
	two.Observe(denied("bob", 0))
	one.Observe(denied("ann", 30*time.Minute))
	var text []byte
	for range 3 {
		text = two.Merge(one.Merge(text, 10), 10)
	}
	if again := one.Merge(text, 10); string(again) != string(text) {
		t.Errorf("without news: got\n%s, want\n%s", again, text)
	}
	three.Recall(text)
	expect(t, "of both", groupLines(three.Groups(denials.Query{}, 10).Groups), `03:12:07–06:12:07 shop shop.user user=ann 10 "" 1m0s 3× 41s
03:12:07–03:12:07 shop shop.user user=bob 10 "" 1m0s 1× 41s
`)
	three.Observe(denied("ann", 5*time.Hour))
	if g := three.Groups(denials.Query{}, 1).Groups[0]; g.Count != 4 || g.Earlier != 3 || g.Last.Hour() != 8 {
		t.Errorf("got %+v, want 4 denials of which 3 are earlier", g)
	}
	four := denials.New(denials.Options{Keep: 10})
	four.Recall(three.Merge(text, 1))
	expect(t, "the newest one", groupLines(four.Groups(denials.Query{}, 10).Groups), "03:12:07–08:12:07 shop shop.user user=ann 10 \"\" 1m0s 4× 41s\n")
}

// TestForeignTexts: what no process has written is left out, and the rest stays.
func TestForeignTexts(t *testing.T) {
	d := denials.New(denials.Options{Keep: 10})
	d.Observe(denied("ann", 0))
	good := d.Merge(nil, 10)
	for name, text := range map[string]string{
		"nothing":        "",
		"another form":   `[1,2]`,
		"no JSON":        `{"Began":`,
		"a cut text":     strings.Replace(string(good), `"Text":"`, `"Text":"////`, 1),
		"no value":       `{"Groups":[{"Key":"aaaa","Text":"AWEBYg==","First":1,"Count":1,"At":1}]}`,
		"no denials":     strings.Replace(string(good), `"Count":1`, `"Count":-1`, 1),
		"a long key":     strings.Replace(string(good), `"Key":"`, `"Key":"`+strings.Repeat("AAAA", 4000), 1),
		"before itself":  strings.Replace(string(good), `"At":`, `"At":-`, 1),
		"a back window":  strings.Replace(string(good), `"Window":`, `"Window":-`, 1),
		"a day too soon": strings.Replace(string(good), `"Wait":`, `"Wait":-`, 1),
	} {
		other := denials.New(denials.Options{Keep: 10})
		other.Recall([]byte(text))
		if g := other.Groups(denials.Query{}, 10).Groups; len(g) > 0 {
			t.Errorf("%s: got %s", name, groupLines(g))
		}
		if again := string(d.Merge([]byte(text), 10)); again != string(good) {
			t.Errorf("%s: merged\n%s, want\n%s", name, again, good)
		}
	}
}

func FuzzRecall(f *testing.F) {
	d := denials.New(denials.Options{Keep: 10})
	d.Observe(denied("ann", 0))
	f.Add(d.Merge(nil, 10))
	f.Fuzz(func(t *testing.T, text []byte) {
		d := denials.New(denials.Options{Keep: 10})
		d.Recall(text)
		_ = d.Groups(denials.Query{Text: "a"}, 10)
		merged := d.Merge(text, 10)
		if again := d.Merge(merged, 10); string(again) != string(merged) {
			t.Errorf("merged\n%s and then\n%s", merged, again)
		}
	})
}
