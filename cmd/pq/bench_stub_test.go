//go:build !fdb

package main

import "testing"

func TestBenchWithoutFoundationDB(t *testing.T) {
	c := &cli{t: t, server: "nats://127.0.0.1:1"}
	c.fails(exitError, "build it with -tags fdb",
		append(benchArgs, "--dir", t.TempDir(), "--store", "fdb", "--pqbridge", "pqbridge")...)
}
