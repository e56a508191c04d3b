package bridge

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// remember acts as if a reply with an item of that size had been sent.
func (o *outbox) remember(t *testing.T, subject string, size int) {
	t.Helper()
	q, err := o.b.dispatcher.Queue(subjects.Priority, "jobs")
	if err != nil {
		t.Fatal(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	item := fdbpq.Item{Message: fdbpq.Message{Value: make([]byte, size)}}
	o.rememberItemLocked(sentItem{sentReply: sentReply{subject: subject, endpoint: o.b.endpoints.unknown}, queue: q, item: item})
}

func (o *outbox) unconfirmed() (n int) {
	for _, c := range o.mu.chunks {
		n += len(c.items) + len(c.replies)
	}
	return n
}

// However long NATS stays silent, the replies kept are limited in bytes and in time.
func TestOutboxIsBounded(t *testing.T) {
	o := newTestBridge(t).outbox
	room := o.limit >> 20
	for range 100 {
		o.remember(t, "inbox", 1<<20)
	}
	if n := o.unconfirmed(); o.mu.bytes > o.limit || n < room-2 || n > room {
		t.Errorf("%d replies of %d bytes are kept", n, o.mu.bytes)
	}
	o.forget(time.Now().Add(time.Hour))
	if n := o.unconfirmed(); n != 0 || o.mu.bytes != 0 {
		t.Errorf("%d replies of %d bytes are left", n, o.mu.bytes)
	}
	// A reply above the limit by itself is forgotten at once.
	o.remember(t, "inbox", o.limit)
	if n := o.unconfirmed(); n != 0 || o.mu.bytes != 0 {
		t.Errorf("%d replies of %d bytes are kept", n, o.mu.bytes)
	}
}

// After the end nothing is kept, and nothing is added.
func TestOutboxEnds(t *testing.T) {
	o := newTestBridge(t).outbox
	o.remember(t, "inbox", 1)
	o.end()
	o.remember(t, "inbox", 1)
	o.noteDenied("inbox")
	if n := o.unconfirmed(); n != 0 || o.mu.bytes != 0 || len(o.mu.denials) != 0 || o.abandoned() != 1 {
		t.Errorf("after the end: %d replies, %d bytes, denials %v, %d abandoned", n, o.mu.bytes, o.mu.denials, o.abandoned())
	}
}

// The dispatcher does not end while an item may have to go back into its queue.
func TestOutboxHoldsTheDispatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBridge(t)
		b.outbox.remember(t, "elsewhere", 1)
		ended := make(chan struct{})
		go func() {
			b.dispatcher.Run(t.Context())
			close(ended)
		}()
		b.dispatcher.Close()
		synctest.Wait()
		select {
		case <-ended:
			t.Fatal("the dispatcher ended with a reply unconfirmed")
		default:
		}
		b.outbox.markAsked()
		b.outbox.noteDenied("elsewhere")
		b.outbox.confirm(true)
		<-ended
		wantGivenBack(t, b, reasonDenied, 1)
	})
}

// An item is pushed again if as many replies to its subject were denied as were sent;
// otherwise, or before that is known, it is not.
func TestOutboxDecides(t *testing.T) {
	type step struct {
		sent, denied int  // replies to one subject
		asked        bool // PING
		late         int  // sent after the PING
		lateDenied   int
		confirmed    bool // PONG and what came before
		want         int  // items pushed again so far
	}
	for name, steps := range map[string][]step{
		"none":                     {{sent: 1, asked: true, confirmed: true}},
		"one":                      {{sent: 1, denied: 1, asked: true, confirmed: true, want: 1}},
		"two of two":               {{sent: 2, denied: 2, asked: true, confirmed: true, want: 2}},
		"one of two":               {{sent: 2, denied: 1, asked: true, confirmed: true}},
		"one after the PING":       {{sent: 1, denied: 1, asked: true, late: 1, confirmed: true}, {asked: true, confirmed: true}},
		"two after the PING":       {{sent: 1, denied: 1, asked: true, late: 1, lateDenied: 1, confirmed: true}, {asked: true, confirmed: true, want: 2}},
		"in the next round":        {{sent: 1, asked: true, confirmed: true}, {sent: 1, denied: 1, asked: true, confirmed: true, want: 1}},
		"one subject after itself": {{sent: 1, denied: 1, asked: true, confirmed: true, want: 1}, {sent: 1, asked: true, confirmed: true, want: 1}},
		"something else":           {{denied: 1, asked: true, confirmed: true}, {sent: 1, asked: true, confirmed: true}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestBridge(t)
			o := b.outbox
			for i, s := range steps {
				send := func(sent, denied int) {
					for range sent {
						o.remember(t, "elsewhere", 0)
					}
					for range denied {
						o.noteDenied("elsewhere")
					}
				}
				send(s.sent, s.denied)
				if s.asked {
					o.markAsked()
				}
				send(s.late, s.lateDenied)
				if s.confirmed {
					o.confirm(true)
				}
				if got, _ := b.dispatcher.Pending(); got != int64(s.want) {
					t.Fatalf("step %d: %d items were pushed again, want %d", i, got, s.want)
				}
			}
			if n := o.unconfirmed(); n > 0 || len(o.mu.denials) > 0 || o.mu.bytes != 0 {
				t.Errorf("left are denials %v, %d replies, %d bytes", o.mu.denials, n, o.mu.bytes)
			}
		})
	}
}

// If some errors may not have been heard, a reply is decided once but kept for another
// round.
func TestOutboxWaitsForCertainty(t *testing.T) {
	b := newTestBridge(t)
	o := b.outbox
	o.remember(t, "elsewhere", 0)
	o.markAsked()
	o.confirm(false)
	if n := o.unconfirmed(); n != 1 {
		t.Fatalf("%d replies are kept, want 1", n)
	}
	o.noteDenied("elsewhere") // heard late
	o.markAsked()
	o.confirm(false)
	if n, _ := b.dispatcher.Pending(); n != 1 || o.unconfirmed() != 0 {
		t.Errorf("%d items were pushed again, want 1; %d replies are kept", n, o.unconfirmed())
	}
}

// Replies that keep coming to one subject, some of them denied, are decided in the
// end, and no item is pushed again.
func TestOutboxDecidesAtLast(t *testing.T) {
	o := newTestBridge(t).outbox
	for range 100 {
		o.markAsked()
		o.remember(t, "elsewhere", 1)
		o.noteDenied("elsewhere")
		o.noteDenied("other")
		o.confirm(false)
	}
	if n := o.unconfirmed(); n > 2*maxUndecided {
		t.Errorf("%d replies are kept", n)
	}
}

// Denials that are not all heard yet are not taken for all there are.
func TestOutboxWaitsForAllDenials(t *testing.T) {
	b := newTestBridge(t)
	o := b.outbox
	o.remember(t, "elsewhere", 0)
	o.remember(t, "elsewhere", 0)
	o.markAsked()
	o.noteDenied("elsewhere")
	o.confirm(false)
	o.noteDenied("elsewhere")
	o.markAsked()
	o.confirm(false)
	if n, _ := b.dispatcher.Pending(); n != 2 {
		t.Errorf("%d of 2 denied items were pushed again", n)
	}
}

// The bound counts the subjects, too.
func TestOutboxCountsSubjects(t *testing.T) {
	o := newTestBridge(t).outbox
	for range 20_000 {
		o.mu.Lock()
		o.rememberLocked(sentReply{subject: strings.Repeat("x", 2048)})
		o.mu.Unlock()
	}
	if n := o.unconfirmed(); n*2048 > o.limit {
		t.Errorf("%d replies to subjects of 2048 bytes are kept", n)
	}
}

// wantGivenBack checks how many items were given back for a reason.
func wantGivenBack(t *testing.T, b *Bridge, why reason, want float64) {
	t.Helper()
	families, err := b.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != "pq_given_back_total" || m.GetLabel()[0].GetValue() != string(why) {
				continue
			}
			if got := m.GetCounter().GetValue(); got != want {
				t.Errorf("%v items were given back, %s: want %v", got, why, want)
			}
			return
		}
	}
	t.Errorf("no metric for %s", why)
}

// wantLost checks what the counters of lost items and of unanswered requests show.
func wantLost(t *testing.T, b *Bridge, what string, want float64) {
	t.Helper()
	families, err := b.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		got[f.GetName()] = f.GetMetric()[0].GetCounter().GetValue()
	}
	if lost, other := got["pq_lost_items_total"], got["pq_unanswered_total"]; lost != want || other != 0 {
		t.Errorf("%s: %v items are lost and %v requests unanswered, want %v and 0", what, lost, other, want)
	}
}

// Items that cannot be put back are counted as lost.
func TestLostItemsAreCounted(t *testing.T) {
	b := newTestBridge(t)
	q, err := b.dispatcher.Queue(subjects.Priority, "jobs")
	if err != nil {
		t.Fatal(err)
	}
	fail := func(err error) {
		// After so many attempts the next one comes late enough for this test.
		i := &restoring{restorer: b.restorer, reason: reasonDenied, attempts: 10}
		i.Fail(&dispatch.Request{Queue: q}, []fdbpq.Op{{Kind: fdbpq.OpRestore, Queue: q.Target, Item: &i.item}}, err)
	}
	fail(ErrUnknownOutcome)
	wantLost(t, b, "that the dispatcher sees to", 0)
	fail(ErrUnavailable)
	wantLost(t, b, "to be tried again", 0)
	b.restorer.end()
	wantLost(t, b, "given up", 1)
	fail(ErrUnavailable)
	wantLost(t, b, "after the end", 2)
}

// An item that cannot be put back any more is counted.
func TestRestoreAfterTheEnd(t *testing.T) {
	b := newTestBridge(t)
	q, err := b.dispatcher.Queue(subjects.Priority, "jobs")
	if err != nil {
		t.Fatal(err)
	}
	b.dispatcher.Close()
	b.dispatcher.Run(t.Context())
	b.restorer.restore(q, &fdbpq.Item{Message: fdbpq.Message{Value: []byte("x")}}, reasonGone)
	wantLost(t, b, "after the dispatcher ended", 1)
}

// Every subject can be parsed from the server's error.
func FuzzDeniedSubject(f *testing.F) {
	for _, subject := range []string{"a.B", `a"b`, `a\"`, "größe", "\x00\xff", `x" to "_pqbridge.y`, "", "'"} {
		f.Add(subject)
	}
	f.Fuzz(func(t *testing.T, subject string) {
		words := fmt.Sprintf("Permissions Violation for Publish to %q", []byte(subject))
		if got, ok := deniedSubject(fmt.Errorf("%w: %s", nats.ErrPermissionViolation, words)); !ok || got != subject {
			t.Errorf("%q is read as %q", words, got)
		}
		if got, ok := deniedSubject(errors.New(words)); ok {
			t.Errorf("%q is read from another error", got)
		}
		for _, words := range []string{fmt.Sprintf("Permissions Violation for Subscription to %q", subject), subject} {
			_, _ = deniedSubject(fmt.Errorf("%w: %s", nats.ErrPermissionViolation, words)) // no panic
		}
	})
}
