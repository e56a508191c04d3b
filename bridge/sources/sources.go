// Package sources draws messages from streams of NATS JetStream into queues, each exactly once.
//
// A queue with the setting source has a settings.SourceState in the store. The transaction that
// adds the items of a batch checks that the drawer knows the present state, and writes the next. So
// a batch that is repeated after an unknown outcome, or comes from a bridge that wrongly thinks it
// owns the queue, does nothing.
//
// A drawer works in sessions; run.go has its states. Each session begins with the stored state, a
// look at the stream, and a new consumer, which delivers what comes after the state's sequence and
// numbers that from 1 on. So a session notices when a delivery was lost on the way. It ends then,
// as with any other doubt. It passes over repeated deliveries. Messages are acknowledged once their
// items are durable.
//
// The bridge that owns a queue draws for it. It learns of sources from passes of the sweeper and
// from changes of settings, its own and its peers': see dispatch.Options.Source and
// peers.Router.SourceChanged. A source with nothing to draw costs the store nothing.
package sources

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/signal"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// Sources draws for all queues of a bridge. Its methods are safe for concurrent use.
type Sources struct {
	config Config
	slots  chan struct{} // an element for each that is drawn from

	mu      sync.Mutex
	ctx     context.Context // nil before Start and after its end
	store   string          // the start of its id
	drawers map[fdbpq.QueueName]*drawer
	running sync.WaitGroup
}

// New returns Sources, which draws once it has started.
func New(c Config) *Sources {
	drawers := map[fdbpq.QueueName]*drawer{}
	return &Sources{config: c, slots: make(chan struct{}, Max), drawers: drawers}
}

// Start begins to draw, so that Tell has an effect, until ctx ends. store is the id of the store,
// which must be open. The caller must call run, which returns when all goroutines have ended.
func (s *Sources) Start(ctx context.Context, store string) (run func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx, s.store = ctx, store[:min(len(store), 8)]
	return func() { s.run(ctx) }
}

func (s *Sources) run(ctx context.Context) {
	for left := maps.Clone(s.config.Configured); len(left) > 0 && ctx.Err() == nil; {
		for queue, source := range left {
			if err := s.configure(ctx, queue, source); err == nil {
				delete(left, queue)
			} else if ctx.Err() == nil {
				s.config.Warn("a source could not be set; trying again",
					"queue", queue.Name, "error", err)
			}
		}
		if len(left) > 0 {
			signal.Pause(ctx, maxPause)
		}
	}

	<-ctx.Done()

	s.mu.Lock()
	s.ctx = nil // no more begin
	s.mu.Unlock()
	s.running.Wait()
}

func (s *Sources) configure(ctx context.Context, queue fdbpq.QueueName, source string) error {
	q, err := s.config.Dispatcher.Queue(dispatch.KindOf(queue), queue.Name)
	if err != nil {
		return err
	}

	set := func(s *fdbpq.Settings) { s.Source = settings.WithStartOf(source, s.Source) }
	op := fdbpq.Op{Kind: fdbpq.OpConfigure, Configure: set}
	results, err := s.config.Dispatcher.Do(ctx, q, []fdbpq.Op{op})
	if err != nil {
		return err
	}

	return results[0].Err
}

// Tell says that a queue has a source or, if changed is true, that it may have another one or none.
func (s *Sources) Tell(queue fdbpq.QueueName, changed bool) {
	owns := s.config.Owns(dispatch.KindOf(queue), queue.Name)
	s.mu.Lock()
	defer s.mu.Unlock()

	// A drawer goes on as the source that it began with, so a change ends it.
	before := s.drawers[queue]
	if before != nil && (changed || !owns) {
		before.stop()
	}

	if s.ctx == nil || !owns {
		delete(s.drawers, queue)
		return
	}

	if before != nil && before.ctx.Err() == nil { // it draws, or waits for another attempt
		return
	}

	q, err := s.config.Dispatcher.Queue(dispatch.KindOf(queue), queue.Name)
	if err != nil { // no request can have that name
		s.config.Warn("a source cannot be drawn from", "queue", queue.Name, "error", err)
		return
	}

	// A queue has one drawer at a time.
	d := &drawer{config: &s.config, slots: s.slots, name: queue, queue: q}
	d.consumer = "pq_" + s.store + "_" + q.Kind.Short() + "_" + queue.Name
	d.ctx, d.stop = context.WithCancel(s.ctx)
	s.drawers[queue] = d
	d.ended.Go(func() {
		if before != nil {
			before.ended.Wait()
		}

		d.run()
	})

	s.running.Go(d.ended.Wait)
}

// Each calls f with the states of the sources that this bridge draws from, or would.
func (s *Sources) Each(f func(queue fdbpq.QueueName, state *settings.SourceState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, d := range s.drawers {
		if state := d.status.Load(); state != nil {
			f(name, state)
		}
	}
}

// Parse reads Config.Configured from a JSON object such as {"pq.orders":{"stream":"ORDERS"}}. The
// error says which member is wrong.
func Parse(g subjects.Grammar, object []byte) (map[fdbpq.QueueName]string, error) {
	var members map[string]json.RawMessage
	if err := strictjson.Unmarshal(object, &members); err != nil {
		return nil, fmt.Errorf(`%w, such as {"pq.orders":{"stream":"ORDERS"}}`, err)
	}

	configured := make(map[fdbpq.QueueName]string, len(members))
	for name, source := range members {
		r, err := g.Parse(name + "." + subjects.Config.String())
		if err != nil || r.Verb != subjects.Config {
			return nil, fmt.Errorf("%q: want a queue as in the subjects of its requests, such as "+
				"pq.orders", name)
		}
		s, err := settings.ParseSource(string(source))
		if err != nil || r.Kind == subjects.FIFO && s.Priority != nil {
			return nil, fmt.Errorf("%s: %w", name, cmp.Or(err, errFIFO))
		}
		var text bytes.Buffer
		_ = json.Compact(&text, source) // it is JSON
		configured[dispatch.NameOf(r.Kind, r.Queue)] = text.String()
	}

	return configured, nil
}

var errFIFO = errors.New("priority: a FIFO queue has none: leave it out")
