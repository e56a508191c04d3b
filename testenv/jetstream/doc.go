// Package jetstream tests programs that were written for JetStream's pull consumers, in several
// languages, against a bridge. README.md says which, and how to run nats.go's own tests.
package jetstream
