package bench

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// requestConn has a goroutine for each client, which uses the connection's
// Request, as programs do.
type requestConn struct {
	nc      *nats.Conn
	clients int
}

func (c *requestConn) close() { c.nc.Close() }

func (c *requestConn) run(ctx context.Context, r *loadRun) {
	r.loop(ctx, c.clients, func(s step) bool {
		reply, err := c.nc.Request(s.subject, s.payload, grace)
		if err != nil {
			r.fail(fmt.Errorf("%s: %w", s.subject, err))
			return false
		}
		return r.replied(reply)
	})
}

// loop runs clients in goroutines of their own. The function do makes one
// request and reports if the answer was good. Each client makes one at least,
// however late it comes to it, so that something is measured.
func (r *loadRun) loop(ctx context.Context, clients int, do func(step) bool) {
	var mu sync.Mutex
	out := newOutcome()
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			var now time.Duration
			for ctx.Err() == nil {
				s, more := r.next(now)
				if !more {
					return
				}
				sent := time.Since(r.start)
				good := do(s)
				now = time.Since(r.start)
				if good {
					mu.Lock()
					out.note(sent, now)
					mu.Unlock()
				}
			}
		})
	}
	running.Wait()
	r.add(out)
}

// leanConn has no goroutines: its clients are places in a table. The callback
// of its subscription notes the latency of a reply and sends that client's
// next request, which takes a fraction of the processor time of requestConn.
type leanConn struct {
	nc      *nats.Conn
	prefix  int      // length of the part of a reply subject that all clients share
	replies []string // reply subject by client
	sentAt  []time.Duration

	// Those below belong to one run.
	r      *loadRun
	out    outcome
	active atomic.Int64 // clients that have a reply to come
	done   chan struct{}
}

func newLeanConn(nc *nats.Conn, clients int) (*leanConn, error) {
	inbox := nc.NewInbox() + "."
	c := &leanConn{nc: nc, prefix: len(inbox), sentAt: make([]time.Duration, clients)}
	for i := range clients {
		c.replies = append(c.replies, inbox+strconv.Itoa(i))
	}
	if _, err := nc.Subscribe(inbox+"*", c.onReply); err != nil {
		return nil, err
	}
	return c, nc.Flush()
}

func (c *leanConn) close() { c.nc.Close() }

func (c *leanConn) run(ctx context.Context, r *loadRun) {
	c.r, c.out, c.done = r, newOutcome(), make(chan struct{})
	c.active.Store(1) // this function, until all clients have begun
	for client := range c.replies {
		c.active.Add(1)
		c.send(client, 0)
	}
	c.leave()
	ticker := time.NewTicker(grace)
	defer ticker.Stop()
	for last := int64(-1); ; {
		select {
		case <-c.done:
			r.add(c.out)
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
			started := r.started.Load()
			if started == last {
				r.fail(fmt.Errorf("%s: no reply within %v", r.steps[0].subject, grace))
				return
			}
			last = started
		}
	}
}

// leave is called when a client has no further request to send.
func (c *leanConn) leave() {
	if c.active.Add(-1) == 0 {
		close(c.done)
	}
}

// send sends the next request in the name of client, or ends that client.
func (c *leanConn) send(client int, now time.Duration) {
	s, more := c.r.next(now)
	if !more {
		c.leave()
		return
	}
	c.sentAt[client] = time.Since(c.r.start)
	if err := c.nc.PublishRequest(s.subject, c.replies[client], s.payload); err != nil {
		c.r.fail(err)
		c.leave()
	}
}

func (c *leanConn) onReply(m *nats.Msg) {
	client, err := strconv.Atoi(m.Subject[c.prefix:])
	if err != nil || client >= len(c.replies) {
		return // not a subject that was given to anyone
	}
	now := time.Since(c.r.start)
	if c.r.replied(m) {
		c.out.note(c.sentAt[client], now)
	}
	c.send(client, now)
}
