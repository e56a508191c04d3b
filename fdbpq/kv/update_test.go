package kv_test

import (
	"context"
	"errors"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
)

// Update and UpdateIdempotent, and View below, retry as what they stand for, and return the
// same errors.
func TestUpdate(t *testing.T) {
	for _, test := range []struct {
		name       string
		update     func(context.Context, kv.Database, func(kv.Transaction) error) error
		unknown    error // what ErrCommitUnknown comes to
		runsIfLost int
	}{
		{"Update", kv.Update, kv.ErrCommitUnknown, 1},
		{"UpdateIdempotent", kv.UpdateIdempotent, nil, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, c := range []struct {
				fault faultkv.Fault
				want  error
				runs  int
			}{
				{faultkv.None, nil, 1},
				{faultkv.Conflict, nil, 2},
				{faultkv.Outage, kv.ErrUnavailable, 1},
				{faultkv.UnknownLost, test.unknown, test.runsIfLost},
			} {
				runs := 0
				err := test.update(t.Context(), open(t, c.fault), func(tx kv.Transaction) error {
					runs++
					tx.Set(key, nil)
					return nil
				})
				if !errors.Is(err, c.want) || runs != c.runs {
					t.Errorf("%v: %v after %d runs, want %v after %d", c.fault, err, runs, c.want, c.runs)
				}
			}

			db := open(t)
			if err := test.update(t.Context(), db, func(tx kv.Transaction) error {
				tx.Set(key, nil)
				return context.Canceled
			}); !errors.Is(err, context.Canceled) {
				t.Errorf("it returned %v, want the error of the function", err)
			}
			if err := kv.View(t.Context(), db, func(r kv.Reader) error {
				value, err := r.Get(key).Get()
				if value != nil {
					t.Error("a function that failed was committed")
				}
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestView(t *testing.T) {
	for failure, want := range map[error]int{kv.ErrTooOld: 2, kv.ErrUnavailable: 1} {
		runs := 0
		err := kv.View(t.Context(), open(t), func(kv.Reader) error {
			if runs++; runs == 1 {
				return failure
			}
			return nil
		})
		if runs != want || (err != nil) != (want == 1) {
			t.Errorf("%v: %v after %d runs, want %d", failure, err, runs, want)
		}
	}
}
