package bridge

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// outbox hands replies to the NATS client and remembers them until the server can no
// longer deny them. Clients choose their reply subjects, so the bridge may lack the
// permission to publish there. The server reports that a moment later, and names
// nothing but the subject. Or nobody is subscribed to it any more, see gone.go. Until the
// server would have said so, the outbox keeps popped items, and gives back those whose
// replies were denied or that nobody received.
//
// The server reports any error about a message before it answers a PING sent later. So
// while replies are unconfirmed, the outbox works in rounds: it sends a PING, waits for
// the PONG and for asyncError and hearGone to handle all that came before it, and forgets the
// replies handed over before the PING. A round begins roundPause after the previous one, so
// that the cost does not grow with the load.
//
// No item may be popped twice, so the outbox gives an item back only if its reply was
// certainly not delivered. That is certain of a denial if as many replies to its subject were denied as were sent.
// Anything else can happen only to clients that use one reply subject for several
// requests at once, and only if a permission changes at that moment or covers some of
// the replies (allow_responses). Their items are lost, as with any reply that nobody
// receives.
type outbox struct {
	b     *Bridge
	limit int           // of mu.bytes
	wake  chan struct{} // has an element when something is unconfirmed
	hurry chan struct{} // has an element when a lot is unconfirmed
	news  chan struct{} // has an element when mu.heard has changed

	inbox string                            // start of the reply subjects of items
	gone  atomic.Pointer[nats.Subscription] // to these subjects, set by listen
	deaf  atomic.Bool                       // NATS does not permit that subscription
	told  atomic.Bool                       // the log says so of this connection

	mu struct {
		sync.Mutex
		chunks    []*chunk       // oldest first; the last may still grow
		spare     *chunk         // to be used next, or nil
		bytes     int            // of all chunks
		denials   map[string]int // by subject, not yet attributed to replies
		heard     error          // the latest permission violation that asyncError handled
		hearings  map[error]struct{}
		undecided int // rounds in a row that ended without a decision
		ended     bool
		abandoned int             // replies that were unconfirmed at the end
		numbered  uint64          // items so far; the number of the next
		subjects  strings.Builder // reply subjects of items, the newest at the end
	}
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

// recycle returns an empty chunk that reuses the memory of c.
func (c *chunk) recycle() *chunk {
	clear(c.replies)
	clear(c.items)
	return &chunk{replies: c.replies[:0], items: c.items[:0]}
}

// sentReply is a reply without an item, or with one that stayed in its queue.
type sentReply struct {
	subject  string
	endpoint *endpoint // nil if the request has failed anyway
	decided  bool      // whether it was delivered
}

// sentItem is a reply that carries a popped or leased item, or a parcel of them. Without a queue it is a heartbeat.
type sentItem struct {
	sentReply
	queue  *dispatch.Queue
	item   fdbpq.Item   // that was popped
	lease  *fdbpq.Token // of one that was leased
	random uint64       // in its reply subject; 0 without one: that of a leased item is for its acknowledgements

	// A parcel has these in place of the item.
	popped []fdbpq.Item
	leased []fdbpq.Lease

	waits dispatch.Waiting // the request, if it may wait on after this reply
}

const (
	// roundPause is the time from the end of a round to the next.
	roundPause = 10 * time.Millisecond
	// maxUndecided limits the rounds that replies wait while it is unclear whether they
	// are the denied ones.
	maxUndecided = 4
	// Replies are forgotten if NATS takes longer than maxUnconfirmedAge to confirm
	// them, or once they exceed outbox.limit. Above hurryBytes, rounds follow
	// without a pause.
	maxUnconfirmedAge = 30 * time.Second
	hurryBytes        = 2 << 20
	// chunkBytes is the size at which a chunk is full.
	chunkBytes = 1 << 20
	// What a reply takes in memory besides the bytes of its item.
	replyOverhead = 96
	itemOverhead  = 400
	leaseOverhead = 80
)

func newOutbox(b *Bridge) *outbox {
	o := &outbox{b: b, limit: b.options.maxUnconfirmed(), wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1), news: make(chan struct{}, 1)}
	o.inbox = goneRoot + b.id + "."
	o.mu.denials = map[string]int{}
	o.mu.hearings = map[error]struct{}{}
	return o
}

// trySend sends a reply that is safe to lose. It counts and logs the error itself.
func (o *outbox) trySend(m *nats.Msg) {
	o.mu.Lock()
	err := o.b.nc.PublishMsg(m)
	if err == nil {
		o.rememberLocked(sentReply{subject: m.Subject})
	}
	o.mu.Unlock()
	if err != nil {
		o.b.replyFailed(err)
	}
}

// sendData sends a reply with that payload. An error means that NATS did not accept it.
func (o *outbox) sendData(to string, data []byte, e *endpoint) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.b.nc.Publish(to, data)
	if err == nil {
		o.rememberLocked(sentReply{subject: to, endpoint: e})
	}
	return err
}

// sendItem sends a reply that carries an item, or a heartbeat. s says what is to be done if nobody receives it: the item
// goes back if it has a queue, and the request ends if it waits. An error means that NATS did not accept the reply.
func (o *outbox) sendItem(m *nats.Msg, s sentItem) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := s.queue != nil || s.waits != dispatch.Waiting{}
	if kept && m.Reply == "" && !o.mu.ended && !o.deaf.Load() && !strings.HasPrefix(m.Subject, importedReplies) {
		s.random = 1 + rand.Uint64N(math.MaxUint64)
		m.Reply = o.goneSubjectLocked(s.random)
	}
	if err := o.b.nc.PublishMsg(m); err != nil {
		return err
	}
	s.subject = m.Subject
	if kept {
		o.rememberItemLocked(s)
	} else {
		o.rememberLocked(s.sentReply)
	}
	return nil
}

func (o *outbox) rememberItemLocked(sent sentItem) {
	if c := o.openLocked(); c != nil {
		if len(c.items) == 0 {
			c.first = o.mu.numbered
		}
		c.items = append(c.items, sent)
		o.mu.numbered++
		bytes := itemOverhead + len(sent.subject) + itemSize(&sent.item) + len(sent.leased)*leaseOverhead
		for i := range sent.popped {
			bytes += itemOverhead + itemSize(&sent.popped[i])
		}
		o.grewLocked(c, bytes)
	}
}

// itemSize estimates the bytes of memory that an item refers to.
func itemSize(item *fdbpq.Item) int {
	return len(item.Value) + headerSize(item.Headers) + headerMemory(item.Headers)
}

func (o *outbox) rememberLocked(sent sentReply) {
	if c := o.openLocked(); c != nil {
		c.replies = append(c.replies, sent)
		o.grewLocked(c, replyOverhead+len(sent.subject))
	}
}

// openLocked returns the chunk that replies are added to, nil after end.
func (o *outbox) openLocked() *chunk {
	if o.mu.ended {
		return nil
	}
	if n := len(o.mu.chunks); n > 0 {
		if c := o.mu.chunks[n-1]; !c.asked && c.bytes < chunkBytes {
			return c
		}
	}
	c := o.mu.spare
	if o.mu.spare = nil; c == nil {
		c = &chunk{}
	}
	c.began = time.Now()
	o.mu.chunks = append(o.mu.chunks, c)
	if len(o.mu.chunks) == 1 {
		o.b.dispatcher.Hold()
		signal(o.wake)
	}
	return c
}

func (o *outbox) grewLocked(c *chunk, bytes int) {
	c.bytes += bytes
	o.mu.bytes += bytes
	o.b.dispatcher.Keep(bytes)
	if o.mu.bytes > o.limit {
		o.forgetLocked(func(*chunk) bool { return o.mu.bytes > o.limit })
	}
	if o.mu.bytes > hurryBytes {
		signal(o.hurry)
	}
}

// forgetLocked removes chunks, the oldest first.
func (o *outbox) forgetLocked(over func(*chunk) bool) {
	before, kept := len(o.mu.chunks), o.mu.chunks[:0]
	for _, c := range o.mu.chunks {
		if over(c) {
			o.mu.bytes -= c.bytes
			o.b.dispatcher.Keep(-c.bytes)
			o.mu.spare = c.recycle()
		} else {
			kept = append(kept, c)
		}
	}
	clear(o.mu.chunks[len(kept):])
	o.mu.chunks = kept
	if len(kept) == 0 && before > 0 {
		o.b.dispatcher.Release()
	}
}

// run confirms replies until ctx ends.
func (o *outbox) run(ctx context.Context) {
	defer o.end()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-o.wake:
		case <-ctx.Done():
			return
		}
		pause.Reset(roundPause)
		select {
		case <-pause.C:
		case <-o.hurry:
		case <-ctx.Done():
			return
		}
		if o.round(ctx); o.hasEnded() {
			return
		}
	}
}

// end forgets all replies, and makes the outbox remember no more of them.
func (o *outbox) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.ended {
		return
	}
	o.mu.ended = true
	for _, c := range o.mu.chunks {
		o.mu.abandoned += len(c.replies) + len(c.items)
	}
	o.forgetLocked(func(*chunk) bool { return true })
	clear(o.mu.denials)
}

// abandoned returns how many replies were still unconfirmed at the end.
func (o *outbox) abandoned() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.abandoned
}

func (o *outbox) hasEnded() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.ended
}

// round confirms the replies handed over before it.
func (o *outbox) round(ctx context.Context) {
	if !o.markAsked() {
		return
	}
	stopping := o.b.stopping.Load()
	if stopping && !o.b.nc.IsConnected() {
		o.end() // nobody would answer
		return
	}
	certain, err := o.exchange(ctx)
	switch {
	case err == nil:
		o.confirm(certain)
	case stopping:
		o.end()
	default:
		// The connection is down, or the server is busy. Errors that a broken
		// connection did not deliver are lost, and so are the items whose replies the
		// server denied.
		o.forget(time.Now().Add(-maxUnconfirmedAge))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.mu.chunks) > 0 {
		signal(o.wake)
	}
}

// forget drops the replies handed over before a time.
func (o *outbox) forget(before time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forgetLocked(func(c *chunk) bool { return c.began.Before(before) })
}

// markAsked marks the replies that the next PING will confirm, and returns false if there are
// none.
func (o *outbox) markAsked() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.hearings = map[error]struct{}{o.mu.heard: {}}
	for _, c := range o.mu.chunks {
		c.asked = true
	}
	return len(o.mu.chunks) > 0
}

// confirm decides about the replies that markAsked marked, and forgets them. If the server may
// have reported errors that were not heard, that takes two rounds.
func (o *outbox) confirm(certain bool) {
	o.mu.Lock()
	undelivered, decided := o.decideLocked(certain)
	o.mu.Unlock()
	if !decided {
		return
	}
	for i := range undelivered {
		o.b.undelivered(&undelivered[i]) // first, because without chunks the lanes may end
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.forgetLocked(func(c *chunk) bool {
		if c.asked {
			c.rounds++
		}
		return c.asked && (certain || c.rounds > 1)
	})
}
