// Package sources draws messages from streams of NATS JetStream into queues, each exactly once.
//
// A queue with the setting source has a state, settings.SourceState, with the sequence of the last
// message that was drawn. The transaction that adds the items of a batch also checks that the state
// is still the one that whoever draws knows, and writes the next. So a batch that is repeated after
// an unknown outcome, and one of a bridge that wrongly thinks it owns the queue, does nothing.
//
// # Sessions
//
// A drawer works in sessions. Each begins with the stored state, a look at the stream, and a new
// consumer that delivers what comes after the state's sequence. A new consumer numbers its
// deliveries from 1 on, so a session sees whether any was lost on the way, and ends then, as it does
// with any other doubt: a lost connection, a consumer that somebody removed, a state that somebody
// changed. Within a session messages come in the order of the stream. What is delivered again is
// passed over. Messages are acknowledged when their items are durable.
//
// A stream with limits keeps its messages whatever consumers do. In a work-queue stream they stay
// until they are acknowledged, so a new consumer gets all that were not; in both, the old consumer
// is removed first. A stream with interest drops what no consumer wants, so there the old consumer,
// which has another name, is removed once the new one is there.
//
// # Owners
//
// The bridge that owns a queue draws for it, and learns of sources from the sweeper's passes and
// from changes of settings: see dispatch.Options.Source. With nothing to draw, nothing runs but a
// pull request at the NATS server.
package sources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

// Max is how many sources a bridge draws from at a time. Others wait.
const Max = 100

// Config is what Sources needs of the bridge.
type Config struct {
	Dispatcher *dispatch.Dispatcher
	// Conn returns the connection to NATS.
	Conn func() *nats.Conn
	// Owns reports whether this bridge draws for the queue.
	Owns func(kind subjects.Kind, name string) bool
	// Configured has sources that queues are given at the start, as settings.Settings.Source has them.
	Configured map[fdbpq.QueueName]string
	// Warn logs a problem. It may drop some.
	Warn func(message string, args ...any)
}

// Sources draws for all queues of a bridge. Its methods are safe for concurrent use.
type Sources struct {
	config Config
	slots  chan struct{} // an element for each that is drawn from

	mu      sync.Mutex
	ctx     context.Context // nil before Run
	store   string          // the id of the store, or the start of it
	drawers map[fdbpq.QueueName]*drawer
	running sync.WaitGroup
}

// New returns Sources, which draws once it runs.
func New(c Config) *Sources {
	return &Sources{config: c, slots: make(chan struct{}, Max), drawers: map[fdbpq.QueueName]*drawer{}}
}

// Run draws until ctx ends. The store, which has this id, must be open.
func (s *Sources) Run(ctx context.Context, store string) {
	s.mu.Lock()
	s.ctx, s.store = ctx, store[:min(len(store), 8)]
	s.mu.Unlock()

	for queue, source := range s.config.Configured {
		s.configure(ctx, queue, source)
	}
	<-ctx.Done()

	s.mu.Lock()
	s.ctx = nil // no more begin
	s.mu.Unlock()
	s.running.Wait()
}

// configure gives a queue its source, unless it has it.
func (s *Sources) configure(ctx context.Context, queue fdbpq.QueueName, source string) {
	for pause := minPause; ctx.Err() == nil; pause = nextPause(pause) {
		q, err := s.queue(queue)
		if err == nil {
			var results []fdbpq.Result
			set := func(s *fdbpq.Settings) { s.Source = source }
			results, err = s.config.Dispatcher.Do(ctx, q, []fdbpq.Op{{Kind: fdbpq.OpConfigure, Configure: set}})
			if err == nil {
				err = results[0].Err
			}
		}
		if err == nil {
			return
		}
		s.config.Warn("the source of a queue could not be set; trying again", "queue", queue.Name, "error", err)
		wait(ctx, nil, pause)
	}
}

// Tell says that a queue has a source or, if changed is true, that it may have another one or none.
func (s *Sources) Tell(queue fdbpq.QueueName, changed bool) {
	owns := s.config.Owns(kindOf(queue), queue.Name)
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.drawers[queue]
	switch {
	case d != nil && !owns:
		d.stop()
	case d != nil && changed:
		d.wake()
	case d == nil && owns && s.ctx != nil:
		q, err := s.queue(queue)
		if err != nil { // no request can have that name
			s.config.Warn("a source cannot be drawn from", "queue", queue.Name, "error", err)
			return
		}
		d = &drawer{s: s, name: queue, queue: q, consumer: consumerName(s.store, queue), woken: make(chan struct{}, 1)}
		ctx, stop := context.WithCancel(s.ctx)
		d.stop = stop
		s.drawers[queue] = d
		s.running.Go(func() { d.run(ctx) })
	}
}

// ended takes a drawer off the list, unless it was told something meanwhile.
func (s *Sources) ended(ctx context.Context, d *drawer) bool {
	s.mu.Lock()
	if ctx.Err() == nil && len(d.woken) > 0 {
		s.mu.Unlock()
		return false
	}
	delete(s.drawers, d.name)
	s.mu.Unlock()

	if ctx.Err() != nil {
		s.Tell(d.name, false) // this bridge may own the queue again
	}
	return true
}

// Each calls f with the state of each source that this bridge draws from, or would.
func (s *Sources) Each(f func(queue fdbpq.QueueName, state settings.SourceState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, d := range s.drawers {
		if state := d.known.Load(); state != nil {
			f(name, *state)
		}
	}
}

func (s *Sources) queue(name fdbpq.QueueName) (*dispatch.Queue, error) {
	return s.config.Dispatcher.Queue(kindOf(name), name.Name)
}

func kindOf(queue fdbpq.QueueName) subjects.Kind {
	if queue.FIFO {
		return subjects.FIFO
	}
	return subjects.Priority
}

// Pauses before another attempt.
const (
	minPause = 100 * time.Millisecond
	maxPause = 10 * time.Second
)

func nextPause(pause time.Duration) time.Duration { return min(2*pause, maxPause) }

// wait waits until the pause is over, ctx ends or woken has an element.
func wait(ctx context.Context, woken <-chan struct{}, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-woken:
	case <-timer.C:
	}
}

// Parse reads what Config.Configured has from an object such as {"pq.orders":{"stream":"ORDERS"}},
// with queues named as in their subjects. It refuses what the setting source refuses.
func Parse(g subjects.Grammar, object []byte) (map[fdbpq.QueueName]string, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return nil, fmt.Errorf(`%w: want an object such as {"pq.orders":{"stream":"ORDERS"}}`, err)
	}

	sources := make(map[fdbpq.QueueName]string, len(members))
	for name, source := range members {
		r, err := g.Parse(name + "." + subjects.Config.String())
		if err != nil || r.Verb != subjects.Config {
			return nil, fmt.Errorf("%q is not a queue: want the start of its subjects, such as pq.orders: %w", name, err)
		}
		s, err := settings.ParseSource(string(source))
		if err == nil && r.Kind == subjects.FIFO && s.Priority != nil {
			err = errors.New("priority: a FIFO queue has no priorities: want none")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		text, _ := json.Marshal(&s) // never returns an error for this type
		sources[fdbpq.QueueName{FIFO: r.Kind == subjects.FIFO, Name: r.Queue}] = string(text)
	}
	return sources, nil
}
