package client

import (
	"errors"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"
)

// sharedInbox receives the answers to all requests of a connection that do not wait, in one subscription. One for
// each request would cost the NATS server more than the answers do: with each it forgets where other subjects lead.
//
// Pops have one of their own. While it has a subscription, a bridge takes an item for received, even if nobody
// waits for it any more. So when a pop is given up, its shared inbox is retired: later pops get another, and its subscription ends with
// the last of the pops that still have it.
type sharedInbox struct {
	key sharedKey

	mu           sync.Mutex
	prefix       string // of the subjects; empty before the first request
	subscription *nats.Subscription
	closed       <-chan struct{}
	open         map[string]chan<- *nats.Msg // by what follows the prefix
	opened       int
	retired      bool
}

type sharedKey struct {
	nc   *nats.Conn
	pops bool
}

// sharedInboxes has those of connections that are not closed, and that are not retired.
var sharedInboxes sync.Map // of *sharedInbox, by sharedKey

var errRetired = errors.New("the inbox is retired")

// openShared returns an inbox whose messages go to the channel, which has room for all of them.
func openShared(nc *nats.Conn, pops bool, messages chan *nats.Msg) (*inbox, error) {
	for {
		i, err := sharedInboxOf(sharedKey{nc, pops}).add(messages)
		if !errors.Is(err, errRetired) {
			return i, err
		}
	}
}

func sharedInboxOf(key sharedKey) *sharedInbox {
	if s, ok := sharedInboxes.Load(key); ok {
		return s.(*sharedInbox)
	}
	s, _ := sharedInboxes.LoadOrStore(key, &sharedInbox{key: key})
	return s.(*sharedInbox)
}

func (s *sharedInbox) add(messages chan *nats.Msg) (*inbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		return nil, errRetired
	}
	if s.prefix == "" {
		if err := s.subscribe(); err != nil {
			s.leave()
			return nil, err
		}
	}
	s.opened++
	name := strconv.Itoa(s.opened)
	s.open[name] = messages
	i := &inbox{subject: s.prefix + name, messages: messages, closed: s.closed}
	i.close = func() { s.remove(name, false) }
	i.discard = func() { s.remove(name, true) }
	return i, nil
}

// remove ends an inbox, and retires this one unless it has other uses.
func (s *sharedInbox) remove(name string, retire bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, name)
	if retire && !s.retired {
		s.retired = true
		s.leave()
	}
	if s.retired && len(s.open) == 0 {
		_ = s.subscription.Unsubscribe() // fails only if the connection has ended
	}
}

// leave has later requests use another shared inbox.
func (s *sharedInbox) leave() { sharedInboxes.CompareAndDelete(s.key, s) }

// subscribe is called with the lock held.
func (s *sharedInbox) subscribe() error {
	prefix := s.key.nc.NewInbox() + "."
	subscription, err := s.key.nc.Subscribe(prefix+"*", s.receive)
	if err != nil {
		return err
	}
	s.closed = closedWith(subscription, s.leave)
	s.prefix, s.subscription, s.open = prefix, subscription, map[string]chan<- *nats.Msg{}
	return subscription.SetPendingLimits(-1, -1) // what is not received at once would be lost
}

func (s *sharedInbox) receive(m *nats.Msg) {
	s.mu.Lock()
	messages := s.open[m.Subject[len(s.prefix):]]
	s.mu.Unlock()
	select {
	case messages <- m: // never if it is nil, because nobody waits for it any more
	default:
	}
}
