package fdbpq

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// The fuzz tests of this file read arbitrary bytes, as any program may have written them.
// Nothing panics, every error is ErrCorrupt, and what was decoded encodes to the same bytes.

func fuzzLayout(fifo bool, format ValueFormat) *codec.Layout {
	return codec.NewLayout(tuple.NewSubspace(tuple.Tuple{"pq", "jobs"}), format, fifo)
}

// refused reports whether err is not nil. It must then be ErrCorrupt.
func refused(t *testing.T, err error) bool {
	t.Helper()
	if err != nil && !errors.Is(err, ErrCorrupt) {
		t.Fatalf("error %v: want one of %v", err, ErrCorrupt)
	}
	return err != nil
}

func FuzzDecodeMeta(f *testing.F) {
	f.Add([]byte{}, uint16(0))
	f.Add(append(codec.EncodeMeta(&Message{}), "rest of a long value"...), uint16(3))
	f.Add(codec.EncodeMeta(&Message{Headers: map[string][]string{"Trace": {"a", "b"}, "": {}, "\x00": {"\x00\xff", ""}}}), uint16(1))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, uint16(2))      // a length of 2^64-1
	f.Add(append([]byte{6}, tuple.Tuple{int64(1), "text", int64(1)}.Pack()...), uint16(9))    // no headers
	f.Add(append([]byte{6}, tuple.Tuple{int64(1), tuple.Tuple{nil}}.Pack()...), uint16(1000)) // no name
	f.Add(append([]byte{9}, tuple.Tuple{int64(3), tuple.Tuple{}}.Pack()...), uint16(0xffff))  // from the future
	dead := Message{DeadLetter: &DeadLetter{Queue: "jobs", Reason: "no", At: time.UnixMicro(5), Deliveries: 3, Error: "late"}}
	f.Add(codec.EncodeMeta(&dead), uint16(5))
	dead.Headers = map[string][]string{"A": {"b"}}
	f.Add(append(codec.EncodeMeta(&dead), "rest"...), uint16(5))
	f.Add(append([]byte{6}, tuple.Tuple{int64(2), tuple.Tuple{}}.Pack()...), uint16(0))
	f.Fuzz(func(t *testing.T, blob []byte, chunk uint16) {
		m, rest, err := codec.DecodeMeta(cut(blob, int(chunk)))
		if refused(t, err) {
			return
		}
		again := append(codec.EncodeMeta(&m), rest...)
		got, gotRest, err := codec.DecodeMeta(cut(again, len(again)))
		if err != nil || !reflect.DeepEqual(got, m) || !bytes.Equal(gotRest, rest) {
			t.Fatalf("%x is %+v and %x, written %x, then %+v, %x and %v", blob, m, rest, again, got, gotRest, err)
		}
	})
}

// cut splits b into values of size bytes; 0 means one value.
func cut(b []byte, size int) []kv.KeyValue {
	var parts []kv.KeyValue
	for size > 0 && len(b) > size {
		parts = append(parts, kv.KeyValue{Value: b[:size]})
		b = b[size:]
	}
	return append(parts, kv.KeyValue{Value: b})
}

func FuzzParseItem(f *testing.F) {
	random := bytes.Repeat([]byte{0, 0xff}, codec.RandomSize/2)
	f.Add(tuple.Tuple{int64(-5), int64(7), random}.Pack(), false)
	f.Add(tuple.Tuple{int64(7), random}.Pack(), true)
	f.Add(tuple.Tuple{int64(7), random[1:]}.Pack(), true)
	f.Add(tuple.Tuple{"5", nil, random}.Pack(), false)
	f.Add(tuple.Tuple{int64(1), "text", random}.Pack(), false)
	f.Add(tuple.Tuple{int64(1), int64(2), random, int64(3)}.Pack(), false)
	f.Add(tuple.Tuple{int64(1), int64(2), "20 bytes of string.."}.Pack(), false)
	f.Fuzz(func(t *testing.T, key []byte, fifo bool) {
		l := fuzzLayout(fifo, RawValues)
		key = append(l.Key(codec.KindItem, 0), key...)
		id, err := l.ParseItem(key)
		if refused(t, err) {
			return
		}
		if got := l.ItemKey(&id); !bytes.Equal(got, key) {
			t.Fatalf("%x is read as %+v, which is written as %x", key, id, got)
		}
		if again, err := ParseID(id.String()); err != nil || again != id {
			t.Fatalf("%+v is %s, which is read as %+v, %v", id, id, again, err)
		}
	})
}

// beginFuzz returns a transaction on an empty store.
func beginFuzz(t *testing.T) kv.Transaction {
	t.Helper()
	db := memkv.New(memkv.Options{})
	tx, err := db.Begin(t.Context(), kv.BeginOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		tx.Cancel()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return tx
}

// FuzzStaged decodes the keys and values of staged pops, and receipts.
func FuzzStaged(f *testing.F) {
	now := time.UnixMicro(1_790_000_000_000_000)
	id := codec.NewID(-3, 9, now, make([]byte, codec.UniqueSize), true)
	f.Add((&codec.Answer{Deadline: now}).Encode())
	f.Add((&codec.Answer{Deadline: now, Item: &id}).Encode())
	f.Add(codec.EncodeRequest(Back, now))
	f.Add(tuple.Tuple{now.UnixMicro(), int64(2), int64(0)}.Pack())
	f.Add(tuple.Tuple{now.UnixMicro(), int64(1), int64(2), []byte("short")}.Pack())
	f.Fuzz(func(t *testing.T, stored []byte) {
		a, err := codec.ParseAnswer(stored)
		if !refused(t, err) && !bytes.Equal(a.Encode(), stored) {
			t.Fatalf("answer %x is read as %+v, which is written as %x", stored, a, a.Encode())
		}
		_, _, err = codec.ParseClaim(stored)
		refused(t, err)
		_, _, _, err = parseReceipt(stored)
		refused(t, err)

		l := fuzzLayout(false, RawValues)
		key := l.RequestKey(5, id.Random)
		w, err := l.ParseRequest(kv.KeyValue{Key: key, Value: stored})
		if !refused(t, err) && !bytes.Equal(codec.EncodeRequest(w.End, w.Deadline), stored) {
			t.Fatalf("request %x is read as %+v", stored, w)
		}
		_, err = l.ParseRequest(kv.KeyValue{Key: append(l.Key(codec.KindRequest, 0), stored...), Value: codec.EncodeRequest(Front, now)})
		refused(t, err)
	})
}

// FuzzHeld decodes the records of held items and histories. Without an error they are written
// as they were, except that integers may have been longer than necessary.
func FuzzHeld(f *testing.F) {
	now := time.UnixMicro(1_790_000_000_000_000)
	id := codec.NewID(-3, 9, now, make([]byte, codec.UniqueSize), true)
	h := codec.Record{ID: id, State: codec.Leased, Due: now, End: Back, Value: []byte("value"), History: codec.History{Deliveries: 2, Fence: 3, Wait: time.Second}}
	f.Add(h.Encode())
	h.State = codec.Delayed
	f.Add(h.Encode())
	f.Add(codec.History{Deliveries: 2, Fence: 3, Wait: time.Second}.Encode())
	h.Reason = "no\x00"
	f.Add(h.Encode())
	f.Add(codec.History{Deliveries: 2, Fence: 3, Wait: time.Second, Reason: h.Reason}.Encode())
	for _, h.Reason = range []string{"no", ""} {
		for _, h.Unique = range []string{"", "key\x00"} {
			for _, h.Expires = range []time.Time{{}, now} {
				f.Add(h.Encode())
				f.Add(h.History.Encode())
			}
		}
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}) // a length of 2^64-1
	record := tuple.Tuple{int64(1), int64(0), int64(1), int64(1), now.UnixMicro(), int64(1e6), int64(256)}.Pack()
	f.Add(append([]byte{byte(len(record))}, record...)) // an end that is no byte
	f.Fuzz(func(t *testing.T, stored []byte) {
		h, err := codec.ParseRecord(&id, stored)
		if !refused(t, err) {
			again, err := codec.ParseRecord(&id, h.Encode())
			if err != nil || !reflect.DeepEqual(again, h) {
				t.Fatalf("%x is read as %+v, written as %x, then read as %+v, %v", stored, h, h.Encode(), again, err)
			}
		}
		past, err := codec.ParseHistory(&id, stored)
		if !refused(t, err) {
			if again, err := codec.ParseHistory(&id, past.Encode()); err != nil || again != past {
				t.Fatalf("history %x is read as %+v, then as %+v, %v", stored, past, again, err)
			}
		}
	})
}

// FuzzSettings decodes settings. Without an error, all that was stored is written again.
func FuzzSettings(f *testing.F) {
	s := codec.StoredSettings{Settings: Settings{
		AckWait: time.Second, Backoff: []time.Duration{0, 5}, MaxDeliver: 3, DeadLetter: "dead", TTL: time.Hour, DuplicateWindow: NoDuplicateWindow,
		PauseUntil: time.UnixMicro(5).UTC(), MaxLeased: 1, MaxItems: 2, MaxBytes: 3, Discard: DiscardOld,
	}}
	f.Add(s.Encode())
	s.Unknown = []any{"later", tuple.Tuple{int64(1), "x"}}
	f.Add(s.Encode())
	f.Add(tuple.Tuple{int64(2)}.Pack())
	f.Add(tuple.Tuple{int64(1), "ack_wait", "soon"}.Pack())
	f.Add(tuple.Tuple{int64(1), tuple.Tuple{}, nil, "ack_wait", int64(5), "ack_wait", int64(6)}.Pack())
	f.Fuzz(func(t *testing.T, stored []byte) {
		s, err := codec.ParseSettings(stored)
		if refused(t, err) {
			return
		}
		written := s.Encode()
		again, err := codec.ParseSettings(written)
		if err != nil || !reflect.DeepEqual(again.Encode(), written) || !reflect.DeepEqual(again.Unknown, s.Unknown) {
			t.Fatalf("%x is read as %+v, then as %+v, %v", stored, s, again, err)
		}
	})
}

// FuzzReason: whatever a client says, what is kept of it is short and can be a header.
func FuzzReason(f *testing.F) {
	f.Add("no\r\nPq-Id: x", 5)
	f.Add(strings.Repeat("\xff", 2000), 256)
	f.Add(strings.Repeat("ä", 2000), 255)
	f.Fuzz(func(t *testing.T, text string, n int) {
		n = max(n, 0) % 2000
		clean := settings.CleanText(text, n)
		if len(clean) > n || !utf8.ValidString(clean) || strings.IndexFunc(clean, unicode.IsControl) >= 0 {
			t.Fatalf("%q, cut at %d, is %q", text, n, clean)
		}
		if utf8.ValidString(text) && len(clean) < min(len(text), n)-utf8.UTFMax && strings.IndexFunc(text, unicode.IsControl) < 0 {
			t.Fatalf("%q, cut at %d, is only %q", text, n, clean)
		}
	})
}

// FuzzToken: a token that is read is written as the same text.
func FuzzToken(f *testing.F) {
	id := codec.NewID(-3, 1<<62, time.UnixMicro(1_790_000_000_000_000), make([]byte, codec.UniqueSize), true)
	f.Add(Token{ID: id, Fence: 1 << 62, End: Back}.String())
	f.Add(Token{ID: id, Fence: 0}.String())
	f.Add("A")
	f.Add("AA==")
	f.Add("FQEVARUBFQEVAQ\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		token, err := ParseToken(text)
		if err != nil {
			if !errors.Is(err, ErrToken) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if again := token.String(); again != text || len(again) > 80 {
			t.Fatalf("%q is read as %+v, which is written as %q", text, token, again)
		}
	})
}

// FuzzStore runs all operations on a queue with three arbitrary keys and values.
func FuzzStore(f *testing.F) {
	now := time.UnixMicro(1_790_000_000_000_000)
	id := codec.NewID(0, 0, now, make([]byte, codec.UniqueSize), true)
	l := fuzzLayout(false, RawValues)
	suffix := func(key []byte) []byte { return key[len(l.Prefix)+codec.KindSize:] }
	item, meta := suffix(l.ItemKey(&id)), suffix(l.MetaKey(&id, 0))
	request := suffix(l.RequestKey(0, id.Random))
	answered := suffix(l.PartKey(codec.PartAnswer, id.Random))
	f.Add(uint8(0), item, []byte("value"), uint8(1), meta, codec.EncodeMeta(&Message{Headers: map[string][]string{"A": {"b"}}}), uint8(2), []byte{}, make([]byte, 8), false)
	f.Add(uint8(3), request, codec.EncodeRequest(Back, now), uint8(0), item, []byte("value"), uint8(4), answered, (&codec.Answer{Deadline: now, Item: &id}).Encode(), false)
	f.Add(uint8(4), answered, []byte("?"), uint8(3), request, tuple.Tuple{int64(OpPush), time.Unix(1<<40, 0).UnixMicro()}.Pack(), uint8(2), tuple.Tuple{int64(0)}.Pack(), []byte("?"), true)
	due := suffix(l.DueKey(now, l.PartKey(codec.PartAnswer, id.Random)))
	f.Add(uint8(4), answered, (&codec.Answer{Deadline: now, Item: &id}).Encode(), uint8(5), due, []byte{}, uint8(1), meta, []byte{}, false)
	f.Add(uint8(5), due, []byte{}, uint8(5), due[:len(due)-5], []byte("?"), uint8(2), []byte{}, make([]byte, 8), true)
	heldKey, past := suffix(l.HeldKey(&id)), suffix(l.HistoryKey(&id))
	record := (&codec.Record{ID: id, Due: now, Value: []byte("value"), History: codec.History{Deliveries: 1, Fence: 1, Wait: time.Second}}).Encode()
	dueHeld := suffix(l.DueKey(now, l.HeldKey(&id)))
	f.Add(uint8(6), heldKey, record, uint8(5), dueHeld, []byte{}, uint8(1), meta, codec.EncodeMeta(&Message{Headers: map[string][]string{"A": {"b"}}}), false)
	f.Add(uint8(6), heldKey, record[:4], uint8(5), dueHeld, []byte{}, uint8(6), heldKey[:4], record, false)
	f.Add(uint8(0), item, []byte("value"), uint8(7), past, codec.History{Deliveries: 1, Fence: 1, Wait: time.Second}.Encode(), uint8(6), heldKey, record, false)
	f.Add(uint8(0), item, []byte("value"), uint8(7), past, []byte("?"), uint8(7), past[:5], []byte("?"), false)
	settings := (&codec.StoredSettings{Settings: Settings{MaxDeliver: 1, Backoff: []time.Duration{time.Second}, DeadLetter: "x"}}).Encode()
	f.Add(uint8(6), heldKey, record, uint8(5), dueHeld, []byte{}, uint8(8), []byte{}, settings, false)
	f.Add(uint8(0), item, []byte("value"), uint8(7), past, codec.History{Deliveries: 1, Fence: 1, Wait: time.Second, Reason: "no", Lasting: codec.Lasting{Expires: now}}.Encode(), uint8(8), []byte{}, settings[:9], false)
	expiring := codec.EncodeMeta(&Message{Expires: now})
	dueExpiry := suffix(l.DueKey(now, l.ExpiryKey(&id)))
	f.Add(uint8(0), item, []byte("value"), uint8(5), dueExpiry, []byte{}, uint8(1), meta, expiring, false)
	f.Add(uint8(0), item, []byte("value"), uint8(1), meta, expiring, uint8(5), dueExpiry[:len(dueExpiry)-3], []byte{}, false)
	f.Add(uint8(1), meta, expiring, uint8(5), dueExpiry, []byte{}, uint8(7), past, []byte("?"), false)
	msgID, unique := suffix(l.MsgIDKey("id")), suffix(l.UniqueKey("key"))
	over := &codec.Seen{ID: id, Until: now}
	f.Add(uint8(9), msgID, over.Encode(), uint8(10), suffix(l.MsgIDEndKey(now, "id")), over.Encode(), uint8(11), unique, codec.EncodeID(&id), false)
	f.Add(uint8(9), msgID, []byte("?"), uint8(10), msgID, []byte("?"), uint8(11), unique, []byte("?"), true)
	f.Add(uint8(0), item, []byte("value"), uint8(1), meta, codec.EncodeMeta(&Message{MsgID: "id", Unique: "key"}), uint8(11), unique, codec.EncodeID(&id), false)
	limited := (&codec.StoredSettings{Settings: Settings{MaxBytes: 5, MaxItems: 2, Discard: DiscardOld}}).Encode()
	f.Add(uint8(0), item, []byte("value"), uint8(8), []byte{}, limited, uint8(12), suffix(l.CountedKey()), []byte{1, 0x15}, false)
	f.Add(uint8(1), meta, []byte("?"), uint8(8), []byte{}, limited, uint8(12), []byte{}, []byte("?"), true)
	f.Fuzz(func(t *testing.T, where1 uint8, key1, value1 []byte, where2 uint8, key2, value2 []byte, where3 uint8, key3, value3 []byte, fifo bool) {
		tx := beginFuzz(t)
		l := fuzzLayout(fifo, RawValues)
		places := []string{codec.KindItem, codec.KindMeta, codec.KindCounter, codec.KindRequest, codec.KindAnswer, codec.KindDue, codec.KindHeld, codec.KindHistory, codec.KindConfig,
			codec.KindMsgID, codec.KindMsgIDEnd, codec.KindUnique, "b",
		}
		for _, pair := range []struct {
			where      uint8
			key, value []byte
		}{{where1, key1, value1}, {where2, key2, value2}, {where3, key3, value3}} {
			key := append(l.Key(places[int(pair.where)%len(places)], 0), pair.key...)
			if len(key) <= kv.MaxKeySize && len(pair.value) <= kv.MaxValueSize {
				tx.Set(key, pair.value)
			}
		}
		exercise(t, tx, l, now, &Token{ID: id, Fence: 1})
	})
}

// exercise runs every operation on a queue with arbitrary contents. Each succeeds, or returns
// ErrEmpty, ErrLeaseLost, ErrSettings, ErrFull or ErrCorrupt.
func exercise(t *testing.T, tx kv.Transaction, l *codec.Layout, now time.Time, token *Token) {
	t.Helper()
	allowed := func(what string, err error) {
		if err != nil && !errors.Is(err, ErrEmpty) && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrLeaseLost) && !errors.Is(err, ErrSettings) && !errors.Is(err, ErrFull) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for range 3 {
		for _, op := range []Op{
			{Kind: OpSweep}, {Kind: OpExtend}, {Kind: OpPush}, {Kind: OpLease}, {Kind: OpNak}, {Kind: OpPop}, {Kind: OpPop, End: Back},
			{Kind: OpPeek}, {Kind: OpPeek, End: Back}, {Kind: OpLen}, {Kind: OpLease, End: Back}, {Kind: OpAck},
			{Kind: OpSettings}, {Kind: OpNak, Delay: Backoff, Reason: "no"}, {Kind: OpLease}, {Kind: OpTerm},
			{Kind: OpConfigure, Configure: func(s *Settings) { s.MaxDeliver++; s.MaxBytes = 15 - min(s.MaxBytes, 15); s.Discard = DiscardOld }},
		} {
			if l.Fifo && op.End == Back {
				continue
			}
			op.Queue, op.Message, op.Token = &PriorityQueue{handle{l}}, Message{Value: []byte("x")}, *token
			if op.Kind == OpPush {
				op.Message.MsgID, op.Message.Unique = "id", "key"
			}
			b := newTxOps(tx, []Op{op}, make([]Result, 1), now)
			err := b.apply()
			allowed("batch", err)
			if err == nil {
				allowed("operation", b.results[0].Err)
			}
		}
	}
}
