package jetstream

import (
	"errors"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
)

const (
	// ackDelay is how long acknowledgements that nobody waits for are collected, and enoughAcks of a queue
	// are not delayed.
	ackDelay   = time.Millisecond
	enoughAcks = 250
	// maxAcks is how many acknowledgements may wait or run, and maxAckRequests how many requests of them,
	// each with at most mostAcks. More are dropped: their items come again.
	maxAcks, maxAckRequests, mostAcks = 1 << 16, 1 << 12, 1000
	// One in ackShare of the requests that the dispatcher takes may be of acknowledgements.
	ackShare = 4
	// ackPause is before acknowledgements are tried again for which there was no room.
	ackPause = 20 * time.Millisecond
	// ackMemory estimates what an acknowledgement takes in memory.
	ackMemory = 512
)

// acks collects acknowledgements. Those that nobody waits for run with the next pull of their queue, with
// which they share a sync of the disk, or after a moment: a transaction for each of them would cost more
// than all the rest.
type acks struct {
	f  *Face
	mu sync.Mutex

	collected map[together]*settled
	alone     int           // those of other kinds so far
	requests  int           // that run
	most      int           // of them, so that there is room for other requests
	waiting   int           // acknowledgements that are collected or run
	delay     time.Duration // ackDelay, but in tests
}

// together is what runs in one request: all OpAcks of a queue, and each other operation alone.
type together struct {
	queue *dispatch.Queue
	alone int // its number; 0 for OpAcks
}

// settled is acknowledgements that run in one transaction, and the dispatch.Replier of that request: any
// number of OpAcks, or one of another kind, which the dispatcher would run again without them if there was
// no room for it. It confirms those whose clients ask for it, once they are durable. A client whose lease
// was lost hears nothing: nobody may take that for a yes.
type settled struct {
	acks    *acks
	key     together
	request dispatch.Request
	ops     []fdbpq.Op
	replies []string // the subjects, "" for none
	timer   *time.Timer
}

// add collects an acknowledgement, or runs it at once with those before it.
func (c *acks) add(q *dispatch.Queue, op *fdbpq.Op, reply string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := together{queue: q}
	if op.Kind != fdbpq.OpAck {
		c.alone++
		key.alone = c.alone
	}
	s := c.collected[key]
	if c.waiting >= maxAcks || s == nil && c.requests+len(c.collected) >= maxAckRequests || s != nil && len(s.ops) >= mostAcks {
		c.f.config.Counted(countedAck, true)
		return
	}

	c.waiting++
	if s == nil {
		s = &settled{acks: c, key: key}
		s.request = dispatch.Request{Queue: q, Replier: s, Received: time.Now()}
		s.timer = time.AfterFunc(c.delay, func() { c.run(key) })
		c.collected[key] = s
	}
	s.ops, s.replies = append(s.ops, *op), append(s.replies, reply)
	s.request.Size += ackMemory + len(op.Reason)
	if reply != "" || key.alone > 0 || len(s.ops) >= enoughAcks {
		c.runLocked(s)
	}
}

// run runs what is collected.
func (c *acks) run(key together) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.collected[key]; s != nil {
		c.runLocked(s)
	}
}

// runAll runs all that is collected. Nothing else needs the room any more.
func (c *acks) runAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.most = maxAckRequests
	for _, s := range c.collected {
		c.runLocked(s)
	}
}

// runLocked makes a request. If there is no room for it, it stays, and more may be collected.
func (c *acks) runLocked(s *settled) {
	err := dispatch.ErrOverloaded
	if c.requests < c.most {
		err = c.f.config.Dispatcher.Submit(&s.request, s.ops)
	}
	if errors.Is(err, dispatch.ErrOverloaded) && time.Since(s.request.Received) < c.f.config.RequestTimeout {
		s.timer.Reset(ackPause)
		return
	}

	s.timer.Stop()
	delete(c.collected, s.key)
	s.ops = nil // the dispatcher has copies
	c.requests++
	if err != nil {
		s.failLocked(err)
	}
}

// Answer implements dispatch.Replier.
func (s *settled) Answer(_ *dispatch.Request, _ []fdbpq.Op, results []fdbpq.Result) {
	s.acks.mu.Lock()
	defer s.acks.mu.Unlock()
	s.endLocked(results)
}

// Fail implements dispatch.Replier.
func (s *settled) Fail(_ *dispatch.Request, _ []fdbpq.Op, err error) {
	s.acks.mu.Lock()
	defer s.acks.mu.Unlock()
	s.failLocked(err)
}

func (s *settled) failLocked(err error) {
	s.acks.f.config.Warn("acknowledgements failed: their items will be delivered again", "count", len(s.replies), "error", err)
	s.endLocked(nil)
}

// endLocked counts what has ended, and confirms what succeeded.
func (s *settled) endLocked(results []fdbpq.Result) {
	s.acks.requests--
	s.acks.waiting -= len(s.replies)
	for i, reply := range s.replies {
		failed := results == nil || results[i].Err != nil
		s.acks.f.config.Counted(countedAck, failed)
		if reply != "" && !failed {
			s.acks.f.reply(reply, nil)
		}
	}
}

// giveUp ends the lease of an item that the consumer has had as often as it allows, as if the lease
// before had been the last.
func (f *Face) giveUp(q *dispatch.Queue, token *fdbpq.Token) {
	f.acks.add(q, &fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q.Target, Token: *token, Reason: fdbpq.ReasonMaxDeliver, Uncounted: true}, "")
}
