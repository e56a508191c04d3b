package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// ErrSubjectsTaken is what Run returns if another bridge serves the same
// subjects from another store, or in another queue group.
var ErrSubjectsTaken = errors.New("bridge: another pqbridge serves the same subjects")

// membership tells all bridges that a NATS carries about each other, whatever
// store or queue group they have. NATS would give each request to any bridge of
// a queue group, and to one of each group; so bridges that serve the same
// subjects must have the same store and the same group, or items seem to be
// lost, and requests are run twice.
//
// A bridge that starts asks who is there before it serves, and does not begin if
// it may not. Of two that find each other later, because both started in one
// moment or because their networks were joined, one stops serving until the
// other is gone. Both know from the same facts which: see outranks.
//
// On the subject members each bridge announces itself from time to time. One that
// asks gives the reply subject members.<its id>, on which the others answer; it
// does not subscribe to members before that, so if it is alone NATS says at
// once that there are no responders, and it does not wait: see join.
type membership struct {
	b      *Bridge
	online chan struct{} // has an element when the bridge has been connected
	asked  chan struct{} // has an element when no more answers have to be waited for
	news   chan struct{} // has an element when something changed that rival depends on

	strangers atomic.Bool // any other bridge has been heard

	mu struct {
		sync.Mutex
		self    announcement
		members map[string]*member // those whose subjects overlap, by id
	}
}

// announcement is what a bridge tells all others on its NATS.
type announcement struct {
	ID        string    `json:"id"`
	Store     string    `json:"store"` // identity, see fdbpq.OpenStore
	Group     string    `json:"group"`
	Subjects  []string  `json:"subjects"`            // wildcards
	Exclusive bool      `json:"exclusive,omitempty"` // the store is that of one process
	Host      string    `json:"host"`
	Process   int       `json:"process"`
	Location  string    `json:"location"` // of the store, for people
	Started   time.Time `json:"started"`
	State     state     `json:"state"`
}

// state of a bridge among those that serve its subjects.
type state string

const (
	stateStarting state = "starting"
	stateServing  state = "serving"
	stateWaiting  state = "waiting" // for another one to go
	stateGone     state = "gone"
)

func (s state) rank() int {
	return slices.Index([]state{stateWaiting, stateStarting, stateServing}, s)
}

// member is another bridge.
type member struct {
	announcement
	silent int // own announcements since it was heard
}

const (
	membersSubject = internalRoot + "members"
	// announceEvery is how often a bridge announces itself, and memberLife for
	// how many of its own announcements it believes another one to be there.
	announceEvery = time.Second
	memberLife    = 5
	// answerTime is how long one question waits for answers.
	answerTime = 300 * time.Millisecond
	// strangersTime is how long it takes until all that announce themselves have
	// been heard, and silenceTime how long a bridge may be silent until it counts
	// as gone.
	strangersTime = announceEvery * 3 / 2
	silenceTime   = (memberLife + 1) * announceEvery
	// maxMembers and maxAnnouncement bound what is remembered of others, and
	// maxLocation, in bytes, keeps an announcement below it.
	maxMembers      = 4096
	maxAnnouncement = 16 << 10
	maxLocation     = 1024
)

func newMembership(b *Bridge) *membership {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	m := &membership{b: b, online: make(chan struct{}, 1), asked: make(chan struct{}, 1), news: make(chan struct{}, 1)}
	m.mu.members = map[string]*member{}
	m.mu.self = announcement{
		ID:        b.id,
		Group:     b.options.QueueGroup,
		Subjects:  b.grammar.Wildcards(),
		Exclusive: b.options.Exclusive,
		Host:      host,
		Process:   os.Getpid(),
		Location:  b.options.Location[:min(len(b.options.Location), maxLocation)],
		Started:   b.created,
		State:     stateStarting,
	}
	return m
}

func (m *membership) self() announcement {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.self
}

// enter changes what others are told from now on, and tells them.
func (m *membership) enter(s state) {
	m.mu.Lock()
	m.mu.self.State = s
	m.mu.Unlock()
	m.announce(membersSubject)
}

// join asks who is there, and returns ErrSubjectsTaken if this bridge must not
// serve. It waits for NATS. store is the identity of the store.
//
// It is over at once if NATS says that nobody listens, or if a bridge answers that
// this one belongs to. Otherwise somebody is there, who may be busy or frozen: what
// others announce by themselves is heard too, for strangersTime if anybody is heard
// and for silenceTime if nobody is.
func (m *membership) join(ctx context.Context, store string) error {
	m.mu.Lock()
	m.mu.self.Store = store
	m.mu.Unlock()
	inbox := membersSubject + "." + m.b.id
	if _, err := m.b.nc.Subscribe(inbox, m.hear); err != nil {
		return fmt.Errorf("bridge: subscribe to %s: %w", inbox, err)
	}
	settled, listening := false, false
	for waited := time.Duration(0); !settled && waited < m.patience(); waited += answerTime {
		for {
			var reached bool
			if reached, settled = m.ask(ctx, inbox); reached {
				break
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		if rival := m.rival(); rival != nil {
			return fmt.Errorf("%w: %s", ErrSubjectsTaken, m.explain(rival))
		}
		if !listening { // not before, or NATS would never say that nobody listens
			if _, err := m.b.nc.Subscribe(membersSubject, m.hear); err != nil {
				return fmt.Errorf("bridge: subscribe to %s: %w", membersSubject, err)
			}
			listening = true
		}
	}
	return nil
}

// patience is how long to wait for what others say.
func (m *membership) patience() time.Duration {
	if m.strangers.Load() {
		return strangersTime
	}
	return silenceTime
}

// ask asks who is there and waits for the answers. The question may not have reached
// NATS. settled means that there is nobody else to wait for.
func (m *membership) ask(ctx context.Context, inbox string) (reached, settled bool) {
	if !m.b.online.Load() {
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
	data, err := json.Marshal(m.self())
	if err == nil {
		err = m.b.nc.PublishRequest(membersSubject, inbox, data)
	}
	if err == nil {
		err = m.b.flush(ctx)
	}
	if err != nil {
		m.b.quiet.nats.warn("cannot ask which other bridges there are; trying again", "error", err)
		return false, false
	}
	enough := time.NewTimer(answerTime)
	defer enough.Stop()
	select {
	case <-m.asked:
		return true, true
	case <-enough.C:
		return true, false
	case <-ctx.Done():
		return false, false
	}
}

// announce tells what this bridge is.
func (m *membership) announce(subject string) {
	if m.b.muted.Load() || m.b.nc.IsClosed() {
		return
	}
	data, err := json.Marshal(m.self())
	if err == nil {
		err = m.b.nc.Publish(subject, data)
	}
	if err != nil {
		m.b.quiet.nats.warn("cannot tell other bridges that this one is there", "error", err)
	}
}

// hear takes what a bridge says of itself, or NATS's word that nobody is there.
func (m *membership) hear(msg *nats.Msg) {
	if len(msg.Data) == 0 && msg.Header.Get("Status") == "503" {
		signal(m.asked)
		return
	}
	var a announcement
	if len(msg.Data) > maxAnnouncement || json.Unmarshal(msg.Data, &a) != nil ||
		subjects.ValidateQueueName(a.ID) != nil || a.ID == m.b.id {
		return
	}
	m.strangers.Store(true)
	unknown := m.enroll(a)
	switch {
	case strings.HasPrefix(msg.Reply, membersSubject+"."):
		m.announce(msg.Reply)
	case unknown: // it may not have heard this one either
		m.announce(membersSubject)
	}
}

// enroll remembers what a bridge said, and returns whether it is a new one.
func (m *membership) enroll(a announcement) (unknown bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.mu.members[a.ID]
	if a.State == stateGone {
		delete(m.mu.members, a.ID)
		signal(m.news)
		return false
	}
	if !overlap(a.Subjects, m.mu.self.Subjects) || known == nil && len(m.mu.members) >= maxMembers {
		return false
	}
	m.mu.members[a.ID] = &member{announcement: a}
	if a.State == stateServing && a.realm() == m.mu.self.realm() {
		signal(m.asked) // it has asked already
	}
	if known == nil || known.State != a.State {
		signal(m.news)
	}
	return known == nil
}

// leave tells the others that this bridge is gone.
func (m *membership) leave() {
	if m.b.nc != nil {
		m.enter(stateGone)
	}
}

// beat announces this bridge, and forgets those that were not heard for a while.
func (m *membership) beat() {
	m.announce(membersSubject)
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, other := range m.mu.members {
		if other.silent++; other.silent > memberLife {
			delete(m.mu.members, id)
		}
	}
}

// rival returns a bridge that is there and keeps this one from serving, nil if
// there is none.
func (m *membership) rival() *announcement {
	m.mu.Lock()
	defer m.mu.Unlock()
	mine := &m.mu.self
	for _, other := range m.mu.members {
		if other.realm() == m.mu.self.realm() && other.outranks(mine) {
			mine = &other.announcement
		}
	}
	var rival *announcement
	for _, other := range m.mu.members {
		if other.realm() != mine.realm() && other.outranks(mine) && (rival == nil || other.outranks(rival)) {
			rival = &other.announcement
		}
	}
	if rival == nil {
		return nil
	}
	found := *rival
	return &found
}

// realm is what bridges must have in common to serve the same subjects. A store
// that only one bridge can have is a copy if another one has it too.
func (a *announcement) realm() string {
	owner := ""
	if a.Exclusive {
		owner = a.ID // two containers can have the same host name and process id
	}
	return strings.Join(append(slices.Clone(a.Subjects), a.Store, a.Group, owner), " ")
}

// outranks reports whether a may serve if only one of the two can: the one that
// serves already, else one that starts, which may be what somebody restarted; and of
// two alike the one that was there first. A realm has the rank of its best bridge.
func (a *announcement) outranks(b *announcement) bool {
	if x, y := a.State.rank(), b.State.rank(); x != y {
		return x > y
	}
	if !a.Started.Equal(b.Started) {
		return a.Started.Before(b.Started)
	}
	return a.ID < b.ID
}

// overlap reports whether there is a subject that two lists of wildcards, of the
// form "a.b.>", have in common.
func overlap(these, those []string) bool {
	for _, this := range these {
		for _, that := range those {
			this, that := strings.TrimSuffix(this, ">"), strings.TrimSuffix(that, ">")
			if strings.HasPrefix(this, that) || strings.HasPrefix(that, this) {
				return true
			}
		}
	}
	return false
}

// explain says what is wrong about another bridge, and what to do.
func (m *membership) explain(rival *announcement) string {
	self := m.self()
	var wrong, remedy string
	switch {
	case rival.Store != self.Store:
		wrong = "it has another store, so each would have a part of the items"
		remedy = "stop one of them, give them different subject prefixes, or let them share one FoundationDB"
	case rival.Group != self.Group:
		wrong = "it is in another queue group, so each request would be run twice"
		remedy = "stop one of them, or give them the same queue group"
	case !slices.Equal(rival.Subjects, self.Subjects):
		wrong = "its subject prefixes are others, so requests would reach a bridge that does not know them"
		remedy = "stop one of them, or give them the same subject prefixes"
	default:
		wrong = "its store is a copy of this one's, so each item is in both"
		remedy = "stop one of them, or give them different subject prefixes"
	}
	return fmt.Sprintf("%s. It is %s. This one is %s. To solve this %s", wrong, rival.describe(), self.describe(), remedy)
}

// describe says who and where a bridge is.
func (a *announcement) describe() string {
	location := ""
	if a.Location != "" {
		location = fmt.Sprintf(", store %.300q", a.Location)
	}
	return fmt.Sprintf("host %.100q, process %d%s, queue group %.100q, subjects %.200q, id %s",
		a.Host, a.Process, location, a.Group, strings.Join(a.Subjects, " "), a.ID)
}
