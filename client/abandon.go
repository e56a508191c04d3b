package client

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// lateLife is how long items are given back that a lease gets which was given up: about as long as most leases last.
const lateLife = 30 * time.Second

// abandon sees to a pop that was given up, though it may still get items. It ends the pop if that waits. If it leases, the items
// are given back as they come. If not, the inbox is closed for good: NATS tells the bridge that nobody is there, and the
// items go back to their places.
func (c *Client) abandon(p *pop, o subjects.PopOptions, inbox *inbox, left int) {
	c.cancel(p, o)
	if !p.leases && !o.Lease {
		inbox.discard()
		return
	}
	o.Batch, o.IdleHeartbeat, o.ID = left, 0, ""
	go func() {
		defer inbox.close()
		ctx, cancel := context.WithTimeout(context.Background(), lateLife)
		defer cancel()
		snooze := subjects.Ack{Kind: subjects.AckNak, Snooze: true}.Encode()
		// The error does not matter: it says that nothing more comes.
		_ = c.receiveItems(ctx, &nats.Msg{Subject: p.subject}, inbox, o, p, func(m *nats.Msg) error {
			_ = c.nc.Publish(m.Reply, snooze) // otherwise it comes back when the lease is over
			return nil
		})
	}()
}

// cancel has the bridge end a pop that waits. It does not wait for that.
func (c *Client) cancel(p *pop, o subjects.PopOptions) {
	if o.ID == "" {
		return
	}
	// The answer says nothing, so nobody listens to it. If the cancel is lost, the pop ends as without it.
	_ = c.nc.PublishMsg(&nats.Msg{Subject: p.pops, Reply: c.nc.NewInbox(), Data: subjects.PopOptions{Cancel: o.ID}.Encode()})
}
