package kv_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

var key = []byte("key")

// counted counts the transactions that were begun and not cancelled.
type counted struct {
	*faultkv.DB
	open int
}

func (c *counted) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	tx, err := c.DB.Begin(ctx, o)
	if err == nil {
		c.open++
	}

	return countedTransaction{tx, c}, err
}

func (c *counted) BeginRead(ctx context.Context) (kv.ReadTransaction, error) {
	tx, err := c.DB.BeginRead(ctx)
	if err == nil {
		c.open++
	}

	return countedRead{tx, c}, err
}

type countedTransaction struct {
	kv.Transaction
	c *counted
}

func (tx countedTransaction) Cancel() { tx.c.open--; tx.Transaction.Cancel() }

type countedRead struct {
	kv.ReadTransaction
	c *counted
}

func (tx countedRead) Cancel() { tx.c.open--; tx.ReadTransaction.Cancel() }

// open returns an empty store whose commits meet the faults of script, and
// checks in the end that every transaction was cancelled.
func open(t *testing.T, script ...faultkv.Fault) *counted {
	t.Helper()
	db := &counted{DB: faultkv.New(memkv.New(memkv.Options{}), faultkv.Options{})}
	db.Next(script...)

	t.Cleanup(func() {
		if db.open != 0 {
			t.Errorf("%d transactions were begun and not cancelled", db.open)
		}
	})

	return db
}

// count returns work that writes key and returns how often it ran.
func count() func(kv.Transaction) (int, error) {
	runs := 0
	return func(tx kv.Transaction) (int, error) {
		runs++
		tx.Add(key, 1)
		return runs, nil
	}
}

func wantStored(t *testing.T, db kv.Database, want int) {
	t.Helper()
	value, err := kv.ReadTransact(t.Context(), db,
		func(r kv.Reader) ([]byte, error) { return r.Get(key).Get() })
	got := 0

	if len(value) > 0 {
		got = int(value[0])
	}
	if err != nil || got != want {
		t.Errorf("the work was committed %d times (error %v), want %d", got, err, want)
	}
}

// Work is repeated only after errors that allow it, and unknown outcomes only if it is idempotent.
func TestTransactRules(t *testing.T) {
	const (
		conflict  = faultkv.Conflict
		tooOld    = faultkv.TooOld
		throttled = faultkv.Throttled
		lost      = faultkv.UnknownLost
		made      = faultkv.UnknownMade
		outage    = faultkv.Outage
	)

	type result struct {
		runs   int // 0: it failed
		stored int
		err    error
	}

	for _, test := range []struct {
		name       string
		faults     []faultkv.Fault
		plain      result
		idempotent result
	}{
		{"Success", nil, result{1, 1, nil}, result{1, 1, nil}},
		{
			"Retryable",
			[]faultkv.Fault{conflict, tooOld, throttled, conflict},
			result{5, 1, nil},
			result{5, 1, nil},
		},
		{
			"UnknownLost",
			[]faultkv.Fault{lost},
			result{0, 0, kv.ErrCommitUnknown},
			result{2, 1, nil},
		},
		{
			"UnknownMade",
			[]faultkv.Fault{made},
			result{0, 1, kv.ErrCommitUnknown},
			result{2, 2, nil},
		},
		{
			"UnknownAfterRetry",
			[]faultkv.Fault{conflict, lost, lost},
			result{0, 0, kv.ErrCommitUnknown},
			result{4, 1, nil},
		},
		{
			"Unavailable",
			[]faultkv.Fault{outage},
			result{0, 0, kv.ErrUnavailable},
			result{0, 0, kv.ErrUnavailable},
		},
	} {
		check := func(t *testing.T, transact transactFunc, want result) {
			synctest.Test(t, func(t *testing.T) {
				db := open(t, test.faults...)
				runs, err := transact(t.Context(), db, count())
				if runs != want.runs || !errors.Is(err, want.err) {
					t.Errorf("returned %d, %v, want %d, %v", runs, err, want.runs, want.err)
				}
				wantStored(t, db, want.stored)
			})
		}
		t.Run(test.name, func(t *testing.T) {
			check(t, kv.Transact[int], test.plain)
			check(t, updating(kv.Update), test.plain)
			check(t, kv.TransactIdempotent[int], test.idempotent)
			check(t, updating(kv.UpdateIdempotent), test.idempotent)
		})
	}
}

type transactFunc func(context.Context, kv.Database, func(kv.Transaction) (int, error)) (int, error)

// updating makes Transact of Update.
func updating(
	update func(context.Context, kv.Database, func(kv.Transaction) error) error,
) transactFunc {
	return func(
		ctx context.Context, db kv.Database, fn func(kv.Transaction) (int, error),
	) (result int, err error) {
		err = update(ctx, db, func(tx kv.Transaction) (err error) {
			result, err = fn(tx)
			return err
		})
		if err != nil {
			result = 0
		}

		return result, err
	}
}

// Errors that allow no retry are returned as they are.
func TestTransactReturnsErrorsUntouched(t *testing.T) {
	cause := errors.New("cause")
	for _, transact := range []transactFunc{kv.Transact[int], updating(kv.Update)} {
		for _, want := range []error{
			cause,
			kv.ErrTooLarge,
			kv.ErrClosed,
			fmt.Errorf("%w: %w", kv.ErrCommitUnknown, cause),
		} {
			db := open(t)
			runs := 0

			value, err := transact(t.Context(), db, func(tx kv.Transaction) (int, error) {
				runs++
				tx.Add(key, 1)
				return 1, want
			})
			if value != 0 || err != want || runs != 1 {
				t.Errorf("returned %d, %v after %d runs, want 0, %v after one",
					value, err, runs, want)
			}
			wantStored(t, db, 0)
		}
	}
}

// An error of Begin is returned without running the work.
func TestTransactReturnsErrorsOfBegin(t *testing.T) {
	db := open(t)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	if _, err := kv.Transact(t.Context(), db, count()); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("Transact returned %v, want ErrClosed", err)
	}

	read := func(kv.Reader) (int, error) { return 1, nil }
	if _, err := kv.ReadTransact(t.Context(), db, read); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("ReadTransact returned %v, want ErrClosed", err)
	}
}

// Retries end with the context, whether it ends between attempts or during one.
func TestTransactEndsWithItsContext(t *testing.T) {
	t.Run("BetweenAttempts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()

			value, err := kv.Transact(ctx, open(t),
				func(kv.Transaction) (int, error) { return 1, kv.ErrConflict })
			if value != 0 || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("returned %d, %v, want 0, DeadlineExceeded", value, err)
			}

			if took := time.Since(start); took != time.Minute {
				t.Errorf("took %v, want as long as the context", took)
			}
		})
	})

	t.Run("DuringAttempt", func(t *testing.T) {
		for _, transact := range []transactFunc{kv.Transact[int], kv.TransactIdempotent[int]} {
			for _, want := range []error{kv.ErrConflict, kv.ErrCommitUnknown} {
				ctx, cancel := context.WithCancel(t.Context())
				runs := 0

				_, err := transact(ctx, open(t), func(kv.Transaction) (int, error) {
					runs++
					cancel()
					return runs, want
				})
				if err != want || runs != 1 {
					t.Errorf("returned %v after %d runs, want %v after one", err, runs, want)
				}
			}
		}
	})

	t.Run("BeforeCommit", func(t *testing.T) {
		db := open(t)
		ctx, cancel := context.WithCancel(t.Context())

		_, err := kv.Transact(ctx, db, func(tx kv.Transaction) (int, error) {
			tx.Add(key, 1)
			cancel()
			return 1, nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("returned %v, want context.Canceled", err)
		}
		wantStored(t, db, 0)
	})
}

// Reads are repeated after retryable errors only.
func TestReadTransactRules(t *testing.T) {
	for _, test := range []struct {
		err  error
		runs int
	}{
		{nil, 1},
		{kv.ErrTooOld, 2},
		{fmt.Errorf("reading: %w", kv.ErrThrottled), 2},
		{kv.ErrUnavailable, 1},
		{errors.New("other"), 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			runs := 0
			got, err := kv.ReadTransact(t.Context(), open(t), func(kv.Reader) (int, error) {
				if runs++; runs == 1 {
					return runs, test.err
				}
				return runs, nil
			})

			if runs != test.runs {
				t.Errorf("%v: ran %d times, want %d", test.err, runs, test.runs)
			}

			retried := test.runs > 1
			if (retried && (err != nil || got != runs)) || (!retried && err != test.err) {
				t.Errorf("%v: returned %d, %v", test.err, got, err)
			}
		})
	}
}

// Each wait is random, and its bound doubles up to half a second.
func TestBackoffBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rounds = 200
		bounds := []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 500, 500, 500}
		longest := make([]time.Duration, len(bounds))
		waits := map[time.Duration]bool{}

		for range rounds {
			var backoff kv.Backoff
			for i := range bounds {
				start := time.Now()
				if err := backoff.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}

				took := time.Since(start)
				longest[i] = max(longest[i], took)
				waits[took] = true
			}
		}

		for i, bound := range bounds {
			bound *= time.Millisecond
			// With 200 draws the longest is nearly the bound.
			if longest[i] >= bound || longest[i] < bound/2 {
				t.Errorf("wait %d took up to %v, want nearly %v", i, longest[i], bound)
			}
		}

		if len(waits) < rounds*len(bounds)/2 {
			t.Errorf("only %d different waits: there is no jitter", len(waits))
		}
	})
}

// An unknown outcome is not retryable, whatever else the error wraps.
func TestKindsOfErrors(t *testing.T) {
	all := []error{
		kv.ErrConflict, kv.ErrTooOld, kv.ErrThrottled, kv.ErrCommitUnknown, kv.ErrTooLarge,
		kv.ErrUnavailable, kv.ErrClosed, kv.ErrUsed, context.Canceled,
	}

	retryable := []error{kv.ErrConflict, kv.ErrTooOld, kv.ErrThrottled}

	for _, err := range all {
		wrapped := fmt.Errorf("engine: %w", err)
		if got, want := kv.Retryable(wrapped), slices.Contains(retryable, err); got != want {
			t.Errorf("Retryable(%v) = %t, want %t", wrapped, got, want)
		}

		if got, want := kv.MaybeCommitted(wrapped), err == kv.ErrCommitUnknown; got != want {
			t.Errorf("MaybeCommitted(%v) = %t, want %t", wrapped, got, want)
		}

		unknown := errors.Join(err, kv.ErrCommitUnknown)
		if kv.Retryable(unknown) || !kv.MaybeCommitted(unknown) {
			t.Errorf("%v is not taken as unknown", unknown)
		}
	}
	if kv.Retryable(nil) || kv.MaybeCommitted(nil) {
		t.Error("no error is taken as one")
	}
}
