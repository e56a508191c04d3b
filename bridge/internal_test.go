package bridge

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv/harness"
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

	b, err := New(Options{
		DB:       db,
		Keyspace: keyspace,
		Grammar:  grammar,
		Logger:   slog.New(slog.DiscardHandler),
	})
	must(t, err)
	return b
}

// Every subject can be parsed from the server's error.
func FuzzDeniedSubject(f *testing.F) {
	for _, subject := range []string{
		"a.B", `a"b`, `a\"`, "größe", "\x00\xff", `x" to "_pqbridge.y`, "", "'",
	} {
		f.Add(subject)
	}
	f.Fuzz(func(t *testing.T, subject string) {
		words := fmt.Sprintf("Permissions Violation for Publish to %q", []byte(subject))
		denied := fmt.Errorf("%w: %s", nats.ErrPermissionViolation, words)
		if got, ok := deniedSubject(denied); !ok || got != subject {
			t.Errorf("%q is read as %q", words, got)
		}

		if got, ok := deniedSubject(errors.New(words)); ok {
			t.Errorf("%q is read from another error", got)
		}

		for _, words := range []string{
			fmt.Sprintf("Permissions Violation for Subscription to %q", subject), subject,
		} {
			// No panic.
			_, _ = deniedSubject(fmt.Errorf("%w: %s", nats.ErrPermissionViolation, words))
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

// A flood of requests for statistics makes the bridge collect them only now and then.
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

// An outage of a day is ten lines at once and then one a minute, which count every attempt. It
// holds back no other message.
func TestLongOutageIsFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text harness.Transcript
		q := newQuietLog(slog.New(slog.NewTextHandler(&text, nil)))
		const attempts = 24 * 60 * 60 * 2

		for range attempts {
			q.warn("NATS refuses the login")
			time.Sleep(time.Second / 2)
		}

		q.warn("something else")
		time.Sleep(time.Minute)
		q.warn("NATS refuses the login")

		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		if n := len(lines); n < 24*60+10 || n > 24*60+13 {
			t.Errorf("%d lines, want one for each minute, and about ten", n)
		}
		if !strings.Contains(lines[len(lines)-2], "something else") {
			t.Errorf("the other message is not logged at once: %s", lines[len(lines)-2])
		}

		said := 0
		for _, line := range lines {
			_, n, _ := strings.Cut(line, "suppressed=")
			suppressed, _ := strconv.Atoi(n) // 0 if there is none
			said += 1 + suppressed
		}
		if want := attempts + 2; said != want {
			t.Errorf("the log speaks of %d warnings, want %d", said, want)
		}
	})
}

// A frozen NATS server is noticed within half a minute, unless the operator sets another interval.
func TestPingInterval(t *testing.T) {
	for want, options := range map[time.Duration][]nats.Option{
		pingInterval: nil,
		time.Second:  {nats.PingInterval(time.Second)},
	} {
		b := newTestBridge(t)
		b.options.NATSOptions = options
		b.options.NATSURL = "nats://127.0.0.1:1"
		must(t, b.connect(t.Context()))

		got := b.nc.Opts.PingInterval
		b.cable.cut()
		b.nc.Close()

		if got != want {
			t.Errorf("pings every %v, want %v", got, want)
		}
	}

	if noticed := pingInterval * (nats.DefaultMaxPingOut + 1); noticed > 30*time.Second {
		t.Errorf("a frozen server is noticed after %v", noticed)
	}
}

// Reasons for not being ready are separate, whether or not one contains the other.
func TestWhyNotReady(t *testing.T) {
	b := newTestBridge(t)
	b.denials.add("pq.>",
		`nats: permissions violation: Permissions Violation for Subscription to "pq.>"`)
	b.notServing("starting: looking for other bridges")

	const want = "nats: Permissions Violation for Subscription to pq.>; " +
		"starting: looking for other bridges"
	if got := b.whyNotReady(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
