package proof_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/testenv/proof"
)

// sizes is a history of a queue with items 0, of 100 bytes, and 1, of 10,000.
type sizes struct{ proof.History }

func newSizes() *sizes {
	s := &sizes{proof.History{Name: "sizes", OneByOne: true}}
	for i, size := range []int64{100, 10_000} {
		s.enter(proof.Operation{Kind: proof.Push, Value: fmt.Sprint(i), ID: s.item(i).ID, Size: size})
	}
	return s
}

func (s *sizes) item(i int) proof.Item {
	return proof.Item{Value: fmt.Sprint(i), ID: fdbpq.ID{Count: int64(i) + 1}.String(), Size: []int64{100, 10_000}[i]}
}

// leased is an item with a lease that begins with the next operation.
func (s *sizes) leased(i int) proof.Item {
	item := s.item(i)
	item.Fence, item.Deliveries, item.Until = 1, 1, int64(len(s.Operations)+1)*int64(time.Hour)+int64(time.Minute)
	return item
}

// enter adds an operation, an hour after the one before.
func (s *sizes) enter(op proof.Operation) {
	op.Queue = "jobs"
	if op.Outcome == "" {
		op.Outcome = proof.Done
	}
	op.Call = int64(len(s.Operations)+1) * int64(time.Hour)
	op.Return = op.Call + 1
	s.Operations = append(s.Operations, op)
}

func (s *sizes) lease(maxBytes int64, cut bool, items ...int) {
	op := proof.Operation{Kind: proof.LeaseMin, Batch: 3, MaxBytes: maxBytes, Cut: cut, Wait: int64(time.Minute)}
	for _, i := range items {
		op.Items = append(op.Items, s.leased(i))
	}
	s.enter(op)
}

func (s *sizes) pop(maxBytes int64, cut bool, items ...int) {
	op := proof.Operation{Kind: proof.PopMin, Batch: 3, MaxBytes: maxBytes, Cut: cut}
	for _, i := range items {
		op.Items = append(op.Items, s.item(i))
	}
	s.enter(op)
}

func (s *sizes) tooLarge(kind proof.Kind, maxBytes int64) {
	s.enter(proof.Operation{Kind: kind, MaxBytes: maxBytes, Outcome: proof.TooLarge})
}

// The checker knows which items are too large, and that there is a next one where a batch was cut off.
func TestCheckerOfSizes(t *testing.T) {
	next := func(s *sizes, outcome proof.Outcome) {
		op := proof.Operation{Kind: proof.NextMin, Value: "0", ID: s.item(0).ID, Fence: 1, MaxBytes: 500, Outcome: outcome}
		s.enter(op)
	}
	for name, test := range map[string]struct {
		want  string
		write func(s *sizes)
	}{
		"the next is too large":     {"", func(s *sizes) { s.pop(500, true, 0); s.pop(0, false, 1) }},
		"the largest is too large":  {"", func(s *sizes) { s.tooLarge(proof.PopMax, 500); s.pop(0, false, 0, 1) }},
		"a pop finds no room":       {"", func(s *sizes) { s.pop(0, true, 0); s.pop(0, false, 1) }},
		"a lease finds no room":     {"", func(s *sizes) { s.lease(0, true, 0); s.pop(0, false, 0, 1) }},
		"all":                       {"", func(s *sizes) { s.pop(20_000, false, 0, 1) }},
		"+NXT, and it is too large": {"", func(s *sizes) { s.lease(500, true, 0); next(s, proof.TooLarge); s.pop(0, false, 1) }},

		"it is not":  {"not linearizable", func(s *sizes) { s.tooLarge(proof.PopMin, 5_000); s.pop(0, false, 0, 1) }},
		"nothing is": {"not linearizable", func(s *sizes) { s.pop(20_000, true, 0, 1) }},
		"a large one is skipped": {"not linearizable", func(s *sizes) {
			s.enter(proof.Operation{Kind: proof.PopMax, MaxBytes: 500, Value: "0", ID: s.item(0).ID, Size: 100})
			s.pop(0, false, 1)
		}},
		"there is no next":                 {"not linearizable", func(s *sizes) { s.pop(0, false, 0); s.lease(0, true, 1); s.pop(0, false, 1) }},
		"no room, and it does not say so":  {"not linearizable", func(s *sizes) { s.lease(0, false, 0); s.pop(0, false, 0, 1) }},
		"too large, without a limit":       {"not limited", func(s *sizes) { s.tooLarge(proof.LeaseMin, 0); s.pop(0, false, 0, 1) }},
		"more than asked for":              {"more bytes", func(s *sizes) { s.pop(5_000, false, 0, 1) }},
		"+NXT, and it is not acknowledged": {"settled twice", func(s *sizes) { s.lease(500, true, 0); next(s, proof.TooLarge); s.pop(0, false, 0, 1) }},
		"+NXT says empty, and it is not":   {"not linearizable", func(s *sizes) { s.lease(500, true, 0); next(s, proof.Empty); s.pop(0, false, 1) }},
		"an item with another number of bytes": {"with 7 bytes", func(s *sizes) {
			s.enter(proof.Operation{Kind: proof.PopMin, Value: "0", ID: s.item(0).ID, Size: 7})
			s.pop(0, false, 1)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSizes()
			test.write(s)
			err := s.Check(checkTime)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("found: %v; want %q", err, test.want)
			}
		})
	}
}
