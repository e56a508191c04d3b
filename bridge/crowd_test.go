package bridge_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/race"
)

// Very many pops of many items from an empty queue hold up no other queue, neither those that wait, and
// then end together, nor those that do not.
func TestManyPopsOfManyItems(t *testing.T) {
	t.Run("waiting", func(t *testing.T) { testCrowd(t, `{"batch":1000,"expires":1000000000}`) })
	t.Run("not waiting", func(t *testing.T) { testCrowd(t, `{"batch":1000}`) })
}

func testCrowd(t *testing.T, options string) {
	crowd, most := race.Times(8000, 2000), 2*time.Second
	each(t, func(t *testing.T, e *testenv.Env) {
		waiting, inbox := e.Connect(), nats.NewInbox()
		var answered atomic.Int64
		if _, err := waiting.Subscribe(inbox, func(*nats.Msg) { answered.Add(1) }); err != nil {
			t.Fatal(err)
		}
		published := make(chan error, 1)
		go func() {
			var failed error
			for range crowd {
				failed = errors.Join(failed, waiting.PublishRequest("pq.empty.pop.min", inbox, []byte(options)))
			}
			published <- failed
		}()
		var slowest time.Duration
		for pushes := 0; answered.Load() < int64(crowd); pushes++ {
			asked := time.Now()
			push(t, e, "pq.other.push", nil, fmt.Sprint(pushes))
			slowest = max(slowest, time.Since(asked))
		}
		if err := <-published; err != nil {
			t.Fatal(err)
		}
		t.Logf("the slowest push to another queue took %v", slowest)
		if slowest > most {
			t.Errorf("a push to another queue took %v, want at most %v", slowest, most)
		}
	}, func(o *bridge.Options) { o.Lanes, o.MaxWaiters = 1, crowd })
}
