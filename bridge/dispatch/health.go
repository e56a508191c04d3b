package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// health knows whether the store takes writes: it does not from the moment a batch
// fails because of the store until a probe has succeeded. Without such a failure
// nothing is written. Batches that succeed meanwhile say less than a probe: a disk that
// is nearly full takes pops and refuses pushes.
type health struct {
	failed  atomic.Pointer[error] // the last failure since the last successful probe
	probing sync.Mutex
}

// note records the error of a batch that writes.
func (h *health) note(err error) {
	if blamesStore(err) {
		h.failed.Store(&err)
	}
}

// blamesStore reports whether a batch failed because of the store, and not because it
// lost against other writers or because the service ends.
func blamesStore(err error) bool {
	for _, cause := range []error{kv.ErrUnavailable, kv.ErrCorrupt, kv.ErrCommitUnknown, kv.ErrClosed, context.DeadlineExceeded} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

// StoreReady returns nil if the store can be read and takes writes, as far as is known.
// It does not wait for writers: a store that is busy is ready. After a write has failed
// it tries one itself.
func (d *Dispatcher) StoreReady(ctx context.Context) error {
	db, keyspace := d.options.DB, d.options.Keyspace
	if err := db.Check(); errors.Is(err, kv.ErrUnavailable) {
		d.health.note(err) // the probe may bring it back
	}
	err := kv.View(ctx, db, func(r kv.Reader) error {
		_, err := keyspace.PriorityQueues(r, "", 1).Get()
		return err
	})
	if err != nil {
		return err
	}
	if err := d.health.probe(ctx, db, keyspace); err != nil {
		return fmt.Errorf("it takes no writes: %w", err)
	}
	return db.Check()
}

// probe writes to the store if the last write failed.
func (h *health) probe(ctx context.Context, db kv.Database, k *fdbpq.Keyspace) error {
	failed := h.failed.Load()
	if failed == nil {
		return nil
	}
	if !h.probing.TryLock() {
		return *failed // one probe at a time is enough
	}
	defer h.probing.Unlock()
	if err := fdbpq.Probe(ctx, db, k); err != nil {
		return err
	}
	h.failed.CompareAndSwap(failed, nil) // unless another write failed meanwhile
	return nil
}
