// Package jetstream lets programs that were written for JetStream's pull consumers use the queues.
//
// # What it does
//
// A queue is a stream whose subject is that of its pushes, in a domain that is named as the prefix of
// the queue's subjects. A pull is a lease that waits, and an acknowledgement that of the lease. So
// everything that holds for leases holds here: fences, old places, limits, dead letters.
//
// Every queue exists, as it does for all other requests: STREAM.INFO of one that nobody has used is
// that of an empty stream, and STREAM.CREATE of what a queue is succeeds without doing anything. A
// queue that was emptied is taken off the list after a while, and a worker that starts the day after
// must not hear that its stream is gone. STREAM.NAMES and STREAM.LIST show the queues of the list.
//
// Each queue has the consumers min and max, a FIFO queue min alone, which begin at that end. Others
// are records beside the settings of the queue.
//
// The face speaks over a leaf node connection (package leaf), because NATS lets no ordinary client
// send a message with JetStream's reply subjects.
//
// # Reading the code
//
// serve.go takes messages, from the table of API calls (calls.go) to what they do (streams.go, consumers.go,
// records.go). pull.go turns a pull into requests of the dispatcher, deliver.go their results into messages, and
// inbox.go speaks to the client. ack.go reads acknowledgements, and acks.go runs them. pending.go counts what
// consumers have outstanding, and ends.go ends pulls from outside. subjects.go takes subjects apart.
package jetstream

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// Config is what the face needs of the bridge. All fields are required unless they say otherwise.
type Config struct {
	// Leaf says how to connect. Subjects and all functions are the face's own.
	Leaf leaf.Config
	// Group is the queue group of all bridges that share the store.
	Group string
	// Identity is that of the store: the same for all bridges that share it, and for no others.
	Identity string
	// Self names this bridge, in one token.
	Self string
	// Domains are the prefixes of the queues of each kind; one without a prefix is missing.
	Domains map[subjects.Kind]string
	// Grammar has the same prefixes.
	Grammar subjects.Grammar

	Dispatcher *dispatch.Dispatcher
	// List returns a page of the list of queues.
	List func(ctx context.Context, kind subjects.Kind, o subjects.ListOptions) (subjects.QueueList, error)
	// ErrorText returns what clients are told of an error, and JetStream's code for it: 400, 404, 408,
	// 409, 429, 500 or 503.
	ErrorText func(err error) (code int, text string)

	// MaxWaiters is the most pulls that wait.
	MaxWaiters int
	// MaxPending is the most requests that the Dispatcher takes. Those of acknowledgements leave room for
	// others.
	MaxPending int
	// AppendHeader appends the header block of an item; without what the bridge adds if lease is nil.
	AppendHeader func(to []byte, q *dispatch.Queue, item *fdbpq.Item, lease *fdbpq.Lease) ([]byte, error)
	// Return ends the lease of an item that was not delivered, or whose receiver is gone.
	Return func(q *dispatch.Queue, result *fdbpq.Result, gone bool)
	// MayReply reports whether clients may choose a subject for answers.
	MayReply func(subject string) bool
	// Owner names the bridge that pops from a queue. It must not block.
	Owner func(q *dispatch.Queue) string

	RequestTimeout time.Duration
	Now            func() time.Time
	Logger         *slog.Logger
	// Warn logs at most now and then.
	Warn func(message string, args ...any)
	// Counted is told of each answered call of the API, pull and acknowledgement, by what it was;
	// failed if it got an error.
	Counted func(call string, failed bool)
	// Connected is told of each connect. It must not block.
	Connected func()
	// Delivered is told of each item that was sent, and how many times it was by now.
	Delivered func(deliveries int64)
}

// sender is what the face needs of a leaf.Conn.
type sender interface {
	Publish(m *leaf.Message) error
	HasInterest(subject string) bool
}

const (
	// maxCalls run at a time, and maxWaiting of them wait.
	maxCalls, maxWaiting = 16, 1000
	// countedPull and countedAck are what Config.Counted is told of.
	countedPull, countedAck = "CONSUMER.MSG.NEXT", "ACK"
)

// Face is the JetStream face of a bridge. Its methods may be called by any goroutine.
type Face struct {
	config  Config
	domains domains
	inbox   string // begins the subjects of requests that other bridges have forwarded
	leaf    *leaf.Conn
	out     sender // that connection
	cache   consumerCache
	pending *outstanding
	acks    acks

	state atomic.Pointer[leaf.State] // nil before the first attempt to connect

	slots  chan struct{} // an element for each call that runs
	ctx    context.Context
	cancel context.CancelFunc

	mu struct {
		sync.Mutex
		waiting int // calls that wait or run
		ended   bool
	}
	calls sync.WaitGroup
}

// forwardRoot begins the subjects on which bridges forward requests to each other.
const forwardRoot = "_pqbridge.jetstream."

// inboxOf begins the subjects of what is forwarded to a bridge that shares the store.
func (f *Face) inboxOf(bridge string) string {
	return forwardRoot + f.domains.hash + "." + bridge + "."
}

// forward sends a request for a queue, as it came, to the bridge that pops from it, and reports whether
// that gets it. If several bridges served the pulls of a queue, their transactions would conflict, and
// each would count only what it has delivered itself.
func (f *Face) forward(s stream, m *leaf.Message) bool {
	q, err := f.queueOf(s)
	if err != nil {
		return false
	}
	owner := f.config.Owner(q)
	if owner == f.config.Self {
		return false
	}
	// Not to one without a connection. Headers are for NATS, which must not act on them once more.
	subject := f.inboxOf(owner) + m.Subject
	return f.out.HasInterest(subject) && f.out.Publish(&leaf.Message{Subject: subject, Reply: m.Reply, Payload: m.Payload}) == nil
}

// mayReply reports whether a client may be answered on a subject. A leaf node may publish where
// clients may not, so it is not to be used for that.
func (f *Face) mayReply(subject string) bool {
	inbox, _ := withoutGateway(subject)
	_, again := withoutGateway(inbox) // no server makes that
	return !again && f.config.MayReply(inbox)
}

// noConsumer answers a pull as NATS does if nobody listens, which is so for a consumer that
// JetStream does not have, or not now.
func (f *Face) noConsumer(m *leaf.Message) {
	f.config.Counted(countedPull, true)
	f.status(m.Reply, 503, "")
}

// later runs a call when there is a slot for it. It returns false if too many wait, or the face has
// ended.
func (f *Face) later(run func(ctx context.Context)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.ended || f.mu.waiting >= maxCalls+maxWaiting {
		return false
	}

	f.mu.waiting++
	f.calls.Go(func() {
		ctx, cancel := context.WithTimeout(f.ctx, f.config.RequestTimeout)
		defer cancel()
		f.slots <- struct{}{}
		run(ctx)
		<-f.slots

		f.mu.Lock()
		f.mu.waiting--
		f.mu.Unlock()
	})
	return true
}

// queueOf returns the queue of a stream.
func (f *Face) queueOf(s stream) (*dispatch.Queue, error) {
	return f.config.Dispatcher.Queue(s.kind, s.name)
}

// do runs operations on a queue, and returns the error of the first that failed.
func (f *Face) do(ctx context.Context, s stream, ops ...fdbpq.Op) ([]fdbpq.Result, error) {
	q, err := f.queueOf(s)
	if err != nil {
		return nil, err
	}
	f.acks.run(together{queue: q}) // what was acknowledged before counts
	results, err := f.config.Dispatcher.Do(ctx, q, ops)
	for i := range results {
		err = cmp.Or(err, results[i].Err)
	}
	return results, err
}

// pushSubject returns the subject of a stream: that of the pushes to the queue.
func (f *Face) pushSubject(s stream) string {
	verb := subjects.Push
	if s.kind == subjects.FIFO {
		verb = subjects.Enqueue
	}
	subject, _ := f.config.Grammar.Build(subjects.Request{Kind: s.kind, Queue: s.name, Verb: verb}) // its name was checked
	return subject
}

// status sends a status.
func (f *Face) status(subject string, code int, text string) {
	f.send(&leaf.Message{Subject: subject, Header: statusHeader(code, text)})
}

// reply sends the payload of an answer.
func (f *Face) reply(subject string, payload []byte) {
	f.send(&leaf.Message{Subject: subject, Payload: payload})
}

// send sends an answer that is safe to lose: whoever waits for it asks again.
func (f *Face) send(m *leaf.Message) {
	if err := f.out.Publish(m); err != nil {
		f.config.Warn("an answer over the leaf node connection could not be sent", "error", err)
	}
}
