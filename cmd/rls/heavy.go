package main

import (
	"example.org/rls/pkg/metrics"
	"example.org/rls/pkg/settings"
	"example.org/rls/pkg/top"
)

// newTop returns what counts heavy hitters, nil if nobody can ask for them.
func newTop(s *settings.Settings, measure *metrics.Metrics) *top.Top {
	if s.Top.Keys == 0 || s.Top.Metric == 0 && !adminOn(s) {
		return nil
	}
	t := top.New(top.Options{Keys: s.Top.Keys})
	if n := s.Top.Metric; n > 0 {
		measure.Limited(func() []top.Row { return t.Table("denied", "", n).Rows }, s.Top.MetricHash)
	}
	return t
}
