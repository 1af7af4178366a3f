package settings

import "strconv"

// Top says how many heavy hitters the process knows.
type Top struct {
	Keys int `env:"KEYS" default:"1000" min:"0" max:"1000" help:"Number of descriptors that the admin API (rls top) knows in each order: denied most, asked for most, charged most. Each takes up to 1.3 KiB. 0 counts none."`

	Metric     int  `env:"METRIC" default:"0" min:"0" max:"100" help:"Number of the keys denied most that are metrics, as rls_top_denied and rls_top_remaining. They make new series as keys come and go."`
	MetricHash bool `env:"METRIC_HASH" default:"false" help:"Put a hash in place of each key in these metrics. It hides keys from a reader of metrics, not from a guess."`
}

func (t *Top) conflicts() (wrong Errors) {
	wrong.require(t.Metric <= t.Keys, "TOP_METRIC", t.Metric, "at most "+strconv.Itoa(t.Keys)+", which is TOP_KEYS")
	return wrong
}
