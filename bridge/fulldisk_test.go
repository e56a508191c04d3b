package bridge_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/testenv"
)

// fill makes the disk full, and returns once the store knows.
func (e *embedded) fillDisk(t *testing.T) {
	t.Helper()
	e.free.Store(1<<20 - 1)
	comes(t, "a full disk", func() bool { return bridge.ErrorFromHeaders(e.Request("pq.filler.push", nil, nil).Header) != nil })
}

// On a full disk pops go on, however many pushes are refused meanwhile.
func TestPopsGoOnAmongRefusedPushes(t *testing.T) {
	t.Parallel()
	e := newEmbedded(t, t.TempDir(), nil)
	const workers, each = 8, 40
	pushNumbers(t, e.Env, "pq.jobs.push", workers*each)
	e.fillDisk(t)
	ctx, cancel := context.WithCancel(t.Context())
	var pushers, poppers sync.WaitGroup
	for range workers {
		pushers.Go(func() {
			for ctx.Err() == nil {
				if reply, err := e.Conn.Request("pq.other.push", make([]byte, 1000), testenv.Patience); err != nil {
					t.Error(err)
				} else if bridge.ErrorFromHeaders(reply.Header) == nil {
					t.Error("a push was taken")
				}
			}
		})
		poppers.Go(func() {
			for range each {
				request(t, e.Conn, "pq.jobs.pop.min", "")
			}
		})
	}
	poppers.Wait()
	cancel()
	pushers.Wait()
	e.free.Store(1 << 40)
}

// An item that cannot be put back for now neither keeps the store busy nor disturbs others,
// and is put back once the disk has room.
func TestItemsThatWaitForTheDisk(t *testing.T) {
	t.Parallel()
	var n atomic.Int64
	counts := hooked{begin: func(context.Context) error { n.Add(1); return nil }}
	e := newEmbeddedWith(t, t.TempDir(), restricted(inboxesOnly(), testenv.Options{Wrap: counts.wrap}))
	push(t, e.Env, "pq.victim.push", nil, strings.Repeat("x", 1000))
	pushNumbers(t, e.Env, "pq.jobs.push", 200)
	e.fillDisk(t)
	publish(t, e.Env, "pq.victim.pop.min", "elsewhere", "")
	wantMetric(t, e.Bridge, "pq_reply_failures_total", 1)
	before, began := n.Load(), time.Now()
	for range 200 {
		if err := bridge.ErrorFromHeaders(e.Request("pq.jobs.pop.min", nil, nil).Header); err != nil {
			t.Errorf("pop: %v", err)
		}
	}
	// One transaction for each pop, and few for the item.
	if most := 200 + 20 + int64(time.Since(began)/(5*time.Millisecond)); n.Load()-before > most {
		t.Errorf("%d transactions for 200 pops, want at most %d", n.Load()-before, most)
	}
	e.free.Store(1 << 40)
	testenv.Eventually(t, func() error {
		reply := e.Request("pq.victim.pop.min", nil, nil)
		if err := bridge.ErrorFromHeaders(reply.Header); err != nil {
			return err
		}
		if len(reply.Data) != 1000 {
			return fmt.Errorf("an item of %d bytes", len(reply.Data))
		}
		return nil
	})
}
