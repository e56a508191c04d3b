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

// requestConn has a goroutine per client, which calls the connection's Request as an
// ordinary program does.
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

// loop runs each client in a goroutine. do makes one request and reports whether the
// reply was good. Each client makes at least one, however late it gets to run, so that
// there is something to measure.
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

// leanConn has no goroutines: its clients are rows of a table. The callback of its
// subscription notes the latency of a reply and sends that client's next request, which
// costs a fraction of the processor time of requestConn.
type leanConn struct {
	nc      *nats.Conn
	prefix  int      // length of the common prefix of all reply subjects
	replies []string // reply subject by client
	sentAt  []time.Duration

	// The rest belongs to one run.
	r      *loadRun
	out    outcome
	active atomic.Int64 // clients that wait for a reply
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

// leave ends a client that has no more requests to send.
func (c *leanConn) leave() {
	if c.active.Add(-1) == 0 {
		close(c.done)
	}
}

// send sends the client's next request, or ends the client.
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
		return // not the reply subject of any client
	}
	now := time.Since(c.r.start)
	if c.r.replied(m) {
		c.out.note(c.sentAt[client], now)
	}
	c.send(client, now)
}
