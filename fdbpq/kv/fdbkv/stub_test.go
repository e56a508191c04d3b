//go:build !fdb

package fdbkv_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
)

// The stub must fit wherever the engine does.
var _ kv.Database = (*fdbkv.DB)(nil)

func TestOpenWithoutTheTag(t *testing.T) {
	_, err := fdbkv.Open(fdbkv.Options{})
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "-tags fdb") {
		t.Errorf("Open returned %v, want an error that says how to get the engine", err)
	}
}
