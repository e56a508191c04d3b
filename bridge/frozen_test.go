package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// frozenPair returns two bridges that share the queues. All clients' requests reach the first, and
// the second can be frozen.
func frozenPair(t *testing.T) (e *testenv.Env, owner *testenv.Bridge, w *wire) {
	t.Helper()
	e = start(t, testenv.Options{NATS: withForwardedOnly})
	w = newWire(t, e)
	owner = e.StartBridge(w.use, forwardedOnly)
	waitForPeers(t, e.Bridge, owner)

	return e, owner, w
}

// thaw ends a freeze, and waits until the bridges share the queues again.
func thaw(t *testing.T, w *wire, bridges ...*testenv.Bridge) {
	t.Helper()
	w.passReads(-1, toServer, toBridge)
	waitForPeers(t, bridges...)
}

// popsAllOnce pops from n queues until each of the values "item 0" and so on has come, here or
// before, and fails if one comes twice.
func popsAllOnce(t *testing.T, e *testenv.Env, n int, seen map[string]bool) {
	t.Helper()
	testenv.Eventually(t, func() error {
		for i := range n {
			m := e.Request(fmt.Sprintf("pq.jobs-%d.pop.min", i), nil, nil)
			if replyError(m.Header) != nil {
				continue
			}
			if seen[string(m.Data)] {
				t.Errorf("%q came twice", m.Data)
			}

			seen[string(m.Data)] = true
		}

		if len(seen) < n {
			return fmt.Errorf("%d of %d items came", len(seen), n)
		}

		return nil
	})
}

// A client that was told "outcome unknown", because the bridge that pops for it stood still, finds
// its item in the queue once that bridge goes on.
func TestFrozenOwnerLosesNoItem(t *testing.T) {
	const n = 60
	e, owner, w := frozenPair(t)

	for i := range n {
		push(t, e, fmt.Sprintf("pq.jobs-%d.push", i), nil, fmt.Sprint("item ", i))
	}

	w.freeze()
	answers := popEachOf(t, e, n)

	seen := map[string]bool{}
	unknown := 0
	for range n {
		m := next(t, answers)
		if replyError(m.Header) == nil {
			seen[string(m.Data)] = true
		} else if !wantError(t, 503, "a pop", m).Unknown {
			t.Errorf("a pop of the frozen bridge is answered %v", m.Header)
		} else {
			unknown++
		}
	}
	if unknown == 0 {
		t.Fatal("the frozen bridge owned no queue")
	}

	thaw(t, w, e.Bridge, owner)
	waitUntil(t, "all pops that waited in the socket", func() bool {
		return count(t, owner, `pq_requests_total{operation="pop-min"}`) >= float64(unknown)
	})

	popsAllOnce(t, e, n, seen)

	if more, _, err := answers.Pending(); more > 0 || err != nil {
		t.Errorf("%d second answers, %v", more, err)
	}

	wantAllSettled(t, e, owner)
}

// A pop loses no item on the way through the bridge that forwarded it: not in messages of their
// own, not in frames, and however large it is.
func TestForwardedPopsOfAllKinds(t *testing.T) {
	e, owner, _ := frozenPair(t)
	queue := ownedBy(t, e, owner, e.Bridge)
	subject := "pq." + queue + "."
	largest := strings.Repeat("x", int(e.Conn.MaxPayload()))

	for _, value := range []string{"a", "b", "c", "d", "e", largest} {
		push(t, e, subject+"push", nil, value)
	}
	wantData(t, ok(t, e, subject+"pop.min", nil, ""), "a")

	several := ask(t, e.Conn, subject+"pop.min", `{"batch":2}`)
	wantNext(t, several, "b")
	wantNext(t, several, "c")
	wantEnd(t, several, 2, "")

	framed := next(t, ask(t, e.Conn, subject+"pop.min", `{"batch":2,"frames":true}`))
	same(t, "frames", framed.Header.Get(subjects.HeaderFrames), "2")
	wantData(t, ok(t, e, subject+"pop.min", nil, ""), largest)
	refused(t, e, 404, subject+"pop.min", nil, nil)

	// The client is gone.
	push(t, e, subject+"push", nil, "back")
	before := count(t, owner, noResponders)
	publish(t, e, subject+"pop.min", nats.NewInbox(), "")

	wantMetric(t, owner, noResponders, before+1)
	wantPopped(t, e, subject+"pop.min", "back")

	wantAllSettled(t, e, owner)
}

// gate is a store in which a test can hold the transactions that begin.
type gate struct {
	hooked
	closed atomic.Pointer[chan struct{}] // nil while open
}

func newGate() *gate {
	g := &gate{}
	g.begin = func(ctx context.Context) error {
		if closed := g.closed.Load(); closed != nil {
			select {
			case <-*closed:
			case <-ctx.Done():
			}
		}
		return nil
	}

	return g
}

// shut holds transactions until open is called.
func (g *gate) shut() (open func()) {
	closed := make(chan struct{})
	g.closed.Store(&closed)
	return func() { close(closed) }
}

// patience is how long clients wait here.
const patience = 6 * time.Second

// givesUp makes a request that nobody answers before its client gives up.
func givesUp(t *testing.T, e *testenv.Env, subject, payload string) {
	t.Helper()
	m, err := e.Conn.Request(subject, []byte(payload), patience)
	if !errors.Is(err, nats.ErrTimeout) {
		t.Fatalf("%s: got %v, %v: want no answer", subject, m, err)
	}
}

// timesOut makes a bridge give up before the clients of givesUp do.
func timesOut(o *bridge.Options) { o.RequestTimeout = 3 * time.Second }

// do runs an operation on a bridge, past NATS.
func do(t *testing.T, b *testenv.Bridge, queue string, op fdbpq.Op) fdbpq.Result {
	t.Helper()
	q, err := b.Dispatcher().Queue(subjects.Priority, queue)
	must(t, err)
	results, err := b.Dispatcher().Do(t.Context(), q, []fdbpq.Op{op})
	must(t, err)
	must(t, results[0].Err)

	return results[0]
}

// frozenAlone starts a system whose bridge can be frozen. No other bridge gets clients' requests.
func frozenAlone(t *testing.T, engine testenv.Engine) (*testenv.Env, *wire) {
	t.Helper()
	t.Parallel()

	e := testenv.New(t, testenv.Options{Engine: engine, NATS: withForwardedOnly, Stopped: true})
	e.NATS.Start()
	e.Conn = e.Connect()
	w := newWire(t, e)
	e.Bridge = newBridge(e, w.use, timesOut)

	return e, w
}

// An item goes back if the bridge that forwarded the pop is gone before it can pass the item on, or
// has stood still for longer than its client waits.
func TestItemComesBackFromTheForwarder(t *testing.T) {
	for _, test := range []struct {
		name          string
		before, after func(w *wire)
	}{
		{"gone", (*wire).kill, func(*wire) {}},
		{"frozen", (*wire).freeze, func(w *wire) { w.passReads(-1, toServer, toBridge) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			e, w := frozenAlone(t, testenv.Mem())
			g := newGate()
			owner := e.StartBridge(forwardedOnly, func(o *bridge.Options) { o.DB = g.wrap(o.DB) })
			waitForPeers(t, e.Bridge, owner)
			queue := ownedBy(t, e, owner, e.Bridge)
			push(t, e, "pq."+queue+".push", nil, "item")

			// The owner pops when the forwarder cannot hear it any more.
			open := g.shut()
			gaveUp := make(chan error, 1)

			go func() {
				_, err := e.Conn.Request("pq."+queue+".pop.min", nil, patience)
				gaveUp <- err
			}()
			waitUntil(t, "the forwarded pop", func() bool {
				n, _ := owner.Dispatcher().Pending()
				return n > 0
			})

			test.before(w)
			waitForPeers(t, owner) // so NATS knows that it is gone
			open()

			if err := <-gaveUp; !errors.Is(err, nats.ErrTimeout) {
				t.Errorf("the client got an answer, or %v", err)
			}

			test.after(w)

			waitUntil(t, "the item", func() bool {
				return do(t, owner, queue, fdbpq.Op{Kind: fdbpq.OpLen}).Len == 1
			})
			wantMetric(t, owner, "pq_lost_items_total", 0)

			_ = e.Bridge.Stop() // it may be dead
		})
	}
}

// A bridge that stood still does not run changes that it was forwarded before: the bridge that
// forwarded them has answered, and others have gone on since.
func TestFrozenOwnerDropsOldChanges(t *testing.T) {
	e, owner, w := frozenPair(t)
	queue := ownedBy(t, e, owner, e.Bridge)
	subject := "pq." + queue + "."

	w.freeze()
	change := ask(t, e.Conn, subject+"config", `{"max_deliver":7}`)
	pushed, err := e.Conn.RequestMsg(&nats.Msg{
		Subject: subject + "push", Header: nats.Header{subjects.HeaderGroup: {"a"}},
	}, testenv.Patience)
	must(t, err)

	for _, m := range []*nats.Msg{next(t, change), pushed} {
		same(t, "unknown", wantError(t, 503, "a forwarded change", m).Unknown, true)
	}

	ok(t, e, subject+"config", nil, `{"max_deliver":9}`)

	thaw(t, w, e.Bridge, owner)
	wantMetric(t, owner, `pq_requests_total{operation="config"}`, 1)
	wantMetric(t, owner, `pq_requests_total{operation="push"}`, 1)

	now := string(ok(t, e, subject+"config", nil, "").Data)
	if !strings.Contains(now, `"max_deliver":9`) {
		t.Errorf("an old change undid a later one: %s", now)
	}
	same(t, "items", do(t, owner, queue, fdbpq.Op{Kind: fdbpq.OpLen}).Len, 0)
}

// A purge whose client has given up does not remove what others pushed since.
func TestFrozenBridgeDropsOldPurge(t *testing.T) {
	e, w := frozenAlone(t, testenv.Mem())
	push(t, e, "pq.jobs.push", nil, "before")

	w.freeze()
	givesUp(t, e, "pq.jobs.purge", "")
	other := e.StartBridge(forwardedOnly)
	do(t, other, "jobs",
		fdbpq.Op{Kind: fdbpq.OpPush, Message: fdbpq.Message{Value: []byte("after")}})

	w.passReads(-1, toServer, toBridge)
	wantMetric(t, e.Bridge, `pq_requests_total{operation="purge"}`, 1)
	same(t, "items", do(t, other, "jobs", fdbpq.Op{Kind: fdbpq.OpLen}).Len, 2)
}

// A bridge that is alone does not run requests either whose clients have given up, except requests
// without a reply subject.
func TestFrozenAlone(t *testing.T) {
	e, w := frozenAlone(t, testenv.Pebble())
	push(t, e, "pq.jobs.push", nil, "stays")

	w.freeze()
	publish(t, e, "pq.jobs.push.1", "", "no answer wanted")
	givesUp(t, e, "pq.jobs.pop.min", "")

	w.passReads(-1, toServer, toBridge)
	wantMetric(t, e.Bridge, `pq_requests_total{operation="pop-min"}`, 1)
	waitUntil(t, "a bridge that hears itself", func() bool {
		m := e.Request("pq.jobs.len", nil, nil)
		return replyError(m.Header) == nil
	})
	wantPopped(t, e, "pq.jobs.pop.min", "stays", "no answer wanted")
}
