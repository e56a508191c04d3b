package bridge_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/bridge/requests"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func subscribe(t testing.TB, nc *nats.Conn, subject string) *nats.Subscription {
	t.Helper()
	s, err := nc.SubscribeSync(subject)
	must(t, err)
	return s
}

// waitUntil waits until something is so.
func waitUntil(t testing.TB, what string, is func() bool) {
	t.Helper()
	testenv.Eventually(t, func() error {
		if !is() {
			return errors.New("still missing: " + what)
		}
		return nil
	})
}

// same compares what a call returned.
func same[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// wantData compares the data of a message.
func wantData(t testing.TB, m *nats.Msg, want string) {
	t.Helper()
	if string(m.Data) != want {
		t.Errorf("got %q with %v, want %q", m.Data, m.Header, want)
	}
}

// newBridge starts another bridge, and returns once it serves.
func newBridge(e *testenv.Env, changes ...func(*bridge.Options)) *testenv.Bridge {
	b := e.StartBridge(changes...)
	b.WaitReady()
	return b
}

// jobsOf returns the priority queue "jobs", for what goes past the bridge.
func jobsOf(t testing.TB, e *testenv.Env) *fdbpq.PriorityQueue {
	t.Helper()
	q, err := e.Keyspace.PriorityQueue("jobs")
	must(t, err)
	return q
}

// store pushes to the queue "jobs" past the bridge.
func store(t testing.TB, e *testenv.Env, priority int64, m fdbpq.Message) fdbpq.ID {
	t.Helper()
	id, err := kv.Transact(t.Context(), e.DB,
		func(tx kv.Transaction) (fdbpq.ID, error) { return jobsOf(t, e).Push(tx, priority, m) })
	must(t, err)
	return id
}

// metricIs returns an error unless the series has the value.
func metricIs(b *testenv.Bridge, series string, want float64) error {
	got, err := metric(b, series)
	if err == nil && got != want {
		err = fmt.Errorf("%s is %v, want %v", series, got, want)
	}

	return err
}

func metric(b *testenv.Bridge, series string) (float64, error) {
	_, body, err := b.Get("/metrics")
	if err != nil {
		return 0, err
	}

	for line := range strings.Lines(string(body)) {
		if value, found := strings.CutPrefix(line, series+" "); found {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}

	return 0, fmt.Errorf("no series %s", series)
}

func count(t testing.TB, b *testenv.Bridge, series string) float64 {
	t.Helper()
	value, err := metric(b, series)
	must(t, err)
	return value
}

func wantMetric(t *testing.T, b *testenv.Bridge, series string, want float64) {
	t.Helper()
	// The counter may change only after the reply has arrived.
	testenv.Eventually(t, func() error { return metricIs(b, series, want) })
}

// eachEngine runs a test on the store in memory and, if it is there, on FoundationDB; with
// harness.Nightly on the embedded store as well. What the engines do with the same queues is tested
// below this package.
func eachEngine(t *testing.T, test func(t *testing.T, e testenv.Engine)) {
	t.Parallel()
	testenv.Each(t, func(t *testing.T, e testenv.Engine) {
		if e.Name == testenv.Pebble().Name {
			harness.OnlyNightly(t)
		}
		test(t, e)
	})
}

// eachShared runs a test on every engine that bridges can share.
func eachShared(t *testing.T, test func(t *testing.T, e testenv.Engine)) {
	t.Parallel()
	for _, e := range []testenv.Engine{testenv.Mem(), {Name: "fdb", Open: testenv.FDB}} {
		t.Run(e.Name, func(t *testing.T) { test(t, e) })
	}
}

// each runs a test on a system with each engine. changes are of the options of its bridge.
func each(t *testing.T, test func(t *testing.T, e *testenv.Env), changes ...func(*bridge.Options)) {
	eachEngine(t, func(t *testing.T, engine testenv.Engine) {
		test(t, testenv.New(t, testenv.Options{Engine: engine, Bridge: func(o *bridge.Options) {
			for _, change := range changes {
				change(o)
			}
		}}))
	})
}

// start starts a system for a test that needs nothing else, so that others may run at the same
// time.
func start(t *testing.T, o testenv.Options) *testenv.Env {
	t.Helper()
	t.Parallel()
	return testenv.New(t, o)
}

// withAccounts returns a system whose NATS has these accounts. The bridge is their user bridge, the
// test their user client.
func withAccounts(t *testing.T, accounts string) *testenv.Env {
	e := start(t, testenv.Options{
		Stopped: true,
		NATS:    testenv.ServerOptions(t, accounts+"\nno_auth_user: client"),
		Bridge: func(o *bridge.Options) {
			o.NATSOptions = append(o.NATSOptions, nats.UserInfo("bridge", "p"))
		},
	})

	e.NATS.Start()
	e.Bridge = newBridge(e)
	e.Conn = e.Connect()

	return e
}

// restart stops the bridge, which then has done and confirmed everything, and starts another.
func restart(t *testing.T, e *testenv.Env) {
	t.Helper()
	e.Bridge.MustStop()
	e.Bridge = newBridge(e)
}

// waitForPeers waits until these bridges share the queues.
func waitForPeers(t *testing.T, bridges ...*testenv.Bridge) {
	t.Helper()
	for _, b := range bridges {
		wantMetric(t, b, "pq_bridges", float64(len(bridges)))
	}
}

// pushAll pushes items one after the other.
func pushAll(t *testing.T, e *testenv.Env, subject string, values ...string) {
	t.Helper()
	for _, value := range values {
		push(t, e, subject, nil, value)
	}
}

// pushNumbers pushes items with the values 0 to n-1.
func pushNumbers(t *testing.T, e *testenv.Env, subject string, n int) {
	t.Helper()
	for i := range n {
		push(t, e, subject, nil, strconv.Itoa(i))
	}
}

// checkStore checks every key of the store against the layout.
func checkStore(t *testing.T, e *testenv.Env) {
	t.Helper()
	if _, err := fdbpqtest.CheckInvariants(t.Context(), e.DB, "pq", "q"); err != nil {
		t.Error(err)
	}
}

// newKeyspace returns the Keyspace with these prefixes.
func newKeyspace(t testing.TB, priority, fifo string) *fdbpq.Keyspace {
	t.Helper()
	k, err := fdbpq.NewKeyspace(priority, fifo, fdbpq.RawValues)
	must(t, err)
	return k
}

// hooked is a store that calls a test before transactions begin and commit, unless a function is
// nil.
type hooked struct {
	kv.Database
	begin, read func(context.Context) error // of those that may write, and of those that only read
	commit      func()
}

func (h *hooked) wrap(db kv.Database) kv.Database {
	h.Database = db
	return h
}

func (h *hooked) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	if h.begin != nil {
		if err := h.begin(ctx); err != nil {
			return nil, err
		}
	}

	tx, err := h.Database.Begin(ctx, o)
	if h.commit != nil && err == nil {
		tx = hookedTransaction{tx, h.commit}
	}

	return tx, err
}

func (h *hooked) BeginRead(ctx context.Context) (kv.ReadTransaction, error) {
	if h.read != nil {
		if err := h.read(ctx); err != nil {
			return nil, err
		}
	}
	return h.Database.BeginRead(ctx)
}

type hookedTransaction struct {
	kv.Transaction
	commit func()
}

func (tx hookedTransaction) Commit() kv.Future[struct{}] {
	tx.commit()
	return tx.Transaction.Commit()
}

// syncLog is a log that the test reads while it is written.
type syncLog struct{ harness.Transcript }

func (l *syncLog) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// says returns an error unless the words are in the log.
func (l *syncLog) says(words string) error {
	if text := l.String(); !strings.Contains(text, words) {
		return fmt.Errorf("%q is not in the log, which ends:\n%s", words,
			text[max(0, len(text)-3000):])
	}
	return nil
}

// wantSays waits until the words are in the log: what others learn of an event can come before.
func (l *syncLog) wantSays(t testing.TB, words string) {
	t.Helper()
	testenv.Eventually(t, func() error { return l.says(words) })
}

func TestMain(m *testing.M) {
	harness.Main(m, testenv.FDBGoroutines()...)
}

// writeForeign adds an item as the recipe's own client does: the key is
// ("pq", queue, "i", priority, count, 20 random bytes).
func writeForeign(t *testing.T, db kv.Database, queue string, priority int64, value string) {
	t.Helper()
	key := tuple.Tuple{"pq", queue, "i", priority, int64(0), []byte("01234567890123456789")}.Pack()
	err := kv.Update(t.Context(), db, func(tx kv.Transaction) error {
		tx.Set(key, []byte(value))
		return nil
	})
	must(t, err)
}

// rawConn is a client without a client library, which can send what libraries would
// not.
type rawConn struct {
	net.Conn
	t       testing.TB
	in      *bufio.Reader
	replies int // numbers the reply subjects
}

// rawMsg is a message as received.
type rawMsg struct{ subject, headers, payload string }

// dialRaw connects and subscribes to raw.>.
func dialRaw(t testing.TB, e *testenv.Env) *rawConn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(e.NATS.URL(), "nats://"))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	c := &rawConn{Conn: conn, t: t, in: bufio.NewReader(conn)}
	c.write(`CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}` +
		"\r\nSUB raw.> 1\r\n")
	return c
}

// write sends bytes of the protocol; a failure fails the test.
func (c *rawConn) write(text string) {
	c.t.Helper()
	must(c.t, c.SetDeadline(time.Now().Add(testenv.Patience)))
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// message returns the protocol for one message. Headers are a whole block with its
// first line and its end, or empty for none.
func message(subject, reply, headers, payload string) string {
	if headers == "" {
		return fmt.Sprintf("PUB %s %s %d\r\n%s\r\n", subject, reply, len(payload), payload)
	}
	return fmt.Sprintf("HPUB %s %s %d %d\r\n%s%s\r\n", subject, reply, len(headers),
		len(headers)+len(payload), headers, payload)
}

// request sends a request and returns the reply. It skips other messages that come
// first.
func (c *rawConn) request(subject, headers, payload string) rawMsg {
	c.t.Helper()
	c.replies++
	reply := "raw." + strconv.Itoa(c.replies)
	c.write(message(subject, reply, headers, payload))

	for {
		if m := c.next(); m.subject == reply {
			return m
		}
	}
}

// next returns the next message.
func (c *rawConn) next() rawMsg {
	c.t.Helper()
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			c.t.Fatalf("no message: %v", err)
		}

		fields := strings.Fields(line)
		switch fields[0] {
		case "-ERR":
			c.t.Fatalf("NATS says %s", line)
		case "PING":
			c.write("PONG\r\n")
		case "MSG", "HMSG":
			return c.body(fields)
		}
	}
}

func (c *rawConn) body(fields []string) rawMsg {
	c.t.Helper()
	size, err := strconv.Atoi(fields[len(fields)-1])
	must(c.t, err)

	headers := 0
	if fields[0] == "HMSG" {
		headers, err = strconv.Atoi(fields[len(fields)-2])
		must(c.t, err)
	}

	body := make([]byte, size+len("\r\n"))
	if _, err := io.ReadFull(c.in, body); err != nil {
		c.t.Fatal(err)
	}

	return rawMsg{fields[1], string(body[:headers]), string(body[headers:size])}
}

// refusal is the error of a reply. In the sense of errors.Is, it is every error that replies say
// with its code, reason and outcome.
type refusal subjects.Error

var (
	errBadRequest = &refusal{Code: subjects.CodeBadRequest}
	errTooLarge   = &refusal{Code: subjects.CodeTooLarge, Reason: subjects.ReasonSize}
)

// replyError returns the *refusal in the headers of a reply, nil if the request succeeded.
func replyError(h nats.Header) error {
	if told := subjects.ErrorFromHeaders(h); told != nil {
		return (*refusal)(told)
	}
	return nil
}

func (r *refusal) Error() string { return (*subjects.Error)(r).Error() }

func (r *refusal) Is(target error) bool {
	want, ok := target.(*refusal)
	if !ok {
		want = (*refusal)(requests.Failure(target))
	}

	return r.Code == want.Code && r.Reason == want.Reason && r.Unknown == want.Unknown
}
