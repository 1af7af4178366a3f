package backends

import "time"

// Margin is what to leave of the time that a caller has for getting the
// answer back to it: a tenth, at least 1 ms and at most 50 ms. Envoy gives a
// check 20 ms by default.
func Margin(left time.Duration) time.Duration {
	return max(time.Millisecond, min(left/10, 50*time.Millisecond))
}
