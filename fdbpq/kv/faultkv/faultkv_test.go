package faultkv_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/kvtest"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformanceWithoutFaults(t *testing.T) {
	conform(t, faultkv.Options{})
}

func TestConformanceWithDelays(t *testing.T) {
	conform(t, faultkv.Options{
		Rates: map[faultkv.Fault]float64{faultkv.Delay: 1},
		Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	})
}

func conform(t *testing.T, o faultkv.Options) {
	kvtest.Run(t, kvtest.Engine{
		Store: func(t *testing.T) func() kv.Database {
			return func() kv.Database { return faultkv.New(memkv.New(memkv.Options{}), o) }
		},
	})
}

var (
	key   = []byte("key")
	other = []byte("other")
)

func open(t *testing.T, o faultkv.Options) *faultkv.DB {
	t.Helper()
	db := faultkv.New(memkv.New(memkv.Options{}), o)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func begin(t *testing.T, db kv.Database) kv.Transaction {
	t.Helper()
	tx, err := db.Begin(t.Context(), kv.BeginOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tx.Cancel)
	return tx
}

// set writes key in a transaction of its own and returns what Commit said.
func set(t *testing.T, db kv.Database, key []byte) error {
	t.Helper()
	tx := begin(t, db)
	tx.Set(key, []byte("1"))
	_, err := tx.Commit().Get()
	return err
}

// has reports whether key is there, without beginning a transaction that could
// make commits left for later.
func has(t *testing.T, db kv.Database, key []byte) bool {
	t.Helper()
	tx, err := db.BeginRead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Cancel()
	value, err := tx.Get(key).Get()
	if err != nil {
		t.Fatal(err)
	}
	return value != nil
}

func wantCounts(t *testing.T, db *faultkv.DB, want map[faultkv.Fault]int) {
	t.Helper()
	if got := db.Counts(); !maps.Equal(got, want) {
		t.Errorf("Counts() = %v, want %v", got, want)
	}
}

func TestScriptedFaults(t *testing.T) {
	for _, test := range []struct {
		fault faultkv.Fault
		want  error
		made  bool // when Commit returns
		late  bool // when everything has landed
	}{
		{faultkv.None, nil, true, true},
		{faultkv.Delay, nil, true, true},
		{faultkv.Outage, kv.ErrUnavailable, false, false},
		{faultkv.TooOld, kv.ErrTooOld, false, false},
		{faultkv.Throttled, kv.ErrThrottled, false, false},
		{faultkv.Conflict, kv.ErrConflict, false, false},
		{faultkv.UnknownLost, kv.ErrCommitUnknown, false, false},
		{faultkv.UnknownMade, kv.ErrCommitUnknown, true, true},
		{faultkv.UnknownBeforeNext, kv.ErrCommitUnknown, false, true},
		{faultkv.UnknownDuringNext, kv.ErrCommitUnknown, false, true},
	} {
		t.Run(test.fault.String(), func(t *testing.T) {
			var slept int
			db := open(t, faultkv.Options{Sleep: func(context.Context, time.Duration) error {
				slept++
				return nil
			}})
			db.Next(test.fault)
			tx := begin(t, db)
			tx.Set(key, []byte("1"))
			if _, err := tx.Commit().Get(); !errors.Is(err, test.want) {
				t.Errorf("Commit returned %v, want %v", err, test.want)
			}
			if _, err := tx.Get(key).Get(); !errors.Is(err, kv.ErrUsed) {
				t.Errorf("Get after Commit returned %v, want ErrUsed", err)
			}
			tx.Set(other, []byte("1"))
			tx.AddReadConflict(kv.SingleKey(other))
			if has(t, db, key) != test.made {
				t.Errorf("after Commit the write is there: %t, want %t", !test.made, test.made)
			}
			db.Land()
			if has(t, db, key) != test.late {
				t.Errorf("after Land the write is there: %t, want %t", !test.late, test.late)
			}
			if has(t, db, other) {
				t.Error("a write after Commit was made")
			}
			if test.fault == faultkv.Delay && slept != 1 {
				t.Errorf("slept %d times, want once", slept)
			}
			if test.fault == faultkv.None {
				wantCounts(t, db, map[faultkv.Fault]int{})
			} else {
				wantCounts(t, db, map[faultkv.Fault]int{test.fault: 1})
			}
			if err := set(t, db, other); err != nil {
				t.Errorf("the next Commit returned %v", err)
			}
		})
	}
}

func TestScriptIsForCommitsThatWrote(t *testing.T) {
	db := open(t, faultkv.Options{})
	db.Next(faultkv.Conflict)
	db.Next(faultkv.None, faultkv.Throttled)

	readOnly := begin(t, db)
	if _, err := readOnly.Get(key).Get(); err != nil {
		t.Fatal(err)
	}
	readOnly.ClearRange(kv.Range{Begin: key, End: key})
	readOnly.AddWriteConflict(kv.Range{Begin: key, End: key})
	if _, err := readOnly.Commit().Get(); err != nil {
		t.Errorf("Commit without writes returned %v", err)
	}
	for i, want := range []error{kv.ErrConflict, nil, kv.ErrThrottled, nil} {
		if err := set(t, db, key); !errors.Is(err, want) {
			t.Errorf("Commit %d returned %v, want %v", i, err, want)
		}
	}
}

func TestMadeReturnsTheStoresOwnError(t *testing.T) {
	db := open(t, faultkv.Options{})
	tx := begin(t, db)
	if _, err := tx.Get(key).Get(); err != nil {
		t.Fatal(err)
	}
	tx.Set(other, []byte("1"))
	if err := set(t, db, key); err != nil {
		t.Fatal(err)
	}
	db.Next(faultkv.UnknownMade)
	if _, err := tx.Commit().Get(); !errors.Is(err, kv.ErrConflict) || kv.MaybeCommitted(err) {
		t.Errorf("Commit returned %v, want ErrConflict alone", err)
	}
}

func TestLateCommitsOutliveTheirContext(t *testing.T) {
	for _, fault := range []faultkv.Fault{faultkv.UnknownBeforeNext, faultkv.UnknownDuringNext} {
		t.Run(fault.String(), func(t *testing.T) {
			db := open(t, faultkv.Options{})
			db.Next(fault)
			ctx, cancel := context.WithCancel(t.Context())
			tx, err := db.Begin(ctx, kv.BeginOptions{})
			if err != nil {
				t.Fatal(err)
			}
			tx.Set(key, []byte("1"))
			if _, err := tx.Commit().Get(); !errors.Is(err, kv.ErrCommitUnknown) {
				t.Fatalf("Commit returned %v, want ErrCommitUnknown", err)
			}
			cancel()
			tx.Cancel()
			db.Land()
			if !has(t, db, key) {
				t.Error("the commit was never made")
			}
		})
	}
}

func TestBeforeNext(t *testing.T) {
	db := open(t, faultkv.Options{})
	db.Next(faultkv.UnknownBeforeNext)
	if err := set(t, db, key); !errors.Is(err, kv.ErrCommitUnknown) {
		t.Fatalf("Commit returned %v, want ErrCommitUnknown", err)
	}
	if has(t, db, key) {
		t.Error("the commit was made before the next transaction began")
	}
	if value, err := begin(t, db).Get(key).Get(); err != nil || value == nil {
		t.Errorf("the next transaction read %q, %v, want the write", value, err)
	}
}

func TestDuringNext(t *testing.T) {
	db := open(t, faultkv.Options{})
	db.Next(faultkv.UnknownDuringNext)
	if err := set(t, db, key); !errors.Is(err, kv.ErrCommitUnknown) {
		t.Fatalf("Commit returned %v, want ErrCommitUnknown", err)
	}
	retry := begin(t, db)
	if value, err := retry.Get(key).Get(); err != nil || value != nil {
		t.Fatalf("the retry read %q, %v, want nothing yet", value, err)
	}
	retry.Set(key, []byte("2"))
	if _, err := retry.Commit().Get(); !errors.Is(err, kv.ErrConflict) {
		t.Errorf("Commit of the retry returned %v, want ErrConflict with the first attempt", err)
	}
	if !has(t, db, key) {
		t.Error("the commit was not made")
	}
}

func TestCloseLands(t *testing.T) {
	inner := &landed{Database: memkv.New(memkv.Options{})}
	db := faultkv.New(inner, faultkv.Options{})
	db.Next(faultkv.UnknownBeforeNext)
	if err := set(t, db, key); !errors.Is(err, kv.ErrCommitUnknown) {
		t.Fatalf("Commit returned %v, want ErrCommitUnknown", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if inner.atClose != "1" {
		t.Errorf("the store held %q when it was closed, want 1", inner.atClose)
	}
}

// landed remembers what the store held when it was closed.
type landed struct {
	kv.Database
	atClose string
}

func (l *landed) Close() error {
	value, err := kv.ReadTransact(context.Background(), l.Database, func(r kv.Reader) ([]byte, error) {
		return r.Get(key).Get()
	})
	l.atClose = string(value)
	return errors.Join(err, l.Database.Close())
}

func TestOutage(t *testing.T) {
	db := open(t, faultkv.Options{})
	writer, doomed := begin(t, db), begin(t, db)
	reader, err := db.BeginRead(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Cancel()
	doomed.Set(other, []byte("1"))
	db.Next(faultkv.Conflict)

	db.SetOutage(true)
	_, errBegin := db.Begin(t.Context(), kv.BeginOptions{})
	_, errBeginRead := db.BeginRead(t.Context())
	_, errGet := writer.Get(key).Get()
	_, errSnapshot := writer.Snapshot().GetRange(kv.SingleKey(key), kv.RangeOptions{}).Get()
	_, errRead := reader.Get(key).Get()
	_, errCommit := doomed.Commit().Get()
	for i, err := range []error{errBegin, errBeginRead, errGet, errSnapshot, errRead, errCommit} {
		if !errors.Is(err, kv.ErrUnavailable) {
			t.Errorf("call %d returned %v, want ErrUnavailable", i, err)
		}
	}
	wantCounts(t, db, map[faultkv.Fault]int{faultkv.Outage: 6})

	db.SetOutage(false)
	if has(t, db, other) {
		t.Error("a commit during the outage was made")
	}
	if _, err := reader.Get(key).Get(); err != nil {
		t.Errorf("Get after the outage returned %v", err)
	}
	writer.Set(key, []byte("1"))
	if _, err := writer.Commit().Get(); !errors.Is(err, kv.ErrConflict) {
		t.Errorf("Commit returned %v, want the fault set before the outage", err)
	}
}

func TestFaultsOfReadsLast(t *testing.T) {
	for fault, want := range map[faultkv.Fault]error{faultkv.TooOld: kv.ErrTooOld, faultkv.Throttled: kv.ErrThrottled} {
		t.Run(fault.String(), func(t *testing.T) {
			db := open(t, faultkv.Options{Rates: map[faultkv.Fault]float64{fault: 1}})
			tx := begin(t, db)
			snapshot := tx.Snapshot()
			for i, get := range []func() error{
				func() error { _, err := snapshot.Get(key).Get(); return err },
				func() error { _, err := tx.Get(key).Get(); return err },
				func() error { _, err := tx.GetRange(kv.SingleKey(key), kv.RangeOptions{}).Get(); return err },
				func() error { tx.Set(key, nil); _, err := tx.Commit().Get(); return err },
			} {
				if err := get(); !errors.Is(err, want) {
					t.Errorf("call %d returned %v, want %v", i, err, want)
				}
			}
			wantCounts(t, db, map[faultkv.Fault]int{fault: 1})
		})
	}
}

func TestDelay(t *testing.T) {
	var delays []time.Duration
	ctx, cancel := context.WithCancel(t.Context())
	db := open(t, faultkv.Options{
		Rates:    map[faultkv.Fault]float64{faultkv.Delay: 1},
		MaxDelay: time.Hour,
		Sleep: func(ctx context.Context, d time.Duration) error {
			if delays = append(delays, d); len(delays) == 4 {
				cancel()
			}
			return ctx.Err()
		},
	})
	tx, err := db.Begin(ctx, kv.BeginOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := tx.Get(key).Get(); err != nil {
			t.Fatal(err)
		}
	}
	tx.Set(key, []byte("1"))
	if _, err := tx.Commit().Get(); !errors.Is(err, context.Canceled) || kv.MaybeCommitted(err) {
		t.Errorf("Commit returned %v, want context.Canceled alone", err)
	}
	for _, d := range delays {
		if d < 0 || d >= time.Hour {
			t.Errorf("a delay of %v, want less than the longest", d)
		}
	}
	if has(t, db, key) {
		t.Error("a commit whose context ended before it was made")
	}
}

func TestSameSeedSameFaults(t *testing.T) {
	history := func(seed uint64) string {
		db := open(t, faultkv.Options{Seed: seed, Rates: rates})
		var list []error
		for range 50 {
			tx, err := db.Begin(t.Context(), kv.BeginOptions{})
			if err == nil {
				_, err = tx.Get(key).Get()
			}
			if err == nil {
				tx.Set(key, nil)
				_, err = tx.Commit().Get()
			}
			list = append(list, err)
		}
		return fmt.Sprint(list)
	}
	first, again := history(1), history(1)
	if first != again {
		t.Error("the same seed gave other faults")
	}
	if first == history(2) {
		t.Error("another seed gave the same faults")
	}
}
