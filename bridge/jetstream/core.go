package jetstream

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/signal"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// Config is what the face needs of the bridge. All fields are required unless they say otherwise.
// All functions may be called concurrently.
type Config struct {
	// Leaf says how to connect. The face sets Subjects and all functions.
	Leaf leaf.Config
	// Group is the queue group of all bridges that share the store.
	Group string
	// Identity identifies the store: the same for all bridges that share it, and for no others.
	Identity string
	// Self names this bridge, in one token.
	Self string
	// Domains are the prefixes of the queues of each kind. A kind without a prefix is missing.
	Domains map[subjects.Kind]string
	// Grammar has the same prefixes.
	Grammar subjects.Grammar

	Dispatcher *dispatch.Dispatcher
	// List returns a page of the list of queues.
	List func(
		ctx context.Context, kind subjects.Kind, o subjects.ListOptions,
	) (subjects.QueueList, error)
	// ErrorText returns what clients are told of an error, and JetStream's code for it: 400, 404,
	// 408, 409, 429, 500 or 503.
	ErrorText func(err error) (code int, text string)

	// AppendHeader appends the header block of an item. If lease is nil, it leaves out the headers
	// that the bridge adds.
	AppendHeader func(
		to []byte, q *dispatch.Queue, item *fdbpq.Item, lease *fdbpq.Lease,
	) ([]byte, error)
	// Return ends the lease of an item that was not delivered. gone says that its receiver is gone.
	Return func(q *dispatch.Queue, result *fdbpq.Result, gone bool)
	// MayReply reports whether clients may choose a subject for answers.
	MayReply func(subject string) bool
	// Owner names the bridge that pops from a queue. It must not block.
	Owner func(q *dispatch.Queue) string

	RequestTimeout time.Duration
	Now            func() time.Time
	Logger         *slog.Logger
	// Warn logs a problem that may repeat. It drops most repetitions.
	Warn func(message string, args ...any)
	// Counted is called for each answered call of the API, pull and acknowledgement, with the name
	// of the call; failed says that the client got an error.
	Counted func(call string, failed bool)
	// Delivered is called for each item that was sent, with how many times it has been delivered.
	Delivered func(deliveries int64)
}

// sender is what the face needs of a leaf.Conn.
type sender interface {
	Publish(m *leaf.Message) error
	HasInterest(subject string) bool
	Barrier(f func())
}

// core is what pulls, acknowledgements and calls of the API share to run requests and to answer.
type core struct {
	config   Config
	domains  domains
	out      sender
	requests atomic.Int64  // pulls and acknowledgements that the dispatcher has
	idle     chan struct{} // holds an element once requests is 0, for Flush
}

// The names of pulls and acknowledgements for Config.Counted.
const countedPull, countedAck = "CONSUMER.MSG.NEXT", "ACK"

// queueOf returns the queue of a stream.
func (f *core) queueOf(s stream) (*dispatch.Queue, error) {
	return f.config.Dispatcher.Queue(s.kind, s.name)
}

// ackMemory estimates how many bytes an acknowledgement takes in memory, without its reason.
const ackMemory = 512

// settle runs an acknowledgement. reply is the subject to confirm it on, "" for none.
func (f *core) settle(q *dispatch.Queue, op *fdbpq.Op, reply string) {
	op.Queue = q.Target
	s := &settlement{f, reply}
	r := dispatch.Request{
		Queue: q, Replier: s, Received: time.Now(), Size: ackMemory + len(op.Reason),
		// If nobody waits for it, it shares the batch of the next pull.
		Lazy: reply == "" && op.Kind != fdbpq.OpNak,
	}
	if err := f.submit(&r, *op); err != nil {
		s.failed(err)
	}
}

// discard dead-letters an item that was already delivered max_deliver times. No client got the
// lease that this ends, so it does not count as a delivery.
func (f *core) discard(q *dispatch.Queue, token *fdbpq.Token) {
	op := fdbpq.Op{
		Kind: fdbpq.OpTerm, Token: *token, Reason: fdbpq.ReasonMaxDeliver, Uncounted: true,
	}
	f.settle(q, &op, "")
}

// settlement is the dispatch.Replier of an acknowledgement. Once the acknowledgement is durable, it
// sends the confirmation if the client requested one. If the acknowledgement fails, for example
// because the lease was lost, it sends nothing: clients could take any answer as success.
type settlement struct {
	f     *core
	reply string // the subject, "" for none
}

// Answer implements dispatch.Replier.
func (s *settlement) Answer(_ *dispatch.Request, _ []fdbpq.Op, results []fdbpq.Result) {
	defer s.f.answered()
	failed := results[0].Err != nil
	s.f.config.Counted(countedAck, failed)
	if s.reply != "" && !failed {
		s.f.send(&leaf.Message{Subject: s.reply})
	}
}

// Fail implements dispatch.Replier.
func (s *settlement) Fail(_ *dispatch.Request, _ []fdbpq.Op, err error) {
	defer s.f.answered()
	s.failed(err)
}

func (s *settlement) failed(err error) {
	s.f.config.Counted(countedAck, true)
	s.f.config.Warn("an acknowledgement failed: its item may be delivered again", "error", err)
}

// submit passes a request of one operation to the dispatcher. Its Replier must call answered.
func (f *core) submit(r *dispatch.Request, op fdbpq.Op) error {
	f.requests.Add(1)
	err := f.config.Dispatcher.Submit(r, []fdbpq.Op{op})
	if err != nil {
		f.answered()
	}
	return err
}

func (f *core) answered() {
	if f.requests.Add(-1) == 0 {
		signal.To(f.idle)
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

// pushSubject returns the subject of a stream, to which pushes to the queue go.
func (f *core) pushSubject(s stream) string {
	r := subjects.Request{Kind: s.kind, Queue: s.name, Verb: subjects.Push}
	subject, _ := f.config.Grammar.Build(r) // its name was checked
	return subject
}

// mayReply reports whether a client may be answered on a subject. A leaf node may publish where
// clients may not, and a client must not use it for that.
func (f *core) mayReply(subject string) bool {
	original, _ := leaf.WithoutGateway(subject)
	_, again := leaf.WithoutGateway(original) // no server makes that
	return !again && f.config.MayReply(original)
}

// status sends a status, with further headers as pairs of name and value.
func (f *core) status(subject string, code int, text string, pairs ...string) {
	f.send(&leaf.Message{Subject: subject, Header: statusHeader(code, text, pairs...)})
}

const unsentAnswer = "an answer over the leaf node connection could not be sent"

// send sends an answer that is safe to lose, because the client asks again.
func (f *core) send(m *leaf.Message) {
	if err := f.out.Publish(m); err != nil {
		f.config.Warn(unsentAnswer, "error", err)
	}
}

// forwardRoot begins the subjects on which bridges forward requests to each other.
const forwardRoot = "_pqbridge.jetstream."

// forwardTo begins the subjects of messages forwarded to a bridge that shares the store.
func (f *core) forwardTo(bridge string) string {
	return forwardRoot + f.domains.hash + "." + bridge + "."
}

// forward forwards a message for a queue to the bridge that pops from it, and reports whether it
// did. If several bridges served the pulls of a queue, their transactions would conflict, and each
// would count only what it has delivered itself.
func (f *core) forward(s stream, m *leaf.Message) bool {
	q, err := f.queueOf(s)
	if err != nil {
		return false
	}

	owner := f.config.Owner(q)
	if owner == f.config.Self {
		return false
	}

	// An owner without a leaf connection has no interest. The header is for NATS, which must not
	// act on it a second time.
	to := f.forwardTo(owner) + m.Subject
	forwarded := &leaf.Message{Subject: to, Reply: m.Reply, Payload: m.Payload}
	return f.out.HasInterest(to) && f.out.Publish(forwarded) == nil
}
