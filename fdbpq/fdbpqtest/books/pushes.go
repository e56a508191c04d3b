package books

import (
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq"
)

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

// announce opens the accounts of items before they are pushed.
func (b *Books) announce(op *Operation) {
	for _, value := range op.pushes() {
		b.name(value)
		e, unlock := b.entry(value)
		if op.Delay > 0 {
			e.until = millis(op.Call + op.Delay)
		}
		if op.TTL > 0 {
			e.marks |= expiring
			e.expires.from = millis(op.Call + op.TTL)
		}
		if strings.HasSuffix(op.Queue, "-purged") { // but not its dead-letter queue
			e.marks |= purgeable
		}
		if IsMortal(op.Queue) {
			e.marks |= mortal
		}
		if HasBackoff(op.Queue) {
			e.marks |= retried
		}
		if e.marks&vanishing != 0 {
			b.mayEnds.Add(1)
		}
		if op.Unique != "" {
			e.marks |= keyed
			b.keys.announce(op)
		}

		unlock()
	}
}

// push judges the push of one item.
func (b *Books) push(op *Operation) {
	e, unlock := b.entry(op.Value)
	defer unlock()
	if e.marks&keyed != 0 {
		b.keys.push(op, b.tolerance)
	}

	done := op.Outcome != Refused && op.Outcome != Duplicate
	if !done {
		b.unmark(e, vanishing)
	}
	if op.Outcome != Done && e.marks&vanishing == 0 {
		b.mayPushes.Add(1)
	}

	switch {
	case op.Outcome == Done:
		e.marks |= pushed
		if e.marks&expiring != 0 {
			e.expires.to = millis(op.Return + op.TTL)
		}
		if e.life() == 0 {
			b.identify(e, op.ID, millis(op.Call))
		}
		if e.first == 0 && op.ID != "" {
			e.first = hash(op.ID)
		}
	case !done && (e.leases > 0 || e.marks&settled != 0):
		b.problem("refused, but done: the push of %q", op.Value)
	case !done:
		e.marks |= refused
	}
}

// pushBatch records a batch of pushes.
func (b *Books) pushBatch(op *Operation) {
	type line struct {
		priority int64
		group    string // "" for all items; an item without a group comes after all of them
	}

	newest := map[line]fdbpq.ID{}
	for _, item := range op.Items {
		single := Operation{Kind: Push, Queue: op.Queue, Value: item.Value, ID: item.ID}
		single.Outcome = op.Outcome
		b.push(&single)
		if op.Outcome != Done {
			continue
		}

		id, err := fdbpq.ParseID(item.ID)
		at := line{id.Priority, item.Group}
		if before, ok := newest[at]; err != nil || ok && before.Compare(&id) >= 0 {
			b.problem("a batch in the wrong order: %s %v after %v: %v", item.Value, id, before, err)
		}

		newest[at] = id
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
