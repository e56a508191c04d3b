package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/pqbridge/pqbridge/subjects"
)

// ProducerOptions are the options of a Producer. The zero value is ready to use.
type ProducerOptions struct {
	// MaxItems is how many pushes may be under way at a time, 1 or more; 0 means 4,096, which is also the most items of a
	// batch.
	MaxItems int

	// MaxBytes is how many bytes these may have, values and headers, 1 or more; 0 means 8 MiB. An item that is larger
	// goes alone.
	MaxBytes int

	// NoWait makes PushAsync fail with [ErrOverloaded] where it would wait for room.
	NoWait bool

	// RetryFor is for how long a push that failed for the time being is tried again, from PushAsync on; 0 means 30 s,
	// less than 0 never. It must be shorter than the duplicate window of the queue, two minutes unless its settings say
	// otherwise; beyond it, message ids do not keep an item from being there twice.
	RetryFor time.Duration

	// Done, if it is not nil, is called once for each push when its outcome is there. The next batch waits until it
	// returns, so it must not call PushAsync, Flush or Close.
	Done func(*PushFuture)
}

// Defaults of ProducerOptions.
const (
	defaultMaxItems = subjects.MaxFrames
	defaultMaxBytes = 8 << 20
	defaultRetryFor = 30 * time.Second
)

// ErrProducerClosed is returned by PushAsync after Producer.Close.
var ErrProducerClosed = errors.New("the producer is closed")

// Producer pushes without waiting for the acknowledgement of one item before it sends the next. What is pushed
// while a batch is under way makes up the next batch, so an idle Producer adds no delay, and a busy one shares
// requests and transactions among thousands of items. One batch is under way at a time: items of one
// priority that a goroutine pushes are served in that order.
//
// All its methods are safe for concurrent use. It has a goroutine only while pushes are under way.
//
// # What happens to a push
//
// Each push ends with an acknowledgement or an error, at most RetryFor and the timeout of the client after
// PushAsync, plus the time that those before it take:
//
//   - An error that says that nothing was done and that it may pass ([ErrOverloaded], [ErrUnavailable],
//     [ErrNoBridge], no connection) is tried again for RetryFor. A full queue is filled with smaller and smaller batches.
//   - After [ErrUnknownOutcome], as when a connection is lost while a batch is under way, only items with a [MsgID] are tried again: that
//     is safe, the first one counts. The others end with ErrUnknownOutcome. So does an item whose last attempt failed
//     but an earlier one may have counted.
//   - If the bridge refuses a batch because of an item, the batch is split until the item fails alone, with [ErrBadRequest] or
//     [ErrTooLarge].
//   - Anything else, such as a closed connection, fails the items of the batch at once.
type Producer struct {
	queue *queue
	verb  subjects.Verb
	o     ProducerOptions

	items, bytes *semaphore.Weighted // room
	killed       context.Context     // the time to close is over
	kill         context.CancelFunc
	sender       sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	sending  bool
	pending  []*PushFuture   // in order
	flushes  []chan struct{} // to close when what is pending now has ended
	flushing []chan struct{} // to close when what is under way has ended
}

// NewProducer returns a Producer for this queue. The error is [ErrBadRequest], and says of each option that is out of
// bounds what would be right.
func (q *PriorityQueue) NewProducer(o ProducerOptions) (*Producer, error) {
	return newProducer(&q.q, subjects.PushBatch, o)
}

// NewProducer returns a Producer for this queue, as PriorityQueue.NewProducer does.
func (q *Queue) NewProducer(o ProducerOptions) (*Producer, error) {
	return newProducer(&q.q, subjects.EnqueueBatch, o)
}

func newProducer(q *queue, verb subjects.Verb, o ProducerOptions) (*Producer, error) {
	if _, err := q.subject(verb); err != nil {
		return nil, err
	}
	var problems []string
	if o.MaxItems < 0 {
		problems = append(problems, fmt.Sprintf("MaxItems is %d: want 1 or more, or 0 for %d", o.MaxItems, defaultMaxItems))
	}
	if o.MaxBytes < 0 {
		problems = append(problems, fmt.Sprintf("MaxBytes is %d: want 1 or more, or 0 for %d", o.MaxBytes, defaultMaxBytes))
	}
	if err := badOptions(problems); err != nil {
		return nil, err
	}
	o.MaxItems = cmp.Or(o.MaxItems, defaultMaxItems)
	o.MaxBytes = cmp.Or(o.MaxBytes, defaultMaxBytes)
	o.RetryFor = cmp.Or(o.RetryFor, defaultRetryFor)
	p := &Producer{queue: q, verb: verb, o: o,
		items: semaphore.NewWeighted(int64(o.MaxItems)), bytes: semaphore.NewWeighted(int64(o.MaxBytes))}
	p.killed, p.kill = context.WithCancel(context.Background())
	return p, nil
}

// PushFuture is a push that is under way, or was. Its methods are safe for concurrent use.
type PushFuture struct {
	priority int64
	frame    []byte
	value    []byte // part of frame
	hasMsgID bool
	room     int64 // bytes
	until    time.Time
	unknown  bool // an attempt may have counted

	done chan struct{}
	ack  PushAck
	err  error
}

// Done is closed when the outcome is there.
func (f *PushFuture) Done() <-chan struct{} { return f.done }

// Wait waits for the outcome. If ctx ends first, the error is that of ctx, and the push goes on. Otherwise a nil
// error means that the item is in the queue, durably; with [ErrUnknownOutcome] it may or may not be; with any
// other error it is not. Of a duplicate, the acknowledgement has the ID of the item that was pushed before, and the
// priority of this push.
func (f *PushFuture) Wait(ctx context.Context) (PushAck, error) {
	select {
	case <-f.done:
		return f.ack, f.err
	default:
	}
	select {
	case <-f.done:
		return f.ack, f.err
	case <-ctx.Done():
		return PushAck{}, endOf(ctx)
	}
}

// Priority returns the priority of the item.
func (f *PushFuture) Priority() int64 { return f.priority }

// Value returns the value of the item. It must not be changed.
func (f *PushFuture) Value() []byte { return f.value }

// PushAsync begins to push an item. It copies the message, so that the caller may change it afterwards. In a FIFO queue
// the priority must be 0.
//
// If too much is under way, it waits for room until ctx ends, or fails at once with NoWait. The context has no other use.
// An error means that the item is not pushed, and there is no future: [ErrBadRequest], [ErrTooLarge], [ErrOverloaded] with NoWait,
// [ErrProducerClosed], and the error of ctx.
func (p *Producer) PushAsync(ctx context.Context, priority int64, m Message, options ...PushOption) (*PushFuture, error) {
	f, err := p.newFuture(priority, m.With(options...))
	if err != nil {
		return nil, err
	}
	if err := p.takeRoom(ctx, f.room); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		p.giveRoom(f.room)
		return nil, ErrProducerClosed
	}
	f.until = time.Now().Add(p.o.RetryFor)
	p.pending = append(p.pending, f)
	if !p.sending {
		p.sending = true
		p.sender.Go(p.send)
	}
	return f, nil
}

func (p *Producer) newFuture(priority int64, m Message) (*PushFuture, error) {
	if p.verb == subjects.EnqueueBatch && priority != 0 {
		return nil, &Error{Code: subjects.CodeBadRequest, Text: fmt.Sprintf("priority %d in a FIFO queue: want 0", priority)}
	}
	frame, err := appendFrame(nil, p.verb, priority, &m)
	if err != nil {
		return nil, &Error{Code: subjects.CodeBadRequest, Text: err.Error()}
	}
	if most := p.queue.client.maxPayload(); most > 0 && int64(len(frame)) > most {
		return nil, &Error{Code: subjects.CodeTooLarge, Text: fmt.Sprintf(
			"a value of %d bytes: the NATS server takes %d bytes at most, headers and %d bytes for the batch included", len(m.Value), most, len(frame)-len(m.Value))}
	}
	return &PushFuture{
		priority: priority, frame: frame, value: frame[len(frame)-len(m.Value):],
		hasMsgID: len(m.Headers[subjects.HeaderMsgID]) > 0,
		room:     int64(min(len(frame), p.o.MaxBytes)),
		done:     make(chan struct{}),
	}, nil
}

func (p *Producer) takeRoom(ctx context.Context, bytes int64) error {
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	switch {
	case closed:
		return ErrProducerClosed
	case ctx.Err() != nil:
		return endOf(ctx)
	case p.o.NoWait:
		if !p.items.TryAcquire(1) {
			return fmt.Errorf("%w: %d pushes are under way", ErrOverloaded, p.o.MaxItems)
		}
		if !p.bytes.TryAcquire(bytes) {
			p.items.Release(1)
			return fmt.Errorf("%w: the pushes under way leave no room for %d bytes of %d", ErrOverloaded, bytes, p.o.MaxBytes)
		}
		return nil
	}
	if p.items.Acquire(ctx, 1) != nil {
		return endOf(ctx)
	}
	if p.bytes.Acquire(ctx, bytes) != nil {
		p.items.Release(1)
		return endOf(ctx)
	}
	return nil
}

func (p *Producer) giveRoom(bytes int64) {
	p.bytes.Release(bytes)
	p.items.Release(1)
}

// Flush waits until the pushes that were begun before it have ended, or ctx does; then it returns the error of ctx. How
// they ended, their futures say.
func (p *Producer) Flush(ctx context.Context) error {
	p.mu.Lock()
	if !p.sending {
		p.mu.Unlock()
		return nil
	}
	ended := make(chan struct{})
	p.flushes = append(p.flushes, ended)
	p.mu.Unlock()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return endOf(ctx)
	}
}

// Close refuses further pushes, and waits until those under way have ended. When ctx ends before that, it ends them: those
// that were sent with ErrUnknownOutcome, the others with [ErrNotSent]; then it returns the error of ctx. The connection stays
// open. Close may be called again.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.Flush(ctx)
	p.kill()
	p.sender.Wait()
	return err
}
