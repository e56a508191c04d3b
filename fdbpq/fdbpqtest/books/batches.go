package books

import (
	"github.com/pqbridge/pqbridge/fdbpq"
)

// batch is a batch of pushes of unknown outcome.
type batch []string // values

// pushes returns the values that a push pushes.
func (o *Operation) pushes() (values []string) {
	if o.Batch == 0 {
		return []string{o.Value}
	}
	for _, item := range o.Items {
		values = append(values, item.Value)
	}
	return values
}

// pushBatch records a batch of pushes.
func (b *Books) pushBatch(op *Operation) {
	type line struct {
		priority int64
		group    string // "" for all items, which those without a group come after
	}
	newest := map[line]fdbpq.ID{}
	for _, item := range op.Items {
		b.push(&Operation{Kind: Push, Queue: op.Queue, Value: item.Value, ID: item.ID, Outcome: op.Outcome})
		if op.Outcome != Done {
			continue
		}
		id, err := fdbpq.ParseID(item.ID)
		if before, ok := newest[line{id.Priority, item.Group}]; err != nil || ok && before.Compare(&id) >= 0 {
			b.problem("a batch in the wrong order: %q is %s, after %s: %v", item.Value, item.ID, before, err)
		}
		newest[line{id.Priority, item.Group}] = id
		if last, ok := newest[line{id.Priority, ""}]; !ok || last.Compare(&id) < 0 {
			newest[line{id.Priority, ""}] = id
		}
	}
	if op.Open() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.mu.batches = append(b.mu.batches, op.pushes())
	}
}

// completeBatches marks all items of a batch as pushed if one of them was.
func (b *Books) completeBatches() {
	b.mu.Lock()
	batches := b.mu.batches
	b.mu.Unlock()
	for _, values := range batches {
		var entries []*entry
		seen := false
		for _, value := range values {
			e := b.at(b.number(value))
			entries = append(entries, e)
			seen = seen || e.id != 0 || e.marks&settled != 0
		}
		for _, e := range entries {
			if seen {
				e.marks |= pushed
			}
		}
	}
}
