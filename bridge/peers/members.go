package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/internal/signal"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/subjects"
)

// ErrSubjectsTaken is what Join returns if another bridge serves the same subjects from another
// store, or in another queue group.
var ErrSubjectsTaken = errors.New("bridge: another pqbridge serves the same subjects")

// Members keeps bridges apart that must not serve the same subjects. NATS delivers each request to
// an arbitrary bridge of each queue group. So bridges that serve the same subjects must share a
// store, or items would seem to be lost, and a queue group, or requests would run twice. A starting
// bridge asks which others there are, and does not serve beside one that it conflicts with. Two
// that meet later decide from the same facts which of them stops serving until the other is gone:
// see outranks.
//
// Bridges announce themselves periodically on the subject members. A bridge that asks does so with
// the reply subject members.<its id>, on which the others answer. It subscribes to members only
// afterwards: while nobody is subscribed, NATS answers "no responders" at once, so a bridge that is
// alone need not wait.
type Members struct {
	p      *peering
	online chan struct{} // has an element when the bridge has connected
	asked  chan struct{} // has an element when there is no need to wait for more answers
	news   chan struct{} // has an element when the result of Rival may have changed

	strangers atomic.Bool // another bridge whose subjects overlap was heard, and not to be gone

	mu struct {
		sync.Mutex
		self    announcement
		members map[string]*member // those whose subjects overlap, by id
	}
}

// member is another bridge.
type member struct {
	announcement
	silent int // own announcements since it was last heard
}

const (
	membersSubject = Root + "members"
	// A bridge considers another one gone that stays silent for memberLife announcements.
	memberLife = 5
	// answerTime is how long a bridge waits for answers to one question.
	answerTime = 300 * time.Millisecond
	// All bridges that are not frozen announce themselves within strangersTime. A bridge that is
	// silent for silenceTime is considered gone.
	strangersTime = AnnounceEvery * 3 / 2
	silenceTime   = (memberLife + 1) * AnnounceEvery
	// maxMembers and maxAnnouncement, in bytes, limit the memory that others take. maxLocation, in
	// bytes, keeps announcements below that.
	maxMembers      = 4096
	maxAnnouncement = 16 << 10
	maxLocation     = 1024
)

func newMembers(p *peering) *Members {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}

	m := &Members{
		p:      p,
		online: make(chan struct{}, 1),
		asked:  make(chan struct{}, 1),
		news:   make(chan struct{}, 1),
	}
	m.mu.members = map[string]*member{}
	self := p.config.Self
	self.Location = self.Location[:min(len(self.Location), maxLocation)]
	m.mu.self = announcement{Self: self, Host: host, Process: os.Getpid(), State: Starting}
	return m
}

// Store returns the identity of the store, "" before Join.
func (m *Members) Store() string { return m.self().Store }

// Serving reports whether the bridge has entered Serving.
func (m *Members) Serving() bool { return m.self().State == Serving }

// News has an element when the result of Rival may have changed.
func (m *Members) News() <-chan struct{} { return m.news }

func (m *Members) self() announcement {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.self
}

// Enter changes the state of this bridge and announces it.
func (m *Members) Enter(s State) {
	m.mu.Lock()
	m.mu.self.State = s
	m.mu.Unlock()
	m.announce(membersSubject)
}

// Join asks which bridges there are, and returns ErrSubjectsTaken if this one must not serve. It
// waits for NATS. store is the identity of the store.
//
// It returns at once if NATS reports no responders, or if a serving bridge of the same realm
// answers. Otherwise some bridge may be busy or frozen. Then Join also listens to announcements:
// for strangersTime if it hears a bridge whose subjects overlap, for silenceTime if it hears none.
func (m *Members) Join(ctx context.Context, store string) error {
	m.mu.Lock()
	m.mu.self.Store = store
	m.mu.Unlock()

	inbox := membersSubject + "." + m.p.config.Self.ID
	if _, err := m.p.config.Conn().Subscribe(inbox, m.hear); err != nil {
		return fmt.Errorf("bridge: subscribe to %s: %w", inbox, err)
	}

	enough, listening := false, false
	for waited := time.Duration(0); !enough && waited < m.waitTime(); waited += answerTime {
		for reached := false; !reached; { // only time in which others could answer counts
			reached, enough = m.ask(ctx, inbox)
			if err := ctx.Err(); err != nil && !reached {
				return err
			}
		}

		if rival := m.Rival(); rival != "" {
			return fmt.Errorf("%w: %s", ErrSubjectsTaken, rival)
		}

		// Only now: while a bridge listens, NATS reports no missing responders.
		if !listening {
			if _, err := m.p.config.Conn().Subscribe(membersSubject, m.hear); err != nil {
				return fmt.Errorf("bridge: subscribe to %s: %w", membersSubject, err)
			}
			listening = true
		}
	}

	return nil
}

// waitTime is how long Join waits to hear from others.
func (m *Members) waitTime() time.Duration {
	if m.strangers.Load() {
		return strangersTime
	}
	return silenceTime
}

// ask asks which bridges there are and waits for answers. reached means that the question has
// reached NATS, and enough that there is no need to ask again.
func (m *Members) ask(ctx context.Context, inbox string) (reached, enough bool) {
	if !m.p.config.Online() {
		select {
		case <-m.online:
		case <-ctx.Done():
			return false, false
		}
	}

	select {
	case <-m.asked: // an answer to an earlier question
	default:
	}

	data, _ := json.Marshal(m.self()) // never returns an error for this type
	err := m.p.config.Conn().PublishRequest(membersSubject, inbox, data)
	if err == nil {
		err = m.p.config.Flush(ctx)
	}

	if err != nil {
		m.p.config.Warn("cannot ask for other bridges; trying again", "error", err)
		return false, false
	}

	select {
	case <-m.asked:
		return true, true
	case <-time.After(answerTime):
		return true, false
	case <-ctx.Done():
		return false, false
	}
}

// announce publishes the announcement of this bridge.
func (m *Members) announce(subject string) {
	a := m.self()
	a.Pulse = m.p.selfEcho.now()
	data, _ := json.Marshal(a) // never returns an error for this type
	m.p.publish(subject, data)
}

// hear handles announcements, and NATS's report that there are no responders.
func (m *Members) hear(msg *nats.Msg) {
	if wire.NoResponders(msg) {
		signal.To(m.asked)
		return
	}

	var a announcement
	if len(msg.Data) > maxAnnouncement || json.Unmarshal(msg.Data, &a) != nil ||
		subjects.ValidateQueueName(a.ID) != nil {
		return
	}

	if a.ID == m.p.config.Self.ID {
		if !m.p.config.Shared { // otherwise the heartbeats are more exact
			m.p.hear(a.Pulse)
		}
		return
	}

	unknown := m.enroll(a)
	switch {
	case strings.HasPrefix(msg.Reply, membersSubject+"."):
		m.announce(msg.Reply)
	case unknown: // it may not know this bridge either
		m.announce(membersSubject)
	}
}

// enroll remembers an announcement and reports whether it is from an unknown bridge.
func (m *Members) enroll(a announcement) (unknown bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.State == gone {
		delete(m.mu.members, a.ID)
		signal.To(m.news)
		return false
	}

	if !overlap(a.Subjects, m.mu.self.Subjects) {
		return false
	}

	m.strangers.Store(true)
	known := m.mu.members[a.ID]
	if known == nil && len(m.mu.members) >= maxMembers {
		return false
	}

	m.mu.members[a.ID] = &member{announcement: a}
	if a.State == Serving && a.realm() == m.mu.self.realm() {
		signal.To(m.asked) // that bridge has asked all others before
	}

	if known == nil || known.State != a.State {
		signal.To(m.news)
	}

	return known == nil
}

// Leave tells the other bridges that this one is gone.
func (m *Members) Leave() {
	if m.p.config.Conn() != nil {
		m.Enter(gone)
	}
}

// Beat announces this bridge and forgets others that have been silent for too long.
func (m *Members) Beat() {
	m.announce(membersSubject)

	m.mu.Lock()
	defer m.mu.Unlock()
	for id, other := range m.mu.members {
		if other.silent++; other.silent > memberLife {
			delete(m.mu.members, id)
		}
	}
}

// Rival says which bridge keeps this one from serving, why, and what to do; "" if none does.
func (m *Members) Rival() string {
	m.mu.Lock()
	defer m.mu.Unlock()

	// A realm has the rank of its best bridge, which may be another than this one.
	mine := &m.mu.self
	for _, other := range m.mu.members {
		if other.realm() == m.mu.self.realm() && other.outranks(mine) {
			mine = &other.announcement
		}
	}

	var rival *announcement
	for _, other := range m.mu.members {
		if other.realm() == mine.realm() || !other.outranks(mine) {
			continue
		}
		if rival == nil || other.outranks(rival) {
			rival = &other.announcement
		}
	}

	if rival == nil {
		return ""
	}
	return rival.explain(&m.mu.self)
}
