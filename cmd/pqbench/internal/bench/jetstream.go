package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/process"
)

const (
	leastItems = 100 // that a turn consumes
	// consumers is the most that share a queue, each with a connection of its own.
	consumers = 8
	// idleTime is before each step of a row that measures latency: nothing else is under way then.
	idleTime = 2 * time.Millisecond
	// fillItems are pushed before their answers are awaited. JetStream's client refuses more than 4,000.
	fillItems = 1000
	// stuckTime is how long an item, or the last acknowledgement, may take; a turn may take twice that.
	stuckTime = time.Minute
)

// workQueue is a queue that clients use through package jetstream of nats.go: one of the service, or
// a stream of the NATS server's own JetStream.
type workQueue struct {
	name            string // in the table
	stream, subject string
	domain          string // "" is the server's own
	storage         jetstream.StorageType
	who             user
	value           []byte
	js              jetstream.JetStream  // to push with
	all             []jetstream.Consumer // the same one, over a connection each
}

// jetStreamConfiguration writes that of a NATS server with a port for leaf nodes and a JetStream that syncs what
// it stores in files, as the service does.
func (r *rig) jetStreamConfiguration() (file string, err error) {
	if r.leaf, err = process.FreeAddress(); err != nil {
		return "", err
	}
	file = filepath.Join(r.dir, "nats.conf")
	text := fmt.Sprintf("leafnodes {listen: %q}\njetstream {store_dir: %q, sync_interval: always}\n", r.leaf, filepath.Join(r.dir, "jetstream"))
	return file, os.WriteFile(file, []byte(text), 0o644)
}

// jetStream compares programs that consume from the service as from JetStream with the same programs
// on work queues of JetStream itself. All use one NATS server, and take turns.
func (r *rig) jetStream(ctx context.Context, report *Report) (err error) {
	s, err := r.startService(ctx, "")
	if err != nil {
		return err
	}
	defer s.end(&err)

	conns := make([]*nats.Conn, consumers)
	for i := range conns {
		if conns[i], err = r.connect(ctx); err != nil {
			return err
		}
	}

	queues := []*workQueue{
		{name: serviceName, stream: queueName, subject: s.subject(queueName, "push"), domain: s.prefix, who: s.Process},
		{name: "memory", stream: "memory", subject: "memory", storage: jetstream.MemoryStorage},
		{name: "file", stream: "file", subject: "file"},
	}
	for _, q := range queues {
		q.value = newValue(r.Payload)
		if err := q.open(ctx, conns); err != nil {
			return fmt.Errorf("%s: %w", q.name, err)
		}
	}

	rows := r.jetStreamRows(queues)
	if err = r.takeTurns(ctx, rows, r.rounds); err == nil {
		report.addJetStreamRows(rows, len(queues))
	}
	return err
}

// open creates the stream and its consumer, and binds each connection to that.
func (q *workQueue) open(ctx context.Context, conns []*nats.Conn) error {
	for _, nc := range conns {
		js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(stuckTime))
		if q.domain != "" {
			js, err = jetstream.NewWithDomain(nc, q.domain, jetstream.WithDefaultTimeout(stuckTime))
		}
		if err != nil {
			return err
		}
		q.js = js
		if _, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: q.stream, Subjects: []string{q.subject}, Retention: jetstream.WorkQueuePolicy, Storage: q.storage,
		}); err != nil {
			return err
		}
		c, err := js.CreateOrUpdateConsumer(ctx, q.stream, jetstream.ConsumerConfig{
			Durable: "workers", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 2 * leaseTime, MaxAckPending: -1,
		})
		if err != nil {
			return err
		}
		q.all = append(q.all, c)
	}
	return nil
}

// fill pushes n items. It measures nothing.
func (q *workQueue) fill(ctx context.Context, n int) error {
	for ; n > 0; n -= fillItems {
		var pushed []jetstream.PubAckFuture
		for range min(n, fillItems) {
			future, err := q.js.PublishAsync(q.subject, q.value)
			if err != nil {
				return err
			}
			pushed = append(pushed, future)
		}

		for _, future := range pushed {
			select {
			case <-future.Ok():
			case err := <-future.Err():
				return fmt.Errorf("filling %s: %w", q.name, err)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}

// jetStreamRows returns the echo and the rows to measure, each of all queues.
func (r *rig) jetStreamRows(queues []*workQueue) []*row {
	part := func(context.Context) (limit, error) { return r.part(), nil }
	rows := []*row{{name: rowEcho, load: r.asking(newValue(r.Payload), EchoSubject), who: r.echo, prepare: part}}
	add := func(name string, newLoad func(q *workQueue) load) {
		for _, q := range queues {
			if r.chosen(name) {
				rows = append(rows, &row{name: name, queue: q.name, load: newLoad(q), who: q.who, prepare: part})
			}
		}
	}

	for _, prefetch := range []int{1, 10, 500} {
		for _, n := range []int{1, consumers} {
			add(fmt.Sprintf("consumers %d, prefetch %d", n, prefetch), func(q *workQueue) load { return &consuming{q, n, prefetch} })
		}
	}
	// A turn of these consumes what was there before: as many items as take its time, as far as is known.
	for _, w := range rows[1:] {
		w.prepare = func(ctx context.Context) (limit, error) {
			n := max(int(w.out.rate()*r.part().duration.Seconds()), leastItems)
			return limit{steps: n}, w.load.(*consuming).queue.fill(ctx, n)
		}
	}

	add("idle, push to a pull that waits", func(q *workQueue) load { return &idle{q, true} })
	add("idle, pull of an item", func(q *workQueue) load { return &idle{q, false} })
	return rows
}

// addJetStreamRows adds what was measured. After the echo come groups of rows, of which the first is
// compared with the others.
func (r *Report) addJetStreamRows(rows []*row, each int) {
	echo := rows[0].out.rate()
	for i, w := range rows {
		if i > 0 && (i-1)%each == 0 {
			for _, other := range rows[i+1 : i+each] {
				w.extra = append(w.extra, times(w.out.rate(), other.queue, other.out.rate()))
			}
			echo = 0 // one consumer is no match for it
		}
		r.Rows = append(r.Rows, w.result(echo))
	}
}

// consuming is a load of consumers that acknowledge each item, until all of a turn are consumed. The
// last acknowledgement is confirmed: those before it have been processed then.
type consuming struct {
	queue            *workQueue
	consumers, ahead int
}

func (c *consuming) run(ctx context.Context, t *turn) { t.good(c.consume(ctx, t)) }

func (c *consuming) consume(ctx context.Context, t *turn) error {
	ctx, end := context.WithCancelCause(ctx)
	defer time.AfterFunc(2*stuckTime, func() { end(errors.New("not all items were delivered")) }).Stop()
	handle := func(m jetstream.Msg, before *time.Duration) {
		n, more := t.next(0)
		last := n == t.limit.steps-1
		var err error
		switch {
		case !more:
			err = errors.New("an item was delivered again")
		case last:
			err = m.DoubleAck(ctx)
		default:
			err = m.Ack()
		}

		now := time.Since(t.start)
		t.note(1, *before, now)
		*before = now
		if err != nil || last {
			end(err)
		}
	}

	var running sync.WaitGroup
	for _, consumer := range c.queue.all[:c.consumers] {
		var before time.Duration // when this one was done with an item
		if c.ahead == 1 {
			// Consume of nats.go 1.55 at times stops pulling when it may have only one item.
			running.Go(func() {
				for ctx.Err() == nil {
					if m, err := consumer.Next(jetstream.FetchContext(ctx)); err == nil {
						handle(m, &before)
					}
				}
			})
			continue
		}
		consuming, err := consumer.Consume(func(m jetstream.Msg) { handle(m, &before) }, jetstream.PullMaxMessages(c.ahead))
		if err != nil {
			return err
		}
		defer func() {
			consuming.Stop()
			<-consuming.Closed()
		}()
	}

	running.Wait()
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// idle is a load of one client that pulls an item now and then. Its rate is that of the pulls without
// the time between them.
type idle struct {
	queue *workQueue
	waits bool // from a push to its delivery by a pull that waits; otherwise a pull of an item that is there
}

func (l *idle) run(ctx context.Context, t *turn) {
	var sum time.Duration
	for ctx.Err() == nil {
		if _, more := t.next(time.Since(t.start)); !more {
			return
		}
		took, err := l.pull(ctx)
		if !t.good(err) {
			return
		}
		t.note(1, sum, sum+took)
		sum += took
	}
}

func (l *idle) pull(ctx context.Context) (took time.Duration, err error) {
	q := l.queue
	var began, ended time.Time
	next := func() {
		var m jetstream.Msg
		if m, err = q.all[0].Next(jetstream.FetchMaxWait(stuckTime)); err == nil {
			ended = time.Now()
			err = m.DoubleAck(ctx)
		}
	}

	if l.waits {
		var pulling sync.WaitGroup
		pulling.Go(next)
		time.Sleep(idleTime)
		began = time.Now()
		failed := q.fill(ctx, 1)
		pulling.Wait()
		return ended.Sub(began), errors.Join(failed, err)
	}

	if err = q.fill(ctx, 1); err == nil {
		time.Sleep(idleTime)
		began = time.Now()
		next()
	}
	return ended.Sub(began), err
}
