package fdbpqtest

import (
	"errors"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// finished is the finished jobs that a queue keeps.
type finished struct {
	records table[[]kv.KeyValue]       // by the id of the job
	entries table[codec.FinishedEntry] // of the order, likewise
	ends    table[codec.FinishedEntry] // of the index by end, likewise
	places  table[string]              // the id of the job, by its last place
	count   int64
}

// finishedKey takes a key of a record, or the key of a job's last place.
func (q *queue) finishedKey(key tuple.Tuple, value []byte) error {
	last := len(key) - 1
	part, isPart := key[last].(int64)
	if !isPart {
		job, err := codec.ParseAlias(value)
		q.finished.places.set(string(key.Pack()), q.idKey(&job))
		return err
	}

	job := string(key[:last].Pack())
	parts := q.finished.records[job]
	q.finished.records.set(job, append(parts, kv.KeyValue{Value: value}))
	if part != int64(len(parts)) {
		return errors.New("a part of the record is missing")
	}
	return nil
}

// finishedOrder takes the counter of finished jobs, or an entry of their order.
func (q *queue) finishedOrder(key tuple.Tuple, value []byte) (err error) {
	if len(key) == 0 {
		q.finished.count, err = number(value)
		return err
	}

	l, pair := q.pair(codec.KindFinishedOrder, key, value)
	e, err := l.ParseFinishedEntry(pair)
	return errors.Join(err, q.finishedEntry(&q.finished.entries, e))
}

// finishedEnd takes an entry of the index of finished jobs by end.
func (q *queue) finishedEnd(key tuple.Tuple, value []byte) error {
	l, pair := q.pair(codec.KindFinishedEnd, key, value)
	e, err := l.ParseFinishedEnd(pair)
	return errors.Join(err, q.finishedEntry(&q.finished.ends, e))
}

// pair returns a pair as it would be in another queue, and the layout to read it with.
func (q *queue) pair(kind string, key tuple.Tuple, value []byte) (*codec.Layout, kv.KeyValue) {
	l := codec.NewLayout(tuple.NewSubspace(tuple.Tuple{"x"}), codec.RawValues, q.fifo)
	return l, kv.KeyValue{Key: append(l.Key(kind, 0), key.Pack()...), Value: value}
}

func (q *queue) finishedEntry(of *table[codec.FinishedEntry], e codec.FinishedEntry) error {
	job := q.idKey(&e.Job)
	if _, twice := (*of)[job]; twice {
		return errors.New("the job has another entry")
	}
	of.set(job, e)
	return nil
}

// checkFinished compares the records of finished jobs with their order, their index by end and
// their counter, and with the items of the queue.
func (q *queue) checkFinished() {
	entries, places := map[string]codec.FinishedEntry{}, map[string]string{}
	for job, parts := range q.finished.records {
		f, err := codec.ParseFinished(parts)
		if err != nil {
			q.problem("finished job %x: %w", job, err)
			continue
		}

		e := codec.FinishedEntry{
			Order: f.Order, Job: f.Job(), At: f.At, Until: f.Until, Parts: len(parts),
		}
		if e.Job != f.ID {
			e.Place = f.ID
			places[q.idKey(&f.ID)] = job
		}
		entries[job] = e
		if q.idKey(&e.Job) != job || f.Fence < 1 || f.Deliveries < 0 || !f.Until.After(f.At) ||
			f.Order.Before(f.At) {
			q.problem("finished job %x: %+v", job, f)
		}
	}

	compare(q, "order of finished jobs", q.finished.entries, entries)
	compare(q, "finished jobs by end", q.finished.ends, entries)
	compare(q, "places of finished jobs", q.finished.places, places)
	if n := int64(len(q.finished.entries)); q.finished.count != n {
		q.problem("number of finished jobs is %d, want %d", q.finished.count, n)
	}
	for id := range q.metas {
		m := q.messages[id]
		if m.First != nil {
			id = q.idKey(m.First)
		}
		if _, done := q.finished.records[id]; done {
			q.problem("job %x is finished, and in the queue", id)
		}
	}
}
