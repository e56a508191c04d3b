// Package migrate copies a Keyspace from one store to another, on any engines, and compares the two.
package migrate
