package pebblekv

import (
	"context"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// writerSlot is held by the one write transaction at a time. It counts the turns of
// kv.Transaction: one for each transaction, and one more for each whose writes the next
// one does not see. The turns belong to the holder.
type writerSlot struct {
	full  chan struct{} // full while it is held
	turns int64
}

func newWriterSlot() *writerSlot { return &writerSlot{full: make(chan struct{}, 1)} }

// acquire waits for the writer before, in the order of the calls.
func (w *writerSlot) acquire(ctx context.Context, closing <-chan struct{}) error {
	select {
	case w.full <- struct{}{}:
		return nil
	case <-closing:
		return kv.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tryAcquire reports whether nobody held it.
func (w *writerSlot) tryAcquire() bool {
	select {
	case w.full <- struct{}{}:
		return true
	default:
		return false
	}
}

func (w *writerSlot) release() { <-w.full }

func (w *writerSlot) nextTurn() int64 {
	w.turns++
	return w.turns
}

// skipTurn says that the next transaction may not see what an earlier one wrote.
func (w *writerSlot) skipTurn() { w.turns++ }
