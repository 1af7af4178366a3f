package bounded_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"example.org/rls/internal/bounded"
)

// However many events come in a second, about as many as are wanted are looked at, and their
// weights stand for all.
func TestSample(t *testing.T) {
	const seed, most = 1, 1000
	for _, perSecond := range []int{10, most, 50_000, 1_000_000} {
		s := bounded.NewSample(most, rand.New(rand.NewPCG(seed, 0)).Uint32)
		seconds := min(20, 5_000_000/perSecond)
		for second := range seconds {
			looked, stood := 0, 0
			for range perSecond {
				if weight := s.Weight(); weight > 0 {
					s.Looked(weight)
					looked, stood = looked+1, stood+int(weight)
				}
			}
			s.Renew(1)
			if second == 0 { // a crowd is noticed as it comes
				if looked < min(perSecond, most) || looked > 18*most {
					t.Errorf("seed %d: %d of the first %d events are looked at", seed, looked, perSecond)
				}
				continue
			}
			if perSecond <= most && looked != perSecond || perSecond > most && (looked < most/3 || looked > 2*most) {
				t.Errorf("seed %d: %d of %d events are looked at", seed, looked, perSecond)
			}
			if off := math.Abs(float64(stood - perSecond)); off > 6*math.Sqrt(float64(s.Largest())*float64(perSecond)) {
				t.Errorf("seed %d: %d events stand for %d", seed, looked, perSecond)
			}
		}
		if s.Renew(math.Inf(1)); s.Weight() != 1 {
			t.Errorf("after a long time not all of %d events are picked", perSecond)
		}
	}
}
