package requests

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/subjects"
)

// Parts of browses take a tenth of the time while others ask, and all of it otherwise.
func TestPaceOfBrowses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newInspector(&Config{Dispatcher: newTestDispatcher(t)})
		const part = 10 * time.Millisecond

		run := func(took time.Duration, batches int64) func() error {
			return func() error {
				time.Sleep(took)
				i.Batches.Add(batches)
				return nil
			}
		}

		began := time.Now()
		want := func(passed time.Duration) {
			t.Helper()
			if got := time.Since(began); got != passed {
				t.Errorf("%v have passed: want %v", got, passed)
			}

			began = time.Now()
		}
		must(t, i.paced(t.Context(), run(part, 0)))
		must(t, i.paced(t.Context(), run(part, 1)))

		want(2 * part)
		must(t, i.paced(t.Context(), run(part, 0)))
		want(10 * part)
		must(t, i.paced(t.Context(), run(time.Second, 1)))
		must(t, i.paced(t.Context(), run(part, 1)))

		want(time.Second + maxRest + part)

		ctx, cancel := context.WithTimeout(t.Context(), part)
		defer cancel()
		if err := i.paced(ctx, run(part, 0)); !errors.Is(err, dispatch.ErrUnavailable) {
			t.Errorf("a part whose time was over while it waited: %v", err)
		}
		want(part)

		i.End(t.Context()) // does not wait
		must(t, i.paced(t.Context(), run(part, 0)))
		want(part)
	})
}

// A store that says that time is over before the context does, as in a process that stood still,
// has not answered in time.
func TestStoreNoticesTheEndFirst(t *testing.T) {
	i := newInspector(&Config{Dispatcher: newTestDispatcher(t)})

	for _, why := range []error{context.DeadlineExceeded, context.Canceled} {
		err := i.run(t.Context(), i.slots, func() error { return fmt.Errorf("read: %w", why) })

		if told := Failure(err); told.Code != subjects.CodeUnavailable || told.Unknown {
			t.Errorf("%v: %+v, want a 503 of a request that has done nothing", why, told)
		}
	}
}
