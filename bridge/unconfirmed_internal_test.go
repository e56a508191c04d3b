package bridge

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// sentBatch is a batch with one reply, as it is handed to NATS.
func sentBatch(l *lane, itemBytes int) *batch {
	r := request{queue: &queue{name: "jobs", lane: l}, endpoint: l.b.endpoints.unknown}
	b := &batch{requests: []request{r}, ops: make([]fdbpq.Op, 1)}
	l.b.unconfirmed.begin(b)
	b.results, b.itemBytes = make([]fdbpq.Result, 1), itemBytes
	l.finish(b)
	return b
}

// However long NATS says nothing, what is kept is bounded, in bytes and in time.
func TestUnconfirmedIsBounded(t *testing.T) {
	l := newTestLane(t)
	u := l.b.unconfirmed
	for range 100 {
		sentBatch(l, 1<<20)
	}
	if n := len(u.mu.batches); u.mu.bytes > maxUnconfirmedBytes || n < 14 || n > 16 || l.mu.unconfirmed != n {
		t.Errorf("%d batches of %d bytes are kept, the lane waits for %d", n, u.mu.bytes, l.mu.unconfirmed)
	}
	u.forget(time.Now().Add(time.Hour))
	if len(u.mu.batches) != 0 || u.mu.bytes != 0 || l.mu.unconfirmed != 0 {
		t.Errorf("%d batches of %d bytes are left, the lane waits for %d", len(u.mu.batches), u.mu.bytes, l.mu.unconfirmed)
	}
	// One that is larger than all is let go at once.
	sentBatch(l, maxUnconfirmedBytes)
	if len(u.mu.batches) != 0 || u.mu.bytes != 0 || l.mu.unconfirmed != 0 {
		t.Errorf("%d batches of %d bytes are kept, the lane waits for %d", len(u.mu.batches), u.mu.bytes, l.mu.unconfirmed)
	}
}

// At the end nothing is kept, also of batches whose replies are being sent.
func TestUnconfirmedEnds(t *testing.T) {
	l := newTestLane(t)
	u := l.b.unconfirmed
	sentBatch(l, 1)
	b := &batch{}
	u.begin(b)
	u.end()
	if l.mu.unconfirmed != 0 {
		t.Errorf("the lane waits for %d", l.mu.unconfirmed)
	}
	l.finish(b)
	sentBatch(l, 1)
	u.refused("x")
	if l.mu.unconfirmed != 0 || u.mu.bytes != 0 || len(u.mu.refusals) != 0 {
		t.Errorf("after the end: the lane waits for %d, %d bytes, refusals %v", l.mu.unconfirmed, u.mu.bytes, u.mu.refusals)
	}
}

// An item is pushed again when as many replies to its subject were refused as there
// were, and otherwise, or before that is known, it is not.
func TestUnconfirmedDecides(t *testing.T) {
	type step struct {
		begin, sent, refused int  // replies to one subject
		round                bool // PING, PONG and what came before
		want                 int  // items pushed again so far
	}
	for name, steps := range map[string][]step{
		"none":                     {{begin: 1, sent: 1, round: true}},
		"one":                      {{begin: 1, sent: 1, refused: 1, round: true, want: 1}},
		"two of two":               {{begin: 2, sent: 2, refused: 2, round: true, want: 2}},
		"one of two":               {{begin: 2, sent: 2, refused: 1, round: true}},
		"before all are sent":      {{begin: 1, refused: 1, round: true}, {round: true}, {round: true}, {round: true}, {round: true}, {round: true}, {sent: 1, round: true, want: 1}},
		"after the PING":           {{begin: 1, sent: 1, round: true}, {begin: 1, sent: 1, refused: 1, round: true, want: 1}},
		"one subject after itself": {{begin: 1, sent: 1, refused: 1, round: true, want: 1}, {begin: 1, sent: 1, round: true, want: 1}},
		"another is being sent":    {{begin: 2, sent: 1, refused: 1, round: true}, {sent: 1, round: true}},
		"another was being sent":   {{begin: 2, sent: 1, refused: 2, round: true}, {sent: 1, round: true, want: 2}},
		"something else":           {{refused: 1, round: true}, {begin: 1, sent: 1, round: true}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newTestLane(t)
			u := l.b.unconfirmed
			q := &queue{name: "jobs", lane: l}
			var open []*batch
			for i, s := range steps {
				for range s.begin {
					b := &batch{
						requests: []request{{queue: q, endpoint: l.b.endpoints.unknown, reply: "elsewhere"}},
						ops:      []fdbpq.Op{{Kind: fdbpq.OpPop}},
					}
					u.begin(b)
					open = append(open, b)
				}
				for range s.sent {
					open[0].results = make([]fdbpq.Result, 1)
					l.finish(open[0])
					open = open[1:]
				}
				for range s.refused {
					u.refused("elsewhere")
				}
				if s.round {
					u.ask()
					u.settle(true)
				}
				if got := len(l.mu.waiting); got != s.want {
					t.Fatalf("step %d: %d items were pushed again, want %d", i, got, s.want)
				}
			}
			if len(open) == 0 && (len(u.mu.refusals) > 0 || len(u.mu.batches) > 0 || l.mu.unconfirmed > 0) {
				t.Errorf("left are refusals %v, %d batches, %d in the lane", u.mu.refusals, len(u.mu.batches), l.mu.unconfirmed)
			}
		})
	}
}

// Replies that come one after the other to one subject, some of them refused, are
// decided upon some time, without any of them.
func TestUnconfirmedDecidesAtLast(t *testing.T) {
	l := newTestLane(t)
	u := l.b.unconfirmed
	for range 100 {
		u.ask()
		sentBatch(l, 1).requests[0].reply = "elsewhere"
		u.refused("elsewhere")
		u.refused("other")
		u.settle(false)
	}
	if n := len(u.mu.batches); n > 2*maxUndecided {
		t.Errorf("%d batches are kept", n)
	}
}

// Every subject can be read from the server's words.
func FuzzRefusedSubject(f *testing.F) {
	for _, subject := range []string{"a.B", `a"b`, `a\"`, "größe", "\x00\xff", `x" to "_pqbridge.y`, "", "'"} {
		f.Add(subject)
	}
	f.Fuzz(func(t *testing.T, subject string) {
		words := fmt.Sprintf("Permissions Violation for Publish to %q", []byte(subject))
		if got, ok := refusedSubject(fmt.Errorf("%w: %s", nats.ErrPermissionViolation, words)); !ok || got != subject {
			t.Errorf("%q is read as %q", words, got)
		}
		if got, ok := refusedSubject(errors.New(words)); ok {
			t.Errorf("%q is read from another error", got)
		}
		for _, words := range []string{fmt.Sprintf("Permissions Violation for Subscription to %q", subject), subject} {
			_, _ = refusedSubject(fmt.Errorf("%w: %s", nats.ErrPermissionViolation, words)) // no panic
		}
	})
}
