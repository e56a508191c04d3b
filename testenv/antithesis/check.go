package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/antithesishq/antithesis-sdk-go/assert"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
	"github.com/pqbridge/pqbridge/testenv/proof"
)

// look checks what holds at any time, unless the service is away.
func look(w *workload) {
	ctx := context.Background()
	for n := range w.used() {
		queue := w.client.PriorityQueue(name(n))
		length, err := queue.Len(ctx)
		if err == nil {
			assert.Always(length >= 0, "no length is negative", map[string]any{"length": length})
		}

		page, err := queue.Items(ctx, client.ItemsOptions{})
		if err == nil {
			inOrder := slices.IsSortedFunc(page.Items, func(a, b client.StoredItem) int {
				return cmp.Compare(a.Priority, b.Priority)
			})
			assert.Always(inOrder, "items are listed in order", map[string]any{"page": page})
			assert.Sometimes(len(page.Items) > 1, "several items are listed", nil)
		}
	}
}

// check empties the queues once everything held has fallen due, and checks the history.
func check(w *workload) {
	w.await()
	time.Sleep(requestTimeout + lease + delay + 2*skew)
	used := w.used()
	journal, err := os.Create(filepath.Join(w.dir, "driver-last"))
	must(err)
	last := &driver{workload: w, journal: journal}
	for n := range used {
		pop := books.Operation{Kind: books.PopMin, Queue: name(n)}
		for last.do(pop).Outcome != books.Empty {
		}
	}

	h := w.history()
	must(h.Keep(filepath.Join(w.dir, "history.jsonl")))
	err = h.Check(checkTimeout)
	undecided := errors.Is(err, proof.ErrUndecided)
	assert.Sometimes(!undecided, "a history is checked to its end", nil)
	assert.Always(err == nil || undecided, "the history has one order, and nothing is lost or "+
		"served twice", map[string]any{"error": err, "operations": len(h.Operations)})
	if !undecided {
		must(err)
	}
}

// files returns those of the drivers.
func (w *workload) files() []string {
	files, _ := filepath.Glob(filepath.Join(w.dir, "driver-*")) // fails for bad patterns only
	return files
}

// used returns how many queues the drivers use.
func (w *workload) used() int { return 1 + len(w.files())/driversPerQueue }

// history returns what the drivers have noted.
func (w *workload) history() *proof.History {
	h := &proof.History{
		Name: "antithesis", Again: "run it there again", OneByOne: true, Mortal: true,
		Skew: int64(skew), MaxLeased: limits(),
	}

	for _, file := range w.files() {
		data, err := os.ReadFile(file)
		must(err)
		noted := map[int64]books.Operation{} // by Call: the last one counts
		for lines := json.NewDecoder(bytes.NewReader(data)); ; {
			var op books.Operation
			if lines.Decode(&op) != nil {
				break // the end, or a line that a killed driver has not finished
			}
			noted[op.Call] = op
		}
		h.Operations = slices.AppendSeq(h.Operations, maps.Values(noted))
	}

	return h
}
