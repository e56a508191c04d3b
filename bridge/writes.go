package bridge

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// writes knows whether the store takes writes: from a batch that failed because of
// the store until a probe has succeeded. Without such a failure nothing is
// written. Batches that succeed meanwhile say less than a probe: a disk that is
// nearly full takes pops and refuses pushes.
type writes struct {
	failed  atomic.Pointer[error] // the last failure, nil if there was none since the last probe
	probing sync.Mutex
}

// note takes note of the error of a batch that writes.
func (w *writes) note(err error) {
	if blamesStore(err) {
		w.failed.Store(&err)
	}
}

// blamesStore reports whether a batch failed because of the store. That it lost
// against other writers, or the service ends, is none of the store's fault.
func blamesStore(err error) bool {
	for _, cause := range []error{kv.ErrUnavailable, kv.ErrCorrupt, kv.ErrCommitUnknown, kv.ErrClosed, context.DeadlineExceeded} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

// ready returns nil if the store takes writes, as far as is known. If the last one
// failed it tries another.
func (w *writes) ready(ctx context.Context, db kv.Database, k *fdbpq.Keyspace) error {
	failed := w.failed.Load()
	if failed == nil {
		return nil
	}
	if !w.probing.TryLock() {
		return *failed // One probe at a time will do.
	}
	defer w.probing.Unlock()
	if err := fdbpq.Probe(ctx, db, k); err != nil {
		return err
	}
	w.failed.CompareAndSwap(failed, nil) // unless another one failed meanwhile
	return nil
}
