package client

import (
	"sync"

	"github.com/nats-io/nats.go"
)

// connection publishes requests only while the NATS connection is up.
//
// While it reconnects, the NATS client buffers messages and sends them afterwards, even requests
// that were given up long before, which would take items for nobody. So a request is published only
// once the connection is up. The NATS client does not repeat what it published before the
// connection was lost.
//
// The connection may be lost between the check and the publishing. Then the request arrives late.
// If it was given up by then, nobody is subscribed to its inbox, and its items go back.
type connection struct {
	nc   *nats.Conn
	link *link // nil if nc is
}

// link is what all Clients of a connection share. Call no method of the connection while holding
// the lock, because closing a connection waits for it.
type link struct {
	sync.Mutex
	idle     []*inbox            // without a request, for later ones: see takeIdle
	inboxes  map[string]*inbox   // by the subject of their subscription
	underWay map[string][]*inbox // by the subject of their request, in order: see refuse

	handled error         // the last refusal that was handled
	changed chan struct{} // closed when the next one is

	// Each is the number of the present connection, as numberOf counts them, if this is so:
	hears  uint64 // it may receive replies; see checkReplies
	exact  uint64 // no refusal of a request that was given up is still to come
	doubts int    // how often either became doubtful
}

// numberOf returns the number of the present connection to a server: it grows with each.
func numberOf(nc *nats.Conn) uint64 { return nc.Stats().Reconnects + 1 }

// inbox receives the messages that answer one request at a time. It has room for all of them,
// whatever the limits of the connection: a dropped message would lose its items.
type inbox struct {
	nc           *nats.Conn
	link         *link
	subscription *nats.Subscription
	prefix       string // of the subjects of all its requests
	requests     int    // how many it has served

	subject  string // of the current request
	state    waitState
	why      error // the request was given up
	messages chan *nats.Msg
	closed   chan struct{} // closed when the subscription has ended

	// What the server refuses: see link.refuse.
	refused   chan error // has room for one
	published string     // the subject of the current request while it is under way
	before    error      // the last refusal before that request, or before the inbox
}

// waitState says how the current request of an inbox waits for messages. It makes these moves:
//
//	from       to         when
//	waiting    cancelled  the Worker stops, or its connection is back (popReply.receiveAll)
//	waiting    given up   the context or the subscription ends, two heartbeats are missing, or the
//	                      server refuses the request
//	cancelled  given up   cancelTime is over, or the context or the subscription ends
//	any        released   the reply is complete, an error has come, or none of a request that was
//	                      given up is left to read
//
// Every request begins as waiting, and release ends it in any state. The inbox of a request that
// was given up is not used again.
type waitState uint8

const (
	waiting   waitState = iota // for messages; heartbeats count, and interrupts end the wait
	cancelled                  // for the end of the reply, which the bridge was asked for
	givenUp                    // for nothing; messages that had arrived are still read
)
