package dispatch

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/subjects"
)

// until is a Wait that ends after d.
func until(d time.Duration) *Wait { return &Wait{Until: time.Now().Add(d)} }

// A pop whose time is over while the pops before it are in flight is not told that the queue is
// empty: nobody has looked for it.
func TestWaiterWhoseTimeIsOverBeforeItsTurn(t *testing.T) {
	withLater(t, func(*Options) {}, func(w *waiting, commits chan struct{}) {
		durable := func() {
			synctest.Wait()
			commits <- struct{}{}
		}
		w.submit(nil, push(w.q, "a"), push(w.q, "b"))
		durable()
		w.submit(w.minute(), pop(w.q)) // 2
		synctest.Wait()
		w.submit(&Wait{Until: time.Now().Add(time.Millisecond), Heartbeat: 100 * time.Millisecond}, pop(w.q)) // 3
		time.Sleep(150 * time.Millisecond)
		w.want("the first is in flight", "3: heartbeat 1")
		durable()
		w.want("the first", "2: a")
		durable()
		w.want("the second", "3: b")
		close(commits)
	})
}

// What another program pushed is there for a pop that came after it, though nobody told the bridge:
// it looks at the end of its time at the latest. One look is good for all that came before it.
func TestLastLook(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		w.park(pop(w.q))     // 1
		w.pushElsewhere("a") // nobody is woken
		for i := range 30 {  // 2 to 31
			w.submit(until(time.Duration(10+i)*time.Second), pop(w.q))
			synctest.Wait()
		}
		w.transactions()
		w.want("nobody has looked")
		time.Sleep(10 * time.Second)
		w.want("the time of the second is over", "1: a", "2: empty")
		looks := w.transactions()
		if looks == 0 {
			t.Error("it has not looked")
		}
		time.Sleep(28*time.Second + time.Second/2)
		synctest.Wait()
		w.log.take()
		w.wantTransactions(0, "for those that came before the look")
		w.pushElsewhere("b")
		w.submit(until(2*time.Second), pop(w.q)) // 32
		time.Sleep(time.Second)
		w.want("the last that may use the first look", "31: empty")
		time.Sleep(time.Second)
		w.want("one that came after it", "32: b")
	})
}

// A pop that cannot look before its time is over hears why.
func TestLastLookDuringAnOutage(t *testing.T) {
	withFaults(t, func(w *waiting, faults *faultkv.DB) {
		w.park(pop(w.q)) // 1
		w.submit(until(time.Second), pop(w.q))
		faults.SetOutage(true)
		time.Sleep(time.Second + w.d.options.RequestTimeout/2)
		w.want("an outage", "2: failed 1, unavailable")
		w.submit(until(time.Second), pop(w.q))
		time.Sleep(time.Second)
		w.want("the outage was known", "3: failed 1, unavailable")
		faults.SetOutage(false)
		w.push("a")
		w.want("the store is back", "1: a")
	})
}

// A lease whose time is over behind others that wait for max_leased hears that it waited for nothing, as
// they do, and not what a lease hears that does not wait.
func TestLastLookAtMaxLeased(t *testing.T) {
	inBubble(t, nil, func(w *waiting) {
		w.atMaxLeased("a", "b")
		w.park(w.lease())                       // 101
		w.submit(until(time.Second), w.lease()) // 102
		time.Sleep(2 * time.Second)
		w.want("its time is over", "102: waited")
		w.submit(nil, w.lease()) // 103
		w.want("without waiting", "103: leased")
	})
}

// while runs what comes while the lane is busy with another queue, so all of it comes into one batch.
func (w *waiting) while(db *heldDB, run func()) {
	held := make(chan struct{})
	db.held = held
	other := getQueue(w.t, w.d.queues, subjects.Priority, "other")
	w.n++
	w.log.submitted(w.n)
	must(w.t, w.d.Submit(&Request{Queue: other, Replier: number(w.log, w.n), Received: time.Now()}, []fdbpq.Op{push(other, "x")}))
	synctest.Wait()
	run()
	synctest.Wait()
	db.held = nil
	close(held)
	synctest.Wait()
}

// A store that refuses pushes takes the last look of a pop, though both came into one batch.
func TestLastLookBesideAPushThatIsRefused(t *testing.T) {
	for _, items := range []int{2, 1} {
		withHeld(t, nil, func(w *waiting, db *heldDB) {
			w.park(pop(w.q))                          // 1
			w.submit(until(20*time.Second), pop(w.q)) // 2
			synctest.Wait()
			w.pushElsewhere([]string{"a", "b"}[:items]...)
			time.Sleep(19 * time.Second)
			db.full.Store(true)
			w.while(db, func() { // 3
				time.Sleep(time.Second)
				w.submit(nil, push(w.q, strings.Repeat("x", tooLarge+1))) // 4
			})
			want := []string{"4: failed 1, unavailable", "1: a", "2: b"}
			if items == 1 {
				want[2] = "2: empty"
			}
			w.want("the disk is full", want...)
		})
	}
}

// A pop that has waited for long leaves others in the batch of its last look as much time as ever.
func TestLastLookLeavesTime(t *testing.T) {
	withHeld(t, nil, func(w *waiting, db *heldDB) {
		w.park(pop(w.q))                          // 1
		w.submit(until(40*time.Second), pop(w.q)) // 2
		synctest.Wait()
		w.pushElsewhere("a")
		db.least.Store(int64(time.Hour))
		time.Sleep(time.Minute - time.Second)
		w.want("a last look", "1: a", "2: empty")
		if got := time.Duration(db.least.Load()); got != w.d.options.RequestTimeout {
			t.Errorf("a batch had %v", got)
		}
	})
}

// However long requests may take, a pop that waits ends before its client gives up.
func TestLastLookIsNotTooLate(t *testing.T) {
	configure := func(o *Options) { o.RequestTimeout = time.Hour }
	withHeld(t, configure, func(w *waiting, db *heldDB) {
		w.park(pop(w.q))                       // 1
		w.submit(until(time.Second), pop(w.q)) // 2
		synctest.Wait()
		w.while(db, func() { // 3
			time.Sleep(time.Second + maxLate - 1)
			w.want("just before")
			time.Sleep(time.Nanosecond)
			w.want("it has not looked", "2: failed 1, unavailable")
		})
	})
}
