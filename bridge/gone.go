package bridge

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// This file is the part of outbox that finds out which items nobody received. A reply
// with a popped item has a reply subject of its own:
//
//	_PQ.<bridge>.<number>-<random>
//
// The bridge has a plain subscription to these, on the connection that it sends the replies
// over. If nobody is subscribed to the subject that the client chose, the server answers
// there with an empty message of status 503, and nothing else does: it does the same for
// requests. It does so before it answers a PING sent later, so the outbox still has the
// item. Unlike a denial, the 503 says exactly which one it is.
//
// A message with several items, leased ones too, has such a subject as well, and all of them go back.
//
// If the request would wait on, it ends, or it would get the item again and again. Heartbeats
// have such a subject too: so ends also a request of a client that is gone before there is an
// item, and one that leases, whose items in messages of their own have the subject of their acknowledgements.
//
// Clients need no right to publish there. Those that have it can say that they did not
// receive an item, but not that others did not, because they cannot guess the random part.

// goneRoot is the start of these subjects.
const goneRoot = "_PQ."

// goneSubjects is how many bytes of subjects are made at a time.
const goneSubjects = 4096

// listen subscribes to what NATS says of items that nobody received, in place of an earlier subscription.
func (o *outbox) listen(nc *nats.Conn) error {
	subject := o.inbox + "*"
	subscription, err := nc.Subscribe(subject, o.hearGone)
	if err != nil {
		return fmt.Errorf("bridge: subscribe to %s: %w", subject, err)
	}
	if old := o.gone.Swap(subscription); old != nil {
		drain([]*nats.Subscription{old})
	}
	return nil
}

// isDenial reports whether err denies the subscription of listen.
func (o *outbox) isDenial(err error) bool {
	return strings.Contains(err.Error(), fmt.Sprintf("Subscription to %q", o.inbox+"*"))
}

// goneSubjectLocked returns the reply subject of the item that will be remembered next.
func (o *outbox) goneSubjectLocked(random uint64) string {
	b := &o.mu.subjects
	const longest = 2*13 + 1 // two numbers of 64 bits
	if b.Cap()-b.Len() < len(o.inbox)+longest {
		*b = strings.Builder{} // the subjects made before stay as they are
		b.Grow(goneSubjects)
	}
	start := b.Len()
	var digits [longest]byte
	token := strconv.AppendUint(digits[:0], o.mu.numbered, 36)
	token = strconv.AppendUint(append(token, '-'), random, 36)
	b.WriteString(o.inbox)
	b.Write(token)
	return b.String()[start:]
}

// parseGone returns what is in a subject that goneSubjectLocked made.
func (o *outbox) parseGone(subject string) (number, random uint64, ok bool) {
	token, ours := strings.CutPrefix(subject, o.inbox)
	first, second, found := strings.Cut(token, "-")
	number, numberErr := strconv.ParseUint(first, 36, 64)
	random, randomErr := strconv.ParseUint(second, 36, 64)
	return number, random, ours && found && numberErr == nil && randomErr == nil
}

// hearGone is the nats.MsgHandler of listen. It gives back the item that nobody received, and ends
// the request if it waits for more.
func (o *outbox) hearGone(m *nats.Msg) {
	if len(m.Data) > 0 || m.Header.Get("Status") != "503" {
		newHandler(o.b).refuseAck(m)
		return
	}
	number, random, ok := o.parseGone(m.Subject)
	if !ok {
		return
	}
	o.mu.Lock()
	s := o.sentItemLocked(number)
	if s == nil || s.random == 0 || s.random != random || s.decided {
		o.mu.Unlock()
		return
	}
	s.decided = true
	lost := *s
	o.b.dispatcher.Hold() // the outbox may forget the item, and with it hold no longer
	o.mu.Unlock()
	defer o.b.dispatcher.Release()
	o.b.giveBack(&lost, reasonGone)
}

// sentItemLocked returns the item of that number, nil if it is forgotten.
func (o *outbox) sentItemLocked(number uint64) *sentItem {
	for _, c := range o.mu.chunks {
		if i := number - c.first; i < uint64(len(c.items)) { // below c.first it is huge
			return &c.items[i]
		}
	}
	return nil
}

// awaitGone returns when hearGone has handled all messages that have arrived.
func (o *outbox) awaitGone(ctx context.Context) error {
	if n, _ := o.backlog(); n == 0 {
		return nil
	}
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-again.C:
		}
		if n, _ := o.backlog(); n == 0 {
			return nil
		}
	}
}

// backlog returns what has arrived and hearGone has not handled yet.
func (o *outbox) backlog() (messages, bytes int) {
	if s := o.gone.Load(); s != nil {
		return backlogOf([]*nats.Subscription{s})
	}
	return 0, 0
}
