package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// patience is far more than anything here takes.
const patience = 2 * time.Minute

// maxWaiters may wait in the dispatcher of a system.
const maxWaiters = 1000

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// same compares what a call returned.
func same[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// within waits for what comes from a channel.
func within[T any](t testing.TB, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatalf("still missing: %s", what)
	}

	return v
}

// clock is a clock that only tests move.
type clock struct {
	sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.Lock()
	defer c.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.Lock()
	defer c.Unlock()
	c.at = c.at.Add(d)
}

// fakeSender passes sent messages to the test.
type fakeSender struct {
	sent chan *leaf.Message
	deaf atomic.Pointer[string] // how the subjects begin that nobody listens to; none if nil
	err  atomic.Pointer[error]  // of sending items, nil if there is none

	barriers chan func() // nil if the connection is never behind
}

func (s *fakeSender) Publish(m *leaf.Message) error {
	if err := s.err.Load(); err != nil && m.Reply != "" {
		return *err
	}

	copied := *m
	copied.Header = slices.Clone(m.Header)
	s.sent <- &copied

	return nil
}

// Barrier calls f at once, or when the test does.
func (s *fakeSender) Barrier(f func()) {
	if s.barriers == nil {
		f()
	} else {
		s.barriers <- f
	}
}

func (s *fakeSender) HasInterest(subject string) bool {
	deaf := s.deaf.Load()
	return deaf == nil || !strings.HasPrefix(subject, *deaf)
}

// system is a Face on an empty store in memory.
type system struct {
	*Face
	t          testing.TB
	clock      *clock
	db         kv.Database
	dispatcher *dispatch.Dispatcher
	keyspace   *fdbpq.Keyspace
	sender     *fakeSender
}

// newConfig returns the configuration of a Face on an empty store, whose dispatcher runs until the
// test ends.
func newConfig(t testing.TB) (Config, *system) {
	t.Helper()
	s := &system{t: t, clock: &clock{at: time.Now()}, db: memkv.New(memkv.Options{})}
	var err error
	s.keyspace, err = fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
	must(t, err)

	s.dispatcher = dispatch.New(dispatch.Options{
		DB:       s.db,
		Keyspace: s.keyspace,
		Now:      s.clock.now,
		Limits: dispatch.Limits{
			Lanes:           1,
			MaxBatch:        1024,
			MaxBatchBytes:   4 << 20,
			MaxPending:      16384,
			MaxPendingBytes: 64 << 20,
			MaxWaiters:      maxWaiters,
			RequestTimeout:  patience,
		},
		Warn:        func(string, ...any) {},
		BatchDone:   func(int) {},
		RequeueLate: func(*dispatch.Queue, fdbpq.OpKind, *fdbpq.Result) {},
	})

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { s.dispatcher.Run(ctx); close(ended) }()

	t.Cleanup(func() {
		s.dispatcher.Close()
		<-ended
		cancel()
		must(t, s.db.Close())
	})

	grammar, err := subjects.New("pq", "q")
	must(t, err)

	return Config{
		Group:          "pq",
		Identity:       "store",
		Self:           "bridge1",
		Grammar:        grammar,
		Domains:        map[subjects.Kind]string{subjects.Priority: "pq", subjects.FIFO: "q"},
		Dispatcher:     s.dispatcher,
		List:           s.list,
		RequestTimeout: patience,
		Now:            s.clock.now,
		Logger:         slog.New(slog.DiscardHandler),
		Warn:           func(string, ...any) {},
		Counted:        func(string, bool) {},
		ErrorText: func(err error) (int, string) {
			if errors.Is(err, fdbpq.ErrOp) {
				return 400, err.Error()
			}
			return 503, err.Error()
		},
		AppendHeader: func(
			to []byte, _ *dispatch.Queue, _ *fdbpq.Item, _ *fdbpq.Lease,
		) ([]byte, error) {
			return append(to, "NATS/1.0\r\n\r\n"...), nil
		},
		MayReply: func(subject string) bool {
			return !strings.HasPrefix(subject, "$") && !grammar.Owns(subject)
		},
		Return:    func(*dispatch.Queue, *fdbpq.Result, bool) {},
		Delivered: func(int64) {},
		Owner:     func(*dispatch.Queue) string { return "bridge1" },
	}, s
}

// consumerOf returns a consumer as pulls find it, nil if there is none.
func (f *Face) consumerOf(ctx context.Context, s stream, name string) (*consumer, error) {
	q, err := f.readQueue(ctx, s)
	if err != nil {
		return nil, err
	}

	return q.consumers[name], nil
}

// list is what the bridge's list does.
func (s *system) list(
	ctx context.Context, kind subjects.Kind, o subjects.ListOptions,
) (list subjects.QueueList, err error) {
	of := s.keyspace.ListPriorityQueues
	if kind == subjects.FIFO {
		of = s.keyspace.ListQueues
	}

	page, err := of(ctx, s.db, o.After, o.Limit, s.clock.now())
	for _, q := range page.Queues {
		list.Queues = append(list.Queues, subjects.QueueCounts{
			Queue:   q.Name,
			Ready:   q.Ready,
			Leased:  q.Leased,
			Delayed: q.Delayed,
		})
	}

	if page.Next != "" {
		list.Next = &page.Next
	}

	return list, err
}

// newSystem returns a Face without a server.
func newSystem(t testing.TB, changes ...func(*Config)) *system {
	t.Helper()
	c, s := newConfig(t)
	for _, change := range changes {
		change(&c)
	}

	var err error
	s.Face, err = newFace(c)
	must(t, err)

	s.sender = &fakeSender{sent: make(chan *leaf.Message, 10_000)}
	s.out = s.sender
	t.Cleanup(func() { s.tasks.end(context.Background()) })

	return s
}

// do runs operations on a queue.
func (s *system) do(kind subjects.Kind, name string, ops ...fdbpq.Op) []fdbpq.Result {
	s.t.Helper()
	q, err := s.dispatcher.Queue(kind, name)
	must(s.t, err)

	results, err := s.dispatcher.Do(context.Background(), q, ops)
	must(s.t, err)

	for i := range results {
		must(s.t, results[i].Err)
	}

	return results
}

// push pushes values at priority 0.
func (s *system) push(name string, values ...string) {
	s.t.Helper()
	var ops []fdbpq.Op

	for _, value := range values {
		m := fdbpq.Message{Value: []byte(value)}
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpPush, Message: m})
	}

	s.do(subjects.Priority, name, ops...)
}

// configure changes the settings of a priority queue.
func (s *system) configure(name string, change func(*fdbpq.Settings)) {
	s.t.Helper()
	s.do(subjects.Priority, name, fdbpq.Op{Kind: fdbpq.OpConfigure, Configure: change})
}

// reply is what any call of the API may return.
type reply struct {
	Type  string              `json:"type"`
	Error *jetstream.APIError `json:"error"`

	Total, Offset, Limit int
	Streams, Consumers   any // lists, but for numbers in an INFO
	Config               json.RawMessage
	State                *jetstream.StreamState
	Name                 string
	Success              bool
	Purged               int
	Domain               string

	text []byte
}

// length returns the length of a list.
func length(list any) int {
	all, _ := list.([]any)
	return len(all)
}

// ask sends a request of the API, after $JS, and returns its answer.
func (s *system) ask(subject, payload string) *reply {
	s.t.Helper()
	s.receive(&leaf.Message{
		Subject: "$JS." + subject,
		Reply:   "_INBOX.test",
		Payload: []byte(payload),
	})
	m := s.sent()

	r := &reply{text: m.Payload}
	if err := json.Unmarshal(m.Payload, r); err != nil {
		s.t.Fatalf("%s: %q with %q: %v", subject, m.Payload, m.Header, err)
	}
	if !strings.HasPrefix(r.Type, typePrefix) || !strings.HasSuffix(r.Type, "_response") {
		s.t.Errorf("%s: the type is %q", subject, r.Type)
	}

	return r
}

// sent returns the next message that was sent.
func (s *system) sent() *leaf.Message {
	s.t.Helper()
	return within(s.t, "a message", s.sender.sent)
}

// succeeds is ask for what must succeed.
func (s *system) succeeds(subject, payload string) *reply {
	s.t.Helper()
	r := s.ask(subject, payload)
	if r.Error != nil {
		s.t.Fatalf("%s %s: %v", subject, payload, r.Error)
	}

	return r
}

// fails is ask for what must fail with one of JetStream's codes, and a text that has a part.
func (s *system) fails(subject, payload string, code jetstream.ErrorCode, part string) {
	s.t.Helper()
	r := s.ask(subject, payload)
	if r.Error == nil {
		s.t.Errorf("%s %s: got %s, want error %d", subject, payload, r.text, code)
	} else if r.Error.ErrorCode != code || !strings.Contains(r.Error.Description, part) {
		s.t.Errorf("%s %s: got %v, want code %d and %q", subject, payload, r.Error, code, part)
	}
}

// member returns a member of a configuration.
func member(t testing.TB, config json.RawMessage, name string) string {
	t.Helper()
	var all map[string]json.RawMessage
	must(t, json.Unmarshal(config, &all))
	return string(all[name])
}

// newServer starts a NATS server.
func newServer(t testing.TB, o *server.Options) *server.Server {
	t.Helper()
	o.Host, o.Port, o.NoLog, o.NoSigs = "127.0.0.1", -1, true, true
	n, err := server.NewServer(o)
	must(t, err)

	n.Start()
	t.Cleanup(func() { n.Shutdown(); n.WaitForShutdown() })
	if !n.ReadyForConnections(patience) {
		t.Fatal("the server did not start")
	}

	return n
}

// connected returns a Face that is connected to a server of its own, and a client.
func connected(t testing.TB) (*system, *nats.Conn) {
	t.Helper()
	n := newServer(t, &server.Options{LeafNode: server.LeafNodeOpts{Host: "127.0.0.1", Port: -1}})
	v, err := n.Varz(nil)
	must(t, err)

	c, s := newConfig(t)
	address := fmt.Sprintf("nats-leaf://127.0.0.1:%d", v.LeafNode.Port)
	c.Leaf = leaf.Config{URLs: []string{address}, Name: "test"}
	s.Face, err = New(c)
	must(t, err)

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()

	t.Cleanup(func() {
		until, done := context.WithTimeout(ctx, patience)
		defer done()
		must(t, s.Stop(until))

		cancel()
		must(t, <-ended)
	})

	nc, err := nats.Connect(n.ClientURL(), nats.Timeout(patience))
	must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.NewWithDomain(nc, "pq")
	must(t, err)

	// The client hears of the face a little after it is connected.
	eventually(t, "an answer", func() bool {
		_, err := js.AccountInfo(context.Background())
		return err == nil && s.Ready() == nil
	})

	return s, nc
}

// eventually waits until something is so.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still missing: %s", what)
		}
	}
}
