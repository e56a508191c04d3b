package fdbkv_test

import (
	"testing"

	"github.com/pqbridge/pqbridge/testenv/harness"

	"github.com/pqbridge/pqbridge/testenv"
)

func TestMain(m *testing.M) { harness.Main(m, testenv.FDBGoroutines()...) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
