package status

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/yaml"
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/service"
)

// However long a process has no processor, the seconds that were left out have equal parts of what
// was counted meanwhile, in its history and in its rates, and nothing is lost or counted twice.
func TestSecondsThatAreLeftOut(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		m, err := metrics.New(metrics.Options{})
		if err != nil {
			t.Fatal(err)
		}
		tree, _, err := yaml.Load([]yaml.Text{{Name: "r.yaml", Content: []byte("domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1}}]\n")}}, yaml.Options{})
		if err != nil {
			t.Fatal(err)
		}
		m.InForce(tree)
		s := New(Options{Counts: m})
		s.Loaded(tree, nil, nil)
		entries := []descriptors.Entry{{Key: "k", Value: "v"}}
		rule := tree.Domain("d").Match(entries)
		asked := &service.Observation{Domain: "d", Result: service.Limited, Verdicts: []service.Verdict{{
			Rule: rule, Limit: &rule.Limits[0], Entries: entries, Hits: 1, Decided: true, Counted: true, Is: algorithms.Decision{},
		}}}
		begin := int64(1_800_000_000)
		now, total := begin, 0.0
		s.started = time.Unix(begin, 0)
		model := map[int64]float64{} // requests by second
		for range 40 {
			n, last := random.IntN(1000), now
			for range n {
				m.Observer().Observe(asked)
			}
			total += float64(n)
			if now += 1 + random.Int64N(40); now > begin+14*60 {
				break
			}
			if last == begin { // before the first second nothing is known
				last = now - 1
			}
			for at := last + 1; at <= now; at++ {
				model[at] += float64(n) / float64(now-last)
			}
			s.second(time.Unix(now, 0))

			rate, over := 0.0, min(now-begin, rateSeconds)
			for at := now - over + 1; at <= now; at++ {
				rate += model[at] / float64(over)
			}
			d := s.describe(time.Unix(now, 0))
			var l Listing
			if err := json.Unmarshal(marshal(s.listing(time.Unix(now, 0), page{n: 1})), &l); err != nil {
				t.Fatal(err)
			}
			if near := 2.0; math.Abs(d.Traffic.Requests-rate) > near || math.Abs(l.Rules[0].Rate-rate) > near || d.Traffic.Denied != d.Traffic.Requests {
				t.Errorf("seed %d at %d: rates %v and %v, want %.2f", seed, now-begin, d.Traffic, l.Rules[0].Rate, rate)
			}
			if float64(d.Traffic.Total.Requests) != total || float64(l.Rules[0].Denied) != total {
				t.Errorf("seed %d at %d: %v and %v in all, want %v", seed, now-begin, d.Traffic.Total, l.Rules[0].Denied, total)
			}
			h := s.columns(15 * time.Minute)
			for i, got := range h.Requests {
				if want := model[now-int64(len(h.Requests)-1-i)]; math.Abs(float64(got)-want) > 1 {
					t.Errorf("seed %d at %d: second %d has %d, want %.2f", seed, now-begin, i, got, want)
				}
			}
		}
	}
}

// Errors and latencies that came before seconds that were left out are as old as they are.
func TestErrorsBeforeSecondsThatAreLeftOut(t *testing.T) {
	m, err := metrics.New(metrics.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{Counts: m})
	begin := int64(1_800_000_000)
	s.started = time.Unix(begin, 0)
	for _, step := range []struct {
		at     int64
		failed int
		rate   float64
		slow   bool
	}{
		{20, 10, 1, true}, {25, 0, 1, true}, {45, 0, 0, true}, {46, 0, 0, true}, {66, 10, 1, true}, {125, 0, 0, true}, {126, 0, 0, false}, {400, 20, 2, true}, {500, 0, 0, false},
	} {
		for range step.failed {
			m.Observer().Observe(&service.Observation{Result: service.NoStore, Took: time.Second})
		}
		now := time.Unix(begin+step.at, 0)
		s.second(now)
		d := s.describe(now)
		if got := d.Traffic.ErrorsByKind["store_unavailable"].Rate; got != step.rate || d.Latency.P99 > 0 != step.slow {
			t.Errorf("at %d: %v errors a second, p99 %v, want %v and slow: %t", step.at, got, d.Latency.P99, step.rate, step.slow)
		}
	}
	hour := s.columns(time.Hour)
	var slow []int64 // ends of steps
	for i, p99 := range hour.P99 {
		if p99 > 0 {
			slow = append(slow, hour.Until.Unix()-begin-int64(4*(len(hour.P99)-1-i)))
		}
	}
	if want := []int64{23, 47, 127}; !slices.Equal(slow, want) {
		t.Errorf("the steps until %v are slow, want %v", slow, want)
	}
}
