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
	r.loop(ctx, c.clients, func() worker { return &requestClient{nc: c.nc} })
}

// worker is one client in a goroutine of its own.
type worker interface {
	// do does one step and returns how many items it completed.
	do(step) (items int, err error)
	// end gives back what the client still has.
	end() error
}

// requestClient is one client of requestConn.
type requestClient struct {
	nc     *nats.Conn
	dialog dialog
	inbox  *nats.Subscription // for requests with several replies; nil before the first
}

func (c *requestClient) do(s step) (int, error) {
	for next := c.dialog.begin(s); ; {
		reply, err := c.await(next)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", s.subject, err)
		}
		t := c.dialog.reply(reply)
		if t.publish != "" {
			t.err = c.nc.Publish(t.publish, []byte(payloadAck))
		}
		if t.done || t.err != nil {
			return t.items, t.err
		}
		next = t.request
	}
}

// await sends the request, if there is one, and waits for a reply.
func (c *requestClient) await(r request) (*nats.Msg, error) {
	switch {
	case r.msgID != "":
		return c.nc.RequestMsg(r.message(""), grace)
	case !c.dialog.step.talk.several():
		return c.nc.Request(r.subject, r.payload, grace)
	}
	if c.inbox == nil {
		var err error
		if c.inbox, err = c.nc.SubscribeSync(c.nc.NewInbox()); err != nil {
			return nil, err
		}
	}
	if r.subject != "" {
		if err := c.nc.PublishRequest(r.subject, c.inbox.Subject, r.payload); err != nil {
			return nil, err
		}
	}
	return c.inbox.NextMsg(grace)
}

func (c *requestClient) end() error {
	if c.inbox != nil {
		if err := c.inbox.Unsubscribe(); err != nil {
			return err
		}
	}
	last := c.dialog.end()
	if last.subject == "" {
		return nil
	}
	reply, err := c.nc.Request(last.subject, last.payload, grace)
	if err != nil {
		return err
	}
	return replyError(reply)
}

// loop runs each client in a goroutine. Each does at least one step, however late it gets to
// run, so that there is something to measure.
func (r *loadRun) loop(ctx context.Context, clients int, newWorker func() worker) {
	var mu sync.Mutex
	out := newOutcome()
	var running sync.WaitGroup
	for range clients {
		running.Go(func() {
			c := newWorker()
			var now time.Duration
			for ctx.Err() == nil {
				s, more := r.next(now)
				if !more {
					break
				}
				sent := time.Since(r.start)
				items, err := c.do(s)
				now = time.Since(r.start)
				if r.good(err) {
					mu.Lock()
					out.note(items, sent, now)
					mu.Unlock()
				}
			}
			r.good(c.end())
		})
	}
	running.Wait()
	r.add(out)
}

// leanConn has no goroutines: its clients are rows of a table. The callback of its
// subscription notes the latency of a step and sends that client's next request, which
// costs a fraction of the processor time of requestConn.
type leanConn struct {
	nc     *nats.Conn
	prefix int // length of the common prefix of all reply subjects
	table  []leanClient

	// The rest belongs to one run.
	r      *loadRun
	out    outcome
	active atomic.Int64 // clients that wait for a reply
	done   chan struct{}
}

// leanClient is one client of leanConn.
type leanClient struct {
	inbox  string
	dialog dialog
	began  time.Duration // the current step
	ending bool          // it gives back what it has
}

func newLeanConn(nc *nats.Conn, clients int) (*leanConn, error) {
	inbox := nc.NewInbox() + "."
	c := &leanConn{nc: nc, prefix: len(inbox), table: make([]leanClient, clients)}
	for i := range c.table {
		c.table[i].inbox = inbox + strconv.Itoa(i)
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
	for i := range c.table {
		c.active.Add(1)
		c.next(&c.table[i], 0)
	}
	c.left()
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

// leave ends a client that has nothing more to do.
func (c *leanConn) leave(l *leanClient) {
	l.ending = false
	c.left()
}

func (c *leanConn) left() {
	if c.active.Add(-1) == 0 {
		close(c.done)
	}
}

// next begins the client's next step, or ends the client.
func (c *leanConn) next(l *leanClient, now time.Duration) {
	s, more := c.r.next(now)
	if more {
		l.began = time.Since(c.r.start)
		c.send(l, l.dialog.begin(s))
		return
	}
	last := l.dialog.end()
	if last.subject == "" {
		c.leave(l)
		return
	}
	l.ending = true
	c.send(l, last)
}

// send sends a request of the client.
func (c *leanConn) send(l *leanClient, r request) {
	if err := c.nc.PublishMsg(r.message(l.inbox)); err != nil {
		c.r.fail(err)
		c.leave(l)
	}
}

func (c *leanConn) onReply(m *nats.Msg) {
	i, err := strconv.Atoi(m.Subject[c.prefix:])
	if err != nil || i >= len(c.table) {
		return // not the reply subject of any client
	}
	l := &c.table[i]
	now := time.Since(c.r.start)
	if l.ending {
		c.r.good(replyError(m))
		c.leave(l)
		return
	}
	t := l.dialog.reply(m)
	if t.publish != "" {
		if err := c.nc.Publish(t.publish, []byte(payloadAck)); err != nil {
			t = failed(err)
		}
	}
	switch {
	case t.done:
		if c.r.good(t.err) {
			c.out.note(t.items, l.began, now)
		}
		c.next(l, now)
	case t.request.subject != "":
		c.send(l, t.request)
	}
}
