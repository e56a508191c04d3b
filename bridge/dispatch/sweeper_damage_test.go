package dispatch

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// damagedDB is a store that cannot read the keys with a prefix.
type damagedDB struct {
	kv.Database
	prefix []byte
}

func (db damagedDB) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	tx, err := db.Database.Begin(ctx, o)
	return damagedTx{tx, damagedReader{tx, db.prefix}}, err
}

func (db damagedDB) BeginRead(ctx context.Context) (kv.ReadTransaction, error) {
	tx, err := db.Database.BeginRead(ctx)
	return damagedReadTx{tx, damagedReader{tx, db.prefix}}, err
}

type damagedReader struct {
	kv.Reader
	prefix []byte
}

func (r damagedReader) GetRange(keys kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	if bytes.HasPrefix(keys.Begin, r.prefix) {
		return kv.Ready[[]kv.KeyValue](nil, fmt.Errorf("%w: a block", kv.ErrCorrupt))
	}
	return r.Reader.GetRange(keys, o)
}

type damagedTx struct {
	kv.Transaction
	reader damagedReader
}

func (tx damagedTx) GetRange(keys kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	return tx.reader.GetRange(keys, o)
}

func (tx damagedTx) Snapshot() kv.Reader {
	return damagedReader{tx.Transaction.Snapshot(), tx.reader.prefix}
}

type damagedReadTx struct {
	kv.ReadTransaction
	reader damagedReader
}

func (tx damagedReadTx) GetRange(keys kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	return tx.reader.GetRange(keys, o)
}

// A queue that cannot be read, and a name in the list that no queue can have, keep the sweeper from no other queue.
func TestSweeperAndDamagedQueues(t *testing.T) {
	for _, known := range []bool{false, true} { // by batches of this process, or by the list alone
		inSweeping(t, false, func(w *sweeping) {
			begin := tuple.Tuple{"pq-queues", "a b"}.Pack()
			must(t, kv.Update(w.Context(), w.db, func(tx kv.Transaction) error {
				tx.Set(begin, tuple.Tuple{int64(1)}.Pack())
				return nil
			}))
			w.foreign("jobs-2", fdbpq.Op{Kind: fdbpq.OpPush})
			o := func(o *Options) { o.DB = damagedDB{w.db, tuple.Tuple{"pq", "jobs-2", "t"}.Pack()} }
			var a *sweeps
			if known {
				a = w.start(0, o)
			}
			for i := range 5 {
				if name := fmt.Sprint("jobs-", i); known && i != 2 {
					a.do(name, pushFor(time.Minute))
				} else {
					w.foreign(name, pushFor(time.Minute))
				}
			}
			if known {
				a.d.Sweeper().noteAhead([]fdbpq.QueueAhead{{Queue: fdbpq.QueueName{Name: "jobs-2"}, Ahead: fdbpq.Ahead{Due: time.Now().Add(time.Minute)}}})
			} else {
				a = w.start(0, o)
			}

			w.sleep(time.Minute + deadline)
			for i, want := range []int{0, 0, 2, 0, 0} {
				w.want(fmt.Sprint("stored in jobs-", i), w.stored(fmt.Sprint("jobs-", i)), want)
			}
			w.want("expired", a.d.Removed().Expired, 4)
			if n := w.sleep(time.Hour); n > 50 {
				t.Errorf("%d transactions in an hour for a damaged queue", n)
			}
		})
	}
}
