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

// health tracks whether the store accepts writes. It assumes so until a batch fails
// because of the store; from then on, only a successful probe restores it. Without such
// a failure it writes nothing. A batch that succeeds after the failure proves less than
// a probe: a nearly full disk accepts pops and refuses pushes.
type health struct {
	failed  atomic.Pointer[error] // the last failure since the last successful probe
	probing sync.Mutex

	refusesPushes atomic.Bool // as far as the last batch with pushes showed
}

// noteFailure records the error of a batch with writes.
func (h *health) noteFailure(err error) {
	if blamesStore(err) {
		h.failed.Store(&err)
	}
}

// blamesStore reports whether a batch failed because of the store, rather than because
// of a conflict or because the service is shutting down.
func blamesStore(err error) bool {
	for _, cause := range []error{kv.ErrUnavailable, kv.ErrCorrupt, kv.ErrCommitUnknown, kv.ErrClosed, context.DeadlineExceeded} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

// check is Dispatcher.StoreReady.
func (h *health) check(ctx context.Context, db kv.Database, keyspace *fdbpq.Keyspace) error {
	if err := db.Check(); errors.Is(err, kv.ErrUnavailable) {
		h.noteFailure(err) // the probe may bring it back
	}

	err := kv.View(ctx, db, func(r kv.Reader) error {
		_, err := keyspace.PriorityQueues(r, "", 1).Get()
		return err
	})
	if err != nil {
		return err
	}

	if err := h.probe(ctx, db, keyspace); err != nil {
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
