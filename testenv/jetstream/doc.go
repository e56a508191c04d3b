// Package jetstream has programs that were written for JetStream's pull consumers, in several
// languages. Tests of docs/example run them against a bridge. README.md says which, and how to run
// nats.go's own tests.
package jetstream
