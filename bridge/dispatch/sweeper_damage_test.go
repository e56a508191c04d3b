package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

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
			o := func(o *Options) { o.DB = &hookedDB{Database: w.db, damage: tuple.Tuple{"pq", "jobs-2", "t"}.Pack()} }
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
