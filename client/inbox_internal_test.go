package client

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/testenv"
)

// Pops that do not wait share a subscription, and what comes for one that was given up goes to nobody.
func TestSharedInbox(t *testing.T) {
	nc := testenv.New(t, testenv.Options{}).Connect()
	key := sharedKey{nc: nc}
	s := sharedInboxOf(key)
	var inboxes []*inbox
	for range 3 {
		i, err := s.add(make(chan *nats.Msg, 1))
		if err != nil {
			t.Fatal(err)
		}
		inboxes = append(inboxes, i)
	}
	if n := nc.NumSubscriptions(); n != 1 {
		t.Errorf("%d subscriptions, want 1", n)
	}
	inboxes[1].close()
	for i := range inboxes {
		for range 2 { // the second finds no room
			if err := nc.Publish(inboxes[i].subject, []byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, i := range []int{0, 2} {
		if m, err := inboxes[i].next(t.Context(), 0, nil); err != nil || m.Data[0] != byte(i) {
			t.Errorf("inbox %d got %v, %v", i, m, err)
		}
	}
	if n := len(inboxes[1].messages); n > 0 {
		t.Errorf("a closed inbox got %d messages", n)
	}
	if sharedInboxOf(key) != s {
		t.Error("another client of the connection has another subscription")
	}
	nc.Close()
	<-inboxes[0].closed
	if _, kept := sharedInboxes.Load(key); kept {
		t.Error("it is kept beyond its connection")
	}
	if _, err := sharedInboxOf(key).add(nil); err == nil {
		t.Error("a closed connection has an inbox")
	}
	if _, kept := sharedInboxes.Load(key); kept {
		t.Error("it is kept although its connection was closed")
	}
}

// A connection may be closed between a subscription and what watches over it.
func TestInboxOfAConnectionThatCloses(t *testing.T) {
	nc := testenv.New(t, testenv.Options{}).Connect()
	called, ended := false, make(chan struct{})
	s, err := nc.Subscribe("x", func(*nats.Msg) {})
	if err != nil {
		t.Fatal(err)
	}
	s.SetClosedHandler(func(string) { close(ended) })
	nc.Close()
	<-ended
	<-closedWith(s, func() { called = true })
	if !called {
		t.Error("what was to be done at the end was not")
	}
}
