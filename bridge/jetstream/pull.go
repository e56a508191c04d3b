package jetstream

import (
	"cmp"
	"errors"
	"strconv"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/fdbpq"
)

const (
	// maxAtOnce is how many items a pull leases in one transaction.
	maxAtOnce = 512
	// pullMemory estimates what a request of a pull takes in memory.
	pullMemory = 1024
)

// pull is a client's request for messages, and the Replier of its requests to the dispatcher. It has
// one of these at a time, which waits there for items and for credits of the consumer, and ends with
// the first items that it gets. Then the pull asks again, behind others that wait, until it has all
// or its time is over:
//
//	from     to       when
//	-        asking   it began
//	asking   asking   items were sent, and it wants more; or its consumer has changed
//	asking   ended    it has all, its time is over, or something failed
//	asking   leaving  it is ended from outside: leaves is set, and its request cancelled
//	leaving  ended    the request has ended, maybe with items, which were sent
type pull struct {
	f        *pulls
	account  *account
	consumer *consumer // as it was at its latest request
	inbox
	pullRequest

	asked   int     // items that its request wants
	nothing *ending // what it ends with when there is nothing for it

	// The lock of accounts guards these. The rest belongs to who makes a request and, after that, to
	// the calls of the Replier.
	leaves *ending // nil unless it is leaving
	waits  dispatch.WaitHandle
}

// pulls are those that have not ended, by the subject of their inbox. The lock of accounts guards them.
type pulls struct {
	accounts
	inboxes map[string]map[*pull]bool
	used    func(c *consumer, until time.Time) // is told of each pull. It must not wait
}

func newPulls(f *core) *pulls {
	return &pulls{
		accounts: accounts{core: f, byConsumer: map[consumerKey]*account{}, most: maxAccounts},
		inboxes:  map[string]map[*pull]bool{},
	}
}

// pull begins a pull. Nothing in it waits.
func (f *pulls) pull(c *consumer, m *leaf.Message) {
	p := &pull{f: f, consumer: c, inbox: inboxOf(m.Reply, f.out), nothing: timeIsOver}
	r, refused := parsePull(m.Payload, &c.config)
	if refused != nil {
		p.say(refused)
		return
	}
	if p.pullRequest = r; r.Expires == 0 {
		p.nothing = noMessages
	}
	f.used(c, f.config.Now().Add(r.Expires))

	f.mu.Lock()
	defer f.mu.Unlock()
	p.account = f.accountLocked(c)
	switch {
	case f.stopped:
		p.say(errShutdown)
	case p.account.pulls >= c.config.MaxWaiting:
		p.say(p.noRoom())
	default:
		p.account.pulls++
		if f.inboxes[p.subject] == nil {
			f.inboxes[p.subject] = map[*pull]bool{}
		}
		f.inboxes[p.subject][p] = true
		p.askLocked(maxAtOnce)
	}
}

// until is when the time of the pull is over.
func (p *pull) until() time.Time { return p.received.Add(p.Expires) }

// askLocked makes a request for up to that many items.
func (p *pull) askLocked(most int) {
	p.consumer = p.account.consumer
	q, err := p.f.queueOf(p.consumer.stream) // anew, because it may have left the memory
	if err != nil {
		p.closeLocked(p.endingAfter(err))
		return
	}

	op := fdbpq.Op{Kind: fdbpq.OpLease, End: p.consumer.end, Queue: q.Target, Count: true, Holder: p.consumer.name,
		Lease: cmp.Or(p.consumer.config.AckWait, fdbpq.SettingsLease)}
	p.asked = min(p.Batch, most)
	if p.limited {
		p.asked = min(p.asked, max(p.MaxBytes/(2*p.overhead()), 1))
		op.MaxBytes = max(p.MaxBytes-p.asked*p.overhead(), 1)
	}

	r := dispatch.Request{Queue: q, Replier: p, Received: time.Now(), Size: pullMemory, Pops: p.asked, Wait: &dispatch.Wait{
		Until: p.until(), Heartbeat: cmp.Or(p.pullRequest.Heartbeat, listenPause), Retry: true, Credits: p.account.credits,
	}}
	p.waits = r.WaitHandle()
	if err := p.f.submit(&r, op); err != nil {
		p.closeLocked(p.endingAfter(err))
	}
}

// Answer implements dispatch.Replier.
func (p *pull) Answer(r *dispatch.Request, ops []fdbpq.Op, results []fdbpq.Result) {
	p.Deliver(r, ops, results)
}

// Deliver implements dispatch.WaitingReplier: it sends the items, and has the request end.
func (p *pull) Deliver(r *dispatch.Request, _ []fdbpq.Op, results []fdbpq.Result) (more bool) {
	defer p.f.answered()
	unsent := p.deliver(r.Queue, results)
	var err error
	for i := range results {
		err = cmp.Or(err, results[i].Err)
	}

	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	switch e := cmp.Or(p.leaves, p.endingUnsent(unsent), p.endingDone()); {
	case e != nil:
		p.closeLocked(e)
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
	switch {
	case p.leaves != nil:
		p.closeLocked(p.leaves)
	case errors.Is(err, dispatch.ErrCancelled): // to ask for what the changed consumer says
		p.askLocked(maxAtOnce)
	default:
		p.closeLocked(p.endingAfter(err))
	}
}

// Heartbeat implements dispatch.WaitingReplier. If nobody hears it, that ends the pull.
func (p *pull) Heartbeat(*dispatch.Request, int) {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	now, heard := time.Now(), p.heard
	switch {
	case p.deaf(now):
		if !heard {
			p.f.config.Warn("a pull ends because nobody is seen to subscribe to its inbox: the client is gone, "+
				"or the leaf node's user may not publish there", "inbox", wire.Shorten(p.subject))
		}
		p.endLocked(silent)
	case p.pullRequest.Heartbeat > 0:
		p.beat(now, p.account.delivered)
	}
}

// endingUnsent is the end of a pull that could not send an item, nil if it could send all.
func (p *pull) endingUnsent(unsent error) *ending {
	switch {
	case unsent == nil:
		return nil
	case errors.Is(unsent, errDeaf), errors.Is(unsent, leaf.ErrOffline), errors.Is(unsent, leaf.ErrDenied):
		return silent
	case errors.Is(unsent, errLeaseOver), errors.Is(unsent, leaf.ErrPending):
		return leaderChanged
	case errors.Is(unsent, leaf.ErrTooLarge), errors.Is(unsent, errMaxBytes):
		return tooLarge
	}
	return p.endingAfter(unsent)
}

// endingDone is the end of a pull that has all that it may have, nil if it may have more.
func (p *pull) endingDone() *ending {
	switch {
	case p.Batch > 0 && p.limited && p.MaxBytes <= 0:
		return tooLarge
	case p.Batch > 0:
		return nil
	case p.limited && p.MaxBytes > 0:
		return completed
	}
	return silent
}

// endingAfter is the end of a pull after an error. It is never 503, which clients take for "nobody
// is there" whatever its text, because the pull may have leased items.
func (p *pull) endingAfter(err error) *ending {
	switch {
	case errors.Is(err, fdbpq.ErrEmpty), errors.Is(err, fdbpq.ErrMaxLeased):
		return p.nothing
	case errors.Is(err, fdbpq.ErrMaxBytes):
		return tooLarge
	case errors.Is(err, dispatch.ErrOverloaded):
		return p.noRoom()
	}
	code, text := p.f.config.ErrorText(err)
	if code == 503 {
		code = 409
	}
	return &ending{code: code, text: text}
}

// noRoom is the end of a pull for which there is no room. Clients that expect heartbeats are not told,
// as with JetStream: they pull again when they miss those, and not at once.
func (p *pull) noRoom() *ending {
	if p.pullRequest.Heartbeat > 0 {
		return silent
	}
	return maxWaiting
}

// endLocked ends the pull from outside, once its request has ended.
func (p *pull) endLocked(e *ending) {
	if p.leaves == nil {
		p.leaves = e
		p.f.config.Dispatcher.Cancel(p.waits)
	}
}

// closeLocked ends the pull, whose request has ended.
func (p *pull) closeLocked(e *ending) {
	p.account.pulls--
	if delete(p.f.inboxes[p.subject], p); len(p.f.inboxes[p.subject]) == 0 {
		delete(p.f.inboxes, p.subject)
	}
	p.say(e)
}

// say sends the status that ends the pull.
func (p *pull) say(e *ending) {
	p.f.config.Counted(countedPull, e.code >= 400 && e.code != 404 && e.code != 408)
	if e.code == 0 {
		return
	}
	var pairs []string
	if e.counts {
		pairs = []string{"Nats-Pending-Messages", strconv.Itoa(p.Batch), "Nats-Pending-Bytes", strconv.Itoa(max(p.MaxBytes, 0))}
	}
	p.f.status(p.to(time.Now()), e.code, e.text, pairs...)
}
