package jetstream

import (
	"container/list"
	"strconv"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
)

// newInterest is how long it may take to hear of the subscription of a client that is far away.
const newInterest = 2 * time.Second

// pull is a client's request for messages. It waits in the line of its consumer for places, asks the
// dispatcher for as many items as there are, sends what comes, and lines up again until it has all or
// its time is over. Each request of it ends with the first items that it gets, so pulls that wait take
// turns. It is the dispatch.Replier of its requests.
type pull struct {
	f        *Face
	account  *account
	consumer *consumer // as it was at its latest request

	inbox    string // that the client subscribes to
	gateway  string // the subject to use at first instead, if the pull came through a gateway
	hidden   bool   // nothing tells whether anybody subscribes to the inbox
	received time.Time

	until     time.Time
	noWait    bool
	limited   bool // by max_bytes
	heartbeat time.Duration

	// The lock of outstanding guards these. While it asks, wanted and bytes are for reading.
	wanted, bytes int
	hurries       bool          // it ends when there is nothing
	alone         bool          // the next item did not fit beside others
	heard         bool          // somebody subscribes to the inbox, or did
	place         *list.Element // in line; nil if it is not there
	asked         int           // places reserved for its request in the dispatcher; 0 if it has none
	waits         dispatch.WaitHandle
	leaving       *ending // what it ends with once its request has ended; nil if it goes on
	over          bool
	spoken        time.Time // when it sent something last
	timer         *time.Timer
}

// ending is the status that ends a pull, none if the code is 0.
type ending struct {
	code   int
	text   string
	counts bool // with what it did not get
}

var (
	// errShutdown ends pulls when the bridge stops. Clients pull again, from another one.
	errShutdown = &ending{code: 409, text: "Server Shutdown"}
	// leaderChanged ends pulls that clients are to begin again at once.
	leaderChanged = &ending{code: 409, text: "Leadership Change"}
	noMessages    = &ending{code: 404, text: "No Messages"}
	timeIsOver    = &ending{code: 408, text: "Request Timeout", counts: true}
	tooLarge      = &ending{code: 409, text: "Message Size Exceeds MaxBytes", counts: true}
	completed     = &ending{code: 409, text: "Batch Completed", counts: true}
)

// endingAfter is the end of a pull after an error. It is never 503, which clients take for "nobody
// is there" whatever its text, because the pull may have leased items.
func (f *Face) endingAfter(err error) *ending {
	code, text := f.config.ErrorText(err)
	if code == 503 {
		code = 409
	}
	return &ending{code: code, text: text}
}

// addressTo notes where the messages go.
func (p *pull) addressTo(reply string) {
	inbox, via := withoutGateway(reply)
	if p.inbox = inbox; via {
		p.gateway = reply
	}
	p.hidden = via || wire.Imported(inbox)
	p.heard = p.f.out.HasInterest(p.inbox)
}

// to is the subject to send to now.
func (p *pull) to(now time.Time) string {
	if p.gateway != "" && now.Sub(p.received) < newInterest {
		return p.gateway
	}
	return p.inbox
}

// unheard reports whether nobody was seen to subscribe to the inbox, although that would be seen.
func (p *pull) unheard() bool { return !p.hidden && !p.heard }

// deafLocked reports whether nobody would receive a message.
func (p *pull) deafLocked(now time.Time) bool {
	if p.hidden || p.f.out.HasInterest(p.inbox) {
		p.heard = true
		return false
	}
	return p.heard || now.Sub(p.received) > newInterest
}

// say sends the status that ends the pull.
func (p *pull) say(e *ending) {
	p.f.config.Counted(countedPull, e.code >= 400 && e.code != 404 && e.code != 408)
	if e.code == 0 {
		return
	}
	var pairs []string
	if e.counts {
		pairs = []string{"Nats-Pending-Messages", strconv.Itoa(p.wanted), "Nats-Pending-Bytes", strconv.Itoa(max(p.bytes, 0))}
	}
	m := leaf.Message{Subject: p.to(time.Now()), Header: statusHeader(e.code, e.text, pairs...)}
	if err := p.f.out.Publish(&m); err != nil {
		p.f.config.Warn("the status of a pull could not be sent", "status", e.text, "error", err)
	}
}

// noRoom is the end of a pull for which there is no room. Clients that expect heartbeats are not told,
// as with JetStream: they pull again when they miss those, and not at once.
func (p *pull) noRoom() *ending {
	if p.heartbeat > 0 {
		return &ending{}
	}
	return &ending{code: 409, text: "Exceeded MaxWaiting"}
}

// withoutGateway returns the inbox of a request, and whether it came through a gateway, which makes it
// "_GR_.<cluster>.<server>.<inbox>" for as long as it remembers that.
func withoutGateway(reply string) (inbox string, via bool) {
	if parts := strings.SplitN(reply, ".", 4); len(parts) == 4 && parts[0] == "_GR_" {
		return parts[3], true
	}
	return reply, false
}
