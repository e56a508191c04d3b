package faultkv_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
)

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

// Work that leaves a receipt, which every attempt both reads and writes, is
// done once whatever happens to its commits.
func TestReceiptsMakeWorkHappenOnce(t *testing.T) {
	t.Run("Optimistic", func(t *testing.T) {
		testReceipts(t, memkv.New(memkv.Options{}), rates)
	})
	t.Run("Serial", func(t *testing.T) {
		inner, err := pebblekv.Open(t.TempDir(), pebblekv.Options{})
		if err != nil {
			t.Fatal(err)
		}
		serial := maps.Clone(rates)
		delete(serial, faultkv.UnknownDuringNext)
		testReceipts(t, inner, serial)
	})
}

func testReceipts(t *testing.T, inner kv.Database, rates map[faultkv.Fault]float64) {
	const workers, each = 4, 100
	db := faultkv.New(inner, faultkv.Options{
		Seed:  seed(t),
		Rates: rates,
		Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	})
	defer func() { _ = db.Close() }()

	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for i := range each {
				if err := once(t.Context(), db, fmt.Sprintf("receipt %d %d", worker, i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	db.Land()

	total, err := kv.ReadTransact(t.Context(), inner, func(r kv.Reader) ([]byte, error) {
		return r.Get([]byte("total")).Get()
	})
	if want := binary.LittleEndian.AppendUint64(nil, workers*each); err != nil || !bytes.Equal(total, want) {
		t.Errorf("the work was done %v times (error %v), want %v", total, err, want)
	}
	counts := db.Counts()
	t.Logf("faults: %v", counts)
	for fault := range rates {
		if counts[fault] == 0 {
			t.Errorf("there was no fault %q", fault)
		}
	}
}

// seed returns the seed of a random test and logs how to run it again.
func seed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if fixed := os.Getenv("FAULTKV_SEED"); fixed != "" {
		var err error
		if seed, err = strconv.ParseUint(fixed, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("to run it again: FAULTKV_SEED=%d go test -count=1 -run '^%s$' .", seed, strings.ReplaceAll(t.Name(), "/", "$/^"))
	return seed
}

// once adds one to the total, leaving a receipt.
func once(ctx context.Context, db kv.Database, receipt string) error {
	for {
		err := kv.UpdateIdempotent(ctx, db, func(tx kv.Transaction) error {
			done, err := tx.Get([]byte(receipt)).Get()
			if err == nil && done == nil {
				tx.Set([]byte(receipt), nil)
				tx.Add([]byte("total"), 1)
			}
			return err
		})
		if !errors.Is(err, kv.ErrUnavailable) {
			return err
		}
	}
}
