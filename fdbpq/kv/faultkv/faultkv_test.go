package faultkv_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/kvtest"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// A store whose calls are delayed passes the suite of every store.
func TestConformanceWithDelays(t *testing.T) {
	o := faultkv.Options{
		Rates:    map[faultkv.Fault]float64{faultkv.Delay: 1},
		MaxDelay: time.Nanosecond,
	}
	kvtest.Run(t, kvtest.Engine{
		Store: func(t *testing.T) func() kv.Database {
			return func() kv.Database { return faultkv.New(memkv.New(memkv.Options{}), o) }
		},
	})
}

// Nothing is promised about pipelining, and during an outage nothing answers. The rest is the
// store's own, which here refuses reads of a blind transaction that wrote.
func TestForwards(t *testing.T) {
	serial := faultkv.New(openFolder(t, t.TempDir()), faultkv.Options{})
	if got, want := serial.Traits(), (kv.Traits{Serial: true}); got != want {
		t.Errorf("Traits returned %+v, want %+v", got, want)
	}

	db := open(t, faultkv.Options{})
	db.SetOutage(true)
	wantErr(t, "Check during an outage", db.Check(), kv.ErrUnavailable)

	db.SetOutage(false)
	tx, err := db.Begin(t.Context(), kv.BeginOptions{Blind: true})
	must(t, err)
	defer tx.Cancel()
	tx.Set(key, nil)
	if get(tx) == nil {
		t.Error("the store does not know that the transaction is blind")
	}
}

// rates has some of every fault.
var rates = map[faultkv.Fault]float64{
	faultkv.Delay:             0.02,
	faultkv.Outage:            0.02,
	faultkv.TooOld:            0.02,
	faultkv.Throttled:         0.02,
	faultkv.Conflict:          0.05,
	faultkv.UnknownLost:       0.1,
	faultkv.UnknownMade:       0.1,
	faultkv.UnknownBeforeNext: 0.1,
	faultkv.UnknownDuringNext: 0.1,
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

func openFolder(t *testing.T, dir string) kv.Database {
	t.Helper()
	db, err := pebblekv.Open(dir, pebblekv.Options{})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })

	return db
}

func begin(t *testing.T, db kv.Database) kv.Transaction {
	t.Helper()
	tx, err := db.Begin(t.Context(), kv.BeginOptions{})
	must(t, err)
	t.Cleanup(tx.Cancel)

	return tx
}

func beginRead(t *testing.T, db kv.Database) kv.ReadTransaction {
	t.Helper()
	tx, err := db.BeginRead(t.Context())
	must(t, err)
	t.Cleanup(tx.Cancel)

	return tx
}

func get(r kv.Reader) error {
	_, err := r.Get(key).Get()
	return err
}

func commit(tx kv.Transaction) error {
	_, err := tx.Commit().Get()
	return err
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s returned %v, want %v", what, err, want)
	}
}

// set writes key in a transaction of its own and returns what Commit said.
func set(t *testing.T, db kv.Database, key []byte) error {
	t.Helper()
	tx := begin(t, db)
	tx.Set(key, []byte("1"))
	return commit(tx)
}

// setWith is set of key with a fault, which must fail the commit.
func setWith(t *testing.T, db *faultkv.DB, fault faultkv.Fault, want error) {
	t.Helper()
	db.Next(fault)
	wantErr(t, "Commit", set(t, db, key), want)
}

// wantHas checks whether key is there, without beginning a transaction that could make commits
// left for later.
func wantHas(t *testing.T, when string, db kv.Database, key []byte, want bool) {
	t.Helper()
	value, err := beginRead(t, db).Get(key).Get()
	must(t, err)
	if (value != nil) != want {
		t.Errorf("%s %s is there: %t, want %t", when, key, value != nil, want)
	}
}

func wantCounts(t *testing.T, db *faultkv.DB, want map[faultkv.Fault]int) {
	t.Helper()
	if got := db.Counts(); !maps.Equal(got, want) {
		t.Errorf("Counts() = %v, want %v", got, want)
	}
}

// Each scripted fault has its error, and its writes are made when it says.
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
			db := open(t, faultkv.Options{})
			db.Next(test.fault)
			ctx, cancel := context.WithCancel(t.Context())
			tx, err := db.Begin(ctx, kv.BeginOptions{})
			must(t, err)

			tx.Set(key, []byte("1"))
			wantErr(t, "Commit", commit(tx), test.want)
			wantErr(t, "Get after Commit", get(tx), kv.ErrUsed)

			tx.Set(other, []byte("1"))
			tx.AddReadConflict(kv.SingleKey(other))
			wantHas(t, "after Commit", db, key, test.made)

			cancel() // which a commit that lands late outlives
			tx.Cancel()
			db.Land()

			wantHas(t, "after Land", db, key, test.late)
			wantHas(t, "after a write behind Commit", db, other, false)

			counts := map[faultkv.Fault]int{test.fault: 1}
			delete(counts, faultkv.None)
			wantCounts(t, db, counts)
			wantErr(t, "the next Commit", set(t, db, other), nil)
		})
	}
}

// A commit without writes uses up no fault of the script.
func TestScriptIsForCommitsThatWrote(t *testing.T) {
	db := open(t, faultkv.Options{})
	db.Next(faultkv.Conflict)
	db.Next(faultkv.None, faultkv.Throttled)

	readOnly := begin(t, db)
	wantErr(t, "Get", get(readOnly), nil)

	readOnly.ClearRange(kv.Range{Begin: key, End: key})
	readOnly.AddWriteConflict(kv.Range{Begin: key, End: key})
	wantErr(t, "Commit without writes", commit(readOnly), nil)
	for i, want := range []error{kv.ErrConflict, nil, kv.ErrThrottled, nil} {
		wantErr(t, fmt.Sprint("Commit ", i), set(t, db, key), want)
	}
}

// If the store refuses a commit of unknown outcome, its own error is returned.
func TestMadeReturnsTheStoresOwnError(t *testing.T) {
	db := open(t, faultkv.Options{})
	tx := begin(t, db)
	wantErr(t, "Get", get(tx), nil)

	tx.Set(other, []byte("1"))
	wantErr(t, "another", set(t, db, key), nil)

	db.Next(faultkv.UnknownMade)
	if err := commit(tx); !errors.Is(err, kv.ErrConflict) || kv.MaybeCommitted(err) {
		t.Errorf("Commit returned %v, want ErrConflict alone", err)
	}
}

// A commit that is put off is made before the next transaction begins.
func TestBeforeNext(t *testing.T) {
	db := open(t, faultkv.Options{})
	setWith(t, db, faultkv.UnknownBeforeNext, kv.ErrCommitUnknown)
	wantHas(t, "before the next transaction", db, key, false)

	if value, err := begin(t, db).Get(key).Get(); err != nil || value == nil {
		t.Errorf("the next transaction read %q, %v, want the write", value, err)
	}
}

// A commit that lands during its retry makes the retry conflict.
func TestDuringNext(t *testing.T) {
	db := open(t, faultkv.Options{})
	setWith(t, db, faultkv.UnknownDuringNext, kv.ErrCommitUnknown)

	retry := begin(t, db)
	if value, err := retry.Get(key).Get(); err != nil || value != nil {
		t.Fatalf("the retry read %q, %v, want nothing yet", value, err)
	}

	retry.Set(key, []byte("2"))
	wantErr(t, "Commit of the retry, which meets the first attempt,", commit(retry), kv.ErrConflict)
	wantHas(t, "in the end", db, key, true)
}

// Close makes the commits that were put off.
func TestCloseLands(t *testing.T) {
	store := memkv.New(memkv.Options{})
	db := faultkv.New(unclosed{store}, faultkv.Options{})
	setWith(t, db, faultkv.UnknownBeforeNext, kv.ErrCommitUnknown)

	wantErr(t, "Close", db.Close(), nil)
	wantHas(t, "after Close", store, key, true)
}

type unclosed struct{ kv.Database }

func (unclosed) Close() error { return nil }

// In a serial store no commit is put off: the next transaction would wait for it.
func TestBeforeNextInSerialStore(t *testing.T) {
	db := faultkv.New(openFolder(t, t.TempDir()), faultkv.Options{})
	setWith(t, db, faultkv.UnknownBeforeNext, kv.ErrCommitUnknown)
	wantHas(t, "at once", db, key, true)
}

// During an outage every call fails, and afterwards everything goes on.
func TestOutage(t *testing.T) {
	db := open(t, faultkv.Options{})
	writer, doomed, reader := begin(t, db), begin(t, db), beginRead(t, db)
	doomed.Set(other, []byte("1"))
	db.Next(faultkv.Conflict)

	db.SetOutage(true)
	_, errBegin := db.Begin(t.Context(), kv.BeginOptions{})
	_, errBeginRead := db.BeginRead(t.Context())
	_, errSnapshot := writer.Snapshot().GetRange(kv.SingleKey(key), kv.RangeOptions{}).Get()

	for i, err := range []error{
		errBegin,
		errBeginRead,
		get(writer),
		errSnapshot,
		get(reader),
		commit(doomed),
	} {
		wantErr(t, fmt.Sprint("call ", i), err, kv.ErrUnavailable)
	}
	wantCounts(t, db, map[faultkv.Fault]int{faultkv.Outage: 6})

	db.SetOutage(false)
	wantHas(t, "after the outage", db, other, false)
	wantErr(t, "Get after the outage", get(reader), nil)

	writer.Set(key, []byte("1"))
	wantErr(t, "Commit, whose fault was set before the outage,", commit(writer), kv.ErrConflict)
}

// A transaction that was too old or throttled once fails in the same way from then on.
func TestFaultsOfReadsLast(t *testing.T) {
	for fault, want := range map[faultkv.Fault]error{
		faultkv.TooOld:    kv.ErrTooOld,
		faultkv.Throttled: kv.ErrThrottled,
	} {
		t.Run(fault.String(), func(t *testing.T) {
			db := open(t, faultkv.Options{Rates: map[faultkv.Fault]float64{fault: 1}})
			tx := begin(t, db)

			snapshot := tx.Snapshot()
			wantErr(t, "Get of the snapshot", get(snapshot), want)
			wantErr(t, "Get", get(tx), want)

			_, err := tx.GetRange(kv.SingleKey(key), kv.RangeOptions{}).Get()
			wantErr(t, "GetRange", err, want)

			tx.Set(key, nil)
			wantErr(t, "Commit", commit(tx), want)
			wantCounts(t, db, map[faultkv.Fault]int{fault: 1})
		})
	}
}

// A delay is shorter than MaxDelay, and ends with the context.
func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = time.Hour
		db := open(t,
			faultkv.Options{Rates: map[faultkv.Fault]float64{faultkv.Delay: 1}, MaxDelay: most})
		ctx, cancel := context.WithCancel(t.Context())
		tx, err := db.Begin(ctx, kv.BeginOptions{})
		must(t, err)

		for range 2 {
			before := time.Now()
			wantErr(t, "Get", get(tx), nil)

			if d := time.Since(before); d <= 0 || d >= most {
				t.Errorf("a delay of %v, want less than %v", d, most)
			}
		}

		tx.Set(key, []byte("1"))
		time.AfterFunc(time.Nanosecond, cancel)
		if err := commit(tx); !errors.Is(err, context.Canceled) || kv.MaybeCommitted(err) {
			t.Errorf("Commit returned %v, want context.Canceled alone", err)
		}
		wantHas(t, "after the end of the context", db, key, false)
	})
}

// The same seed gives the same faults, and another seed others.
func TestSameSeedSameFaults(t *testing.T) {
	history := func(seed uint64) string {
		db := open(t, faultkv.Options{Seed: seed, Rates: rates})
		var list []error

		for range 200 {
			tx, err := db.Begin(t.Context(), kv.BeginOptions{})
			if err == nil {
				err = get(tx)
			}

			if err == nil {
				tx.Set(key, nil)
				err = commit(tx)
			}

			list = append(list, err)
		}

		for fault := range rates {
			if db.Counts()[fault] == 0 && seed == 1 {
				t.Errorf("there was no fault %q", fault)
			}
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

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
