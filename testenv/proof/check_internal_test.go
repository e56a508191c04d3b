package proof

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
)

// The search for an order ends when its states have taken the memory they may, which decides
// nothing.
func TestCheckHasBoundedRoom(t *testing.T) {
	h := &History{}
	add := func(op books.Operation) {
		op.Queue, op.Call = "jobs", int64(time.Second)*int64(len(h.Operations))
		op.Return = op.Call + 1
		h.Operations = append(h.Operations, op)
	}
	for n := range int64(4) {
		id := fdbpq.ID{Count: n}.String()
		add(books.Operation{Kind: books.Push, Value: fmt.Sprint(n), ID: id, Outcome: books.Done})
	}
	for range 4 {
		add(books.Operation{Kind: books.PopMin, Outcome: books.Lost})
	}
	add(books.Operation{Kind: books.Len, Len: 50, Outcome: books.Done})

	for a := range h.accounts() {
		if err := h.checkOrder(a, time.Hour, 10_000); !errors.Is(err, ErrUndecided) {
			t.Errorf("with 10 kB: %v, want %v", err, ErrUndecided)
		}
		if err := h.checkOrder(a, time.Hour, maxRoom); err == nil || errors.Is(err, ErrUndecided) {
			t.Errorf("with all room: %v, want that no order is right", err)
		}
	}
}
