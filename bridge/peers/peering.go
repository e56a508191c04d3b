package peers

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// peering is what Members, Router and bell share.
type peering struct {
	config   Config
	selfEcho *selfEcho
	muted    atomic.Bool // NATS does not permit messages between bridges
}

// publish sends to other bridges, unless NATS does not permit it. It does no harm if the NATS
// client buffers a message while disconnected and it arrives late.
func (p *peering) publish(subject string, data []byte) {
	if p.muted.Load() || p.config.Conn().IsClosed() {
		return
	}
	if err := p.config.Conn().Publish(subject, data); err != nil {
		p.config.Warn("cannot reach the other bridges", "error", err)
	}
}

// selfEcho tells how long a message may have waited before a callback gets it. A process that stood
// still finds in its socket what its senders have long given up, and its clock does not show that.
//
// So the bridge listens to itself. NATS delivers to a connection in order: what arrives after an
// echo was sent after the bridge spoke. Each subscription has a goroutine of its own, so what waits
// in any of them when the echo arrives counts as older than the echo.
//
// Bridges that share a store hear their heartbeats, others their announcements. Before the first
// echo of a connection, and where NATS does not permit messages between bridges, messages count as
// new.
type selfEcho struct {
	started time.Time
	// patience is how old the newest echo may be while messages count as new.
	patience time.Duration

	mu struct {
		sync.Mutex
		heard    time.Time // when the bridge said what it heard last; zero before the first echo
		silences int       // longer than maxSilence; see Watch
	}
}

// maxSilence is how long a bridge may not hear itself before it must reckon with peers that
// consider it gone. They do so a heartbeat later at the earliest.
const maxSilence = (peerLife - 1) * heartbeat

// newSelfEcho returns that of a bridge that has heard nothing yet.
func newSelfEcho(shared bool) *selfEcho {
	e := &selfEcho{started: time.Now(), patience: maxSilence}
	if !shared {
		e.patience = 5 * AnnounceEvery / 2
	}
	return e
}

// now returns the time in the form in which the bridge says it.
func (e *selfEcho) now() string { return strconv.FormatInt(int64(time.Since(e.started)), 10) }

// hear handles what now returned, heard as an echo.
func (p *peering) hear(said string) {
	if at, err := strconv.ParseInt(said, 10, 64); err == nil {
		p.noteEcho(p.config.Conn(), p.selfEcho.started.Add(time.Duration(at)))
	}
}

// noteEcho notes that what no callback has yet got was sent after that time, once the callbacks
// have handled what they have. After the zero time nothing is known.
func (p *peering) noteEcho(nc *nats.Conn, sent time.Time) {
	note := func() {
		p.selfEcho.mu.Lock()
		defer p.selfEcho.mu.Unlock()
		// If only the line stood still, echoes of that time come together, a heartbeat apart: what
		// counts is that none came.
		if sent.IsZero() || p.silenceLocked() > maxSilence {
			p.selfEcho.mu.silences++
		}
		p.selfEcho.mu.heard = sent
	}
	_ = nc.Barrier(note) // fails if the connection is closed
}

// silenceLocked is how long ago the bridge said what it heard last, 0 if that is unknown.
func (p *peering) silenceLocked() time.Duration {
	if p.selfEcho.mu.heard.IsZero() || p.muted.Load() {
		return 0
	}
	return time.Since(p.selfEcho.mu.heard)
}

// Waited returns how long a message that a callback gets now may have waited to be read. It is 0
// as long as the bridge hears itself.
func (p *peering) Waited() time.Duration {
	p.selfEcho.mu.Lock()
	defer p.selfEcho.mu.Unlock()
	if silence := p.silenceLocked(); silence > p.selfEcho.patience {
		return silence
	}
	return 0
}

// Watch returns a function that reports whether peers may by now have given up what they forwarded,
// and this bridge is handling, when Watch was called.
func (p *peering) Watch() (outOfTouch func() bool) {
	p.selfEcho.mu.Lock()
	defer p.selfEcho.mu.Unlock()
	silences := p.selfEcho.mu.silences
	return func() bool {
		p.selfEcho.mu.Lock()
		defer p.selfEcho.mu.Unlock()
		return p.selfEcho.mu.silences != silences || p.silenceLocked() > maxSilence
	}
}
