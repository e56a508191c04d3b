// Package peers knows the other bridges on the same NATS: which of them may serve, see Members, and
// which of them runs the pops of a queue, see Router. On this depends how much work is wasted, and
// how soon a pop that waits gets its item, but never whether an item is lost or served twice.
package peers

import (
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/internal/signal"
)

// Peers are the other bridges on the same NATS.
type Peers struct {
	*peering
	Members *Members
	Router  *Router
}

// New returns Peers that neither say nor hear anything before Members.Join and Router.Join.
func New(c Config) *Peers {
	p := &peering{config: c, selfEcho: newSelfEcho(c.Shared)}
	return &Peers{peering: p, Members: newMembers(p), Router: newRouter(p)}
}

// Connected notes that there is a new connection.
func (p *Peers) Connected() {
	p.muted.Store(false)
	signal.To(p.Members.online)
	p.Router.bell.wakeAll() // items may have come without a ring
	p.config.LookAll()      // and jobs may have ended without a tell
	p.config.OwnersChanged()
}

// Disconnected notes that the connection is lost. What the next one delivers does not come after
// what this bridge has heard so far.
func (p *Peers) Disconnected(nc *nats.Conn) { p.noteEcho(nc, time.Time{}) }

// Mute records that NATS does not permit messages between bridges. Until Connected, this bridge
// acts as if it were alone.
func (p *Peers) Mute() {
	p.muted.Store(true)
	signal.To(p.Members.asked)
}
