package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// health tracks whether the store accepts writes. It assumes so until a batch fails because of the
// store. From then on only a successful probe restores it: a batch that succeeds proves less,
// because a nearly full disk accepts pops and refuses pushes. Without a failure it writes nothing.
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

// blamesStore reports whether a batch failed because of the store, and not because of a conflict or
// a shutdown.
func blamesStore(err error) bool {
	causes := []error{
		kv.ErrUnavailable, kv.ErrCorrupt, kv.ErrCommitUnknown, kv.ErrClosed,
		context.DeadlineExceeded,
	}
	return slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(err, cause) })
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
