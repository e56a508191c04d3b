package fdbpq

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// The fuzz tests of this file read arbitrary bytes, as any program may have written them. Nothing
// panics, every error is ErrCorrupt, and decoded values encode to the same bytes.

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

// FuzzDecodeMeta decodes ("m") keys, however they are cut into chunks. What can be read encodes to
// the same message.
func FuzzDecodeMeta(f *testing.F) {
	f.Add([]byte{}, uint16(0))
	f.Add(append(codec.EncodeMeta(&Message{}), "rest of a long value"...), uint16(3))

	f.Add(codec.EncodeMeta(&Message{Headers: map[string][]string{
		"Trace": {"a", "b"},
		"":      {},
		"\x00":  {"\x00\xff", ""},
	}}), uint16(1))

	// A length of 2^64-1.
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, uint16(2))

	// No headers.
	f.Add(append([]byte{6}, tuple.Tuple{int64(1), "text", int64(1)}.Pack()...), uint16(9))

	// No name.
	f.Add(append([]byte{6}, tuple.Tuple{int64(1), tuple.Tuple{nil}}.Pack()...), uint16(1000))

	// From the future.
	f.Add(append([]byte{9}, tuple.Tuple{int64(3), tuple.Tuple{}}.Pack()...), uint16(0xffff))

	dead := Message{DeadLetter: &DeadLetter{
		Queue:      "jobs",
		Reason:     "no",
		At:         time.UnixMicro(5),
		Deliveries: 3,
		Error:      "late",
	}}

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
			t.Fatalf("%x is %+v and %x, written %x, then %+v, %x and %v",
				blob, m, rest, again, got, gotRest, err)
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

// FuzzParseItem decodes the keys of items. What can be read encodes to the same key, and its id to
// a text that is read as the same id.
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
	id := codec.NewID(-3, 9, now, make([]byte, codec.UniqueSize), 1)
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

		_, err = l.ParseRequest(kv.KeyValue{
			Key:   append(l.Key(codec.KindRequest, 0), stored...),
			Value: codec.EncodeRequest(Front, now),
		})
		refused(t, err)
	})
}

// FuzzHeld decodes the records of held items and histories. Without an error they are written
// as they were, except that integers may have been longer than necessary.
func FuzzHeld(f *testing.F) {
	now := time.UnixMicro(1_790_000_000_000_000)
	id := codec.NewID(-3, 9, now, make([]byte, codec.UniqueSize), 1)

	h := codec.Record{
		ID:      id,
		State:   codec.Leased,
		Due:     now,
		End:     Back,
		Value:   []byte("value"),
		History: codec.History{Deliveries: 2, Fence: 3, Wait: time.Second},
	}

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
	record := tuple.Tuple{
		int64(1), int64(0), int64(1), int64(1), now.UnixMicro(), int64(1e6), int64(256),
	}.Pack()
	f.Add(append([]byte{byte(len(record))}, record...)) // an end that is no byte
	f.Add([]byte(",\x15\x01\x15\x01\x150\x150\x1b0000000\x17000\x14\x0100\x00\x1b0000000" +
		"\x0100000\x00\x01\x00\x150")) // delayed, but with the begin of a lease
	record = tuple.Tuple{
		int64(1), int64(0), int64(0), int64(0), now.UnixMicro(), int64(1 << 60), int64(0), []byte{},
		int64(0), []byte{}, []byte{}, int64(0),
	}.Pack()
	f.Add(append([]byte{byte(len(record))}, record...)) // never leased, but for 36,000 years

	f.Fuzz(func(t *testing.T, stored []byte) {
		h, err := codec.ParseRecord(&id, stored)
		if !refused(t, err) {
			again, err := codec.ParseRecord(&id, h.Encode())
			if err != nil || !reflect.DeepEqual(again, h) {
				t.Fatalf("%x is read as %+v, written as %x, then read as %+v, %v", stored, h,
					h.Encode(), again, err)
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

// FuzzFinished decodes records and entries of finished jobs. Without an error they are written as
// they were, except that integers may have been longer than necessary.
func FuzzFinished(f *testing.F) {
	now := time.UnixMicro(1_790_000_000_000_000).UTC()
	l := codec.NewLayout(tuple.NewSubspace(tuple.Tuple{"q"}), RawValues, false)
	job := codec.Finished{
		Item:    Item{ID: codec.NewID(1, 2, now, make([]byte, codec.UniqueSize), 1)},
		Outcome: Outcome{Result: []byte("r\x00"), ContentType: "t"},
		At:      now, Order: now, Until: now, Since: now, Deliveries: 1, Fence: 2, Holder: "me",
	}
	job.Value, job.Headers = []byte("value"), map[string][]string{"A": {"1"}}
	f.Add(job.Encode()[0])
	job.NoValue, job.Result, job.Since = true, nil, time.Time{}
	f.Add(job.Encode()[0])
	entry := codec.FinishedEntry{Order: now, At: now, Until: now, Parts: 1}
	f.Add(entry.Encode())
	entry.Place = job.ID
	f.Add(entry.Encode())

	f.Fuzz(func(t *testing.T, stored []byte) {
		j, err := codec.ParseFinished([]kv.KeyValue{{Value: stored}})
		if !refused(t, err) {
			var parts []kv.KeyValue
			for _, part := range j.Encode() {
				parts = append(parts, kv.KeyValue{Value: part})
			}
			again, err := codec.ParseFinished(parts)
			if err != nil || !reflect.DeepEqual(again, j) {
				t.Fatalf("%x is read as %+v, then as %+v, %v", stored, j, again, err)
			}
		}

		key := l.FinishedOrderKey(now, &job.ID)
		e, err := l.ParseFinishedEntry(kv.KeyValue{Key: key, Value: stored})
		if !refused(t, err) {
			again, err := l.ParseFinishedEntry(kv.KeyValue{Key: key, Value: e.Encode()})
			if err != nil || again != e {
				t.Fatalf("entry %x is read as %+v, then as %+v, %v", stored, e, again, err)
			}
		}

		key = l.FinishedEndKey(now, &job.ID)
		e, err = l.ParseFinishedEnd(kv.KeyValue{Key: key, Value: stored})
		if !refused(t, err) {
			again, err := l.ParseFinishedEnd(kv.KeyValue{Key: key, Value: e.EncodeEnd()})
			if err != nil || again != e {
				t.Fatalf("entry by end %x is read as %+v, then as %+v, %v", stored, e, again, err)
			}
		}
	})
}

// FuzzSettings decodes settings. Without an error, all that was stored is written again.
func FuzzSettings(f *testing.F) {
	s := codec.StoredSettings{Settings: Settings{
		AckWait:         time.Second,
		Backoff:         []time.Duration{0, 5},
		MaxDeliver:      3,
		DeadLetter:      "dead",
		TTL:             time.Hour,
		DuplicateWindow: NoDuplicateWindow,
		PauseUntil:      time.UnixMicro(5).UTC(),
		MaxLeased:       1,
		MaxItems:        2,
		MaxBytes:        3,
		Discard:         DiscardOld,
	}}

	f.Add(s.Encode())
	s.Unknown = []any{"later", tuple.Tuple{int64(1), "x"}}
	f.Add(s.Encode())
	f.Add(tuple.Tuple{int64(2)}.Pack())
	f.Add(tuple.Tuple{int64(1), "ack_wait", "soon"}.Pack())
	f.Add(tuple.Tuple{
		int64(1), tuple.Tuple{}, nil, "ack_wait", int64(5), "ack_wait", int64(6),
	}.Pack())

	f.Fuzz(func(t *testing.T, stored []byte) {
		s, err := codec.ParseSettings(stored)
		if refused(t, err) {
			return
		}

		written := s.Encode()
		again, err := codec.ParseSettings(written)
		if err != nil || !reflect.DeepEqual(again.Encode(), written) ||
			!reflect.DeepEqual(again.Unknown, s.Unknown) {
			t.Fatalf("%x is read as %+v, then as %+v, %v", stored, s, again, err)
		}
	})
}

// FuzzReason cleans the reasons that clients give: what remains is short and can be a header.
func FuzzReason(f *testing.F) {
	f.Add("no\r\nPq-Id: x", 5)
	f.Add(strings.Repeat("\xff", 2000), 256)
	f.Add(strings.Repeat("ä", 2000), 255)
	f.Add("\xd7", 2)
	f.Add("\U0001f600", 3)

	f.Fuzz(func(t *testing.T, text string, n int) {
		n = max(n, 0) % 2000
		clean := settings.CleanText(text, n)
		if len(clean) > n || !utf8.ValidString(clean) ||
			strings.IndexFunc(clean, unicode.IsControl) >= 0 {
			t.Fatalf("%q, cut at %d, is %q", text, n, clean)
		}
		if utf8.ValidString(text) && len(clean) < min(len(text), n)-utf8.UTFMax &&
			strings.IndexFunc(text, unicode.IsControl) < 0 {
			t.Fatalf("%q, cut at %d, is only %q", text, n, clean)
		}
	})
}

// FuzzToken reads tokens. A token that can be read is written as the same text.
func FuzzToken(f *testing.F) {
	id := codec.NewID(-3, 1<<62, time.UnixMicro(1_790_000_000_000_000),
		make([]byte, codec.UniqueSize), 1)
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

// fuzzedKinds are the kinds of keys that FuzzStore writes. Its corpus has their indexes.
var fuzzedKinds = []string{
	codec.KindItem, codec.KindMeta, codec.KindCounter, codec.KindRequest, codec.KindAnswer,
	codec.KindDue, codec.KindHeld, codec.KindHistory, codec.KindConfig, codec.KindMsgID,
	codec.KindMsgIDEnd, codec.KindUnique, "b",
}

// fuzzedPair is a key of a kind, without what all keys of the kind begin with, and its value.
type fuzzedPair struct {
	kind       uint8
	key, value []byte
}

// FuzzStore runs all operations on a queue with three arbitrary keys and values.
func FuzzStore(f *testing.F) {
	now := time.UnixMicro(1_790_000_000_000_000)
	id := codec.NewID(0, 0, now, make([]byte, codec.UniqueSize), 1)
	l := fuzzLayout(false, RawValues)
	suffix := func(key []byte) []byte { return key[len(l.Prefix)+codec.KindSize:] }

	at := func(kind string, key, value []byte) fuzzedPair {
		return fuzzedPair{uint8(slices.Index(fuzzedKinds, kind)), key, value}
	}
	add := func(fifo bool, a, b, c fuzzedPair) {
		f.Add(a.kind, a.key, a.value, b.kind, b.key, b.value, c.kind, c.key, c.value, fifo)
	}
	none, zero, junk := []byte{}, make([]byte, 8), []byte("?")

	// Items, and staged pops.
	itemKey, metaKey := suffix(l.ItemKey(&id)), suffix(l.MetaKey(&id, 0))
	item := at(codec.KindItem, itemKey, []byte("value"))
	headers := codec.EncodeMeta(&Message{Headers: map[string][]string{"A": {"b"}}})
	meta := at(codec.KindMeta, metaKey, headers)
	add(false, item, meta, at(codec.KindCounter, none, zero))

	requestKey := suffix(l.RequestKey(0, id.Random))
	request := at(codec.KindRequest, requestKey, codec.EncodeRequest(Back, now))
	answerKey := suffix(l.PartKey(codec.PartAnswer, id.Random))
	answer := at(codec.KindAnswer, answerKey, (&codec.Answer{Deadline: now, Item: &id}).Encode())
	add(false, request, item, answer)

	future := tuple.Tuple{int64(OpPush), time.Unix(1<<40, 0).UnixMicro()}.Pack()
	add(true,
		at(codec.KindAnswer, answerKey, junk),
		at(codec.KindRequest, requestKey, future),
		at(codec.KindCounter, tuple.Tuple{int64(0)}.Pack(), junk))

	dueKey := suffix(l.DueKey(now, l.PartKey(codec.PartAnswer, id.Random)))
	due := at(codec.KindDue, dueKey, none)
	add(false, answer, due, at(codec.KindMeta, metaKey, none))
	cutOff := at(codec.KindDue, dueKey[:len(dueKey)-5], junk)
	add(true, due, cutOff, at(codec.KindCounter, none, zero))

	// Held items and histories.
	heldKey, pastKey := suffix(l.HeldKey(&id)), suffix(l.HistoryKey(&id))
	record := (&codec.Record{
		ID:      id,
		Due:     now,
		Value:   []byte("value"),
		History: codec.History{Deliveries: 1, Fence: 1, Wait: time.Second},
	}).Encode()
	held := at(codec.KindHeld, heldKey, record)
	dueHeld := at(codec.KindDue, suffix(l.DueKey(now, l.HeldKey(&id))), none)
	add(false, held, dueHeld, meta)
	add(false,
		at(codec.KindHeld, heldKey, record[:4]), dueHeld, at(codec.KindHeld, heldKey[:4], record))

	past := codec.History{Deliveries: 1, Fence: 1, Wait: time.Second}
	add(false, item, at(codec.KindHistory, pastKey, past.Encode()), held)
	add(false, item, at(codec.KindHistory, pastKey, junk), at(codec.KindHistory, pastKey[:5], junk))

	settings := (&codec.StoredSettings{Settings: Settings{
		MaxDeliver: 1,
		Backoff:    []time.Duration{time.Second},
		DeadLetter: "x",
	}}).Encode()
	add(false, held, dueHeld, at(codec.KindConfig, none, settings))

	past.Reason, past.Lasting = "no", codec.Lasting{Expires: now}
	add(false,
		item,
		at(codec.KindHistory, pastKey, past.Encode()),
		at(codec.KindConfig, none, settings[:9]))

	// What expires.
	expiring := at(codec.KindMeta, metaKey, codec.EncodeMeta(&Message{Expires: now}))
	expiryKey := suffix(l.DueKey(now, l.ExpiryKey(&id)))
	dueExpiry := at(codec.KindDue, expiryKey, none)
	add(false, item, dueExpiry, expiring)
	add(false, item, expiring, at(codec.KindDue, expiryKey[:len(expiryKey)-3], none))
	add(false, expiring, dueExpiry, at(codec.KindHistory, pastKey, junk))

	// Message ids and unique keys.
	msgIDKey, endKey := suffix(l.MsgIDKey("id")), suffix(l.MsgIDEndKey(now, "id"))
	over := (&codec.Seen{ID: id, Until: now}).Encode()
	uniqueKey := suffix(l.UniqueKey("key"))
	unique := at(codec.KindUnique, uniqueKey, codec.EncodeID(&id))
	add(false, at(codec.KindMsgID, msgIDKey, over), at(codec.KindMsgIDEnd, endKey, over), unique)
	add(true,
		at(codec.KindMsgID, msgIDKey, junk),
		at(codec.KindMsgIDEnd, msgIDKey, junk),
		at(codec.KindUnique, uniqueKey, junk))

	once := codec.EncodeMeta(&Message{MsgID: "id", Unique: "key"})
	add(false, item, at(codec.KindMeta, metaKey, once), unique)

	// Limits.
	limits := (&codec.StoredSettings{Settings: Settings{
		MaxBytes: 5,
		MaxItems: 2,
		Discard:  DiscardOld,
	}}).Encode()
	limited := at(codec.KindConfig, none, limits)
	add(false, item, limited, at("b", none, zero))
	add(true, at(codec.KindMeta, metaKey, junk), limited, at("b", none, junk))

	f.Fuzz(func(
		t *testing.T,
		kind1 uint8, key1, value1 []byte,
		kind2 uint8, key2, value2 []byte,
		kind3 uint8, key3, value3 []byte,
		fifo bool,
	) {
		tx := beginFuzz(t)
		l := fuzzLayout(fifo, RawValues)
		pairs := []fuzzedPair{{kind1, key1, value1}, {kind2, key2, value2}, {kind3, key3, value3}}

		for _, pair := range pairs {
			key := append(l.Key(fuzzedKinds[int(pair.kind)%len(fuzzedKinds)], 0), pair.key...)
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
		if err != nil && !errors.Is(err, ErrEmpty) && !errors.Is(err, ErrCorrupt) &&
			!errors.Is(err, ErrLeaseLost) && !errors.Is(err, ErrSettings) &&
			!errors.Is(err, ErrFull) && !errors.Is(err, ErrMessageTooLarge) {
			t.Fatalf("%s: %v", what, err)
		}
	}

	everything := []Op{
		{Kind: OpSweep}, {Kind: OpExtend}, {Kind: OpPush}, {Kind: OpLease}, {Kind: OpNak},
		{Kind: OpPop}, {Kind: OpPop, End: Back}, {Kind: OpPeek}, {Kind: OpPeek, End: Back},
		{Kind: OpLen}, {Kind: OpLease, End: Back}, {Kind: OpAck}, {Kind: OpSettings},
		{Kind: OpNak, Delay: Backoff, Reason: "no"}, {Kind: OpLease}, {Kind: OpTerm},
		{Kind: OpConfigure, Configure: func(s *Settings) {
			s.MaxDeliver++
			s.MaxBytes = 15 - min(s.MaxBytes, 15)
			s.Discard = DiscardOld
		}},
	}
	for range 3 {
		for _, op := range everything {
			if l.Fifo && op.End == Back {
				continue
			}

			op.Queue = &PriorityQueue{handle{l}}
			op.Message = Message{Value: []byte("x")}
			op.Token = *token

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
