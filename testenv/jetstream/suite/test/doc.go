// Package test is where the tests of nats.go run, which it has in a package of this name. Here are
// only the helpers that they call; make jetstream-suite adds the tests, see package suite.
package test
