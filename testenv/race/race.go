// Package race tells tests whether the race detector watches them. Pebble then also checks
// itself, which makes it 20 times slower, so tests that repeat something on many stores
// repeat it less often.
package race

// Times returns how often a test repeats something: n times, or under times with the race
// detector.
func Times(n, under int) int {
	if Enabled {
		return under
	}
	return n
}
