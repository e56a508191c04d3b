// Package outbox hands the replies of a bridge to NATS, and gives back the items that nobody
// received.
//
// Clients choose their reply subjects, so the bridge may lack the permission to publish there. The
// server reports that a moment later, and names nothing but the subject: denied.go. Or nobody is
// subscribed to it any more, and the server says so: gone.go. So an Outbox keeps each item that it
// has sent until the server would have said either, and gives back those whose replies were denied
// or that nobody received: giveback.go.
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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// Outbox is safe for concurrent use. Send, SendData and SendItem may be called once Listen was.
type Outbox struct {
	config Config
	wake   chan struct{} // has an element when something is unconfirmed
	hurry  chan struct{} // has an element when a lot is unconfirmed

	inbox string                            // start of the reply subjects of items
	gone  atomic.Pointer[nats.Subscription] // to these subjects, set by Listen
	deaf  atomic.Bool                       // NATS does not permit that subscription
	told  atomic.Bool                       // the log says so of this connection

	mu struct {
		sync.Mutex
		chunks    []*chunk       // oldest first; the last may still grow
		spare     *chunk         // to be used next, or nil
		bytes     int            // of all chunks
		denials   map[string]int // by subject, not yet attributed to replies
		heard     error          // the latest permission violation that Heard was told
		awaited   error          // the one that a round waits for, nil for none
		caughtUp  chan struct{}  // closed when Heard was told of it
		undecided int            // rounds in a row that ended without a decision
		ended     bool
		abandoned int             // replies that were unconfirmed at the end
		numbered  uint64          // items so far; the number of the next
		subjects  strings.Builder // reply subjects of items, the newest at the end

		pauses map[dispatch.Replier]*time.Timer // of items that go back and wait to try again; nil after EndRestores
	}
}

// New returns an outbox that keeps nothing yet. Run confirms what it sends.
func New(c Config) *Outbox {
	o := &Outbox{config: c, wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1)}
	o.inbox = Root + c.ID + "."
	o.mu.denials = map[string]int{}
	o.mu.pauses = map[dispatch.Replier]*time.Timer{}
	return o
}

// Unconfirmed reports whether NATS may still deny replies that were sent.
func (o *Outbox) Unconfirmed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.mu.chunks) > 0
}

func (o *Outbox) hasEnded() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.ended
}

// signal wakes the reader of a channel with room for one element.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Root is the start of these subjects.
const Root = "_PQ."

// chunk holds replies that were handed over one after the other.
type chunk struct {
	replies []string // subjects of those without an item, or with one that stayed in its queue
	items   []sentItem
	first   uint64 // number of the first item
	bytes   int
	began   time.Time // when the first was handed over
	asked   bool      // a PING was sent after the last
	rounds  int       // rounds that confirmed it without certainty
}

// sentItem is a reply that carries items, or after which its request waits.
type sentItem struct {
	subject string // "" once it is decided whether it was delivered, as in chunk.replies
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

// eachLocked calls f for all replies; those without an item have no sentItem.
func (o *Outbox) eachLocked(f func(c *chunk, subject *string, item *sentItem)) {
	for _, c := range o.mu.chunks {
		for i := range c.replies {
			f(c, &c.replies[i], nil)
		}
		for i := range c.items {
			f(c, &c.items[i].subject, &c.items[i])
		}
	}
}

// itemSize estimates the bytes of memory that an item refers to.
func itemSize(item *fdbpq.Item) int {
	return len(item.Value) + wire.HeaderSize(item.Headers) + wire.HeaderMemory(item.Headers)
}
