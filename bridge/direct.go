package bridge

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
)

// direct has the pops of a busy queue come straight to the bridge that pops
// from it. NATS gives a request to one of the subscriptions of the queue group
// that match, each as likely as the other, and does not care whose they are. So
// that bridge makes many more of them, on just the subjects on which its queues
// are busy, and few pops have to be handed over.
//
// It is an optimisation alone: what comes to the wrong bridge is handed over, and
// what comes twice as often is still one request.
type direct struct {
	b      *Bridge
	pops   atomic.Int64 // done, to take one in sampling
	denied atomic.Bool  // NATS takes no more subscriptions

	mu struct {
		sync.Mutex
		busy    map[string]*busySubject
		dropped int // messages that former subscriptions dropped
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
	// idleLooks without one end it: two seconds.
	idleLooks = 8
	// maxBusy is the most subjects that a bridge subscribes to directly.
	maxBusy = 64
	// For each of the other bridges there are directWeight subscriptions, so
	// that one pop in nine has to be handed over, but at most maxDirect.
	directWeight = 8
	maxDirect    = 64
)

func newDirect(b *Bridge) *direct {
	d := &direct{b: b}
	d.mu.busy = map[string]*busySubject{}
	return d
}

// popped notes that this bridge does a pop that came on the subject.
func (d *direct) popped(subject string) {
	if d.pops.Add(1)%sampling != 0 {
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

// look gives up what is idle and subscribes to what has become busy. It is
// called once in a heartbeat, from one goroutine.
func (d *direct) look(bridges int) {
	d.leave(d.idle(bridges == 1 || d.denied.Load()))
	for _, subject := range d.newlyBusy() {
		d.join(subject, min(directWeight*(bridges-1), maxDirect))
	}
}

// idle forgets the subjects that are idle, or all, and returns their
// subscriptions.
func (d *direct) idle(all bool) (subscriptions []*nats.Subscription) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for subject, s := range d.mu.busy {
		s.idle++
		if s.samples > 0 {
			s.idle = 0
		}
		if s.idle == idleLooks || all {
			d.mu.dropped += droppedBy(s.subscriptions)
			subscriptions = append(subscriptions, s.subscriptions...)
			delete(d.mu.busy, subject)
		}
	}
	return subscriptions
}

// newlyBusy returns the subjects to subscribe to.
func (d *direct) newlyBusy() (subjects []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	room := maxBusy
	for _, s := range d.mu.busy {
		if len(s.subscriptions) > 0 {
			room--
		}
	}
	for subject, s := range d.mu.busy {
		if s.samples >= busySamples && len(s.subscriptions) == 0 && len(subjects) < room {
			subjects = append(subjects, subject)
		}
		s.samples = 0
	}
	return subjects
}

func (d *direct) join(subject string, times int) {
	var subscriptions []*nats.Subscription
	for range times {
		subscription, err := d.b.requestsOn(subject)
		if err != nil {
			d.b.quiet.nats.warn("a busy queue cannot be subscribed to directly", "subject", subject, "error", err)
			break
		}
		subscriptions = append(subscriptions, subscription)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.busy[subject].subscriptions = subscriptions
}

// leave ends subscriptions; what NATS sent them before is still served.
func (d *direct) leave(subscriptions []*nats.Subscription) {
	for _, s := range subscriptions {
		_ = s.Drain() // fails if it ended with its connection
	}
}

// deny gives all up until the bridge connects again.
func (d *direct) deny() {
	if !d.denied.Swap(true) {
		d.b.options.Logger.Warn("NATS takes no more subscriptions of this bridge: more pops of busy queues are handed over")
	}
}

// subscriptions returns those there are.
func (d *direct) subscriptions() (all []*nats.Subscription) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.mu.busy {
		all = append(all, s.subscriptions...)
	}
	return all
}

// dropped is the number of messages that NATS dropped.
func (d *direct) dropped() int {
	now := droppedBy(d.subscriptions())
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.dropped + now
}

// subjects is the number of subjects subscribed to.
func (d *direct) subjects() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, s := range d.mu.busy {
		if len(s.subscriptions) > 0 {
			n++
		}
	}
	return float64(n)
}
