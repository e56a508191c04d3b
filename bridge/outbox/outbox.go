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
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// Root is the start of these subjects.
const Root = "_PQ."

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
		bytes  int      // of all chunks and relayed messages
		ended  bool
		// abandoned is how many replies were unconfirmed at the end.
		abandoned int

		numbered uint64 // items so far; the number of the next

		denials   map[string]int // by subject, not yet attributed to replies
		undecided int            // rounds in a row that ended without a decision
		reports   reports

		relayed map[string]*relayed // by reply subject
		overdue list.List           // reply subjects of those that relayPatience is over for

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
	// chunkBytes is the size at which a chunk is full.
	chunkBytes = 1 << 20
	// The memory that a reply takes, an item besides its own bytes, and a lease.
	replyOverhead = 96
	itemOverhead  = 320
	leaseOverhead = 160
)

// relayed is a message on its way through another bridge.
type relayed struct {
	Content
	subject  string
	bytes    int
	released bool          // it is no longer counted as unconfirmed
	overdue  *list.Element // in the list of them, or nil
	timer    *time.Timer
}

// itemSize estimates the bytes of memory that an item refers to.
func itemSize(item *fdbpq.Item) int {
	return len(item.Value) + wire.HeaderSize(item.Headers) + wire.HeaderMemory(item.Headers)
}

// size estimates the memory that the items take.
func (c *Content) size() int {
	bytes := len(c.Leased) * leaseOverhead
	for i := range c.Popped {
		bytes += itemOverhead + itemSize(&c.Popped[i])
	}
	return bytes
}
