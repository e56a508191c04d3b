package outbox

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// relay adds an item as if it had been sent through another bridge.
func relay(o *testOutbox, token string) {
	relayItem(o, token, fdbpq.Item{Message: fdbpq.Message{Value: []byte("x")}})
}

func relayItem(o *testOutbox, token string, item fdbpq.Item) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.addRelayedLocked(token, "answers", Content{Queue: o.queue, Popped: []fdbpq.Item{item}})
}

// What another bridge relays that stands still takes no more memory than all else may take. The
// newest items still go back once it says that nobody received them.
func TestRelayedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTest(t)
		go o.dispatcher.Run(t.Context())

		const items, size = 250, 90_000
		for i := range items {
			item := fdbpq.Item{ID: fdbpq.ID{Count: int64(i)}}
			item.Value = make([]byte, size)
			relayItem(o, fmt.Sprint(i), item)
			time.Sleep(relayPatience)
			synctest.Wait()
		}

		kept, fit := len(o.mu.relayed), o.config.MaxBytes/size
		if o.mu.bytes > o.config.MaxBytes || kept < fit-2 || o.mu.overdue.Len() != kept {
			t.Errorf("%d items of %d bytes are kept, %d of them overdue", kept, o.mu.bytes,
				o.mu.overdue.Len())
		}

		for i := range items {
			o.Settle(string(Late), fmt.Sprint(i))
		}
		time.Sleep(time.Minute)
		o.dispatcher.Close()
		synctest.Wait()

		if n := int(o.returned[Late].Load()); n != kept || o.mu.bytes != 0 {
			t.Errorf("%d items went back, want %d; %d bytes are left", n, kept, o.mu.bytes)
		}
	})
}

// An item that another bridge relays goes back if that bridge says so, even long after a freeze,
// but only once, and not if somebody received it or nothing is heard.
func TestRelayed(t *testing.T) {
	for name, test := range map[string]struct {
		wait  time.Duration
		fates []string
		back  Reason // "" for none
	}{
		"received":     {0, []string{""}, ""},
		"late":         {0, []string{"late"}, Late},
		"gone":         {0, []string{"no_responders"}, Gone},
		"twice":        {0, []string{"late", "late"}, Late},
		"after all":    {0, []string{"", "late"}, ""},
		"after freeze": {30 * time.Second, []string{"late"}, Late},
		"too late":     {relayPatience + relayMemory + 1, []string{"late"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := newTest(t)
				relay(o, "token")
				go o.dispatcher.Run(t.Context())

				time.Sleep(test.wait)
				for _, fate := range test.fates {
					o.Settle(fate, "token")
				}

				o.dispatcher.Close()
				synctest.Wait()

				for _, why := range Reasons() {
					want := int64(0)
					if why == test.back {
						want = 1
					}
					if got := o.returned[why].Load(); got != want {
						t.Errorf("%d items went back as %q, want %d", got, why, want)
					}
				}
			})
		})
	}
}

// A bridge that shuts down waits a moment for what others relay, and not for one that is gone.
func TestRelayedHoldsTheDispatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTest(t)
		relay(o, "token")
		began := time.Now()

		o.dispatcher.Close()
		o.dispatcher.Run(t.Context())

		if waited := time.Since(began); waited != relayPatience {
			t.Errorf("it waited %v, want %v", waited, relayPatience)
		}

		o.End()
	})
}
