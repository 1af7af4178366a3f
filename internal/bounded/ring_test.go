package bounded_test

import (
	"slices"
	"testing"

	"example.org/rls/internal/bounded"
)

func TestTheNewestAreKept(t *testing.T) {
	r := bounded.NewRing[int](3)
	for i, want := range [][]int{{0}, {1, 0}, {2, 1, 0}, {3, 2, 1}, {4, 3, 2}, {5, 4, 3}, {6, 5, 4}} {
		at := r.Next()
		if i >= 3 && *at != i-3 {
			t.Errorf("the place of %d has %d: want the oldest", i, *at)
		}
		*at = i
		if got := r.Last(10); !slices.Equal(got, want) || r.Len() != len(want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	if got := r.Last(1); !slices.Equal(got, []int{6}) {
		t.Errorf("the last is %v, want 6", got)
	}
}
