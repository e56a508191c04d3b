package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// openInboxes opens inboxes with room for n messages each.
func openInboxes(t *testing.T, nc *nats.Conn, count, n int) (inboxes []*inbox) {
	t.Helper()
	for range count {
		i, err := openInbox(New(nc).connection, n)
		if err != nil {
			t.Fatal(err)
		}

		inboxes = append(inboxes, i)
	}

	return inboxes
}

// countIdle returns how many idle inboxes a connection keeps.
func countIdle(nc *nats.Conn) int {
	l := linkOf(nc)
	l.Lock()
	defer l.Unlock()
	return len(l.idle)
}

// Each request under way has a subscription of its own, which a later one takes over.
func TestInboxesAreReused(t *testing.T) {
	nc := testenv.New(t, testenv.Options{}).Connect()
	first := openInboxes(t, nc, 3, 1)

	for _, i := range first {
		i.release(nil)
	}

	again := openInboxes(t, nc, 3, idleMessages)
	if n := nc.NumSubscriptions(); n != 3 {
		t.Errorf("%d subscriptions for 3 requests at a time, want 3", n)
	}

	again[0].release(ErrUnknownOutcome)
	again[1].release(ErrEmpty)
	if n := nc.NumSubscriptions(); n != 2 {
		t.Errorf("%d subscriptions after one that may still get an item, want 2", n)
	}

	large := openInboxes(t, nc, 1, idleMessages+1)[0]
	if cap(large.messages) <= idleMessages {
		t.Errorf("room for %d messages", cap(large.messages))
	}

	large.release(nil)
	if n := nc.NumSubscriptions(); n != 2 {
		t.Errorf("%d subscriptions after a large one, want 2", n)
	}
}

// What still comes for an earlier request does not answer a later one.
func TestLateMessages(t *testing.T) {
	nc := testenv.New(t, testenv.Options{}).Connect()
	early := openInboxes(t, nc, 1, 1)[0]
	subject := early.subject
	early.release(nil)

	i := openInboxes(t, nc, 1, 1)[0]
	if i != early || i.subject == subject {
		t.Fatalf("the second request has subject %s after %s", i.subject, subject)
	}

	for _, s := range []string{subject, i.subject, subject} {
		if err := nc.Publish(s, []byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := i.next(t.Context(), 0, interrupts{}); err != nil || string(m.Data) != i.subject {
		t.Errorf("got %v, %v", m, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	for range 2 {
		if m, err := i.next(ctx, 0, interrupts{}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, %v after the end", m, err)
		}
	}
}

// An interrupt that comes together with a message is not lost, nor is the message.
func TestInterruptWithMessage(t *testing.T) {
	nc := testenv.New(t, testenv.Options{}).Connect()
	i := openInboxes(t, nc, 1, 1)[0]
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()

	for range 20 { // whichever of them next sees first
		i.messages <- &nats.Msg{Subject: i.subject}
		reconnected := make(chan nats.Status, 1)
		reconnected <- nats.CONNECTED

		messages, interrupted := 0, 0
		for range 2 {
			switch m, err := i.next(ctx, 0, interrupts{reconnected: reconnected}); {
			case m != nil:
				messages++
			case errors.Is(err, errInterrupted):
				interrupted++
			default:
				t.Fatal(err)
			}
		}
		if messages != 1 || interrupted != 1 {
			t.Fatalf("%d messages, %d interrupts, want 1 of each", messages, interrupted)
		}
	}
}

// A connection keeps a bounded number of inboxes, and none once it is closed or drains.
func TestIdleInboxes(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	nc := e.Connect()

	for _, i := range openInboxes(t, nc, maxIdle+9, 1) {
		i.release(nil)
	}
	if idle, n := countIdle(nc), nc.NumSubscriptions(); idle != maxIdle || n != maxIdle {
		t.Errorf("%d inboxes idle, %d subscriptions, want %d", idle, n, maxIdle)
	}

	i := openInboxes(t, nc, 1, 1)[0]
	nc.Close()
	<-i.closed
	i.release(nil)

	if n := countIdle(nc); n > 0 {
		t.Errorf("%d inboxes outlive their connection", n)
	}
	if _, err := openInbox(New(nc).connection, 1); !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("on a closed connection: %v", err)
	}

	nc = e.Connect()
	inboxes := openInboxes(t, nc, 2, 1)
	inboxes[0].release(nil)

	if err := nc.Drain(); err != nil {
		t.Fatal(err)
	}
	if i, err := openInbox(New(nc).connection, 1); err == nil {
		t.Errorf("%s is opened on a connection that drains", i.subject)
	}

	for _, i := range inboxes {
		<-i.closed
	}
	if n := countIdle(nc); n > 0 {
		t.Errorf("%d inboxes outlive a connection that was drained", n)
	}
}

// A connection may be closed between a subscription and what watches over it.
func TestInboxOfAConnectionThatCloses(t *testing.T) {
	nc := testenv.New(t, testenv.Options{}).Connect()
	i := &inbox{nc: nc, link: &link{}, closed: make(chan struct{})}

	var err error
	if i.subscription, err = nc.ChanSubscribe("x", make(chan *nats.Msg)); err != nil {
		t.Fatal(err)
	}

	ended := make(chan struct{})
	i.subscription.SetClosedHandler(func(string) { close(ended) })
	nc.Close()
	<-ended
	i.onEnd()

	if !i.hasEnded() {
		t.Error("its end was not noticed")
	}
}

// RetryAfter changes when a job comes back, and not what its error says.
func TestRetryAfter(t *testing.T) {
	full := errors.New("the disk is full")
	for delay, want := range map[time.Duration]time.Duration{
		time.Second: time.Second,
		0:           0,
	} {
		err := RetryAfter(delay, full)
		if got := workFailureOf(fmt.Errorf("write: %w", err)).delay; got != want ||
			err.Error() != full.Error() || !errors.Is(err, full) {
			t.Errorf("%v: comes back after %v, %v", delay, got, err)
		}
	}
	if got := workFailureOf(full).delay; got != Backoff {
		t.Errorf("without RetryAfter it comes back after %v", got)
	}
}

// speechless is an error that cannot say what it is.
type speechless struct{}

func (speechless) Error() string { panic("no words") }

// Whatever a Work returns or panics with, the reason of its job says what went wrong, causes
// included.
func TestReasons(t *testing.T) {
	full := errors.New("the disk is full")
	var typedNil *os.PathError
	fail := func(err error) Work { return func(context.Context, *Job) error { return err } }
	panics := func(v any) Work { return func(context.Context, *Job) error { panic(v) } }

	for _, test := range []struct {
		work  Work
		text  string // of the reason, before the stack
		delay time.Duration
	}{
		{fail(fmt.Errorf("write: %w", full)), "write: the disk is full", Backoff},
		{fail(errors.Join(full, context.Canceled)), full.Error() + "\ncontext canceled", Backoff},
		{fail(errors.New("")), "*errors.errorString", Backoff},
		{fail(typedNil), "panic: runtime error: invalid memory address or nil", Backoff},
		{fail(speechless{}), "panic: no words", Backoff},
		{fail(RetryAfter(time.Minute, nil)), "no reason was given", time.Minute},
		{panics(fmt.Errorf("write: %w", full)), "panic: write: the disk is full", Backoff},
		{panics(speechless{}), "panic: %!v(PANIC=Error method: no words)", Backoff},
		{panics(nil), "panic: panic called with nil argument", Backoff},
	} {
		got := test.work.callSafely(t.Context(), &Job{})

		if got == nil || !strings.HasPrefix(got.text, test.text) || got.delay != test.delay {
			t.Errorf("%+v: want %q after %v", got, test.text, test.delay)
		}
	}
}

// A request that found nothing may be answered late, when another has a job already: that one is
// not passed over, nor another leased in its place.
func TestLateAnswerOfEmptyQueue(t *testing.T) {
	c := New(nil)
	w, err := NewWorker(func(context.Context, *Job) error { return nil }, WorkerOptions{},
		c.PriorityQueue("jobs").Weight(1), c.PriorityQueue("mail").Weight(1))
	if err != nil {
		t.Fatal(err)
	}

	late, _ := w.pick(true)
	late.share.ahead = &heldJob{source: late}
	if late.took(nil); late.share.empty {
		t.Error("the queue counts as empty, and has a job ahead")
	}

	if s, ahead := w.pick(true); s != late || ahead == nil {
		t.Error("the job ahead was passed over")
	}

	w.background.Wait()
}

// However small messages are, a batch of pushes is no larger than its reply can be.
func TestBatchesHaveRoomForTheirReply(t *testing.T) {
	for _, maxPayload := range []int64{1 << 10, 1 << 14, 1 << 16, 1 << 20} {
		n := maxBatchItems(maxPayload)

		size := subjects.MaxPushedBatch(n) + subjects.MaxDuplicates(n)

		if int64(size) > maxPayload {
			t.Errorf("max_payload %d: %d items may have %d bytes of reply", maxPayload, n, size)
		}
	}
}
