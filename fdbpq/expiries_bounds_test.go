package fdbpq_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Expired items that take the most keys, each alone in its priority, fit into a transaction: of a pop, of a sweep, and
// beside the largest push.
func TestRoomOfExpired(t *testing.T) {
	onEngines(t, func(f *fixture) {
		clock := f.setClock()
		for name, removal := range map[string]fdbpq.Op{"pop": opPopMin, "sweep": {Kind: fdbpq.OpSweep}} {
			q := f.queue(name + strings.Repeat("\x00", 100))
			f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = 1 << 40 })
			for n := range 3 {
				f.apply(many(400, func(i int) fdbpq.Op {
					push := withTTL(opPush(q, int64(n*400+i)<<40, "expires"), time.Second)
					push.Message.Unique = fmt.Sprint(n, i, strings.Repeat("\x00", 500))
					return push
				})...)
			}
			clock.advance(time.Second)

			for _, beside := range []fdbpq.Op{op(opLen, q), opPush(q, 1<<60, strings.Repeat("x", fdbpq.MaxMessageSize))} {
				before := f.batcher.Removed().Expired
				for _, r := range f.apply(beside, op(removal, q)) {
					if r.Err != nil && !errors.Is(r.Err, fdbpq.ErrNoRoom) {
						f.Error(r.Err)
					}
				}
				if gone := f.batcher.Removed().Expired - before; gone < 20 {
					f.Errorf("%s beside %v: %d items have gone", name, beside.Kind, gone)
				}
			}
		}
	})
}

// A transaction reads only so many bytes of expired items, whichever part of these is large, and the next ones go on.
func TestLargeExpired(t *testing.T) {
	const n, size, most = 300, 89_000, 32 << 20
	for name, large := range map[string]func(*fdbpq.Message){
		"value":   func(m *fdbpq.Message) { m.Value = make([]byte, size) },
		"headers": func(m *fdbpq.Message) { m.Headers = map[string][]string{"Large": {strings.Repeat("x", size)}} },
	} {
		for what, removal := range map[string]fdbpq.Op{"pop": opPopMin, "sweep": {Kind: fdbpq.OpSweep}} {
			t.Run(name+"/"+what, func(t *testing.T) {
				store := newSizeStore()
				f := newFixture(t, store, fdbpq.RawValues)
				clock := f.setClock()
				q := f.queue("large")
				f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = 1 << 40 })
				for range n / 50 {
					f.apply(many(50, func(i int) fdbpq.Op {
						push := withTTL(opPush(q, int64(i%3), ""), time.Second)
						large(&push.Message)
						return push
					})...)
				}
				for range 50 {
					f.push(q, 1, "live")
				}
				clock.advance(time.Second)

				for gone := int64(0); gone < n; {
					store.bytes = 0
					r := f.apply(op(removal, q))[0]
					if read := store.bytes; read > most {
						t.Errorf("a transaction read %d bytes", read)
					}
					if r.Err != nil && !errors.Is(r.Err, fdbpq.ErrNoRoom) {
						t.Fatal(r.Err)
					}
					before := gone
					if gone = f.batcher.Removed().Expired; gone == before {
						t.Fatalf("a transaction has removed nothing after %d items", gone)
					}
				}
				f.check()
			})
		}
	}
}

// A peek behind whose expired items nobody can look, because what is due cannot be read either, fails for that reason, and
// is not to be tried again.
func TestPeekBehindExpiredAndDamage(t *testing.T) {
	f := onMem(t)
	clock := f.setClock()
	q := f.queue("jobs")
	for range 3 {
		f.apply(many(1000, func(int) fdbpq.Op { return withTTL(opPush(q, 1, "expires"), time.Second) })...)
	}
	write(f, func(tx kv.Transaction) {
		for i := range duePage {
			tx.Set(tuple.Tuple{f.priority, "jobs", "t", int64(i), "unknown"}.Pack(), nil)
		}
	})
	clock.advance(time.Second)
	r := f.apply(op(opPeekMin, q))[0]
	if !errors.Is(r.Err, fdbpq.ErrCorrupt) || errors.Is(r.Err, fdbpq.ErrNoRoom) {
		t.Error(r.Err)
	}
	write(f, func(tx kv.Transaction) { tx.ClearRange(everything(f.priority)) })
}
