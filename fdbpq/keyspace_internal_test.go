package fdbpq

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// For all roots of up to two pieces, every night three: the areas of those that are accepted do not overlap,
// byte by byte, and the areas of those that are refused would.
func TestAreasNeverOverlap(t *testing.T) {
	pieces := []string{"a", "\x00", "\xff", "-x", "-queues", "-store"}
	texts := []string{""}
	for begin := 0; len(texts) < harness.Times(1+6+36, 1+6+36+216); {
		end := len(texts)
		for _, text := range texts[begin:end] {
			for _, piece := range pieces {
				texts = append(texts, text+piece)
			}
		}
		begin = end
	}
	accepted, refused := 0, 0
	for _, priority := range texts {
		for _, fifo := range texts {
			k, err := NewKeyspace(priority, fifo, RawValues)
			switch {
			case err == nil:
				accepted++
				ranges := append(k.ranges(), internal(priority+"-store"), internal(fifo+"-store"))
				if meet(ranges) {
					t.Fatalf("%q and %q are accepted, and meet", priority, fifo)
				}
			case !errors.Is(err, ErrKeyspace):
				t.Fatal(err)
			case priority != "" && fifo != "":
				refused++
				var ranges []kv.Range
				for _, root := range []string{priority, priority + "-queues", priority + "-x", priority + "-store", fifo, fifo + "-queues", fifo + "-store"} {
					ranges = append(ranges, internal(root))
				}
				if !meet(ranges) {
					t.Fatalf("%q and %q are refused, and do not meet: %v", priority, fifo, err)
				}
			}
		}
	}
	if accepted == 0 || refused == 0 {
		t.Errorf("%d accepted, %d refused", accepted, refused)
	}
}

// ranges returns where k keeps things: the lists, the receipts, and some queues of each kind
// with names that are easily mixed up.
func (k *Keyspace) ranges() []kv.Range {
	receipts := codec.Within(k.s.Receipts.Bytes())
	ranges := []kv.Range{receipts, codec.Within([]byte(k.s.Priority.List.Prefix)), codec.Within([]byte(k.s.Fifo.List.Prefix))}
	for _, kind := range []*codec.Branch{&k.s.Priority, &k.s.Fifo} {
		for _, name := range []string{"a", "a\x00", "\xff"} {
			l, err := k.s.LayoutOf(kind, name)
			if err != nil {
				panic(err)
			}
			for _, prefix := range [][]byte{l.Key(codec.KindItem, 1), l.Key(codec.KindMeta, 1), l.Key(codec.KindRequest, 1), l.Key(codec.KindAnswer, 1), l.Key(codec.KindCounter, 1)} {
				ranges = append(ranges, codec.Within(prefix))
			}
			ranges = append(ranges, kv.SingleKey(l.TotalKey()))
		}
	}
	return ranges
}

func internal(root string) kv.Range {
	return codec.Within(tuple.NewSubspace(tuple.Tuple{root}).Bytes())
}

// meet reports whether any two of the ranges overlap, none of which is empty. It sorts them.
func meet(ranges []kv.Range) bool {
	slices.SortFunc(ranges, func(a, b kv.Range) int { return bytes.Compare(a.Begin, b.Begin) })
	for i := 1; i < len(ranges); i++ {
		if bytes.Compare(ranges[i].Begin, ranges[i-1].End) < 0 {
			return true
		}
	}
	return false
}
