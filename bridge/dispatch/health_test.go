package dispatch

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

// After a failed write a dispatcher finds out by itself that the store takes writes again, even if
// nobody asks it for anything. It tries every few seconds, not in a loop, and never without a
// failure.
func TestStoreRecoversUnasked(t *testing.T) {
	var full atomic.Bool
	var commits atomic.Int64
	db := &hookedDB{Database: memkv.New(memkv.Options{})}

	db.commit = func(tx *hookedTransaction) kv.Future[struct{}] {
		commits.Add(1)
		if full.Load() {
			tx.Cancel()
			return kv.Ready(struct{}{}, fmt.Errorf("%w: the disk is full", kv.ErrUnavailable))
		}

		return tx.Transaction.Commit()
	}

	inBubble(t, func(o *Options) { o.DB = db }, func(w *waiting) {
		time.Sleep(time.Hour)
		if n := commits.Load(); n != 0 {
			t.Errorf("%d writes without a failure", n)
		}

		full.Store(true)
		w.push("refused")
		failed := commits.Load()
		time.Sleep(time.Minute)

		if w.d.WriteFailure() == nil {
			t.Error("the store counts as healthy while it refuses writes")
		}
		if n, most := commits.Load()-failed, int64(time.Minute/probeEvery); n < 1 || n > most {
			t.Errorf("%d writes in a minute, want 1 to %d", n, most)
		}

		full.Store(false)
		time.Sleep(probeEvery)
		synctest.Wait()

		if err := w.d.WriteFailure(); err != nil {
			t.Errorf("%v after the store had recovered", err)
		}

		recovered := commits.Load()
		time.Sleep(time.Hour)
		if n := commits.Load() - recovered; n != 0 {
			t.Errorf("%d writes after it had recovered", n)
		}
	})
}

// A store that does not answer gets one probe at a time, and the end of the dispatcher ends it.
func TestProbesOfAFrozenStore(t *testing.T) {
	var frozen atomic.Bool
	var probing, most atomic.Int64
	db := &hookedDB{Database: memkv.New(memkv.Options{})}

	db.begin = func(ctx context.Context) context.Context {
		if frozen.Load() {
			most.Store(max(most.Load(), probing.Add(1)))
			<-ctx.Done()
			probing.Add(-1)
		}
		return ctx
	}

	inBubble(t, func(o *Options) { o.DB = db }, func(w *waiting) {
		frozen.Store(true)
		w.push("refused")
		time.Sleep(time.Minute)

		if n := most.Load(); n != 1 || w.d.WriteFailure() == nil {
			t.Errorf("%d attempts at once, want 1; failure %v", n, w.d.WriteFailure())
		}

		frozen.Store(false)
		time.Sleep(2*w.d.options.RequestTimeout + probeEvery)
		if err := w.d.WriteFailure(); err != nil {
			t.Errorf("%v after the store had recovered", err)
		}
	})
}
