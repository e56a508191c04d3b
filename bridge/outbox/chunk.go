package outbox

import (
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// Endpoint counts the requests of one form.
type Endpoint interface {
	// Denied counts the error of a request whose reply NATS denied.
	Denied(subject string)
}

// Content is what a reply carries, and what is to be done if nobody receives it: items go back into
// their queue, leases end, and a request that waits ends.
type Content struct {
	// Queue has the items; nil if there are none, or they stay in it.
	Queue *dispatch.Queue
	// Item was popped, or leased if there is a Lease.
	Item  fdbpq.Item
	Lease *fdbpq.Token
	// Popped and Leased are the items of a parcel, in place of Item.
	Popped []fdbpq.Item
	Leased []fdbpq.Lease
	// Waits is the request, if it may wait on after this reply.
	Waits dispatch.Waiting
}

// chunk holds replies that were handed over one after the other.
type chunk struct {
	replies []sentReply
	items   []sentItem
	first   uint64 // number of the first item
	bytes   int
	began   time.Time // when the first was handed over
	asked   bool      // a PING was sent after the last
	rounds  int       // rounds that confirmed it without certainty
}

// sentReply is a reply without an item, or with one that stayed in its queue.
type sentReply struct {
	subject  string
	endpoint Endpoint // nil if the request has failed anyway
	decided  bool     // whether it was delivered
}

// sentItem is a reply that carries items, or after which its request waits.
type sentItem struct {
	sentReply
	Content
	random uint64 // in its reply subject; 0 if that is for acknowledgements
	bytes  int    // of its items
}

const (
	// Replies are deleted if NATS takes longer than maxUnconfirmedAge to confirm them, or once they
	// exceed Config.MaxBytes. Above hurryBytes, rounds follow without a pause.
	maxUnconfirmedAge = 30 * time.Second
	hurryBytes        = 2 << 20
	// chunkBytes is the size at which a chunk is full.
	chunkBytes = 1 << 20
	// What a reply takes in memory besides the bytes of its item.
	replyOverhead = 96
	itemOverhead  = 400
	leaseOverhead = 80
)

// recycle returns an empty chunk that reuses the memory of c.
func (c *chunk) recycle() *chunk {
	clear(c.replies)
	clear(c.items)
	return &chunk{replies: c.replies[:0], items: c.items[:0]}
}

// itemSize estimates the bytes of memory that an item refers to.
func itemSize(item *fdbpq.Item) int {
	return len(item.Value) + wire.HeaderSize(item.Headers) + wire.HeaderMemory(item.Headers)
}
