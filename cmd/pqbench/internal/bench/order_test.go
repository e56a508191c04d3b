package bench

import "testing"

func TestOrder(t *testing.T) {
	for _, test := range []struct {
		popped             []int
		levels, inversions int
	}{
		{[]int{0, 1, 2, 3}, 4, 0},
		{[]int{3, 2, 1, 0}, 1, 6},    // no priorities at all
		{[]int{1, 0, 3, 2}, 2, 2},    // two levels
		{[]int{0, 1, 3, 2, 4}, 4, 1}, // all but two are told apart
		{[]int{1, 2, 3, 0}, 1, 3},    // the first comes last
	} {
		if levels, inversions := order(test.popped); levels != test.levels || inversions != test.inversions {
			t.Errorf("%v: %d levels and %d inversions, want %d and %d", test.popped, levels, inversions, test.levels, test.inversions)
		}
	}
}
