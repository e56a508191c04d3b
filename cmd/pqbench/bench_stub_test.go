//go:build !fdb

package main

import "testing"

const buildTags = ""

func TestBenchWithoutFoundationDB(t *testing.T) {
	fails(t, exitError, "build it with -tags fdb", "--dir", t.TempDir(), "--store", "fdb", "--pqbridge", "pqbridge", "--nats-server", "nats-server")
}
