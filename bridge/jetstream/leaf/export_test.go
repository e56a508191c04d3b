package leaf

import (
	"cmp"
	"context"
	"net"
	"time"
)

// Limits are the limits that tests change; 0 is as usual.
type Limits struct {
	Pending            int
	Login, Write, Ping time.Duration
	Dial               func(ctx context.Context, address string) (net.Conn, error)
}

// Limit sets limits before Run.
func (c *Conn) Limit(l Limits) {
	c.limits.minPause = 5 * time.Millisecond
	c.limits.pending = cmp.Or(l.Pending, c.limits.pending)
	c.limits.login = cmp.Or(l.Login, c.limits.login)
	c.limits.write = cmp.Or(l.Write, c.limits.write)
	c.limits.ping = cmp.Or(l.Ping, c.limits.ping)

	if l.Dial != nil {
		c.dial = l.Dial
	}
}

// MaxPayload returns the limit for header and payload together, 0 while offline.
func (c *Conn) MaxPayload() int {
	if online := c.online.Load(); online != nil {
		return online.parser.maxPayload
	}
	return 0
}
