package jetstream

import (
	"cmp"
	"context"
	"log/slog"
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
	// Delivered is told of each item that was sent, and how many times it was by now.
	Delivered func(deliveries int64)
}

// sender is what the face needs of a leaf.Conn.
type sender interface {
	Publish(m *leaf.Message) error
	HasInterest(subject string) bool
}

// core is what pulls, acknowledgements and calls of the API need to run requests and to answer.
type core struct {
	config   Config
	domains  domains
	out      sender
	requests atomic.Int64  // that the dispatcher has of pulls and acknowledgements
	idle     chan struct{} // has an element once there are none, for Flush
}

// countedPull and countedAck are what Config.Counted is told of.
const countedPull, countedAck = "CONSUMER.MSG.NEXT", "ACK"

// queueOf returns the queue of a stream.
func (f *core) queueOf(s stream) (*dispatch.Queue, error) {
	return f.config.Dispatcher.Queue(s.kind, s.name)
}

// submit hands a request of one operation to the dispatcher. Its Replier must call answered.
func (f *core) submit(r *dispatch.Request, op fdbpq.Op) error {
	f.requests.Add(1)
	err := f.config.Dispatcher.Submit(r, []fdbpq.Op{op})
	if err != nil {
		f.answered()
	}
	return err
}

func (f *core) answered() {
	if f.requests.Add(-1) > 0 {
		return
	}
	select {
	case f.idle <- struct{}{}:
	default: // Flush has not seen the last one
	}
}

// do runs operations on a queue, and returns the error of the first that failed.
func (f *core) do(ctx context.Context, s stream, ops ...fdbpq.Op) ([]fdbpq.Result, error) {
	q, err := f.queueOf(s)
	if err != nil {
		return nil, err
	}
	results, err := f.config.Dispatcher.Do(ctx, q, ops)
	for i := range results {
		err = cmp.Or(err, results[i].Err)
	}
	return results, err
}

// pushSubject returns the subject of a stream: that of the pushes to the queue.
func (f *core) pushSubject(s stream) string {
	verb := subjects.Push
	if s.kind == subjects.FIFO {
		verb = subjects.Enqueue
	}
	subject, _ := f.config.Grammar.Build(subjects.Request{Kind: s.kind, Queue: s.name, Verb: verb}) // its name was checked
	return subject
}

// mayReply reports whether a client may be answered on a subject. A leaf node may publish where
// clients may not, so it is not to be used for that.
func (f *core) mayReply(subject string) bool {
	inbox, _ := withoutGateway(subject)
	_, again := withoutGateway(inbox) // no server makes that
	return !again && f.config.MayReply(inbox)
}

// status sends a status, with further headers in pairs of name and value.
func (f *core) status(subject string, code int, text string, pairs ...string) {
	f.send(&leaf.Message{Subject: subject, Header: statusHeader(code, text, pairs...)})
}

// send sends an answer that is safe to lose, because the client asks again.
func (f *core) send(m *leaf.Message) {
	if err := f.out.Publish(m); err != nil {
		f.config.Warn("an answer over the leaf node connection could not be sent", "error", err)
	}
}

// forwardRoot begins the subjects on which bridges forward requests to each other.
const forwardRoot = "_pqbridge.jetstream."

// forwardTo begins the subjects of what is forwarded to a bridge that shares the store.
func (f *core) forwardTo(bridge string) string {
	return forwardRoot + f.domains.hash + "." + bridge + "."
}

// forward sends a request for a queue, as it came, to the bridge that pops from it, and reports whether
// that gets it. If several bridges served the pulls of a queue, their transactions would conflict, and
// each would count only what it has delivered itself.
func (f *core) forward(s stream, m *leaf.Message) bool {
	q, err := f.queueOf(s)
	if err != nil {
		return false
	}
	owner := f.config.Owner(q)
	if owner == f.config.Self {
		return false
	}
	// Not to one without a connection. Headers are for NATS, which must not act on them once more.
	subject := f.forwardTo(owner) + m.Subject
	return f.out.HasInterest(subject) && f.out.Publish(&leaf.Message{Subject: subject, Reply: m.Reply, Payload: m.Payload}) == nil
}
