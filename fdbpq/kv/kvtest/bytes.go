package kvtest

import (
	"bytes"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// scribbler hands out copies and later overwrites them all.
type scribbler [][]byte

func (s *scribbler) bytes(b []byte) []byte {
	b = bytes.Clone(b)
	*s = append(*s, b)
	return b
}

func (s *scribbler) span(r kv.Range) kv.Range {
	return kv.Range{Begin: s.bytes(r.Begin), End: s.bytes(r.End)}
}

func (s *scribbler) scribble() {
	for _, b := range *s {
		overwrite(b)
	}
}

var byteTests = []test{
	{"ArgumentsMayBeOverwritten", func(f *fixture) {
		f.put("0", "cleared", "compared", "c in range", "kept")
		var s scribbler
		f.write(func(tx kv.Transaction) {
			tx.Set(s.bytes(f.key("set")), s.bytes([]byte("1")))
			tx.Clear(s.bytes(f.key("cleared")))
			tx.ClearRange(s.span(f.span("c ", "c!")))
			tx.Add(s.bytes(f.key("n")), 1)
			tx.CompareAndClear(s.bytes(f.key("compared")), s.bytes([]byte("0")))
			get := tx.Get(s.bytes(f.key("kept")))
			getRange := tx.GetRange(s.span(f.all()), kv.RangeOptions{})
			snapshotGet := tx.Snapshot().Get(s.bytes(f.key("kept")))
			s.scribble()
			if a, b := text(await(f, get)), text(await(f, snapshotGet)); a != "0" || b != "0" {
				f.Errorf("Get returned %q, from the snapshot %q, want 0", a, b)
			}
			if got := f.pairs(await(f, getRange)); len(got) != 3 {
				f.Errorf("GetRange returned %q, want three pairs", got)
			}
			f.wantAllLimits(tx, "kept=0", "n="+number(1), "set=1")
		})
		f.wantAllLimits(f.beginRead(), "kept=0", "n="+number(1), "set=1")
	}},
	{"ConflictRangesMayBeOverwritten", schedule{
		outer: func(f *fixture, tx kv.Transaction) {
			var s scribbler
			tx.AddReadConflict(s.span(f.span("b", "c")))
			await(f, tx.Get(s.bytes(f.key("x"))))
			s.scribble()
		},
		inner: func(f *fixture, tx kv.Transaction) {
			var s scribbler
			tx.AddWriteConflict(s.span(f.span("b", "c")))
			s.scribble()
		},
		conflict: true,
	}.run},
	{"ResultsMayBeOverwritten", func(f *fixture) {
		f.put("0", "a", "b")
		tx, reader := f.begin(), f.beginRead()
		tx.Set(f.key("own"), []byte("1"))
		for _, r := range []kv.Reader{tx, tx.Snapshot(), reader} {
			for _, name := range []string{"a", "own"} {
				overwrite(await(f, r.Get(f.key(name))))
			}
			pairs := await(f, r.GetRange(f.all(), kv.RangeOptions{}))
			for _, pair := range pairs {
				overwrite(pair.Key)
				overwrite(pair.Value)
			}
		}
		f.wantAllLimits(tx, "a=0", "b=0", "own=1")
		f.wantAllLimits(reader, "a=0", "b=0")
		await(f, tx.Commit())
		f.wantAllLimits(f.beginRead(), "a=0", "b=0", "own=1")
	}},
	{"ResultsMayBeAppendedTo", func(f *fixture) {
		f.put("0", "a", "b", "c")
		pairs := await(f, f.beginRead().GetRange(f.all(), kv.RangeOptions{}))
		for _, pair := range pairs {
			_ = append(pair.Key, "appended to the key"...)
			_ = append(pair.Value, "appended to the value"...)
		}
		if got := f.pairs(pairs); len(got) != 3 || got[0] != "a=0" || got[1] != "b=0" || got[2] != "c=0" {
			f.Errorf("appending to one result changed another: %q", got)
		}
	}},
	{"ResultsOutliveTheTransaction", func(f *fixture) {
		f.put("0", "a", "b")
		tx, reader := f.begin(), f.beginRead()
		values := [][]byte{await(f, tx.Get(f.key("a"))), await(f, reader.Get(f.key("a")))}
		for _, r := range []kv.Reader{tx, reader} {
			for _, pair := range await(f, r.GetRange(f.all(), kv.RangeOptions{})) {
				values = append(values, pair.Value)
			}
		}
		reader.Cancel()
		tx.Cancel()
		f.put("1", "a", "b")
		if f.engine.Persistent {
			f.reopen()
		}
		for i, value := range values {
			if text(value) != "0" {
				f.Errorf("result %d became %q, want 0", i, value)
			}
		}
	}},
}

func overwrite(b []byte) {
	for i := range b {
		b[i] ^= 0xff
	}
}
