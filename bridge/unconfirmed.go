package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// unconfirmed is the replies that were handed to the NATS client and that the
// server may still refuse. It does so for lack of rights, since clients choose
// where their replies go, and says so a moment later, with nothing but the
// subject. Popped items are kept until then, and are pushed again if their replies
// were refused.
//
// What the server has to say about a message comes before the PONG to a PING that
// was sent after it. So there are rounds, as long as any reply is unconfirmed: send
// PING, wait for PONG and until all that came before it was heard, and let go of
// the replies that were handed over before the PING. A round begins roundPause
// after the one before, so that its cost does not grow with the load.
//
// No item may be popped twice, so one is pushed again only if its reply was
// certainly refused: as many replies to its subject were refused as there were. Only
// clients that have several requests under way with one reply subject can see
// anything else, and only if a permission comes or goes at that moment, or is for
// some of the replies (allow_responses). Then the items are lost, like others whose
// replies nobody receives.
//
// Replies are kept as the batches they belong to, so nothing is copied.
type unconfirmed struct {
	b     *Bridge
	wake  chan struct{} // something is unconfirmed
	hurry chan struct{} // much is
	news  chan struct{} // mu.heard changed

	mu struct {
		sync.Mutex
		batches   []*batch // the oldest first
		loose     *batch   // of replies that belong to no batch
		bytes     int      // that are kept for this
		refusals  map[string]int
		heard     error              // the permission violation that asyncError was called with last
		hearings  map[error]struct{} // that one as of the last PING, and all since
		undecided int                // rounds in a row that ended without a decision
		ended     bool
		abandoned int // replies that end let go
	}
}

const (
	// roundPause is the time from the end of a round to the next.
	roundPause = 10 * time.Millisecond
	// maxUndecided bounds the rounds that replies wait for because it is not
	// clear whether they are the refused ones.
	maxUndecided = 4
	// Replies are let go if NATS takes longer than maxUnconfirmedAge to confirm
	// them, or when there are more than maxUnconfirmedBytes of them. There is no
	// pause when there are more than hurryBytes.
	maxUnconfirmedAge   = 30 * time.Second
	maxUnconfirmedBytes = 16 << 20
	hurryBytes          = maxUnconfirmedBytes / 8
	// replyOverhead is about what a reply takes besides its item.
	replyOverhead = 256
)

func newUnconfirmed(b *Bridge) *unconfirmed {
	u := &unconfirmed{b: b, wake: make(chan struct{}, 1), hurry: make(chan struct{}, 1), news: make(chan struct{}, 1)}
	u.mu.loose = &batch{}
	u.mu.refusals = map[string]int{}
	u.mu.hearings = map[error]struct{}{}
	return u
}

// begin notes that the replies of a batch are about to be handed to NATS. Until
// sent is called the batch still belongs to the caller, but its requests must not
// change.
func (u *unconfirmed) begin(b *batch) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mu.ended {
		return
	}
	b.tracked = true
	u.mu.batches = append(u.mu.batches, b)
}

// sent takes over a batch that begin was called with: its replies have been handed
// to NATS. It is given to lane.confirmed in the end.
func (u *unconfirmed) sent(b *batch) {
	u.mu.Lock()
	b.sent = time.Now()
	done := []*batch{b}
	if !u.mu.ended {
		u.mu.bytes += b.cost()
		done = u.letGoLocked(func(*batch) bool { return u.mu.bytes > maxUnconfirmedBytes })
		if u.mu.bytes > hurryBytes {
			signal(u.hurry)
		}
	}
	u.mu.Unlock()
	u.letGo(done)
	signal(u.wake)
}

// publish hands a reply to NATS that belongs to no batch, and with which nothing is
// lost.
func (u *unconfirmed) publish(m *nats.Msg) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	err := u.b.nc.PublishMsg(m)
	if err == nil && !u.mu.ended && u.mu.bytes < maxUnconfirmedBytes {
		u.mu.loose.requests = append(u.mu.loose.requests, request{reply: m.Subject})
		u.mu.bytes += replyOverhead
		signal(u.wake)
	}
	return err
}

// refused notes that the server has refused a message to the subject.
func (u *unconfirmed) refused(subject string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.mu.ended {
		u.mu.refusals[subject]++
	}
}

// hear notes that asyncError has done its work for the error.
func (u *unconfirmed) hear(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.mu.heard = err
	u.mu.hearings[err] = struct{}{}
	signal(u.news)
}

// run confirms replies until ctx ends.
func (u *unconfirmed) run(ctx context.Context) {
	defer u.end()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-u.wake:
		case <-ctx.Done():
			return
		}
		pause.Reset(roundPause)
		select {
		case <-pause.C:
		case <-u.hurry:
		case <-ctx.Done():
			return
		}
		if u.round(ctx); u.hasEnded() {
			return
		}
	}
}

// end lets go of everything, now and from now on.
func (u *unconfirmed) end() {
	u.mu.Lock()
	u.mu.ended = true
	done := u.letGoLocked(func(*batch) bool { return true })
	u.mu.batches = nil // those not sent yet are let go by sent
	clear(u.mu.refusals)
	for _, b := range done {
		if b.lane != nil {
			u.mu.abandoned += len(b.requests)
		}
	}
	u.mu.Unlock()
	u.letGo(done)
}

// abandoned is the number of replies of batches that end let go.
func (u *unconfirmed) abandoned() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.mu.abandoned
}

func (u *unconfirmed) hasEnded() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.mu.ended
}

// round confirms what has been handed over before.
func (u *unconfirmed) round(ctx context.Context) {
	if !u.ask() {
		return
	}
	stopping := u.b.stopping.Load()
	if stopping && !u.b.nc.IsConnected() {
		u.end() // nobody would answer
		return
	}
	certain, err := u.exchange(ctx)
	switch {
	case err == nil:
		u.settle(certain)
	case stopping:
		u.end()
	default:
		// The connection is away, or the server busy. What a connection that broke
		// still had to say is lost, and so are the items whose replies it refused.
		u.forget(time.Now().Add(-maxUnconfirmedAge))
	}
	signal(u.wake)
}

// ask marks the replies that the next PING comes after, and returns false if there
// are none.
func (u *unconfirmed) ask() (any bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.mu.hearings = map[error]struct{}{u.mu.heard: {}}
	if len(u.mu.loose.requests) > 0 {
		u.mu.loose.sent = time.Now()
		u.mu.batches = append(u.mu.batches, u.mu.loose)
		u.mu.loose = &batch{}
	}
	for _, b := range u.mu.batches {
		b.asked = !b.sent.IsZero()
		any = any || b.asked
	}
	return any
}

// exchange sends PING and waits for PONG, and until asyncError was called with all
// that came before it. It is not certain of the latter if the newest error is not
// one that it can tell from others.
func (u *unconfirmed) exchange(ctx context.Context) (certain bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, min(natsPatience, u.b.options.ShutdownTimeout/4))
	defer cancel()
	if err := u.b.nc.FlushWithContext(ctx); err != nil {
		return false, err
	}
	// The client sets it before it reads on, and calls asyncError in the same
	// order in a goroutine of its own.
	newest := u.b.nc.LastError()
	if !errors.Is(newest, nats.ErrPermissionViolation) {
		return newest == nil, nil
	}
	for !u.hasHeard(newest) {
		select {
		case <-u.news:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return true, nil
}

func (u *unconfirmed) hasHeard(err error) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, heard := u.mu.hearings[err]
	return heard
}

// settle lets go of what was asked about. Where it is not certain that everything
// has been heard that was said of it, it takes two rounds.
func (u *unconfirmed) settle(certain bool) {
	u.mu.Lock()
	undelivered, decided := u.decideLocked()
	var done []*batch
	if decided {
		done = u.letGoLocked(func(b *batch) bool {
			if b.asked {
				b.rounds++
			}
			return b.asked && (certain || b.rounds > 1)
		})
	}
	u.mu.Unlock()
	for i := range undelivered {
		d := &undelivered[i]
		d.request.endpoint.failedLate(refusalOf(fmt.Errorf("%w: NATS does not let this service publish to the reply subject %.64q: want an inbox",
			ErrBadRequest, d.request.reply)))
		d.request.queue.lane.restore(&d.request, d.kind, &d.item)
	}
	u.letGo(done)
}

// undelivered is the request of a reply that was certainly refused. It is a copy: the
// batch may be let go at any time.
type undelivered struct {
	request request
	kind    fdbpq.OpKind
	item    fdbpq.Item
}

// tally counts the replies to one subject.
type tally struct {
	refused int
	asked   int  // before the PING
	later   int  // handed over since
	sending int  // of batches that are just being handed over
	all     bool // were refused
}

// decideLocked puts the refusals down to replies. It returns false if that takes
// another round, because there are replies to the same subject that the PING did not
// come after, and it could be those.
func (u *unconfirmed) decideLocked() (found []undelivered, decided bool) {
	if len(u.mu.refusals) == 0 {
		return nil, true
	}
	tallies := u.tallyLocked()
	for _, t := range tallies {
		if t.sending > 0 {
			return nil, false
		}
		if t.later > 0 && u.mu.undecided < maxUndecided {
			u.mu.undecided++
			return nil, false
		}
	}
	u.mu.undecided = 0
	clear(u.mu.refusals)
	for subject, t := range tallies {
		t.all = t.asked > 0 && t.refused >= t.asked+t.later
		if !t.all {
			u.b.quiet.replies.warn("NATS refused a message, and it is not known which: if it was the reply to a pop its item is lost",
				"subject", shorten(subject), "refused", t.refused, "of", t.asked+t.later)
		} else if t.later > 0 {
			u.mu.refusals[subject] = t.refused - t.asked
		}
	}
	for _, b := range u.mu.batches {
		if b.asked {
			found = append(found, b.undelivered(tallies)...)
		}
	}
	return found, true
}

// undelivered returns those whose replies were refused. Replies to subjects for which
// that has been decided are not counted again.
func (b *batch) undelivered(tallies map[string]*tally) (found []undelivered) {
	for i := range b.requests {
		r := &b.requests[i]
		t := tallies[r.reply]
		if t == nil {
			continue
		}
		if t.all && b.results != nil && b.results[i].Err == nil {
			found = append(found, undelivered{*r, b.ops[i].Kind, b.results[i].Item})
		}
		r.reply = ""
	}
	return found
}

func (u *unconfirmed) tallyLocked() map[string]*tally {
	tallies := make(map[string]*tally, len(u.mu.refusals))
	for subject, n := range u.mu.refusals {
		tallies[subject] = &tally{refused: n}
	}
	for _, b := range append(slices.Clip(u.mu.batches), u.mu.loose) {
		for i := range b.requests {
			t := tallies[b.requests[i].reply]
			switch {
			case t == nil:
			case b.asked:
				t.asked++
			case b.sent.IsZero() && b != u.mu.loose:
				t.sending++
			default:
				t.later++
			}
		}
	}
	return tallies
}

// forget lets go of the replies that were sent before.
func (u *unconfirmed) forget(before time.Time) {
	u.mu.Lock()
	done := u.letGoLocked(func(b *batch) bool { return b.sent.Before(before) })
	u.mu.Unlock()
	u.letGo(done)
}

// letGoLocked removes batches, the oldest first, of those that have been sent.
func (u *unconfirmed) letGoLocked(ends func(*batch) bool) (done []*batch) {
	u.mu.batches = slices.DeleteFunc(u.mu.batches, func(b *batch) bool {
		if b.sent.IsZero() || !ends(b) {
			return false
		}
		u.mu.bytes -= b.cost()
		done = append(done, b)
		return true
	})
	return done
}

// letGo gives batches back to their lanes.
func (u *unconfirmed) letGo(done []*batch) {
	for _, b := range done {
		if b.lane != nil {
			b.lane.confirmed(b)
		}
	}
}
