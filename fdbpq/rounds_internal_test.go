package fdbpq

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

// The steps of a staged pop start as many reads as possible together.
func TestRoundsOfStagedPops(t *testing.T) {
	store := countkv.New(memkv.New(memkv.Options{}))
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	l := fuzzLayout(false, RawValues)
	q := &PriorityQueue{handle{l}}
	p := NewPopper(store, q)
	p.now = func() time.Time { return time.Unix(1_790_000_000, 0) }
	p.mu.swept = p.now()
	m := Message{Value: []byte("value"), Headers: map[string][]string{"A": {"1"}}}
	do := func(fn func(tx kv.Transaction) error) {
		t.Helper()
		if err := kv.Update(t.Context(), store, fn); err != nil {
			t.Fatal(err)
		}
	}
	const n = 10
	do(func(tx kv.Transaction) error {
		for range n {
			if _, err := q.Push(tx, 0, m); err != nil {
				return err
			}
		}
		return nil
	})
	var requests []*request
	for range n {
		do(func(tx kv.Transaction) error {
			r := newRequest(l, Front, p.now())
			requests = append(requests, r)
			return p.joinLine(tx, r)
		})
	}
	look := func(r *request) func() error {
		return func() error {
			result, err := p.checkAnswer(t.Context(), r)
			if err == nil && (result == nil || len(result.Item.Headers) != 1) {
				err = fmt.Errorf("result %+v", result)
			}
			return err
		}
	}
	for _, step := range []struct {
		name string
		do   func() error
		want countkv.Cost
	}{
		// The answer, with the first in line, the newest claim and the request; the line; the items together with
		// the first history; the headers of its own item.
		{"serve", look(requests[0]), countkv.Cost{Reads: 9, Rounds: 4}},
		// The claim together with the answer and the like.
		{"look for what was taken", look(requests[0]), countkv.Cost{Reads: 5, Rounds: 1}},
		// The answer; the value together with the headers, the history and the settings.
		{"collect", look(requests[1]), countkv.Cost{Reads: 8, Rounds: 2}},
		// The claim together with the answer; the value together with the headers.
		{"withdraw", func() error { return p.erase(t.Context(), requests[2]) }, countkv.Cost{Reads: 4, Rounds: 2}},
	} {
		store.Take()
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		if got := store.Take(); !slices.Equal(got, []countkv.Cost{step.want}) {
			t.Errorf("%s costs %+v, want %+v", step.name, got, step.want)
		}
	}
}
