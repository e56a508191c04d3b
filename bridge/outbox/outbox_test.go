package outbox

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// However long NATS stays silent, the unconfirmed replies are limited in bytes.
func TestOutboxIsBounded(t *testing.T) {
	o := newTest(t)
	for range 100 {
		o.remember("inbox", 1<<20)
	}
	if n := o.unconfirmed(); o.mu.bytes > o.config.MaxBytes || n < 14 || n > 16 {
		t.Errorf("%d replies of %d bytes are unconfirmed", n, o.mu.bytes)
	}

	o.forget()
	if n := o.unconfirmed(); n != 0 || o.mu.bytes != 0 {
		t.Errorf("%d replies of %d bytes are left", n, o.mu.bytes)
	}

	// A reply above the limit by itself is forgotten at once.
	o.remember("inbox", o.config.MaxBytes)
	if n := o.unconfirmed(); n != 0 || o.mu.bytes != 0 {
		t.Errorf("%d replies of %d bytes are unconfirmed", n, o.mu.bytes)
	}
}

// After the end nothing is unconfirmed, and nothing is added.
func TestOutboxEnds(t *testing.T) {
	o := newTest(t)
	o.remember("inbox", 1)
	o.End()
	o.remember("inbox", 1)
	o.NoteDenied("inbox")

	n := o.unconfirmed()
	if n != 0 || o.mu.bytes != 0 || len(o.mu.denials) != 0 || o.Abandoned() != 1 {
		t.Errorf("after the end: %d replies, %d bytes, denials %v, %d abandoned", n, o.mu.bytes,
			o.mu.denials, o.Abandoned())
	}
}

// The dispatcher does not end while an item may have to go back into its queue.
func TestOutboxHoldsTheDispatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTest(t)
		o.remember("elsewhere", 1)
		ended := make(chan struct{})

		go func() {
			o.dispatcher.Run(t.Context())
			close(ended)
		}()

		o.dispatcher.Close()
		synctest.Wait()

		select {
		case <-ended:
			t.Fatal("the dispatcher ended with a reply unconfirmed")
		default:
		}

		o.markAsked()
		o.NoteDenied("elsewhere")
		o.confirm(true)
		<-ended

		if returned := o.returned[Denied].Load(); returned != 1 {
			t.Errorf("%d items were given back, want 1", returned)
		}
	})
}

// An item is pushed again if as many replies to its subject were denied as were sent; otherwise, or
// before that is known, it is not. If some errors may not have been heard, a reply is decided once
// but left for another round, and denials that are not all heard yet are not taken for all there
// are.
func TestOutboxDecides(t *testing.T) {
	type step struct {
		sent, denied int  // replies to one subject
		asked        bool // PING
		late         int  // sent after the PING
		lateDenied   int
		confirmed    bool // PONG and what came before
		unsure       bool // there may be more that was not heard
		want         int  // items pushed again so far
	}
	for name, steps := range map[string][]step{
		"none":       {{sent: 1, asked: true, confirmed: true}},
		"one":        {{sent: 1, denied: 1, asked: true, confirmed: true, want: 1}},
		"two of two": {{sent: 2, denied: 2, asked: true, confirmed: true, want: 2}},
		"one of two": {{sent: 2, denied: 1, asked: true, confirmed: true}},
		"one after the PING": {
			{sent: 1, denied: 1, asked: true, late: 1, confirmed: true},
			{asked: true, confirmed: true},
		},
		"two after the PING": {
			{sent: 1, denied: 1, asked: true, late: 1, lateDenied: 1, confirmed: true, want: 2},
			{asked: true, confirmed: true, want: 2},
		},
		"in the next round": {
			{sent: 1, asked: true, confirmed: true},
			{sent: 1, denied: 1, asked: true, confirmed: true, want: 1},
		},
		"one subject after itself": {
			{sent: 1, denied: 1, asked: true, confirmed: true, want: 1},
			{sent: 1, asked: true, confirmed: true, want: 1},
		},
		"something else": {
			{denied: 1, asked: true, confirmed: true},
			{sent: 1, asked: true, confirmed: true},
		},
		"heard late": {
			{sent: 1, asked: true, confirmed: true, unsure: true},
			{denied: 1, asked: true, confirmed: true, unsure: true, want: 1},
		},
		"not all heard": {
			{sent: 2, asked: true, lateDenied: 1, confirmed: true, unsure: true},
			{denied: 1, asked: true, confirmed: true, unsure: true, want: 2},
			{asked: true, confirmed: true, unsure: true, want: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newTest(t)
			for i, s := range steps {
				send := func(sent, denied int) {
					for range sent {
						o.remember("elsewhere", 0)
					}
					for range denied {
						o.NoteDenied("elsewhere")
					}
				}

				send(s.sent, s.denied)
				if s.asked {
					o.markAsked()
				}

				send(s.late, s.lateDenied)
				if s.confirmed {
					o.confirm(!s.unsure)
				}
				if got, _ := o.dispatcher.Pending(); got != int64(s.want) {
					t.Fatalf("step %d: %d items were pushed again, want %d", i, got, s.want)
				}
			}
			if n := o.unconfirmed(); n > 0 || len(o.mu.denials) > 0 || o.mu.bytes != 0 {
				t.Errorf("left are denials %v, %d replies, %d bytes", o.mu.denials, n, o.mu.bytes)
			}
		})
	}
}

// Replies that keep coming to one subject, some of them denied, are decided in the
// end, and no item is pushed again.
func TestOutboxDecidesAtLast(t *testing.T) {
	o := newTest(t)
	for range 100 {
		o.markAsked()
		o.remember("elsewhere", 1)
		o.NoteDenied("elsewhere")
		o.NoteDenied("other")
		o.confirm(false)
	}
	if n := o.unconfirmed(); n > 2*maxUndecided {
		t.Errorf("%d replies are unconfirmed", n)
	}
}

// The bound also counts the subjects.
func TestOutboxCountsSubjects(t *testing.T) {
	o := newTest(t)
	for range 20_000 {
		o.mu.Lock()
		o.addReplyLocked(strings.Repeat("x", 2048))
		o.mu.Unlock()
	}
	if n := o.unconfirmed(); n*2048 > o.config.MaxBytes {
		t.Errorf("%d replies to subjects of 2048 bytes are unconfirmed", n)
	}
}

// wantLost checks how many items were counted as lost.
func (o *testOutbox) wantLost(t *testing.T, what string, want int64) {
	t.Helper()
	if got := o.lost.Load(); got != want {
		t.Errorf("%s: %d items are lost, want %d", what, got, want)
	}
}

// Items that cannot be put back are counted as lost.
func TestLostItemsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTest(t)
		q := o.queue

		fail := func(err error) {
			// After that many attempts the next one comes after a while.
			i := &restoring{o: o.Outbox, reason: Denied, attempts: 10}
			i.Fail(&dispatch.Request{Queue: q},
				[]fdbpq.Op{{Kind: fdbpq.OpRestore, Queue: q.Target, Item: &i.item}}, err)
		}

		fail(dispatch.ErrUnknownOutcome)
		o.wantLost(t, "that the dispatcher sees to", 0)

		fail(dispatch.ErrUnavailable)
		o.wantLost(t, "to be tried again", 0)

		o.EndRestores()
		o.wantLost(t, "given up", 1)

		fail(dispatch.ErrUnavailable)
		o.wantLost(t, "after the end", 2)
	})
}

// An item that cannot be put back any more is counted.
func TestRestoreAfterTheEnd(t *testing.T) {
	o := newTest(t)
	q := o.queue
	o.dispatcher.Close()
	o.dispatcher.Run(t.Context())
	o.restore(q, &fdbpq.Item{Message: fdbpq.Message{Value: []byte("x")}}, Gone)

	o.wantLost(t, "after the dispatcher ended", 1)
}

func TestMain(m *testing.M) { harness.Main(m) }

// testOutbox is an outbox without a connection, and what it counted.
type testOutbox struct {
	*Outbox
	queue      *dispatch.Queue
	dispatcher *dispatch.Dispatcher // on an empty store; it does not run
	returned   map[Reason]*atomic.Int64
	lost       atomic.Int64
}

func newTest(t *testing.T) *testOutbox {
	t.Helper()
	keyspace, err := fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
	if err != nil {
		t.Fatal(err)
	}

	db := memkv.New(memkv.Options{})
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})

	o := &testOutbox{returned: map[Reason]*atomic.Int64{}}
	for _, why := range Reasons() {
		o.returned[why] = new(atomic.Int64)
	}

	o.dispatcher = dispatch.New(dispatch.Options{
		DB:       db,
		Keyspace: keyspace,
		Limits: dispatch.Limits{
			Lanes:           4,
			MaxBatch:        1024,
			MaxBatchBytes:   4 << 20,
			MaxPending:      16384,
			MaxPendingBytes: 64 << 20,
			MaxWaiters:      100,
			RequestTimeout:  5 * time.Second,
		},
		Warn:        func(string, ...any) {},
		BatchDone:   func(int) {},
		Owns:        func(subjects.Kind, string) bool { return true },
		RequeueLate: func(*dispatch.Queue, fdbpq.OpKind, *fdbpq.Result) {},
	})
	if o.queue, err = o.dispatcher.Queue(subjects.Priority, "jobs"); err != nil {
		t.Fatal(err)
	}

	o.Outbox = New(Config{
		MaxBytes:   16 << 20,
		ID:         "id",
		Dispatcher: o.dispatcher,
		Stray:      func(*nats.Msg) {},
		Returned:   func(why Reason) { o.returned[why].Add(1) },
		Lost:       func(items int) { o.lost.Add(int64(items)) },
		Logger:     slog.New(slog.DiscardHandler),
		WarnLost:   func(string, ...any) {},
	})

	return o
}

// remember acts as if a reply with an item of that size had been sent.
func (o *testOutbox) remember(subject string, size int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	popped := []fdbpq.Item{{Message: fdbpq.Message{Value: make([]byte, size)}}}
	o.addItemLocked(sentItem{subject: subject, Content: Content{Queue: o.queue, Popped: popped}})
}

// forget acts as if NATS had confirmed all replies.
func (o *testOutbox) forget() {
	o.markAsked()
	o.confirm(true)
}

// unconfirmed returns how many replies are unconfirmed.
func (o *testOutbox) unconfirmed() (n int) {
	for _, c := range o.mu.chunks {
		n += len(c.items) + len(c.replies)
	}
	return n
}
