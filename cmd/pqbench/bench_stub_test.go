//go:build !fdb

package main

import (
	"testing"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/command"
)

const buildTags = ""

func TestBenchWithoutFoundationDB(t *testing.T) {
	fails(t, command.ExitError, "build it with -tags fdb", "--dir", t.TempDir(), "--store", "fdb", "--pqbridge", "pqbridge", "--nats-server", "nats-server")
}
