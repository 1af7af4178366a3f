package backends

import "time"

// Margin is the part of a caller's remaining time that is kept for the answer's
// way back to the caller: a tenth of left, at least 1 ms and at most 50 ms. Envoy
// gives a request 20 ms by default.
func Margin(left time.Duration) time.Duration {
	return max(time.Millisecond, min(left/10, 50*time.Millisecond))
}
