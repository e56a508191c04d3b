package fdbpq

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// ConsumerRecord is what a queue keeps for a consumer, through which programs read it with another
// protocol. This package only keeps it: consumers do not change what operations do.
type ConsumerRecord struct {
	Name  string
	Value []byte // 1 to MaxConsumerValue bytes; not to be changed
}

// Bounds of the records of consumers.
const (
	// MaxConsumers is the most consumers of a queue.
	MaxConsumers = codec.MaxConsumers
	// MaxConsumerName is the longest name of a consumer, in bytes.
	MaxConsumerName = codec.MaxConsumerName
	// MaxConsumerValue is the longest ConsumerRecord.Value, in bytes.
	MaxConsumerValue = codec.MaxConsumerValue
)

// queueConsumers is the operations on the consumers of one queue.
type queueConsumers struct {
	*queueTxn
	indexes []int // into txn.ops
	stored  kv.Future[[]kv.KeyValue]
}

// consumers is those of all queues.
type consumers []*queueConsumers

// atOnce is of how many queues records are read together: those of one can be as long as five values.
func (c consumers) atOnce() int { return (c[0].returned.AtOnce() + 4) / 5 }

// begin starts to read the records of the first queues, so that they take no round trip of their own.
func (c consumers) begin() {
	if len(c) == 0 {
		return
	}
	for _, q := range c[:min(len(c), c.atOnce())] {
		q.beginRead()
	}
}

// run reads the records, of a few queues at a time, and changes them.
func (c consumers) run() error {
	if len(c) == 0 {
		return nil
	}
	for some := range slices.Chunk(c, c.atOnce()) {
		for _, q := range some {
			if q.stored == nil {
				q.beginRead()
			}
		}
		if err := each(some, (*queueConsumers).finish); err != nil {
			return err
		}
	}
	return nil
}

// beginRead starts to read the records: with conflict, because a change depends on what there is.
func (q *queueConsumers) beginRead() {
	r := q.snapshot
	if q.tx != nil {
		r = q.tx
	}
	q.stored = r.GetRange(q.l.ConsumerRange(), kv.RangeOptions{})
}

// finish runs the operations of a queue in their order. A transaction that only reads has failed
// those that change something.
func (q *queueConsumers) finish() error {
	all, err := q.parse()
	if err != nil {
		return q.failOps(err, q.indexes...)
	}

	for _, i := range q.indexes {
		result := &q.results[i]
		switch {
		case q.ops[i].Kind == OpSetConsumer && q.tx != nil:
			all, result.Err = q.set(&q.ops[i], all)
		case q.ops[i].Kind == OpConsumers && !q.returned.Admit(sizeOfConsumers(all)):
			result.Err = ErrNoRoom
		case q.ops[i].Kind == OpConsumers:
			result.Consumers = all
		}
	}
	return nil
}

// parse waits for the records. The error is ErrCorrupt or one of the store.
func (q *queueConsumers) parse() ([]ConsumerRecord, error) {
	pairs, err := q.stored.Get()
	if err != nil {
		return nil, err
	}

	q.stored = nil // it holds values
	all := make([]ConsumerRecord, len(pairs))
	for i, pair := range pairs {
		if all[i].Name, err = q.l.ParseConsumer(pair.Key); err != nil {
			return nil, err
		}
		all[i].Value = pair.Value
	}
	return all, nil
}

// sizeOfConsumers is how many bytes an OpConsumers returns.
func sizeOfConsumers(all []ConsumerRecord) (n int) {
	for i := range all {
		n += len(all[i].Name) + len(all[i].Value)
	}
	return n
}

// set runs an OpSetConsumer. It returns the records that there are then, and leaves those that there
// were, which other operations may have returned.
func (q *queueConsumers) set(op *Op, all []ConsumerRecord) ([]ConsumerRecord, error) {
	at, found := slices.BinarySearchFunc(all, op.Consumer, func(r ConsumerRecord, name string) int {
		return strings.Compare(r.Name, name)
	})
	var old []byte
	after := all[at:]
	if found {
		old, after = all[at].Value, all[at+1:]
	}

	value, err := op.Change(old)
	switch {
	case err != nil:
		return all, err
	case bytes.Equal(value, old):
		return all, nil
	case len(value) > MaxConsumerValue:
		return all, fmt.Errorf("%w: a consumer of %d bytes: want at most %d", ErrOp, len(value), MaxConsumerValue)
	case !found && len(all) >= MaxConsumers:
		return all, fmt.Errorf("%w: %d", ErrMaxConsumers, MaxConsumers)
	}

	q.ledger.SetConsumer(op.Consumer, value)
	if len(value) == 0 {
		return slices.Concat(all[:at], after), nil
	}
	return slices.Concat(all[:at], []ConsumerRecord{{op.Consumer, value}}, after), nil
}

// CheckConsumer returns an error unless a consumer can have the name: it has to fit into a subject.
func CheckConsumer(name string) error { return codec.CheckConsumer(name) }
