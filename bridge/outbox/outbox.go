// Package outbox hands the replies of a bridge to NATS, and gives back the items that nobody
// received.
//
// Clients choose their reply subjects, so the bridge may lack the permission to publish there. The
// server reports that a moment later, and names nothing but the subject: see round.go. Or nobody is
// subscribed to the subject any more, and the server says so: gone.go. So an Outbox has each item
// that it has sent until the server would have said either, and gives back those whose replies were
// denied or that nobody received: giveback.go.
//
// The server reports any error about a message before it answers a PING sent later. So while
// replies are unconfirmed, the outbox works in rounds: it sends a PING, waits for the PONG and for
// Heard and hearGone to handle all that came before it, and deletes the replies handed over before
// the PING. A round begins roundPause after the previous one, so that the cost does not grow with
// the load.
//
// No item may be popped twice, so the outbox gives an item back only if its reply was certainly not
// delivered. That is certain of a denial if as many replies to its subject were denied as were
// sent. Anything else can happen only to clients that use one reply subject for several requests at
// once, and only if a permission changes at that moment or covers some of the replies
// (allow_responses). Their items are lost, as with any reply that nobody receives.
package outbox

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/signal"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// Outbox is safe for concurrent use. Send, SendData and SendItem may be called once Listen was.
type Outbox struct {
	config Config
	wake   chan struct{} // has an element when something is unconfirmed

	inbox         string                            // start of the reply subjects of items
	gone          atomic.Pointer[nats.Subscription] // to these subjects, set by Listen
	goneDenied    atomic.Bool                       // NATS does not permit that subscription
	goneDeniedLog atomic.Bool                       // the log says so of this connection

	mu struct {
		sync.Mutex
		chunks []*chunk // oldest first; the last may still grow
		spare  *chunk   // to be used next, or nil
		bytes  int      // of all chunks
		ended  bool
		// abandoned is how many replies were unconfirmed at the end.
		abandoned int

		numbered uint64 // items so far; the number of the next

		denials   map[string]int // by subject, not yet attributed to replies
		undecided int            // rounds in a row that ended without a decision
		reports   reports

		relayed map[string]*relayed // by reply subject

		// pauses are the timers of items that wait to be put back. It is nil after EndRestores.
		pauses map[dispatch.Replier]*time.Timer
	}
}

// New returns an empty outbox. Run confirms what it sends.
func New(c Config) *Outbox {
	o := &Outbox{config: c, wake: make(chan struct{}, 1), inbox: Root + c.ID + "."}
	o.mu.denials = map[string]int{}
	o.mu.relayed = map[string]*relayed{}
	o.mu.pauses = map[dispatch.Replier]*time.Timer{}
	return o
}

// Send sends a reply that is safe to lose. It counts and logs the error itself.
func (o *Outbox) Send(m *nats.Msg) {
	if err := o.SendItem(m, Content{}); err != nil {
		o.config.Failed(err)
	}
}

// SendData sends a reply with that payload. An error means that NATS did not accept it.
func (o *Outbox) SendData(to string, data []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.config.Conn().Publish(to, data)
	if err == nil {
		o.addReplyLocked(to)
	}
	return err
}

// SendItem sends a reply that may carry items, or leave its request waiting. It makes m.Reply
// unless there is one. An error means that NATS did not accept the reply.
func (o *Outbox) SendItem(m *nats.Msg, c Content) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	confirmable := c.Queue != nil || c.Waits != dispatch.WaitHandle{} || c.Relayed != ""
	if confirmable && o.config.Relays(m.Subject) {
		return o.sendRelayedLocked(m, c)
	}

	// A reply subject of its own makes NATS say if nobody receives the reply. Clients of other
	// accounts get items without one.
	var random uint64
	makeReply := confirmable && m.Reply == "" && !wire.Imported(m.Subject)
	if makeReply && !o.mu.ended && !o.goneDenied.Load() {
		random = 1 + rand.Uint64N(math.MaxUint64)
		m.Reply = o.goneSubjectLocked(random)
	}

	// The lock is held, so the replies are added in the order in which NATS gets them.
	if err := o.config.Conn().PublishMsg(m); err != nil {
		return err
	}

	if o.mu.ended && c.Relayed != "" {
		o.config.Tell("", c.Relayed) // no round will tell
	}

	if confirmable {
		o.addItemLocked(sentItem{subject: m.Subject, Content: c, random: random})
	} else {
		o.addReplyLocked(m.Subject)
	}

	return nil
}

// chunk holds replies that were handed over one after the other.
type chunk struct {
	replies []string // subjects of those without an item, or with one that stayed in its queue
	items   []sentItem
	first   uint64 // number of the first item
	bytes   int
	asked   bool // a PING was sent after the last
	rounds  int  // rounds that confirmed it without certainty
}

// sentItem is a reply that carries items, or after which its request waits.
type sentItem struct {
	subject string // "" once it is decided whether it was delivered, as in chunk.replies
	Content
	random uint64 // in its reply subject; 0 if that is for acknowledgements
	bytes  int    // of its items
}

const (
	// chunkBytes is the size at which a chunk is full. Above Config.MaxBytes in all of them, the
	// oldest replies are deleted unconfirmed.
	chunkBytes = 1 << 20
	// The memory that a reply takes, an item besides its own bytes, and a lease.
	replyOverhead = 96
	itemOverhead  = 320
	leaseOverhead = 160
)

// itemSize estimates the bytes of memory that an item refers to.
func itemSize(item *fdbpq.Item) int {
	return len(item.Value) + wire.HeaderSize(item.Headers) + wire.HeaderMemory(item.Headers)
}

// addItemLocked adds a reply with items, until it is confirmed.
func (o *Outbox) addItemLocked(sent sentItem) {
	c := o.openLocked()
	if c == nil {
		return
	}

	// The items of a chunk have consecutive numbers, so hearGone finds one by its number.
	if len(c.items) == 0 {
		c.first = o.mu.numbered
	}

	sent.bytes = sent.size()
	c.items = append(c.items, sent)
	o.mu.numbered++
	o.config.Dispatcher.AddUnconfirmed(sent.Queue, sent.bytes)
	o.grewLocked(c, sent.bytes, 2*replyOverhead+len(sent.subject))
}

// addReplyLocked adds the subject of a reply without items: a denial may be about it.
func (o *Outbox) addReplyLocked(subject string) {
	if c := o.openLocked(); c != nil {
		c.replies = append(c.replies, subject)
		o.grewLocked(c, 0, replyOverhead+len(subject))
	}
}

// openLocked returns the chunk that replies are added to, nil after End.
func (o *Outbox) openLocked() *chunk {
	if o.mu.ended {
		return nil
	}

	// A PING ends a chunk: the replies before and after it are confirmed by different rounds.
	if n := len(o.mu.chunks); n > 0 {
		if c := o.mu.chunks[n-1]; !c.asked && c.bytes < chunkBytes {
			return c
		}
	}

	c := o.mu.spare
	if o.mu.spare = nil; c == nil {
		c = &chunk{}
	}

	o.mu.chunks = append(o.mu.chunks, c)

	// While there is a chunk, the dispatcher must be there to take items back.
	if len(o.mu.chunks) == 1 {
		o.config.Dispatcher.Hold()
		signal.To(o.wake)
	}

	return c
}

// grewLocked counts bytes that were added to a chunk. The bytes of items were counted before.
func (o *Outbox) grewLocked(c *chunk, items, rest int) {
	c.bytes += items + rest
	o.mu.bytes += items + rest
	o.config.Dispatcher.AddUnconfirmed(nil, rest)

	if o.mu.bytes > o.config.MaxBytes {
		o.deleteLocked(func(*chunk) bool { return o.mu.bytes > o.config.MaxBytes })
	}
}

// deleteLocked deletes the chunks for which over, called from the oldest on, returns true.
func (o *Outbox) deleteLocked(over func(*chunk) bool) {
	before, left := len(o.mu.chunks), o.mu.chunks[:0]
	var received []string // what other bridges sent through this one
	for _, c := range o.mu.chunks {
		if !over(c) {
			left = append(left, c)
			continue
		}

		for i := range c.items {
			if s := &c.items[i]; s.Relayed != "" && s.subject != "" {
				received = append(received, s.Relayed)
			}
			o.freeLocked(c, &c.items[i])
		}
		o.mu.bytes -= c.bytes
		o.config.Dispatcher.AddUnconfirmed(nil, -c.bytes)

		// The next chunk gets the memory of this one.
		clear(c.replies)
		clear(c.items)
		o.mu.spare = &chunk{replies: c.replies[:0], items: c.items[:0]}
	}

	clear(o.mu.chunks[len(left):])
	o.mu.chunks = left
	if len(received) > 0 {
		o.config.Tell("", received...)
	}

	if len(left) == 0 && before > 0 {
		o.config.Dispatcher.Release()
	}
}

// freeLocked counts the items of a reply no longer, and frees their memory.
func (o *Outbox) freeLocked(c *chunk, s *sentItem) {
	c.bytes -= s.bytes
	o.mu.bytes -= s.bytes
	o.config.Dispatcher.AddUnconfirmed(s.Queue, -s.bytes)
	s.Content, s.bytes = Content{}, 0
}
