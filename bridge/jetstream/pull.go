package jetstream

import (
	"cmp"
	"errors"
	"strconv"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// maxExpires is how long a pull waits at most, and one that does not say.
	maxExpires = subjects.MaxExpires
	// retryPause is after a failure of the store, or when the connection takes no more for now.
	retryPause = 500 * time.Millisecond
	// pullMemory estimates what a request of a pull takes in memory.
	pullMemory = 1024
)

// pull begins a pull. Nothing in it waits.
func (f *Face) pull(c *consumer, m *leaf.Message) {
	now := time.Now()
	p := &pull{f: f, consumer: c, received: now, spoken: now, until: now.Add(maxExpires)}
	p.addressTo(m.Reply)
	r, e := parsePull(m.Payload, &c.config)
	if e != nil {
		p.say(e)
		return
	}

	p.wanted, p.bytes, p.limited = max(r.Batch, 1), max(r.MaxBytes, 0), r.MaxBytes > 0
	p.noWait, p.hurries, p.heartbeat = r.NoWait, r.NoWait && r.Expires == 0, r.Heartbeat
	if r.Expires != 0 {
		p.until = now.Add(min(max(r.Expires, 0), maxExpires))
	}
	waits := p.until.Sub(now)
	if p.hurries {
		waits = 0
	}
	f.touch(c, f.config.Now().Add(waits))

	f.pending.mu.Lock()
	defer f.pending.mu.Unlock()
	if e = f.addLocked(p); e != nil {
		p.say(e)
		return
	}
	p.lineUpLocked()
}

// addLocked takes up a new pull, or returns its end: the consumer, or the bridge, may have no more.
func (f *Face) addLocked(p *pull) *ending {
	o := f.pending
	a := o.accountLocked(p.consumer)
	if o.stopped.Load() {
		return errShutdown
	}
	if o.pulls >= f.config.MaxWaiters || a.pulls >= p.consumer.config.MaxWaiting {
		return p.noRoom()
	}

	p.account = a
	a.pulls++
	o.pulls++
	if o.inboxes[p.inbox] == nil {
		o.inboxes[p.inbox] = map[*pull]bool{}
	}
	o.inboxes[p.inbox][p] = true
	if p.unheard() {
		f.sweepLocked(newInterest)
	}
	return nil
}

// lineUpLocked puts the pull at the end of the line, from where it asks for items when there are places.
func (p *pull) lineUpLocked() {
	p.place = p.account.line.PushBack(p)
	p.account.admitLocked()
	if p.place != nil && p.hurries {
		p.closeLocked(noMessages)
	}
	p.watchLocked()
}

// leaveLineLocked takes the pull out of the line, if it is there.
func (p *pull) leaveLineLocked() {
	if p.place != nil {
		p.account.line.Remove(p.place)
		p.place = nil
	}
}

// askLocked has the pull leave the line and make a request, for as many items as there are places.
func (p *pull) askLocked(places int) {
	p.leaveLineLocked()
	p.consumer = p.account.consumer
	q, err := p.f.queueOf(p.consumer.stream) // anew, because it may have left the memory
	if err != nil {
		p.failedLocked(err)
		return
	}

	n := min(p.wanted, places, maxAtOnce)
	op := fdbpq.Op{Kind: fdbpq.OpLease, End: p.consumer.end, Queue: q.Target, Count: true,
		Lease: cmp.Or(p.consumer.config.AckWait, fdbpq.SettingsLease)}
	if p.limited {
		n = min(n, p.fit())
		op.MaxBytes = max(p.bytes-n*p.overhead(), 1)
	}
	r := dispatch.Request{Queue: q, Replier: p, Received: time.Now(), Size: pullMemory, Pops: n}
	if !p.hurries {
		r.Wait = &dispatch.Wait{Until: p.until, OnlyIfEmpty: p.noWait}
	}

	p.waits, p.asked = r.WaitHandle(), n
	p.account.reserved += n
	if err := p.f.config.Dispatcher.Submit(&r, []fdbpq.Op{op}); err != nil {
		p.failedLocked(err)
	}
	p.f.acks.run(together{queue: q}) // in the same transaction, which the client waits for anyway
}

// Answer implements dispatch.Replier: it sends the items, and decides how the pull goes on.
func (p *pull) Answer(r *dispatch.Request, _ []fdbpq.Op, results []fdbpq.Result) {
	taken, unsent := p.deliver(r.Queue, results)
	var err error
	for i := range results {
		err = cmp.Or(err, results[i].Err)
	}

	p.f.pending.mu.Lock()
	defer p.f.pending.mu.Unlock()
	p.alone = errors.Is(err, fdbpq.ErrMaxBytes) && p.asked > 1
	p.asked = 0
	switch e := cmp.Or(p.leaving, p.verdictLocked(err, unsent)); {
	case e != nil:
		p.closeLocked(e)
	case unsent != nil, taken == 0 && !p.alone: // earlier than it should be
		p.watchLocked()
	default:
		p.lineUpLocked()
	}
	p.account.admitLocked()
}

// verdictLocked returns how the pull ends after a request that got an error, or of which an item could
// not be sent; nil if it goes on.
func (p *pull) verdictLocked(err, unsent error) *ending {
	nothing := errors.Is(err, fdbpq.ErrEmpty) || errors.Is(err, fdbpq.ErrMaxLeased)
	switch {
	case errors.Is(unsent, errDeaf), errors.Is(unsent, leaf.ErrOffline), errors.Is(unsent, leaf.ErrDenied):
		return &ending{} // nobody would hear more
	case errors.Is(unsent, errLeaseOver):
		return leaderChanged
	case errors.Is(unsent, leaf.ErrTooLarge), errors.Is(unsent, errMaxBytes):
		return tooLarge
	case unsent != nil && !errors.Is(unsent, leaf.ErrPending):
		return p.f.endingAfter(unsent)
	case p.wanted == 0 && p.limited && p.bytes > 0:
		return completed
	case p.wanted == 0:
		return &ending{}
	case p.alone:
		return nil
	case errors.Is(err, fdbpq.ErrMaxBytes), p.limited && p.bytes <= 0:
		return tooLarge
	case err != nil && !nothing && !errors.Is(err, fdbpq.ErrNoRoom):
		return p.f.endingAfter(err)
	case nothing && p.hurries:
		return noMessages
	case time.Until(p.until) <= 0:
		return timeIsOver
	}
	return nil
}

// Fail implements dispatch.Replier.
func (p *pull) Fail(_ *dispatch.Request, _ []fdbpq.Op, err error) {
	p.f.pending.mu.Lock()
	defer p.f.pending.mu.Unlock()
	p.failedLocked(err)
	p.account.admitLocked()
}

// failedLocked decides how the pull goes on after a request that was not run.
func (p *pull) failedLocked(err error) {
	p.account.reserved -= p.asked
	p.asked = 0
	last := p.hurries || time.Until(p.until) <= 0
	switch {
	case p.leaving != nil:
		p.closeLocked(p.leaving)
	case errors.Is(err, dispatch.ErrCancelled): // to ask for what the changed consumer says
		p.lineUpLocked()
	case errors.Is(err, dispatch.ErrTooManyWaiters), last && errors.Is(err, dispatch.ErrOverloaded):
		p.closeLocked(p.noRoom())
	case last, errors.Is(err, dispatch.ErrUnknownOutcome), kv.MaybeCommitted(err): // it may have a lease
		p.closeLocked(p.f.endingAfter(err))
	default:
		p.watchLocked() // it pauses
	}
}

// endLocked ends the pull from outside, once its request has ended if it has one.
func (p *pull) endLocked(e *ending) {
	switch {
	case p.over || p.leaving != nil:
	case p.asked > 0:
		p.leaving = e
		p.f.config.Dispatcher.Cancel(p.waits)
	default:
		p.closeLocked(e)
	}
}

// closeLocked ends the pull, whose request has ended if it had one.
func (p *pull) closeLocked(e *ending) {
	p.over = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.leaveLineLocked()
	p.f.pending.removeLocked(p)
	p.say(e)
}

// watchLocked sets the timer for what happens next: the end, if no request knows of it, that of a pause,
// for a pull that neither asks nor is in line, or a heartbeat.
func (p *pull) watchLocked() {
	left := time.Until(p.until)
	switch {
	case p.over, p.asked > 0 && p.heartbeat == 0:
		return
	case p.asked > 0:
		left = p.heartbeat
	case p.place == nil:
		left = min(left, retryPause)
	}
	if p.heartbeat > 0 {
		left = min(left, time.Until(p.spoken.Add(p.heartbeat)))
	}

	if p.timer == nil {
		p.timer = time.AfterFunc(left, p.alarm)
	} else {
		p.timer.Reset(left)
	}
}

// alarm does what is due.
func (p *pull) alarm() {
	p.f.pending.mu.Lock()
	defer p.f.pending.mu.Unlock()
	switch now := time.Now(); {
	case p.over:
	case p.asked == 0 && !now.Before(p.until):
		p.closeLocked(timeIsOver)
	case p.asked == 0 && p.place == nil:
		p.lineUpLocked()
	case p.heartbeat > 0 && now.Sub(p.spoken) >= p.heartbeat:
		p.beatLocked(now)
	}
	p.watchLocked()
}

// beatLocked sends a heartbeat. If nobody hears it, that ends the pull.
func (p *pull) beatLocked(now time.Time) {
	p.spoken = now
	if p.deafLocked(now) {
		p.endLocked(&ending{})
		return
	}
	number := strconv.FormatUint(p.account.delivered, 10)
	header := statusHeader(100, "Idle Heartbeat", "Nats-Last-Consumer", number, "Nats-Last-Stream", number)
	_ = p.f.out.Publish(&leaf.Message{Subject: p.to(now), Header: header}) // the next one may succeed
}
