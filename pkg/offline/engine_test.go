package offline_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/rls/pkg/ask"
	"example.org/rls/pkg/descriptors/rules"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/offline"
	"example.org/rls/pkg/service"
)

const shop = `
domain: shop
descriptors:
  - key: plan
    value: free
    descriptors:
      - {key: user, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: plan, value: gold, rate_limit: {unlimited: true}}
  - {key: pace, rate_limit: {unit: second, requests_per_unit: 10, strategy: leaky_bucket, burst: 1, max_delay: 10s}}
`

func open(t testing.TB, text string) *offline.Engine {
	t.Helper()
	tree, _, err := yaml.Load([]yaml.Text{{Name: "shop.yaml", Content: []byte(text)}}, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return offline.New(tree, 1<<20)
}

// request is a request with one descriptor of key=value,key=value.
func request(text string) *service.Request {
	entries, _ := ask.ParseDescriptor(text)
	return &service.Request{Domain: "shop", Descriptors: []service.Descriptor{{Entries: entries}}}
}

func TestAnEngineDecidesAtGivenTimes(t *testing.T) {
	e := open(t, shop)
	start := time.Date(2026, 3, 29, 0, 59, 30, 0, time.UTC)
	ann := request("plan=free,user=ann")
	want := func(after time.Duration, over bool, remaining uint32, reset time.Duration) {
		t.Helper()
		e.At(start.Add(after))
		got, err := e.Decide(ann)
		if err != nil || got.Over != over || got.Statuses[0].Remaining != int64(remaining) || got.Statuses[0].Shown.Is.Reset != reset {
			t.Fatalf("after %v: got %+v, %v; want over %t, %d remaining, reset %v", after, got, err, over, remaining, reset)
		}
	}
	want(0, false, 2, 30*time.Second)
	want(0, false, 1, 30*time.Second)
	want(1500*time.Millisecond, false, 0, 28500*time.Millisecond)
	want(time.Second, true, 0, 28500*time.Millisecond) // the clock does not go back
	want(30*time.Second, false, 2, time.Minute)
	e.Reset()
	want(-time.Hour, false, 2, 30*time.Second)
}

func TestADelayDoesNotMoveTheClock(t *testing.T) {
	e := open(t, shop)
	for i := range 5 {
		got, err := e.Decide(request("pace"))
		if want := time.Duration(i) * 100 * time.Millisecond; err != nil || got.Delay != want {
			t.Fatalf("hit %d: %+v, %v; want a delay of %v", i, got, err, want)
		}
	}
}

func TestAnEngineExplains(t *testing.T) {
	e := open(t, shop)
	ann := request("plan=free,user=ann")
	for range 2 { // the second time shows that the first one charged nothing
		doc, err := e.Explain(ann)
		if err != nil || doc.Descriptors[0].Rule != "shop.plan_free.user" || doc.Descriptors[0].Limits[0].Remaining != 3 {
			t.Fatalf("got %+v, %v", doc, err)
		}
	}
}

func TestARequestThatAServiceRefuses(t *testing.T) {
	e := open(t, shop)
	a := request("plan=gold")
	a.Descriptors[0].Limit = &service.Override{RequestsPerUnit: 1, Unit: 99, Multiplier: 1}
	_, err := e.Decide(a)
	if err == nil || !strings.HasPrefix(err.Error(), "descriptors[0].limit: unit 99 is unknown") {
		t.Errorf("got %v", err)
	}
	if _, err := e.Explain(a); err == nil || !strings.HasPrefix(err.Error(), "descriptors[0].limit: unit 99 is unknown") {
		t.Errorf("got %v", err)
	}
}

func TestRulesInTheOrderOfLines(t *testing.T) {
	var got []string
	for _, r := range open(t, shop).Rules() {
		got = append(got, r.Path)
	}
	if want := []string{"shop.plan_free.user", "shop.plan_gold", "shop.pace"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func BenchmarkDecide(b *testing.B) {
	e := open(b, shop)
	asks := make([]*service.Request, 10_000)
	for i := range asks {
		asks[i] = request("plan=free,user=user" + strconv.Itoa(i))
	}
	at := time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		e.At(at.Add(time.Duration(i) * 10 * time.Microsecond))
		if _, err := e.Decide(asks[i%len(asks)]); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
