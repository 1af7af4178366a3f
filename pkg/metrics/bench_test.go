package metrics_test

import (
	"testing"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/metrics"
)

// BenchmarkObserve is the cost of metrics for a request with one limit.
func BenchmarkObserve(b *testing.B) {
	for name, yaml := range map[string]string{
		"fixed key":    perHour,
		"caller's key": detailed,
	} {
		b.Run(name, func(b *testing.B) {
			entry := descriptors.Entry{Key: "k", Value: "v"}
			o := open(b, metrics.Options{MaxSeries: 100, NearLimitRatio: 0.8}).Observer()
			seen := allowed(rule(b, yaml, entry), entry)
			b.ReportAllocs()
			for b.Loop() {
				o.Observe(seen)
			}
		})
	}
	b.Run("override", func(b *testing.B) {
		entry := descriptors.Entry{Key: "k", Value: "v"}
		o := open(b, metrics.Options{MaxSeries: 100, NearLimitRatio: 0.8}).Observer()
		seen := allowed(rule(b, perHour, entry), entry)
		own := seen.Verdicts[0].Rule.Limits[0]
		seen.Verdicts[0].Limit, seen.Verdicts[0].Override = &own, true
		b.ReportAllocs()
		for b.Loop() {
			o.Observe(seen)
		}
	})
}
