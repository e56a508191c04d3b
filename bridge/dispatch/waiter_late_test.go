package dispatch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

// until is a Wait that ends after d.
func until(d time.Duration) *Wait { return &Wait{Until: time.Now().Add(d)} }

// A pop whose time is over while the pops before it are in flight is not told that the queue is
// empty: nobody has looked for it.
func TestWaiterWhoseTimeIsOverBeforeItsTurn(t *testing.T) {
	var db *laterDB
	configure := func(o *Options) {
		db = &laterDB{memkv.New(memkv.Options{}), make(chan struct{})}
		o.DB = db
	}
	inBubble(t, configure, func(w *waiting) {
		durable := func() {
			synctest.Wait()
			db.durable <- struct{}{}
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
		close(db.durable)
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
		if n := w.transactions(); n != 0 {
			t.Errorf("%d transactions for those that came before the look", n)
		}
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
