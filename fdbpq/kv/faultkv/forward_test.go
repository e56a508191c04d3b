package faultkv_test

import (
	"errors"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/kvtest"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

// The store's own traits, check and options of transactions come through, but
// nothing is promised about pipelining, and during an outage nothing answers.
func TestForwards(t *testing.T) {
	in := &kvtest.Distinct{Database: memkv.New(memkv.Options{})}
	db := faultkv.New(in, faultkv.Options{})
	if got, want := db.Traits(), (kv.Traits{Serial: true, Shared: true}); got != want {
		t.Errorf("Traits returned %+v, want %+v", got, want)
	}
	if err := db.Check(); !errors.Is(err, kvtest.ErrCheck) {
		t.Errorf("Check returned %v, want that of the store", err)
	}
	db.SetOutage(true)
	if err := db.Check(); !errors.Is(err, kv.ErrUnavailable) {
		t.Errorf("during an outage Check returned %v, want ErrUnavailable", err)
	}
	db.SetOutage(false)
	o := kv.BeginOptions{Blind: true, Shrinks: true}
	tx, err := db.Begin(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	tx.Cancel()
	if in.Began != o {
		t.Errorf("the transaction began with %+v, want %+v", in.Began, o)
	}
}
