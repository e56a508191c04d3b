package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// fill makes the disk full, and returns once the store knows.
func (e *embedded) fillDisk(t *testing.T) {
	t.Helper()
	e.free.Store(1<<20 - 1)
	waitUntil(t, "a full disk",
		func() bool { return replyError(e.Request("pq.filler.push", nil, nil).Header) != nil })
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
				reply, err := e.Conn.Request("pq.other.push", make([]byte, 1000), testenv.Patience)
				if err != nil {
					t.Error(err)
				} else if replyError(reply.Header) == nil {
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
	e := newEmbeddedWith(t, t.TempDir(),
		restricted(inboxesOnly(), testenv.Options{Wrap: counts.wrap}))
	push(t, e.Env, "pq.victim.push", nil, strings.Repeat("x", 1000))
	pushNumbers(t, e.Env, "pq.jobs.push", 200)
	e.fillDisk(t)
	publish(t, e.Env, "pq.victim.pop.min", "elsewhere", "")

	wantMetric(t, e.Bridge, "pq_reply_failures_total", 1)

	before, began := n.Load(), time.Now()
	for range 200 {
		if err := replyError(e.Request("pq.jobs.pop.min", nil, nil).Header); err != nil {
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
		if err := replyError(reply.Header); err != nil {
			return err
		}

		if len(reply.Data) != 1000 {
			return fmt.Errorf("an item of %d bytes", len(reply.Data))
		}

		return nil
	})
}

// On a first start with a full disk, /readyz gives the reason, and the start succeeds once there is
// room.
func TestFirstStartOnFullDisk(t *testing.T) {
	t.Parallel()

	e := newEmbeddedWith(t, t.TempDir(), testenv.Options{Stopped: true})
	e.free.Store(1<<20 - 1)
	e.NATS.Start()

	b := e.StartBridge()

	notReady(t, b, "disk full: 1048575 bytes free, 1048576 needed")
	e.Conn = e.Connect()

	why := e.whyNotReady(t)
	if !strings.Contains(why, "disk full: 1048575 bytes free, 1048576 needed") {
		t.Errorf("service discovery says %q", why)
	}
	if strings.Contains(why, "\n") {
		t.Errorf("reasons are lines of their own, which pq doctor would join: %q", why)
	}

	_, reasons, err := b.Ready()
	must(t, err)
	e.wantNoPaths(t, strings.Join(reasons, "; "))

	e.free.Store(1 << 40)
	b.WaitReady()
}

// whyNotReady returns what service discovery says.
func (e *embedded) whyNotReady(t *testing.T) string {
	t.Helper()
	var info micro.Info
	must(t, json.Unmarshal(e.Request("$SRV.INFO.pqbridge", nil, nil).Data, &info))
	return info.Metadata[subjects.MetadataNotReady]
}

// Service discovery follows the disk, whether or not somebody asks /readyz: a bridge is not ready
// once a push was refused, although pops succeed, and ready after the next push.
func TestDiscoveryFollowsTheDisk(t *testing.T) {
	t.Parallel()

	e := newEmbedded(t, t.TempDir(), nil)
	e.Request("pq.jobs.push", nil, []byte("a"))

	if text := e.whyNotReady(t); text != "" {
		t.Errorf("not ready at first: %s", text)
	}

	e.fillDisk(t)
	must(t, replyError(e.Request("pq.jobs.pop.min", nil, nil).Header))
	const full = "disk full: 1048575 bytes free, 1048576 needed"
	if text := e.whyNotReady(t); !strings.Contains(text, full) {
		t.Errorf("on a full disk: %q", text)
	}

	e.free.Store(1 << 40)
	testenv.Eventually(t, func() error {
		return replyError(e.Request("pq.jobs.push", nil, nil).Header)
	})

	if text := e.whyNotReady(t); text != "" {
		t.Errorf("not ready after a push: %s", text)
	}
}

// Service discovery gives the same reason as /readyz when the files are gone.
func TestDiscoveryKnowsOfRemovedFiles(t *testing.T) {
	t.Parallel()

	e := newEmbedded(t, t.TempDir(), nil)
	must(t, os.Rename(e.dir, e.dir+".away"))

	why := e.whyNotReady(t)

	if !strings.Contains(why, "unavailable") {
		t.Errorf("not ready: %q", why)
	}
	e.wantNoPaths(t, why)
}
