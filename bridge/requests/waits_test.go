package requests

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/subjects"
)

// A flood of cancels of nothing takes little memory.
func TestCancelsOfNothingAreForgotten(t *testing.T) {
	w := newWaits(newTestDispatcher(t))

	for i := range 2 * maxEarly {
		w.End(fmt.Sprint("priority jobs nothing-", i))
	}

	if n, hashes := len(w.mu.order), len(w.mu.early); n > maxEarly || hashes != n {
		t.Errorf("%d cancels are remembered by %d hashes, want at most %d", n, hashes, maxEarly)
	}
}

// A cancel that comes before its request counts for five seconds, however many cancels of requests
// that have ended come behind it.
func TestEarlyCancelAmongMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaits(newTestDispatcher(t))
		parsed := &subjects.Request{Kind: subjects.Priority, Queue: "jobs"}
		add := func() error {
			r := &dispatch.Request{Wait: &dispatch.Wait{ID: "early"}}
			_, err := w.add(r, parsed)
			return err
		}

		w.End(waitKey(parsed, "early"))
		for i := range 50_000 {
			w.End(waitKey(parsed, fmt.Sprint("ended-", i)))
		}

		time.Sleep(earlyLife)
		if err := add(); !errors.Is(err, errCancelled) {
			t.Errorf("a request within %v of its cancel: %v, want %v", earlyLife, err, errCancelled)
		}

		time.Sleep(time.Nanosecond)
		if err := add(); err != nil {
			t.Errorf("a request later than %v after its cancel: %v", earlyLife, err)
		}
	})
}
