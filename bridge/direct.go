package bridge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// direct has the pops of a busy queue come straight to the bridge that pops
// from it. NATS gives a request to one of the subscriptions of the queue group
// that match, each as likely as the other, and does not care whose they are. So
// that bridge makes many more of them, on just the subjects on which its queues
// are busy, and few pops have to be handed over. What comes to the wrong bridge
// still is, so nothing depends on this.
//
// The subscriptions have a connection of their own, which does not connect again:
// when it ends they are gone, here and in the server, and are made anew if the
// queues are still busy. So they are never in the way of the bridge's other
// subscriptions, nor left behind in the server. Replies go over the other one.
type direct struct {
	b          *Bridge
	connecting sync.WaitGroup // attempts to
	connected  sync.WaitGroup // connections in mu.open

	mu struct {
		sync.Mutex
		busy    map[string]*busySubject
		nc      *nats.Conn              // of the subscriptions; nil while there is none
		open    map[*nats.Conn]struct{} // nc and those that are being drained
		trying  bool                    // a connection is being made
		tried   time.Time               // when that began last
		refused error                   // why NATS did not want it
		ended   bool                    // no more connections
		former  int                     // messages that former subscriptions dropped
		dropped int                     // the most that dropped has returned
	}
}

// busySubject is a subject of pops that this bridge does.
type busySubject struct {
	samples       int // since the last look
	idle          int // looks in a row without a sample
	subscriptions []*nats.Subscription
}

const (
	// One pop in sampling is counted.
	sampling = 16
	// busySamples in a heartbeat make a subject busy: 256 pops a second.
	busySamples = 4
	// idleLooks without one, a look in a heartbeat, end it: two seconds.
	idleLooks = 8
	// maxBusy is the most subjects that a bridge subscribes to directly.
	maxBusy = 32
	// For each of the other bridges there are directWeight subscriptions, so
	// that one pop in nine has to be handed over, but at most maxDirect.
	directWeight = 8
	maxDirect    = 64
	// directRetry is when it is tried again if NATS refuses, and directPause how
	// long a connection that ends by itself is not made anew after it was begun.
	directRetry = time.Minute
	directPause = 2 * time.Second
)

func newDirect(b *Bridge) *direct {
	d := &direct{b: b}
	d.mu.busy = map[string]*busySubject{}
	d.mu.open = map[*nats.Conn]struct{}{}
	return d
}

// popped notes that this bridge does a pop that came on the subject.
func (d *direct) popped(subject string) {
	if rand.N(sampling) > 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.mu.busy[subject]
	if s == nil {
		s = &busySubject{}
		d.mu.busy[strings.Clone(subject)] = s
	}
	s.samples++
}

// run looks at what is busy once in a heartbeat until ctx ends. bridges is the
// number of those that share the queues.
func (d *direct) run(ctx context.Context, bridges func() int) {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	var refused time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		want := min(directWeight*(bridges()-1), maxDirect)
		if !d.b.nc.IsConnected() || time.Since(refused) < directRetry {
			want = 0
		}
		if err := d.look(want); err != nil {
			refused = time.Now()
			d.b.options.Logger.Warn("busy queues cannot be subscribed to by name: more of their pops are handed over",
				"error", err, "again_in", directRetry)
		}
	}
}

// look gives up what is idle, and subscribes so many times to what is busy. The
// error says that NATS does not want that.
func (d *direct) look(want int) error {
	missing, refused := d.survey(want)
	if len(missing) == 0 && d.subjects() == 0 || refused != nil {
		d.leave()
		return refused
	}
	nc := d.connection()
	if nc == nil {
		return nil // it is on its way
	}
	for subject, n := range missing {
		d.join(nc, subject, n)
	}
	return nil
}

// survey forgets what is idle, and returns how many subscriptions the busy
// subjects lack, and why NATS refused some.
func (d *direct) survey(want int) (missing map[string]int, refused error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	missing = map[string]int{}
	room := maxBusy - d.subscribedLocked()
	for subject, s := range d.mu.busy {
		s.idle++
		if s.samples > 0 {
			s.idle = 0
		}
		have := len(s.subscriptions)
		switch {
		case s.idle == idleLooks || want == 0:
			d.endLocked(s)
			delete(d.mu.busy, subject)
		case have > 0 && have < want: // more bridges
			missing[subject] = want - have
		case have == 0 && s.samples >= busySamples && room > 0:
			missing[subject] = want
			room--
		}
		s.samples = 0
	}
	refused, d.mu.refused = d.mu.refused, nil
	return missing, refused
}

// endLocked ends the subscriptions to a subject. What NATS sent before is still
// served.
func (d *direct) endLocked(s *busySubject) {
	for _, subscription := range s.subscriptions {
		_ = subscription.Drain() // fails if it ended with its connection
	}
	d.forgetLocked(s)
}

func (d *direct) forgetLocked(s *busySubject) {
	d.mu.former += droppedBy(s.subscriptions)
	s.subscriptions = nil
}

func (d *direct) subscribedLocked() (n int) {
	for _, s := range d.mu.busy {
		if len(s.subscriptions) > 0 {
			n++
		}
	}
	return n
}

// join makes n more subscriptions to a subject.
func (d *direct) join(nc *nats.Conn, subject string, n int) {
	var made []*nats.Subscription
	for range n {
		subscription, err := d.b.requestsOn(nc, subject, maxDirect)
		if err != nil {
			break // the connection is gone
		}
		made = append(made, subscription)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.nc == nc {
		s := d.mu.busy[subject]
		s.subscriptions = append(s.subscriptions, made...)
	}
}

// connection returns the connection of the subscriptions. If there is none it
// returns nil and begins to make one.
func (d *direct) connection() *nats.Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.nc == nil && !d.mu.trying && !d.mu.ended && time.Since(d.mu.tried) >= directPause {
		d.mu.trying, d.mu.tried = true, time.Now()
		d.connecting.Go(d.connect)
	}
	return d.mu.nc
}

// connect makes a connection, which may take the NATS client some seconds for
// each server.
func (d *direct) connect() {
	options := append([]nats.Option{nats.Name(clientName + " direct")}, d.b.options.NATSOptions...)
	options = append(options,
		nats.NoReconnect(),
		nats.RetryOnFailedConnect(false),
		nats.ErrorHandler(d.asyncError),
		nats.ClosedHandler(d.closed),
		d.b.line.option,
		(&intake{backlog: d.backlog}).option,
	)
	nc, err := nats.Connect(d.b.options.NATSURL, options...)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.trying = false
	if err != nil {
		d.mu.refused = fmt.Errorf("a connection of their own: %w", err)
		return
	}
	if d.mu.ended {
		nc.Close()
	}
	if nc.IsClosed() {
		return
	}
	d.connected.Add(1)
	d.mu.nc = nc
	d.mu.open[nc] = struct{}{}
}

func (d *direct) asyncError(_ *nats.Conn, _ *nats.Subscription, err error) {
	d.b.metrics.natsErrors.Inc()
	d.b.quiet.nats.warn("NATS reports an error to the subscriptions of busy queues", "error", err)
	if errors.Is(err, nats.ErrMaxSubscriptionsExceeded) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.mu.refused = err
	}
}

// closed is called once for each connection that was made.
func (d *direct) closed(nc *nats.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, open := d.mu.open[nc]; !open {
		return // closed at once
	}
	defer d.connected.Done()
	delete(d.mu.open, nc)
	if d.mu.nc == nc {
		d.b.quiet.nats.warn("the connection for busy queues has ended", "error", nc.LastError())
		d.forgetAllLocked()
	}
}

func (d *direct) forgetAllLocked() {
	d.mu.nc = nil
	for _, s := range d.mu.busy {
		d.forgetLocked(s)
	}
}

// leave ends all subscriptions. What NATS sent them before is still served.
func (d *direct) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leaveLocked()
}

func (d *direct) leaveLocked() {
	if nc := d.mu.nc; nc != nil {
		d.forgetAllLocked()
		_ = nc.Drain() // fails if it is closed
	}
}

// begin lets there be connections again, after end.
func (d *direct) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.ended = false
}

// end is leave until begin is called, and waits until all is served and closed. When
// ctx ends it closes what is left.
func (d *direct) end(ctx context.Context) error {
	d.mu.Lock()
	d.mu.ended = true
	d.leaveLocked()
	d.mu.Unlock()
	if waitFor(ctx, &d.connected) {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for nc := range d.mu.open {
		nc.Close()
	}
	return errors.New("bridge: NATS did not end the subscriptions of busy queues in time")
}

// dropped is the number of messages that NATS dropped. It never decreases, though
// subscriptions that ended with their connection do not tell theirs any more.
func (d *direct) dropped() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	sum := d.mu.former
	for _, s := range d.mu.busy {
		sum += droppedBy(s.subscriptions)
	}
	d.mu.dropped = max(d.mu.dropped, sum)
	return d.mu.dropped
}

// backlog is what NATS has read for the subscriptions and the callbacks have not
// looked at.
func (d *direct) backlog() (messages, bytes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.mu.busy {
		m, b := backlogOf(s.subscriptions)
		messages, bytes = messages+m, bytes+b
	}
	return messages, bytes
}

// subjects is the number of subjects subscribed to.
func (d *direct) subjects() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.subscribedLocked()
}
