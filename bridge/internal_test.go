package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/subjects"
)

// newTestBridge returns a bridge on an empty store that does not run.
func newTestBridge(t testing.TB) *Bridge {
	t.Helper()
	grammar, err := subjects.New(subjects.DefaultPriorityPrefix, subjects.DefaultFIFOPrefix)
	must(t, err)
	keyspace, err := fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
	must(t, err)
	db := memkv.New(memkv.Options{})
	t.Cleanup(func() {
		must(t, db.Close())
	})
	b, err := New(Options{DB: db, Keyspace: keyspace, Grammar: grammar, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	return b
}

// A pop of many items takes no more memory than one of a single item until its turn comes.
func TestSizeOfAPopOfSeveral(t *testing.T) {
	b := newTestBridge(t)
	var before int64
	for _, payload := range []string{"", `{"batch":1}`, `{"batch":1000}`, `{"batch":1000,"expires":"1h"}`} {
		newHandler(b).handle(&nats.Msg{Subject: "pq.jobs.pop.min", Reply: "inbox", Data: []byte(payload)})
		_, after := b.dispatcher.Pending()
		if size := after - before; size > int64(len(payload)) {
			t.Errorf("%q counts as %d bytes", payload, size)
		}
		before = after
	}
}

// What users wrote stays as it is, whatever it looks like.
func TestWithoutPackages(t *testing.T) {
	for text, want := range map[string]string{
		"kv: the store is away":                          "the store is away",
		`a push: fdbpq: header Pq-X: "kv: 5": kv: wrong`: `a push: header Pq-X: "kv: 5": wrong`,
	} {
		if got := withoutPackages(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// Each verb of the grammar has a row whose fields fit together.
func TestVerbs(t *testing.T) {
	for _, e := range (subjects.Grammar{}).Endpoints() {
		if int(e.Verb) >= len(verbs) {
			t.Fatalf("%s has no row", e.Verb)
		}
		row := verbs[e.Verb]
		if (row.op == 0) != row.inspected {
			t.Errorf("%s: the row has no operation, or one that is not used", e.Verb)
		}
		if e.Kind == subjects.FIFO && row.end != fdbpq.Front {
			t.Errorf("%s: a FIFO queue has no end other than its front", e.Verb)
		}
	}
}

// A time in the same second as the one before reuses its text.
func TestEncoderTime(t *testing.T) {
	var f timeText
	at := time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC)
	for _, step := range []time.Duration{
		0, time.Microsecond, 999_998 * time.Microsecond, 0, 999, 1, time.Microsecond, time.Second, -time.Second, 100 * 365 * 24 * time.Hour,
	} {
		at = at.Add(step)
		if got, want := string(f.appendTo(nil, at)), at.Format(subjects.TimeLayout); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got, want := string(new(timeText).appendTo(nil, time.Unix(0, 0))), "1970-01-01T00:00:00.000000Z"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		at = at.Add(time.Duration(random.Int64N(int64(3*time.Second))) - time.Second)
		if got, want := string(f.appendTo(nil, at)), at.Format(subjects.TimeLayout); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
}

// Errors over HTTP have the same texts as replies, without the names of packages.
func TestHTTPErrors(t *testing.T) {
	for _, m := range []struct {
		err  error
		code int
		text string
	}{
		{fdbpq.ErrNoRoom, 503, "no room"},
		{fmt.Errorf("%w: %w", ErrUnavailable, kv.ErrUnavailable), 503, "the store is unavailable"},
		{fmt.Errorf("%w: item 3: %w", ErrBadRequest, fdbpq.ErrOp), 400, "item 3: invalid operation"},
	} {
		code, text := pageFailure(m.err)
		if code != m.code || strings.Contains(text, "fdbpq:") || strings.Contains(text, "kv:") || !strings.Contains(text, m.text) {
			t.Errorf("%v: %d %s", m.err, code, text)
		}
	}
}

// Every subject can be parsed from the server's error.
func FuzzDeniedSubject(f *testing.F) {
	for _, subject := range []string{"a.B", `a"b`, `a\"`, "größe", "\x00\xff", `x" to "_pqbridge.y`, "", "'"} {
		f.Add(subject)
	}
	f.Fuzz(func(t *testing.T, subject string) {
		words := fmt.Sprintf("Permissions Violation for Publish to %q", []byte(subject))
		if got, ok := deniedSubject(fmt.Errorf("%w: %s", nats.ErrPermissionViolation, words)); !ok || got != subject {
			t.Errorf("%q is read as %q", words, got)
		}
		if got, ok := deniedSubject(errors.New(words)); ok {
			t.Errorf("%q is read from another error", got)
		}
		for _, words := range []string{fmt.Sprintf("Permissions Violation for Subscription to %q", subject), subject} {
			_, _ = deniedSubject(fmt.Errorf("%w: %s", nats.ErrPermissionViolation, words)) // no panic
		}
	})
}

type pipeDialer struct{ conn net.Conn }

func (d pipeDialer) Dial(string, string) (net.Conn, error) { return d.conn, nil }

// pipe returns a connection over a cable, and its other end.
func pipe(t *testing.T, full *atomic.Bool) (conn, other net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	l := newCable(func() (messages, bytes int) {
		if full.Load() {
			return intakeMessages, 0
		}
		return intakeMessages - 1, intakeBytes - 1
	})
	o := nats.Options{CustomDialer: pipeDialer{near}}
	must(t, l.option(&o))
	conn, err := o.CustomDialer.Dial("tcp", "localhost")
	must(t, err)
	t.Cleanup(func() {
		_ = conn.Close() // again, in some tests
		_ = far.Close()
	})
	return conn, far
}

// A connection is not read while its backlog is too large, and is read again
// afterwards.
func TestIntakeWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		conn, other := pipe(t, &full)
		go func() { _, _ = other.Write(make([]byte, 3*intakeStep)) }()
		full.Store(true)
		if _, err := io.ReadFull(conn, make([]byte, intakeStep)); err != nil {
			t.Fatal(err)
		}
		read := make(chan error, 1)
		go func() {
			_, err := io.ReadFull(conn, make([]byte, 2*intakeStep))
			read <- err
		}()
		synctest.Wait()
		if len(read) > 0 {
			t.Error("the connection was read in spite of the backlog")
		}
		full.Store(false)
		must(t, <-read)
	})
}

// A waiting read ends when the connection is closed.
func TestIntakeEndsWhenClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		conn, other := pipe(t, &full)
		go func() { _, _ = other.Write(make([]byte, intakeStep)) }()
		if _, err := io.ReadFull(conn, make([]byte, intakeStep)); err != nil {
			t.Fatal(err)
		}
		full.Store(true)
		read := make(chan error, 1)
		go func() {
			_, err := conn.Read(make([]byte, 1))
			read <- err
		}()
		synctest.Wait()
		must(t, conn.Close())
		if err := <-read; err == nil {
			t.Error("a closed connection was read")
		}
	})
}

// Parts of browses take a tenth of the time while others ask, and all of it otherwise.
func TestPaceOfBrowses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestBridge(t)
		i := b.inspector
		const part = 10 * time.Millisecond
		run := func(took time.Duration, batches int64) func() error {
			return func() error {
				time.Sleep(took)
				i.batches.Add(batches)
				return nil
			}
		}
		began := time.Now()
		want := func(passed time.Duration) {
			t.Helper()
			if got := time.Since(began); got != passed {
				t.Errorf("%v have passed: want %v", got, passed)
			}
			began = time.Now()
		}
		must(t, i.paced(t.Context(), run(part, 0)))
		must(t, i.paced(t.Context(), run(part, 1)))
		want(2 * part)
		must(t, i.paced(t.Context(), run(part, 0)))
		want(10 * part)
		must(t, i.paced(t.Context(), run(time.Second, 1)))
		must(t, i.paced(t.Context(), run(part, 1)))
		want(time.Second + maxRest + part)

		ctx, cancel := context.WithTimeout(t.Context(), part)
		defer cancel()
		if err := i.paced(ctx, run(part, 0)); !errors.Is(err, dispatch.ErrUnavailable) {
			t.Errorf("a part whose time was over while it waited: %v", err)
		}
		want(part)
		i.end(t.Context()) // does not wait
		must(t, i.paced(t.Context(), run(part, 0)))
		want(part)
	})
}

// A flood of requests for what a bridge knows has it look only now and then.
func TestStatsOfQueuesAreShared(t *testing.T) {
	b := newTestBridge(t)
	b.nc = new(nats.Conn)
	ask := func() *byte { return &b.statsFor([]byte(subjects.StatsOfQueues)).([]byte)[0] }
	first := ask()
	if !b.statsOfQueues.until.After(b.created) {
		t.Error("it looks again at once")
	}
	b.statsOfQueues.until = time.Now().Add(time.Hour)
	if ask() != first {
		t.Error("it looked again")
	}
	b.statsOfQueues.until = time.Time{}
	if ask() == first {
		t.Error("it never looks again")
	}
}
