package descriptors

import (
	"time"

	"example.org/rls/pkg/algorithms"
)

// Threshold is a used part of a limit, and what happens to requests that pass while that
// part or more is used.
type Threshold struct {
	At algorithms.Percent // 1% to 99%
	// Headers are added to the request that goes upstream, ResponseHeaders to the response.
	Headers, ResponseHeaders []Header
	// Metadata goes back to Envoy with the reply. structpb.NewStruct takes it. It is nil
	// when the rules have none.
	Metadata map[string]any
	Delay    time.Duration // for which the answer is held, at most a second
}

// Header is a header of HTTP.
type Header struct{ Name, Value string }

// Reached is the highest of the limit's thresholds that used hits of capacity reach; nil if
// they reach none.
func (l *Limit) Reached(used, capacity int64) (highest *Threshold) {
	for i := range l.Thresholds {
		if t := &l.Thresholds[i]; max(0, used)*int64(algorithms.Whole) >= capacity*int64(t.At) {
			highest = t
		}
	}
	return highest
}
