package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/testenv"
)

// bystand is an honest client that pushes to a queue of its own and pops from it, one request after
// the other, until it is stopped.
func bystand(t *testing.T, e *testenv.Env) (stop func()) {
	stopped, ended, nc := make(chan struct{}), make(chan struct{}), e.Connect()
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-stopped:
				return
			default:
			}

			value := strconv.Itoa(i)
			insist(t, nc, "pq.bystander.push", value)
			if got := insist(t, nc, "pq.bystander.pop.min", ""); got != value {
				t.Errorf("popped %q, want %q", got, value)
				return
			}
		}
	}()

	return func() { close(stopped); <-ended }
}

// insist repeats a request as long as the service says that it is overloaded and did not run it.
func insist(t *testing.T, nc *nats.Conn, subject, payload string) string {
	for {
		reply, err := nc.Request(subject, []byte(payload), testenv.Patience)
		if err == nil {
			err = replyError(reply.Header)
		}

		switch {
		case errors.Is(err, dispatch.ErrOverloaded) || errors.Is(err, dispatch.ErrUnavailable):
		case err != nil:
			t.Errorf("%s: %v", subject, err)
			return ""
		default:
			return string(reply.Data)
		}
	}
}

// An honest client gets what it asks for whatever hostile ones send meanwhile, and everything is as
// before once they are gone.
func TestHostileClients(t *testing.T) {
	const maxPending = 256
	e := start(t, testenv.Options{
		NATS:   func(o *server.Options) { o.MaxPending = 16 << 20 },
		Bridge: func(o *bridge.Options) { o.MaxPending = maxPending },
	})

	push(t, e, "pq.big.push", nil, strings.Repeat("x", 64<<10))
	stop := bystand(t, e)
	c := dialRaw(t, e)

	for _, a := range []struct {
		what, subject, reply, payload string
		n                             int
	}{
		{"pushes without reply", "pq.flood.push", "", "x", 2000},
		{"the largest payloads", "pq.flood.push", "", strings.Repeat("x", 1<<20), 10},
		{"more than may be pending", "pq.flood.pop.min", "elsewhere", "", 10 * maxPending},
		{"requests that are wrong", "pq.flood.nonsense", "raw.x", "x", 1000},
		{"pops from ever new queues", "pq.flood-%d.pop.min", "raw.x", "", 1000},
		{"pushes to ever new queues", "pq.flood-%d.push", "", "x", 1000},
		{"service discovery", "$SRV.STATS", "raw.x", "", 200},
		{"searches", "pq.quiet.items", "raw.x", `{"match":"x"}`, 500},
	} {
		for i := range a.n {
			c.write(message(strings.Replace(a.subject, "%d", strconv.Itoa(i), 1), a.reply, "",
				a.payload))
			if a.reply == "raw.x" && i%100 == 99 {
				c.request("pq.quiet.len", "", "") // which reads the replies to the others
			}
		}

		c.request("pq.quiet.len", "", "")
		insist(t, e.Conn, "pq.quiet.len", "")
		t.Log(a.what)
	}

	// One that does not read its replies loses its connection, perhaps before it has sent all.
	const unread = 500
	_, _ = c.Write([]byte(strings.Repeat(message("pq.big.peek.min", "raw.x", "", ""), unread)))
	testenv.Eventually(t, func() error {
		n, err := metric(e.Bridge, `pq_requests_total{operation="peek-min"}`)
		if err != nil || n < unread/2 {
			return fmt.Errorf("%v large items were peeked at, %w", n, err)
		}
		return nil
	})

	stop()
	e.Bridge.WaitReady()

	for _, series := range []string{
		"pq_pending_requests", "pq_pending_bytes", "pq_dropped_total", "pq_reply_failures_total",
	} {
		wantMetric(t, e.Bridge, series, 0)
	}
}

// stuckLog is a log that blocks lines with some words until it is freed.
type stuckLog struct {
	slog.Handler
	words       string
	begun, free chan struct{} // begun has an element once it blocks
}

func newStuckLog(words string) stuckLog {
	return stuckLog{slog.DiscardHandler, words, make(chan struct{}, 1), make(chan struct{})}
}

func (l stuckLog) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, l.words) {
		select {
		case l.begun <- struct{}{}:
		default:
		}
		<-l.free
	}
	return nil
}

func (l stuckLog) Enabled(context.Context, slog.Level) bool { return true }

// The NATS client keeps only a limited backlog for a slow callback, and drops nothing: the
// connection is not read meanwhile.
func TestFloodInFrontOfACallback(t *testing.T) {
	const step = 64 << 10 // read between two checks
	for _, c := range []struct {
		n, size int
		reached func(messages, bytes int) bool
	}{
		{30_000, 1, func(messages, _ int) bool { return messages >= bridge.IntakeMessages }},
		{1200, 32 << 10, func(_, bytes int) bool { return bytes >= bridge.IntakeBytes }},
	} {
		t.Run(fmt.Sprintf("%d of %d bytes", c.n, c.size), func(t *testing.T) {
			log := newStuckLog("reply subject") // blocks the callback of the subscription
			e := start(t, testenv.Options{
				// Which waits for as long as the bridge does not read.
				NATS: func(o *server.Options) {
					o.MaxPending, o.WriteDeadline = 64<<20, testenv.Patience
				},
				Bridge: func(o *bridge.Options) { o.Logger = slog.New(log) },
			})

			payload := strings.Repeat("x", c.size)
			for range c.n {
				publish(t, e, "pq.jobs.no-such-verb", "", payload)
			}
			must(t, e.Conn.FlushTimeout(testenv.Patience))

			testenv.Eventually(t, func() error {
				if messages, bytes := e.Bridge.MostBacklog(); !c.reached(messages, bytes) {
					return fmt.Errorf("%d messages, %d bytes wait for the callback", messages,
						bytes)
				}
				return nil
			})

			close(log.free)
			wantMetric(t, e.Bridge, "pq_unanswered_total", float64(c.n))
			wantMetric(t, e.Bridge, "pq_dropped_total", 0)

			messages, bytes := e.Bridge.MostBacklog()
			if messages > bridge.IntakeMessages+step/20 || bytes > bridge.IntakeBytes+step+c.size {
				t.Errorf("%d messages, %d bytes waited for the callback", messages, bytes)
			}
		})
	}
}
