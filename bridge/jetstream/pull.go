package jetstream

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// maxAtOnce is how many items a pull leases in one transaction.
	maxAtOnce = 512
	// pullMemory estimates how many bytes a request of a pull takes in memory.
	pullMemory = 1024
)

// pull is a client's request for messages, and the Replier of its requests to the dispatcher. It
// has one request at a time, a lease that waits in the line of the queue for items and for credits
// of the consumer, and that ends with the first items it gets. If the client wants more, the pull
// asks again, behind others that wait.
//
// # States
//
//	new       nobody has looked at it
//	unheard   nobody is seen to subscribe to its inbox yet, or that is known from long ago
//	asking    the dispatcher has its request
//	leaving   its request was cancelled, and the field leaving has its ending
//	ended     it is in no table, and the client was told unless the ending is silent
//
// # Moves
//
//	from      to        when
//	new       ended     its payload, max_waiting or the stop of the bridge refuses it
//	new       unheard   nobody is seen to subscribe, or it comes from the socket of a bridge that
//	                    stood still, where the end of the subscription may follow it
//	new       asking    otherwise
//	unheard   asking    somebody subscribes
//	unheard   ended     nobody does in time, or for a reason that an asking one leaves for
//	asking    asking    it got items and wants more, or only waits for its time to end,
//	                    because no message can carry the next item
//	asking    ended     it has all, its time is up, or its request failed
//	asking    leaving   nobody listens, its consumer is gone, another bridge serves its
//	                    queue, the connection is lost, or the bridge stops
//	leaving   ended     its request has ended; items that this got were sent
type pull struct {
	f        *pulls
	pending  *ackPending
	consumer *consumer // as it was at the latest request
	inbox
	pullRequest

	behind  atomic.Bool       // it was read late, and the connection has yet to catch up
	asked   int               // items that its request wants
	credits *dispatch.Credits // of pending, or none once it gets no more items
	ifEmpty *ending           // how it ends when there is nothing for it

	// outstanding.mu guards these. All other fields belong to the goroutine that makes a request
	// and, until that has ended, to the calls of the Replier.
	leaving *ending // nil unless it is leaving, or unheard and about to end
	waits   dispatch.WaitHandle
}

// pulls holds the pulls that have not ended, by the subject of their inbox. outstanding.mu guards
// them.
type pulls struct {
	outstanding
	inboxes map[string]map[*pull]bool
	used    func(c *consumer, until time.Time) // called for each pull; must not wait
}

// startPull starts a pull. It does not wait.
func (f *pulls) startPull(c *consumer, m *leaf.Message) {
	p := &pull{f: f, consumer: c, inbox: inboxOf(m, f.out), ifEmpty: timedOut}
	r, refused := parsePull(m.Payload, &c.config)
	if refused != nil {
		p.say(refused)
		return
	}

	if p.pullRequest = r; r.Expires == 0 { // no_wait without expires
		p.ifEmpty = noMessages
	}
	if m.Waited >= max(r.Expires, dispatch.TurnTime(f.config.RequestTimeout)) {
		p.say(timedOut) // nobody has looked whether there are messages
		return
	}
	f.used(c, f.config.Now().Add(r.Expires))

	f.mu.Lock()
	defer f.mu.Unlock()

	p.pending = f.ackPendingLocked(c)
	p.credits = p.pending.credits
	switch {
	case f.stopped:
		p.say(serverShutdown)
	case p.pending.waiting >= c.config.MaxWaiting:
		p.say(p.noRoom())
	default:
		p.pending.waiting++
		if f.inboxes[p.subject] == nil {
			f.inboxes[p.subject] = map[*pull]bool{}
		}
		f.inboxes[p.subject][p] = true
		if m.Waited > 0 && !p.hidden {
			p.behind.Store(true)
			f.out.Barrier(func() { p.behind.Store(false) })
		}
		p.beginLocked()
	}
}

// beginLocked makes the first request, once somebody is seen to listen: an item for nobody would
// count as delivered.
func (p *pull) beginLocked() {
	switch upToDate := !p.behind.Load(); {
	case p.leaving != nil:
		p.closeLocked(p.leaving)
	case upToDate && p.listens():
		p.askLocked(maxAtOnce)
	case upToDate && time.Since(p.received) > newInterest:
		const text = "a pull ends because nobody seems to subscribe to its inbox: " +
			"the client is gone, or the leaf node's user may not publish there"
		p.f.config.Warn(text, "inbox", wire.Shorten(p.subject))
		p.closeLocked(silent)
	default:
		p.f.requests.Add(1)
		time.AfterFunc(interestPause, func() {
			defer p.f.answered()
			p.f.mu.Lock()
			defer p.f.mu.Unlock()
			p.beginLocked()
		})
	}
}

// askLocked makes a request for up to limit items.
func (p *pull) askLocked(limit int) {
	p.consumer = p.pending.consumer
	q, err := p.f.queueOf(p.consumer.stream) // the one of before may have left the memory
	if err != nil {
		p.closeLocked(p.endingAfter(err))
		return
	}

	op := fdbpq.Op{
		Kind: fdbpq.OpLease, End: p.consumer.end, Queue: q.Target, Count: true,
		Lease:  cmp.Or(p.consumer.config.AckWait, fdbpq.SettingsLease),
		Holder: p.consumer.name,
	}

	// The limit of a lease counts only the items' own bytes, so leave room for each overhead.
	p.asked = min(p.Batch, limit)
	if p.limited {
		p.asked = min(p.asked, max(p.MaxBytes/(2*p.overhead()), 1))
		op.MaxBytes = max(p.MaxBytes-p.asked*p.overhead(), 1)
	}

	wait := &dispatch.Wait{
		Until: p.received.Add(p.Expires), Retry: true, Credits: p.credits,
		Heartbeat: cmp.Or(min(p.pullRequest.Heartbeat, minThreshold/3), listenPause),
	}
	r := dispatch.Request{
		Queue: q, Replier: p, Received: time.Now(), Size: pullMemory, Pops: p.asked, Wait: wait,
	}
	p.waits = r.WaitHandle()
	if err := p.f.submit(&r, op); err != nil {
		p.closeLocked(p.endingAfter(err))
	}
}

// Answer implements dispatch.Replier.
func (p *pull) Answer(r *dispatch.Request, ops []fdbpq.Op, results []fdbpq.Result) {
	p.Deliver(r, ops, results)
}

// Deliver implements dispatch.WaitingReplier. It sends the items, and ends the request.
func (p *pull) Deliver(r *dispatch.Request, _ []fdbpq.Op, results []fdbpq.Result) (more bool) {
	defer p.f.answered()

	// Sending must not hold the lock: it takes it for each item.
	unsent := p.deliver(r.Queue, results)
	var err error
	for i := range results {
		err = cmp.Or(err, results[i].Err)
	}

	p.f.mu.Lock()
	defer p.f.mu.Unlock()

	switch e := cmp.Or(p.leaving, p.endingUnsent(unsent), p.endingDone()); {
	case e != nil:
		p.closeLocked(e)
	case errors.Is(unsent, leaf.ErrTooLarge):
		// Told at once, clients pull again at once, without end.
		p.credits, p.ifEmpty = dispatch.NewCredits(0), tooLarge
		p.askLocked(1)
	case errors.Is(err, fdbpq.ErrMaxBytes) && p.asked > 1:
		p.askLocked(1) // the next item does not fit beside others
	case err == nil, errors.Is(err, fdbpq.ErrNoRoom):
		p.askLocked(maxAtOnce)
	default:
		p.closeLocked(p.endingAfter(err))
	}

	return false
}

// Fail implements dispatch.Replier.
func (p *pull) Fail(_ *dispatch.Request, _ []fdbpq.Op, err error) {
	defer p.f.answered()
	p.f.mu.Lock()
	defer p.f.mu.Unlock()

	p.closeLocked(cmp.Or(p.leaving, p.endingAfter(err)))
}

// Heartbeat implements dispatch.WaitingReplier. If nobody listens, it ends the pull. It notes anew
// until when the pull uses its consumer, because the clock may have been set.
func (p *pull) Heartbeat(*dispatch.Request, int) {
	p.f.used(p.consumer, p.f.config.Now().Add(time.Until(p.received.Add(p.Expires))))

	p.f.mu.Lock()
	defer p.f.mu.Unlock()

	switch {
	case !p.listens():
		p.endLocked(silent)
	case p.pullRequest.Heartbeat > 0:
		p.beat(time.Now(), p.pending.delivered)
	}
}

// endLocked ends the pull from outside, as soon as its request has ended.
func (p *pull) endLocked(e *ending) {
	if p.leaving == nil {
		p.leaving = e
		p.f.config.Dispatcher.Cancel(p.waits)
	}
}

// closeLocked ends the pull, whose request has ended.
func (p *pull) closeLocked(e *ending) {
	p.pending.waiting--
	if delete(p.f.inboxes[p.subject], p); len(p.f.inboxes[p.subject]) == 0 {
		delete(p.f.inboxes, p.subject)
	}
	p.say(e)
}

// pullRequest is the payload of a pull. Times are in nanoseconds.
type pullRequest struct {
	Expires       time.Duration `json:"expires"`
	Batch         int           `json:"batch"`
	MaxBytes      int           `json:"max_bytes"`
	NoWait        bool          `json:"no_wait"`
	Heartbeat     time.Duration `json:"idle_heartbeat"`
	MinPending    int64         `json:"min_pending"`
	MinAckPending int64         `json:"min_ack_pending"`
	PinID         string        `json:"id"`
	Priority      int           `json:"priority"`

	limited bool // MaxBytes limits the pull
}

// maxExpires is how long a pull waits at most, and by default.
const maxExpires = subjects.MaxExpires

// maxPullPayload is how many bytes the JSON of a pull may have.
const maxPullPayload = 4 << 10

// parsePull parses the payload of a pull, as JetStream does: JSON, a number of messages, or
// anything else for one message. The result has an Expires of 0 if the pull does not wait. A pull
// that is refused ends with the second result.
func parsePull(payload []byte, c *jetstream.ConsumerConfig) (r pullRequest, refused *ending) {
	payload = bytes.TrimSpace(payload)
	var err error
	if len(payload) == 0 || payload[0] != '{' {
		if r.Batch, err = strconv.Atoi(string(payload)); err != nil {
			r.Batch = 1
		}
	} else if len(payload) > maxPullPayload {
		return r, &ending{code: 400, text: fmt.Sprintf("Bad Request - a pull of %d bytes: "+
			"want at most %d", len(payload), maxPullPayload)}
	} else if err = json.Unmarshal(payload, &r); err != nil {
		// The error may repeat a number, of any length.
		return r, &ending{code: 400, text: "Bad Request - " + wire.Shorten(err.Error())}
	}

	code, text := 0, ""
	switch {
	case r.Heartbeat > 0 && r.Heartbeat > r.Expires/2:
		code, text = 400, "Bad Request - heartbeat value too large"
	case c.MaxRequestBatch > 0 && r.Batch > c.MaxRequestBatch:
		code, text = 409, fmt.Sprintf("Exceeded MaxRequestBatch of %d", c.MaxRequestBatch)
	case c.MaxRequestExpires > 0 && r.Expires > c.MaxRequestExpires:
		code, text = 409, fmt.Sprintf("Exceeded MaxRequestExpires of %v", c.MaxRequestExpires)
	case c.MaxRequestMaxBytes > 0 && r.MaxBytes > c.MaxRequestMaxBytes:
		code, text = 409, fmt.Sprintf("Exceeded MaxRequestMaxBytes of %d", c.MaxRequestMaxBytes)
	case r.MinPending != 0 || r.MinAckPending != 0:
		code, text = 400, "Bad Request - Not a Overflow Priority consumer"
	case r.PinID != "":
		code, text = 400, "Bad Request - Not a Pinned Client Priority consumer"
	case r.Priority < 0 || r.Priority > 9:
		code, text = 400, "Bad Request - Priority must be between 0 and 9"
	}

	if code > 0 {
		return r, &ending{code: code, text: text}
	}

	r.limited = r.MaxBytes > 0
	r.Batch, r.MaxBytes = max(r.Batch, 1), max(r.MaxBytes, 0)
	if r.Heartbeat > 0 {
		r.Heartbeat = max(r.Heartbeat, subjects.MinIdleHeartbeat)
	}
	switch {
	case r.Expires == 0 && !r.NoWait:
		r.Expires = maxExpires
	case r.Expires != 0:
		r.Expires = min(max(r.Expires, 1), maxExpires)
	}

	return r, nil
}
