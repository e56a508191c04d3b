package fdbpq_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// configure changes settings, which must succeed.
func (f *fixture) configure(q fdbpq.Target, change func(*fdbpq.Settings)) fdbpq.Settings {
	f.Helper()
	r := f.apply(fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: q, Configure: change})[0]
	if r.Err != nil {
		f.Fatalf("Configure: %v", r.Err)
	}
	return *r.Settings
}

// Settings are stored under one key, which is gone when they are all reset. What a newer version has
// set stays.
func TestSettings(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		key := tuple.Tuple{f.priority, "jobs", "c"}.Pack()
		want := fdbpq.Settings{
			AckWait: time.Minute, Backoff: []time.Duration{time.Second, 0}, MaxDeliver: 3, DeadLetter: "failed", TTL: time.Hour,
			PauseUntil: time.UnixMicro(5).UTC(), MaxLeased: 6, MaxItems: 7, MaxBytes: 8, Discard: "old", DuplicateWindow: fdbpq.NoDuplicateWindow,
		}
		got := must(do(f, func(tx kv.Transaction) (fdbpq.Settings, error) {
			return q.Configure(tx, func(s *fdbpq.Settings) { *s = want })
		}))
		wantEqual(f.T, "configured", got, want)
		golden := tuple.Tuple{
			int64(1), "ack_wait", int64(60e9), "backoff", tuple.Tuple{int64(1e9), int64(0)}, "max_deliver", int64(3), "dead_letter", "failed",
			"ttl", int64(3600e9), "pause_until", int64(5), "max_leased", int64(6), "max_items", int64(7), "max_bytes", int64(8), "discard", "old",
			"duplicate_window", int64(-1),
		}
		f.wantStored(key, golden.Pack())
		f.wantListed("with settings", "jobs")
		got = must(kv.ReadTransact(f.ctx, f.db, q.Settings))
		wantEqual(f.T, "read", got, want)

		write(f, func(tx kv.Transaction) {
			golden[2] = int64(1) // a newer version may have other bounds
			tx.Set(key, append(golden, "later", tuple.Tuple{int64(7), "x"}, "max_later", int64(9)).Pack())
		})
		wantEqual(f.T, "ack_wait", f.configure(q, func(s *fdbpq.Settings) { s.Backoff = nil }).AckWait, time.Nanosecond)
		f.configure(q, func(s *fdbpq.Settings) { *s = fdbpq.Settings{} })
		f.wantStored(key, tuple.Tuple{int64(1), "later", tuple.Tuple{int64(7), "x"}, "max_later", int64(9)}.Pack())
		write(f, func(tx kv.Transaction) { tx.Set(key, golden.Pack()) })
		f.configure(q, func(s *fdbpq.Settings) { *s = fdbpq.Settings{} })
		if left := f.stored(f.priority); len(left) > 0 {
			f.Errorf("left: %q", left)
		}
	})
}

// Settings that cannot be are refused with their name, and nothing changes.
func TestBadSettings(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	own := fdbpq.NewPriorityQueue(tuple.NewSubspace(tuple.Tuple{f.priority, "own"}), fdbpq.RawValues)
	f.configure(q, func(s *fdbpq.Settings) { s.MaxDeliver = 5 })
	for name, test := range map[string]struct {
		q      fdbpq.Target
		change func(*fdbpq.Settings)
	}{
		"ack_wait: 99ms: want 100ms":   {q, func(s *fdbpq.Settings) { s.AckWait = 99 * time.Millisecond }},
		"dead_letter: \"jobs\" is the": {q, func(s *fdbpq.Settings) { s.MaxDeliver, s.DeadLetter = 1, "jobs" }},
		"dead_letter: a name of 129":   {q, func(s *fdbpq.Settings) { s.DeadLetter = strings.Repeat("x", 129) }},
		"dead_letter: \"x\": a queue":  {own, func(s *fdbpq.Settings) { s.DeadLetter = "x" }},
	} {
		r := f.apply(fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: test.q, Configure: test.change})[0]
		if !errors.Is(r.Err, fdbpq.ErrSettings) || !strings.Contains(r.Err.Error(), name) {
			t.Errorf("%v: want %q", r.Err, name)
		}
	}
	wantError(t, f.apply(fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: q})[0].Err, fdbpq.ErrOp)
	wantEqual(t, "settings", *f.apply(fdbpq.Op{Kind: fdbpq.OpSettings, Queue: q})[0].Settings, fdbpq.Settings{MaxDeliver: 5})
}

// Stored settings that cannot be read stay, and only what depends on them fails.
func TestCorruptSettings(t *testing.T) {
	onEngines(t, func(f *fixture) {
		f.corrupt = true
		q := f.queue("jobs")
		key := tuple.Tuple{f.priority, "jobs", "c"}.Pack()
		now := time.Now()
		for _, bad := range [][]byte{{}, {0xff}, tuple.Tuple{int64(2)}.Pack(), tuple.Tuple{int64(1), "ack_wait"}.Pack(), tuple.Tuple{int64(1), "backoff", int64(5)}.Pack()} {
			write(f, func(tx kv.Transaction) { q.Clear(tx) })
			f.push(q, 1, "a")
			f.push(q, 2, "b")
			token := f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Second})[0].Lease.Token
			write(f, func(tx kv.Transaction) { tx.Set(key, bad) })
			for _, what := range []fdbpq.Op{
				{Kind: fdbpq.OpNak}, {Kind: fdbpq.OpTerm}, {Kind: fdbpq.OpLease}, {Kind: fdbpq.OpSettings},
				{Kind: fdbpq.OpConfigure, Configure: func(*fdbpq.Settings) {}},
			} {
				what.Queue, what.Token = q, token
				wantError(f.T, f.applyAt(now, what)[0].Err, fdbpq.ErrCorrupt)
			}
			f.push(q, 3, "c")
			long := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour, End: fdbpq.Back}
			wantEqual(f.T, "leased with a length", string(f.applyAt(now, long)[0].Item.Value), "c")
			results := f.applyAt(now.Add(time.Minute), op(opPopMin, q), op(opPopMin, q))
			wantEqual(f.T, "popped", string(results[0].Item.Value), "b")
			wantError(f.T, results[1].Err, fdbpq.ErrCorrupt)
			wantError(f.T, f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: token})[0].Err, nil)
			f.wantStored(key, bad)
		}
	})
}

// configKey is the key of the settings of a priority queue.
func (f *fixture) configKey(name string) []byte { return tuple.Tuple{f.priority, name, "c"}.Pack() }
