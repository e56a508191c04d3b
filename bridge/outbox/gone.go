package outbox

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
)

// This file finds out which items nobody received. A reply with a popped item carries a reply
// subject of its own:
//
//	_PQ.<bridge>.<number>-<random>
//
// The bridge subscribes to these over the connection that it sends the replies over. If nobody is
// subscribed to the subject that the client chose, the server answers there with an empty message
// of status 503, as it does for requests; nothing else does. It does so before it answers a PING
// sent later, so the outbox still has the item. Unlike a denial, the 503 says exactly which one it
// is.
//
// A message with several items has one such subject, and all of them go back, leased ones included.
//
// A request that waits for more ends, or it would get the item again and again. Heartbeats have
// such a subject as well. So a request also ends if its client goes away before there is an item,
// or if it leases items in messages of their own, whose reply subjects are for acknowledgements.
//
// Clients need no right to publish there. A client with that right can say that it did not receive
// an item, but not that another did not, because it cannot guess the random part.

// Listen subscribes to what NATS says of items that nobody received, in place of an earlier
// subscription.
func (o *Outbox) Listen(nc *nats.Conn) error {
	subject := o.inbox + "*"
	subscription, err := nc.Subscribe(subject, o.hearGone)
	if err != nil {
		return fmt.Errorf("bridge: subscribe to %s: %w", subject, err)
	}

	if old := o.gone.Swap(subscription); old != nil {
		wire.Drain([]*nats.Subscription{old})
	}

	return nil
}

// NoteDeaf reports whether err denies the subscription of Listen. Then items have no reply subjects
// until Connected, or until ListenAgain succeeds.
func (o *Outbox) NoteDeaf(err error) bool {
	if !strings.Contains(err.Error(), fmt.Sprintf("Subscription to %q", o.inbox+"*")) {
		return false
	}

	o.goneDenied.Store(true)
	if !o.goneDeniedLog.Swap(true) {
		o.config.Logger.Warn("NATS does not say which items nobody received: allow this user to " +
			"subscribe to " + Root + ">; otherwise an item popped by a client that is gone is lost")
	}

	return true
}

// Connected notes a new connection, over which NATS is asked for all subscriptions again.
func (o *Outbox) Connected() {
	o.goneDenied.Store(false)
	o.goneDeniedLog.Store(false)
}

// ListenAgain asks NATS again for a subscription that it denied.
func (o *Outbox) ListenAgain() {
	if o.goneDenied.Swap(false) {
		if err := o.Listen(o.config.Conn()); err != nil {
			o.goneDenied.Store(true)
		}
	}
}

// parseGone parses a subject that goneSubjectLocked made.
func (o *Outbox) parseGone(subject string) (number, random uint64, ok bool) {
	token, ours := strings.CutPrefix(subject, o.inbox)
	first, second, found := strings.Cut(token, "-")
	number, numberErr := strconv.ParseUint(first, 36, 64)
	random, randomErr := strconv.ParseUint(second, 36, 64)
	return number, random, ours && found && numberErr == nil && randomErr == nil
}

// hearGone is the nats.MsgHandler of Listen. It gives back the item that nobody received, and ends
// the request if it waits for more.
func (o *Outbox) hearGone(m *nats.Msg) {
	if !wire.NoResponders(m) {
		o.config.Stray(m)
		return
	}

	number, random, ok := o.parseGone(m.Subject)
	if !ok {
		o.Settle(string(Gone), m.Subject)
		return
	}

	o.mu.Lock()
	_, s := o.sentItemLocked(number)
	if s == nil || s.random == 0 || s.random != random || s.subject == "" {
		o.mu.Unlock()
		return
	}

	// Without the lock, a round may delete the chunk and release the dispatcher.
	s.subject = "" // decided
	lost := *s
	o.config.Dispatcher.Hold()
	o.mu.Unlock()

	defer o.config.Dispatcher.Release()
	o.ReturnAll(&lost.Content, Gone)

	// On their way back the items are counted, so they count here no longer.
	o.mu.Lock()
	defer o.mu.Unlock()
	if c, s := o.sentItemLocked(number); s != nil {
		o.freeLocked(c, s)
	}
}

// sentItemLocked returns the item of that number and its chunk, nil if it was deleted.
func (o *Outbox) sentItemLocked(number uint64) (*chunk, *sentItem) {
	for _, c := range o.mu.chunks {
		if i := number - c.first; i < uint64(len(c.items)) { // below c.first it is huge
			return c, &c.items[i]
		}
	}
	return nil, nil
}

// Backlog returns what has arrived and hearGone has not handled yet.
func (o *Outbox) Backlog() (messages, bytes int) { return wire.Backlog(o.listening()) }

// listening returns the subscription of Listen, if there is one.
func (o *Outbox) listening() []*nats.Subscription {
	if s := o.gone.Load(); s != nil {
		return []*nats.Subscription{s}
	}
	return nil
}
