package testenv

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
)

// Random returns random numbers for any number of goroutines. The log of the test names
// their seed; TEST_SEED in the environment sets it.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("TEST_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("TEST_SEED=%d", seed)
	return rand.New(&source{pcg: rand.NewPCG(seed, 0)})
}

type source struct {
	mu  sync.Mutex
	pcg *rand.PCG
}

func (s *source) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pcg.Uint64()
}
