package client

import (
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"
)

// sharedInbox receives the answers to all pops of a connection that do not wait, in one subscription. One for
// each pop would cost the NATS server more than the answers do: with each it forgets where other subjects lead.
type sharedInbox struct {
	mu     sync.Mutex
	prefix string // of the subjects; empty before the first pop
	closed <-chan struct{}
	open   map[string]chan<- *nats.Msg // by what follows the prefix
	opened int
}

// sharedInboxes has one for each connection that is not closed.
var sharedInboxes sync.Map // of *sharedInbox, by *nats.Conn

func sharedInboxOf(nc *nats.Conn) *sharedInbox {
	if s, ok := sharedInboxes.Load(nc); ok {
		return s.(*sharedInbox)
	}
	s, _ := sharedInboxes.LoadOrStore(nc, &sharedInbox{})
	return s.(*sharedInbox)
}

// add returns an inbox whose messages go to the channel, which has room for all of them.
func (s *sharedInbox) add(nc *nats.Conn, messages chan *nats.Msg) (*inbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.prefix == "" {
		if err := s.subscribe(nc); err != nil {
			sharedInboxes.Delete(nc)
			return nil, err
		}
	}
	s.opened++
	name := strconv.Itoa(s.opened)
	s.open[name] = messages
	return &inbox{subject: s.prefix + name, messages: messages, closed: s.closed, close: func() { s.remove(name) }}, nil
}

func (s *sharedInbox) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, name)
}

// subscribe is called with the lock held.
func (s *sharedInbox) subscribe(nc *nats.Conn) error {
	prefix := nc.NewInbox() + "."
	subscription, err := nc.Subscribe(prefix+"*", s.receive)
	if err != nil {
		return err
	}
	s.closed = closedWith(subscription, func() { sharedInboxes.Delete(nc) })
	s.prefix, s.open = prefix, map[string]chan<- *nats.Msg{}
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
