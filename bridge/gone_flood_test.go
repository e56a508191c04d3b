package bridge_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/race"
)

// While large items are popped again and again for clients that are gone, other queues of the lane are served.
// No item is lost.
func TestFloodOfPopsForNobody(t *testing.T) {
	const items, size = 30, 1_000_000
	pops := race.Times(150, 50)
	e := testenv.New(t, testenv.Options{Engine: testenv.Pebble(), Bridge: func(o *bridge.Options) {
		o.Lanes = 1
		o.RequestTimeout = testenv.Patience // the machine may be slow
	}})
	value := make([]byte, size)
	for i := range items {
		push(t, e, fmt.Sprintf("pq.large.push.%d", i), nil, string(value))
	}

	flood := e.Connect()
	for range pops {
		if err := flood.PublishRequest("pq.large.pop.min", nats.NewInbox(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := flood.Flush(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	b := startBystander(t, e)
	var took time.Duration
	testenv.Eventually(t, func() error {
		pending, err := metric(e.Bridge, `pq_requests_total{operation="pop-min"}`)
		back, backErr := metric(e.Bridge, noResponders)
		if err = errors.Join(err, backErr); err == nil && back < float64(pops) {
			err = fmt.Errorf("%v of %d items are back, %v pops", back, pops, pending)
		}
		took = time.Since(began)
		return err
	})
	b.end(fmt.Sprintf("%d pops for nobody in %v", pops, took), true)

	// Behind the flood, a request would take as long as all of it.
	if longest := b.took[len(b.took)-1]; longest > took/2 || b.refused > 0 {
		t.Errorf("a request of another queue took %v of %v, %d were refused", longest, took, b.refused)
	}
	wantMetric(t, e.Bridge, "pq_lost_items_total", 0)
	if got, want := string(e.Request("pq.large.len", nil, nil).Data), fmt.Sprintf(`{"queue":"large","len":%d}`, items); got != want {
		t.Errorf("in the end: %s, want %s", got, want)
	}
}
