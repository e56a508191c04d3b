package bridge

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
)

// affinity attracts the pops of busy queues to the bridge that owns them, so that few
// have to be forwarded. NATS delivers a request to one of the matching subscriptions of
// the queue group, each with the same probability, whoever made them. So the owner of a
// busy queue makes many more subscriptions, to exactly the subjects on which that queue
// is popped. Pops that still reach another bridge are forwarded, so nothing depends on
// affinity.
//
// The subscriptions have a connection of their own, which does not reconnect. When it
// ends, they are gone both here and in the server, and are made again if their queues
// are still busy. So they never get in the way of the bridge's other subscriptions, and
// none is left behind in the server. Replies go over the bridge's main connection.
type affinity struct {
	b        *Bridge
	period   atomic.Uint32 // heartbeats so far
	attempts sync.WaitGroup

	// Set by start, used until stop.
	line    *line          // of the connections
	cancel  func()         // ends running
	running sync.WaitGroup // run

	mu struct {
		sync.Mutex
		subjects   map[string]*busySubject
		conn       *nats.Conn              // of the subscriptions; nil while there is none
		open       map[*nats.Conn]struct{} // conn, and those being drained
		empty      chan struct{}           // closed once open is empty again; nil before the first connection
		connecting bool
		tried      time.Time // when the last attempt to connect began
		denied     error     // why NATS did not accept the connection or a subscription
		stopped    bool      // no more connections
		former     int       // messages dropped by subscriptions that have ended
		dropped    int       // the most that stats has returned
	}
}

// busySubject is a subject of pops from a queue that is, or was lately, busy.
type busySubject struct {
	busy, used    bool // since the last heartbeat
	idle          int  // heartbeats in a row without use
	subscriptions []*nats.Subscription
}

const (
	// busyPops in one heartbeat make a subject busy: 256 pops per second.
	busyPops = 64
	// A heartbeat with fewer than usedPops counts as idle, and idleBeats of them in a
	// row, 2 s, end the subscriptions.
	usedPops  = 4
	idleBeats = 8
	// maxBusy limits the subjects that a bridge subscribes to by name.
	maxBusy = 32
	// affinityWeight is the number of subscriptions for each peer, so that one pop in
	// nine has to be forwarded. maxAffinity limits those to one subject.
	affinityWeight = 8
	maxAffinity    = 64
	// affinityRetry is the time until the next attempt after NATS denied one, and
	// affinityPause the shortest time between two attempts to connect.
	affinityRetry = time.Minute
	affinityPause = 2 * time.Second
)

func newAffinity(b *Bridge) *affinity {
	a := &affinity{b: b}
	a.mu.subjects = map[string]*busySubject{}
	a.mu.open = map[*nats.Conn]struct{}{}
	return a
}

// note counts a pop of a queue that this bridge owns. rate counts the pops from the
// same end of the queue, and subject is where they arrive.
func (a *affinity) note(rate *dispatch.Rate, subject string) {
	switch rate.Note(a.period.Load()) {
	case usedPops:
		a.mark(subject, false)
	case busyPops:
		a.mark(subject, true)
	}
}

// mark records that a subject is used, or even busy, in this heartbeat.
func (a *affinity) mark(subject string, busy bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.mu.subjects[subject]
	if s == nil {
		if !busy {
			return
		}
		s = &busySubject{}
		a.mu.subjects[strings.Clone(subject)] = s // a substring would keep the whole message in memory
	}
	s.used = true
	s.busy = s.busy || busy
}

// start begins to attract pops. peers returns the number of other bridges.
func (a *affinity) start(peers func() int) {
	ctx, cancel := context.WithCancel(context.Background())
	a.mu.Lock()
	a.mu.stopped = false
	a.line, a.cancel = a.b.line.branch(), cancel
	a.mu.Unlock()
	a.running.Go(func() { a.run(ctx, peers) })
}

// run adjusts the subscriptions once per heartbeat until ctx ends.
func (a *affinity) run(ctx context.Context, peers func() int) {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	var denied time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		want := min(affinityWeight*peers(), maxAffinity)
		if !a.b.online.Load() || time.Since(denied) < affinityRetry {
			want = 0
		}
		if err := a.adjust(want); err != nil {
			denied = time.Now()
			a.b.options.Logger.Warn("cannot subscribe to busy queues by name; more of their pops are forwarded",
				"error", err, "again_in", affinityRetry)
		}
	}
}

// adjust ends the subscriptions to idle subjects and makes as many as wanted to each
// busy one. The error says why NATS denied them.
func (a *affinity) adjust(want int) error {
	missing, ended, denied := a.survey(want)
	drain(ended)
	if len(missing) == 0 && a.subscribed() == 0 || denied != nil {
		a.release()
		return denied
	}
	conn := a.connection()
	if conn == nil {
		return nil // it is being made
	}
	for subject, n := range missing {
		a.subscribe(conn, subject, n)
	}
	return nil
}

// survey begins a period. It forgets idle subjects, and returns how many subscriptions
// the busy ones lack, those that have to end, and why NATS denied some.
func (a *affinity) survey(want int) (missing map[string]int, ended []*nats.Subscription, denied error) {
	a.period.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	missing = map[string]int{}
	room := maxBusy - a.subscribedLocked()
	for subject, s := range a.mu.subjects {
		s.idle++
		if s.used {
			s.idle = 0
		}
		have := len(s.subscriptions)
		switch {
		case s.idle == idleBeats || want == 0:
			ended = append(ended, s.subscriptions...)
			a.forgetLocked(s)
			delete(a.mu.subjects, subject)
		case have > 0 && have < want: // a peer has joined
			missing[subject] = want - have
		case have == 0 && s.busy && room > 0:
			missing[subject] = want
			room--
		}
		s.busy, s.used = false, false
	}
	denied, a.mu.denied = a.mu.denied, nil
	return missing, ended, denied
}

// drain ends subscriptions. Messages already delivered to them are still handled.
func drain(subscriptions []*nats.Subscription) {
	for _, s := range subscriptions {
		_ = s.Drain() // fails if it has ended with its connection
	}
}

// forgetLocked treats the subscriptions of a subject as ended.
func (a *affinity) forgetLocked(s *busySubject) {
	a.mu.former += droppedBy(s.subscriptions)
	s.subscriptions = nil
}

func (a *affinity) forgetAllLocked() {
	a.mu.conn = nil
	for _, s := range a.mu.subjects {
		a.forgetLocked(s)
	}
}

// subscribed returns the number of subjects subscribed to.
func (a *affinity) subscribed() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.subscribedLocked()
}

func (a *affinity) subscribedLocked() (n int) {
	for _, s := range a.mu.subjects {
		if len(s.subscriptions) > 0 {
			n++
		}
	}
	return n
}

// subscribe makes n more subscriptions to a subject.
func (a *affinity) subscribe(conn *nats.Conn, subject string, n int) {
	var made []*nats.Subscription
	for range n {
		subscription, err := a.b.requestsOn(conn, subject, maxAffinity)
		if err != nil {
			break // the connection is gone
		}
		made = append(made, subscription)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.mu.subjects[subject]; s != nil && a.mu.conn == conn {
		s.subscriptions = append(s.subscriptions, made...)
	}
}

// release ends all subscriptions, and closes their connection once the messages
// delivered to them are handled.
func (a *affinity) release() {
	a.mu.Lock()
	conn := a.mu.conn
	if conn != nil {
		a.forgetAllLocked()
	}
	a.mu.Unlock()
	if conn != nil {
		_ = conn.Drain() // fails if it is closed
	}
}

// stop ends all subscriptions until start is called again. It returns when the requests
// delivered to them are in their lanes. If ctx ends first, it closes the connections,
// which loses the rest.
func (a *affinity) stop(ctx context.Context) {
	a.cancel()
	a.running.Wait()
	a.mu.Lock()
	a.mu.stopped = true
	empty := a.mu.empty
	a.mu.Unlock()
	a.release()
	if empty != nil {
		select {
		case <-empty:
		case <-ctx.Done():
			a.b.options.Logger.Warn("NATS did not end the subscriptions to busy queues in time; a few pops may be lost")
		}
	}
	a.line.cut() // also ends attempts to connect
	a.mu.Lock()
	open := make([]*nats.Conn, 0, len(a.mu.open))
	for conn := range a.mu.open {
		open = append(open, conn)
	}
	a.mu.Unlock()
	for _, conn := range open {
		conn.Close()
	}
}

// stats returns the number of subjects subscribed to, and how many messages the NATS
// client has dropped because the bridge fell behind. The latter never decreases,
// although subscriptions that ended with their connection no longer report theirs.
func (a *affinity) stats() (subjects, dropped int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sum := a.mu.former
	for _, s := range a.mu.subjects {
		sum += droppedBy(s.subscriptions)
	}
	a.mu.dropped = max(a.mu.dropped, sum)
	return a.subscribedLocked(), a.mu.dropped
}

// backlog returns what NATS has delivered to the subscriptions and no callback has
// handled yet.
func (a *affinity) backlog() (messages, bytes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.mu.subjects {
		m, n := backlogOf(s.subscriptions)
		messages, bytes = messages+m, bytes+n
	}
	return messages, bytes
}
