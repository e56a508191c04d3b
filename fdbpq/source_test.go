package fdbpq_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// draws returns the operations that draw messages behind the one with a sequence.
func draws(q fdbpq.Target, behind uint64, values ...string) []fdbpq.Op {
	ops := []fdbpq.Op{{
		Kind:  fdbpq.OpSetSource,
		Queue: q,
		Change: func(old []byte, _ time.Time) ([]byte, error) {
			s, err := settings.ParseSourceState(old)
			if err == nil && s.Sequence != behind {
				err = fmt.Errorf("drawn up to %d", s.Sequence)
			}

			s.Sequence += uint64(len(values))
			return s.JSON(), err
		},
	}}

	for _, value := range values {
		push := opPush(q, 1, value)
		push.Follows = true
		ops = append(ops, push)
	}

	return ops
}

func (f *fixture) setSource(q fdbpq.Target, source string) {
	f.configure(q, func(s *fdbpq.Settings) { s.Source = source })
}

// wantSource checks the sequence and the ready items of a queue.
func (f *fixture) wantSource(
	what string, q *fdbpq.PriorityQueue, sequence uint64, values ...string,
) {
	f.Helper()
	r := f.apply(fdbpq.Op{Kind: fdbpq.OpSettings, Queue: q})[0]
	wantError(f.T, r.Err, nil)

	s, err := settings.ParseSourceState(r.Source)
	wantError(f.T, err, nil)
	wantEqual(f.T, what, s.Sequence, sequence)
	wantEqual(f.T, what+": items", f.length(q), int64(len(values)))
	f.check()
}

// A change of the source's state and the pushes that follow it are done together or not at all.
func TestSource(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		wantError(t, f.apply(draws(q, 0, "a")...)[1].Err, fdbpq.ErrNoSource)

		f.setSource(q, `{"stream":"S"}`)
		f.wantListed("with a source", "jobs")
		f.wantSource("at first", q, 0)

		results := f.apply(slices.Concat(draws(q, 0, "a", "b"), draws(q, 2, "c"),
			[]fdbpq.Op{opPush(q, 1, "d")})...)
		wantErrors(t, results, nil, nil, nil, fdbpq.ErrNoRoom, fdbpq.ErrNoRoom, nil)
		f.wantSource("first", q, 2, "a", "b", "d")

		results = f.apply(append(draws(q, 0, "a", "b"), opPush(q, 1, "e"))...)
		if err := results[0].Err; err == nil || !errors.Is(results[1].Err, err) ||
			!errors.Is(results[2].Err, err) || results[3].Err != nil {
			t.Errorf("drawn again: %+v", results)
		}
		f.wantSource("drawn again", q, 2, "a", "b", "d", "e")

		f.configure(q, func(s *fdbpq.Settings) { s.MaxItems = 5 })
		results = f.apply(draws(q, 2, "c", "d")...)
		wantError(t, results[0].Err, fdbpq.ErrFull)
		f.wantSource("full", q, 2, "a", "b", "d", "e")
		wantError(t, f.apply(draws(q, 2, "c")...)[0].Err, nil)
		f.wantSource("not full", q, 3, "a", "b", "d", "e", "c")

		// What draws the same messages goes on, and what draws others begins again.
		f.setSource(q, `{"stream":"S","priority":5}`)
		f.wantSource("with a priority", q, 3, "a", "b", "d", "e", "c")

		f.setSource(q, `{"stream":"S","start":1}`)
		f.wantSource("with a start", q, 0, "a", "b", "d", "e", "c")

		f.setSource(q, "")
		wantEqual(t, "without a source",
			len(f.apply(fdbpq.Op{Kind: fdbpq.OpSettings, Queue: q})[0].Source), 0)
		f.check()
	})
}

// A transaction that changes or removes the source draws nothing.
func TestSourceIsSetWhileItDraws(t *testing.T) {
	for _, source := range []string{"", `{"stream":"T"}`, `{"stream":"S","on_bad":"stop"}`} {
		f := onMem(t)
		q := f.queue("jobs")
		f.setSource(q, `{"stream":"S"}`)

		set := fdbpq.Op{
			Kind:      fdbpq.OpConfigure,
			Queue:     q,
			Configure: func(s *fdbpq.Settings) { s.Source = source },
		}

		results := f.apply(append(draws(q, 0, "a", "b"), set)...)
		wantErrors(t, results, fdbpq.ErrNoRoom, fdbpq.ErrNoRoom, fdbpq.ErrNoRoom, nil)
		wantEqual(t, source+": items", f.length(q), 0)

		state, _ := settings.ParseSourceState(
			f.apply(fdbpq.Op{Kind: fdbpq.OpSettings, Queue: q})[0].Source)
		wantEqual(t, "source", string(state.Source), source)
		f.check()
	}
}

// The dead letters of an OpSetSource come with its change or not at all.
func TestSourceDeadLetters(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	f.setSource(q, `{"stream":"S"}`)
	m := fdbpq.Message{Value: []byte("bad"), DeadLetter: &fdbpq.DeadLetter{Reason: "why"}}
	ops := draws(q, 0, "a")
	ops[0].Dead = []fdbpq.Message{m}

	wantError(t, f.apply(ops...)[1].Err, nil)
	wantEqual(t, "dead letters", f.length(f.queue("jobs-dead")), 1)

	if err := f.apply(ops...)[1].Err; err == nil {
		t.Error("drawn twice")
	}
	wantEqual(t, "dead letters", f.length(f.queue("jobs-dead")), 1)
	f.wantSource("drawn", q, 1, "a")

	item := must(f.take(f.queue("jobs-dead").PopMin))
	if d := item.Message.DeadLetter; string(item.Message.Value) != "bad" || d.Queue != "jobs" ||
		d.Reason != "why" || d.At.IsZero() {
		t.Errorf("dead letter %+v", item.Message)
	}

	// If the dead-letter queue cannot be read, nothing is done.
	f.corrupt = true
	write(f, func(tx kv.Transaction) {
		tx.Set(tuple.Tuple{f.priority, "jobs-dead", "i", int64(0), "x"}.Pack(), []byte("x"))
	})
	ops = draws(q, 1, "b")
	ops[0].Dead = []fdbpq.Message{m}

	results := f.apply(append(ops, opPush(q, 1, "c"))...)
	wantErrors(t, results, fdbpq.ErrCorrupt, fdbpq.ErrCorrupt, nil)
	wantEqual(t, "items", f.length(q), 2)
}

// An OpSetSource without a Change only reads, and a source needs a stream.
func TestSourceOps(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	wantError(t, f.apply(fdbpq.Op{Kind: fdbpq.OpSetSource, Queue: q})[0].Err, fdbpq.ErrNoSource)

	f.configure(q, func(s *fdbpq.Settings) { s.Source = `{"stream":"S"}` })
	stored := f.apply(fdbpq.Op{Kind: fdbpq.OpSetSource, Queue: q},
		fdbpq.Op{Kind: fdbpq.OpSettings, Queue: q})
	wantErrors(t, stored, nil, nil)
	if len(stored[0].Source) == 0 || string(stored[0].Source) != string(stored[1].Source) {
		t.Errorf("%s is read, want %s", stored[0].Source, stored[1].Source)
	}

	bad := f.apply(fdbpq.Op{
		Kind:      fdbpq.OpConfigure,
		Queue:     q,
		Configure: func(s *fdbpq.Settings) { s.Source = "{}" },
	})[0].Err
	if !errors.Is(bad, fdbpq.ErrSettings) || !strings.Contains(bad.Error(), "source: stream") {
		t.Errorf("bad source: %v", bad)
	}
}
