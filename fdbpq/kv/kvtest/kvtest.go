// Package kvtest is the conformance suite of package kv. Every engine and every decorator runs all
// of it from one of its own tests.
//
//	func TestConformance(t *testing.T) {
//		kvtest.Run(t, kvtest.Engine{
//			Store: func(t *testing.T) func() kv.Database {
//				dir := t.TempDir()
//				return func() kv.Database { return open(t, dir) }
//			},
//			Persistent: true,
//		})
//	}
//
// Every test keeps its keys under a random prefix and removes them when it ends, so the store may
// be shared with others. Random tests print their seed and the command that repeats the run.
package kvtest

import "testing"

// Run runs the suite as subtests of t.
func Run(t *testing.T, engine Engine) {
	topics := []struct {
		name  string
		tests []test
	}{
		{"Traits", traitTests},
		{"Script", scriptTests()},
		{"Limits", limitTests()},
		{"Conflict", conflictTests()},
		{"Future", futureTests},
		{"Lifecycle", lifecycleTests},
		{"Concurrent", concurrentTests},
		{"Random", randomTests},
	}

	for _, topic := range topics {
		t.Run(topic.name, func(t *testing.T) {
			for _, test := range topic.tests {
				t.Run(test.name, func(t *testing.T) { test.run(start(t, engine)) })
			}
		})
	}
}
