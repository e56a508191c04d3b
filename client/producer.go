package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/pqbridge/pqbridge/subjects"
)

// ErrProducerClosed is returned by [Producer.PushAsync] after [Producer.Close].
var ErrProducerClosed = errors.New("the producer is closed")

// Producer pushes items without waiting for one before it sends the next. Items that are pushed
// while a batch is under way form the next batch. So an idle Producer adds no delay, and a busy one
// shares requests and transactions among thousands of items. One batch is under way at a time:
// items of one priority that a goroutine pushes are served in that order.
//
// All its methods are safe for concurrent use. It has a goroutine only while pushes are under way.
//
// # What happens to a push
//
// Each push ends with an acknowledgement or an error. That takes at most RetryFor and the timeout
// of the client after PushAsync, plus the time that earlier pushes take:
//
//   - A push that was not carried out and may succeed later ([ErrOverloaded], [ErrUnavailable],
//     [ErrNoBridge], no connection) is retried for RetryFor. Batches get smaller as a queue fills
//     up.
//   - After [ErrUnknownOutcome], only items with a [MsgID] are retried, which is safe because the
//     first attempt counts. Other items end with this error, and so does an item if an earlier
//     attempt may have counted.
//   - If the bridge refuses a batch because of an item, or because the queue may not have as many,
//     the batch is split until it is small enough or the item fails alone, with [ErrBadRequest] or
//     [ErrTooLarge].
//   - Any other error, such as a closed connection or a missing permission, fails the items of the
//     batch at once.
type Producer struct {
	queue *Queue
	o     ProducerOptions

	items, bytes *semaphore.Weighted // room for pushes under way
	killed       context.Context     // ends when Close waits no longer
	kill         context.CancelFunc
	sender       sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	sending  bool          // there is a sender
	pending  []*PushFuture // for the next batches, in order
	underWay []*PushFuture // taken by the sender; some have ended
}

// NewProducer returns a Producer for this queue. Close it when done. The error is [ErrBadRequest];
// its text lists all options that are out of bounds and what would be right.
func (q *Queue) NewProducer(o ProducerOptions) (*Producer, error) {
	if _, err := q.subject(subjects.PushBatch); err != nil {
		return nil, err
	}
	if err := o.complete(); err != nil {
		return nil, err
	}

	p := &Producer{
		queue: q,
		o:     o,
		items: semaphore.NewWeighted(int64(o.MaxItems)),
		bytes: semaphore.NewWeighted(int64(o.MaxBytes)),
	}

	p.killed, p.kill = context.WithCancel(context.Background())
	return p, nil
}

// PushAsync starts to push an item. It copies the message, so the caller may change it afterwards.
// In a FIFO queue the priority must be 0.
//
// If too much is under way, PushAsync waits for room until ctx ends. The context has no other
// effect. An error means that the item is not pushed: [ErrBadRequest], [ErrTooLarge],
// [ErrProducerClosed], or the error of ctx.
func (p *Producer) PushAsync(ctx context.Context, priority int64, m Message,
	options ...PushOption) (*PushFuture, error) {
	f, err := p.newFuture(priority, m.With(options...))
	if err != nil {
		return nil, err
	}
	if err := p.acquireRoom(ctx, f.room); err != nil {
		return nil, err
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		p.releaseRoom(f.room)
		return nil, ErrProducerClosed
	}

	f.retryEnd = time.Now().Add(p.o.RetryFor)
	p.pending = append(p.pending, f)
	if !p.sending {
		p.sending = true
		p.sender.Go(p.sendPending)
	}
	return f, nil
}

func (p *Producer) newFuture(priority int64, m Message) (*PushFuture, error) {
	frame, err := p.queue.frame(&PushItem{priority, m})
	if err != nil {
		return nil, badRequest("%v", err)
	}
	size := frame.Size()
	if most := p.queue.client.maxPayload(); most > 0 && int64(size) > most {
		return nil, tooLarge("a value of %d bytes: the NATS server takes %d bytes at most, "+
			"headers and %d bytes for the batch included",
			len(m.Value), most, size-len(m.Value))
	}

	frame.Value = bytes.Clone(frame.Value)
	return &PushFuture{
		frame:    frame,
		hasMsgID: len(m.Headers[subjects.HeaderMsgID]) > 0,
		room:     int64(min(size, p.o.MaxBytes)),
		done:     make(chan struct{}),
	}, nil
}

// acquireRoom waits for room for a push.
func (p *Producer) acquireRoom(ctx context.Context, bytes int64) error {
	if p.items.Acquire(ctx, 1) != nil {
		return endOf(ctx)
	}
	if p.bytes.Acquire(ctx, bytes) != nil {
		p.items.Release(1)
		return endOf(ctx)
	}
	return nil
}

func (p *Producer) releaseRoom(bytes int64) {
	p.bytes.Release(bytes)
	p.items.Release(1)
}

// Flush waits until all pushes that were started before it have ended, well or badly. If ctx ends
// first, Flush returns its error.
func (p *Producer) Flush(ctx context.Context) error {
	p.mu.Lock()
	begun := slices.Concat(p.underWay, p.pending)
	p.mu.Unlock()

	for _, f := range begun {
		if err := await(ctx, f.done); err != nil {
			return err
		}
	}
	return nil
}

// Close refuses further pushes and waits until those under way have ended. If ctx ends first, Close
// ends them and returns the error of ctx: pushes that were sent fail with [ErrUnknownOutcome],
// others with [ErrNotSent]. The connection stays open. Close may be called again.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()

	err := p.Flush(ctx)
	p.kill()
	p.sender.Wait()
	return err
}

// sendPending pushes pending items until there are none.
func (p *Producer) sendPending() {
	for list := p.takePending(); len(list) > 0; list = p.takePending() {
		p.pushInOrder(list)
		runtime.Gosched() // callers that waited for these can push the next ones
	}
}

// takePending returns all pending pushes, once the ones it returned before have ended. If there are
// none, the sender must end.
func (p *Producer) takePending() []*PushFuture {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.underWay, p.pending = p.pending, nil
	p.sending = len(p.underWay) > 0
	return p.underWay
}

// pushInOrder returns when all pushes have ended. When the bridge refuses a batch, the next one is
// smaller, to find the item at fault or to fill a queue that is nearly full. Then batches grow
// again.
func (p *Producer) pushInOrder(rest []*PushFuture) {
	var retry pause
	for n := len(rest); len(rest) > 0; {
		if p.killed.Err() != nil { // Close waits no longer, and these were not sent
			p.failAll(rest, fmt.Errorf("%w: %w", ErrNotSent, ErrProducerClosed))
			return
		}

		batch, err := p.pushBatch(rest[:min(n, len(rest))])
		switch {
		case err == nil:
			rest = rest[len(batch):]
			n = 2 * len(batch)
			retry.last = 0

		case isRefused(err) && len(batch) > 1: // look for the item at fault
			n = len(batch) / 2

		case isPassing(err), p.killed.Err() != nil:
			left := p.failOverdue(batch, err)
			rest = append(left, rest[len(batch):]...)
			n = len(rest)
			if errors.Is(err, ErrOverloaded) {
				n = max(1, len(batch)/2)
			}
			retry.wait(p.killed)

		default:
			p.failAll(batch, err)
			rest = rest[len(batch):]
			n = len(batch)
		}
	}
}

// pushBatch makes one attempt to push as many as fit into one batch, which it returns. If that
// succeeds, it ends these pushes.
func (p *Producer) pushBatch(list []*PushFuture) (batch []*PushFuture, err error) {
	frames := make([]subjects.Frame, len(list))
	for i, f := range list {
		frames[i] = f.frame
	}
	n := p.queue.client.fitting(frames)
	batch = list[:n]

	// A batch that Close gives up has an unknown outcome, unless it was not sent.
	acks, err := p.queue.pushFrames(p.killed, frames[:n])
	if errors.Is(err, ErrUnknownOutcome) {
		for _, f := range batch {
			f.unknown = true
		}
	}

	for i, ack := range acks {
		p.end(batch[i], ack, nil)
	}
	return batch, err
}

// failOverdue ends those pushes that must not be tried again, and returns the others.
func (p *Producer) failOverdue(batch []*PushFuture, err error) (left []*PushFuture) {
	for _, f := range batch {
		if f.unknown && !f.hasMsgID || !time.Now().Before(f.retryEnd) {
			p.end(f, PushAck{}, err)
		} else {
			left = append(left, f)
		}
	}
	return left
}

// failAll ends pushes with an error.
func (p *Producer) failAll(list []*PushFuture, err error) {
	for _, f := range list {
		p.end(f, PushAck{}, err)
	}
}

// end ends a push with its outcome.
func (p *Producer) end(f *PushFuture, ack PushAck, err error) {
	if err != nil && f.unknown && !errors.Is(err, ErrUnknownOutcome) {
		err = unknownAfter(err)
	}
	f.ack, f.err = ack, err
	close(f.done)
	p.releaseRoom(f.room)
}

// ProducerOptions are the options of a Producer. The zero value is ready to use.
type ProducerOptions struct {
	// MaxItems is the most pushes under way at a time, at least 1; 0 means 4,096, which is also the
	// most items of a batch.
	MaxItems int

	// MaxBytes is the most bytes of pushes under way, values and headers, at least 1; 0 means 8
	// MiB. A larger item waits until it is alone.
	MaxBytes int

	// RetryFor is how long after PushAsync a push is still retried; 0 means 30 s, and less than 0
	// means never. It must be shorter than the duplicate window of the queue, two minutes by
	// default. After that, a message id no longer prevents a duplicate.
	RetryFor time.Duration
}

// Defaults of ProducerOptions.
const (
	defaultMaxItems = subjects.MaxFrames
	defaultMaxBytes = 8 << 20
	defaultRetryFor = 30 * time.Second
)

// complete replaces zeros by defaults. The error lists all options that are out of bounds.
func (o *ProducerOptions) complete() error {
	var wrong problems
	if o.MaxItems < 0 {
		wrong.add("MaxItems is %d: want 1 or more, or 0 for %d", o.MaxItems, defaultMaxItems)
	}
	if o.MaxBytes < 0 {
		wrong.add("MaxBytes is %d: want 1 or more, or 0 for %d", o.MaxBytes, defaultMaxBytes)
	}

	o.MaxItems = cmp.Or(o.MaxItems, defaultMaxItems)
	o.MaxBytes = cmp.Or(o.MaxBytes, defaultMaxBytes)
	o.RetryFor = cmp.Or(o.RetryFor, defaultRetryFor)
	return wrong.err()
}
