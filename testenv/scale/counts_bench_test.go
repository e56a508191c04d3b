package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

// BenchmarkCounts counts what batches read and write, of one queue and with a queue for each
// operation. Nothing in it is measured, so it gives the same on every machine.
func BenchmarkCounts(b *testing.B) {
	for _, shape := range []struct{ size, queues int }{{1, 1}, {100, 1}, {100, 100}, {1000, 1}} {
		c := newCounted(b, shape.size, shape.queues)
		c.report(b, "push", c.ops(fdbpq.OpPush))
		leased := c.report(b, "lease", c.ops(fdbpq.OpLease))
		acks := c.ops(fdbpq.OpAck)
		for i := range acks {
			acks[i].Token = leased[i].Lease.Token
		}
		c.report(b, "ack", acks)
		c.report(b, "pop", c.ops(fdbpq.OpPop))
	}
}

// counted is a store that counts, with queues that have had items.
type counted struct {
	store   *countkv.DB
	writes  writes
	batcher *fdbpq.Batcher
	queues  []fdbpq.Target
	size    int
}

func newCounted(b *testing.B, size, queues int) *counted {
	c := &counted{size: size}
	c.store = countkv.New(&writing{memkv.New(memkv.Options{}), &c.writes})
	keyspace, err := fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
	if err != nil {
		b.Fatal(err)
	}

	c.batcher = fdbpq.NewBatcher(c.store, keyspace)
	for i := range queues {
		q, err := keyspace.PriorityQueue(fmt.Sprintf("q1-%d", i))
		if err != nil {
			b.Fatal(err)
		}
		c.queues = append(c.queues, q)
	}
	c.apply(b, c.ops(fdbpq.OpPush))
	c.apply(b, c.ops(fdbpq.OpPush))
	return c
}

// ops are as many operations as a batch has.
func (c *counted) ops(kind fdbpq.OpKind) (ops []fdbpq.Op) {
	for i := range c.size {
		ops = append(ops, fdbpq.Op{
			Kind: kind, Queue: c.queues[i%len(c.queues)], Priority: int64(i % 10),
			Message: fdbpq.Message{Value: value}, Lease: time.Minute,
		})
	}
	return ops
}

func (c *counted) apply(b *testing.B, ops []fdbpq.Op) []fdbpq.Result {
	results, err := c.batcher.Apply(b.Context(), ops)
	for i := range results {
		if results[i].Err != nil {
			err = results[i].Err
		}
	}
	if err != nil {
		b.Fatal(err)
	}
	return results
}

// report runs a batch and reports its counts.
func (c *counted) report(b *testing.B, op string, ops []fdbpq.Op) (results []fdbpq.Result) {
	c.store.Take()
	c.writes = writes{}
	results = c.apply(b, ops)
	cost := c.store.Take()[0]
	n := float64(c.size)
	b.Run(fmt.Sprintf("batch=%d/queues=%d/op=%s", c.size, len(c.queues), op), func(b *testing.B) {
		b.ReportMetric(0, "ns/op") // an iteration means nothing
		b.ReportMetric(float64(cost.Rounds), "rounds")
		b.ReportMetric(float64(cost.Reads)/n, "reads/item")
		b.ReportMetric(float64(c.writes.n)/n, "writes/item")
		b.ReportMetric(float64(c.writes.bytes)/n, "written-B/item")
	})
	return results
}

// writes counts the writes of transactions, with the bytes of their keys and values.
type writes struct{ n, bytes int }

// writing is a store whose writes are counted.
type writing struct {
	kv.Database
	to *writes
}

func (db *writing) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	tx, err := db.Database.Begin(ctx, o)
	return writer{tx, db.to}, err
}

type writer struct {
	kv.Transaction
	to *writes
}

func (tx writer) count(key []byte, more int) {
	tx.to.n++
	tx.to.bytes += len(key) + more
}

func (tx writer) Set(key, value []byte) {
	tx.count(key, len(value))
	tx.Transaction.Set(key, value)
}

func (tx writer) Clear(key []byte) {
	tx.count(key, 0)
	tx.Transaction.Clear(key)
}

func (tx writer) ClearRange(r kv.Range) {
	tx.count(r.Begin, len(r.End))
	tx.Transaction.ClearRange(r)
}

func (tx writer) Add(key []byte, delta int64) {
	tx.count(key, 8)
	tx.Transaction.Add(key, delta)
}

func (tx writer) CompareAndClear(key, value []byte) {
	tx.count(key, len(value))
	tx.Transaction.CompareAndClear(key, value)
}
