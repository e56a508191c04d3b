package fdbpq

import (
	"cmp"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// beginList starts to read the records that an operation returns, or the first ones.
func (q *queueRecords) beginList(op *Op) {
	q.page = q.pageOf(op)
	q.readList(min(cmp.Or(q.page.bytes, firstOfList), firstOfList))
}

// readList starts to read a list up to a number of bytes; 0 is all of it.
func (q *queueRecords) readList(most int) {
	r := q.snapshot
	if q.tx != nil {
		r = q.tx
	}

	span := q.l.KindRange(string(q.kind)) // in the order of their names
	if q.page.after != "" {
		span.Begin = kv.SingleKey(q.l.RecordKey(q.kind, q.page.after)).End
	}
	q.read = kv.RangeOptions{Bytes: most}
	q.list = r.GetRange(span, q.read)
}

func (q *queueRecords) pageOf(op *Op) listPage { return listPage{op.Record, op.MaxBytes} }

// listed returns the records that an operation wants, without consumers that are gone: they have
// expired and get no last term. The error is
// ErrCorrupt or one of the store.
func (q *queueRecords) listed(op *Op) ([]Record, error) {
	if q.list == nil || q.page != q.pageOf(op) {
		q.beginList(op)
	}
	pairs, err := q.list.Get()
	if err == nil && q.read.Full(pairs) && q.read.Bytes != q.page.bytes {
		q.readList(q.page.bytes)
		pairs, err = q.list.Get()
	}
	if err != nil {
		return nil, err
	}

	all := make([]Record, 0, len(pairs))
	for _, pair := range pairs {
		name, err := q.l.ParseRecordKey(pair.Key)
		if err != nil {
			return nil, err
		}
		gone := q.kind == codec.ConsumerRecord &&
			codec.Expired(codec.ConsumerExpires(pair.Value), q.asOf) &&
			codec.LastTerm(pair.Value, q.asOf) == nil
		if gone {
			continue
		}
		all = append(all, Record{name, pair.Value})
	}
	return all, nil
}

// sizeOfRecords is how many bytes an OpConsumers or OpSchedules returns.
func sizeOfRecords(all []Record) (n int) {
	for i := range all {
		n += len(all[i].Name) + len(all[i].Value)
	}
	return n
}
