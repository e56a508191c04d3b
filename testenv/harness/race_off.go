//go:build !race

package harness

// Race says whether the race detector is on. Pebble then checks itself too, which makes it 20 times
// slower.
const Race = false
