package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// starved is how long nobody should have to wait because of other clients: the default
// of Options.RequestTimeout.
const starved = 5 * time.Second

// bystander is an honest client that pushes to a queue of its own and pops from
// it, one request after the other.
type bystander struct {
	t    *testing.T
	stop chan struct{}
	done sync.WaitGroup
	took []time.Duration
	// refused counts the replies 429 and 503.
	refused int
}

func startBystander(t *testing.T, e *testenv.Env) *bystander {
	b := &bystander{t: t, stop: make(chan struct{})}
	nc := e.Connect()
	b.done.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-b.stop:
				return
			default:
			}
			value := strconv.Itoa(i)
			b.request(nc, "pq.bystander.push", value)
			if got := b.request(nc, "pq.bystander.pop.min", ""); got != value {
				t.Errorf("popped %q, want %q", got, value)
				return
			}
		}
	})
	return b
}

// request makes one request, and repeats it as long as the service says that it is
// overloaded and did not run it.
func (b *bystander) request(nc *nats.Conn, subject, payload string) string {
	begin := time.Now()
	for {
		reply, err := nc.Request(subject, []byte(payload), testenv.Patience)
		if err == nil {
			err = bridge.ErrorFromHeaders(reply.Header)
		}
		if errors.Is(err, bridge.ErrOverloaded) || errors.Is(err, bridge.ErrUnavailable) {
			b.refused++
			continue
		}
		if err != nil {
			b.t.Errorf("%s: %v", subject, err)
			return ""
		}
		b.took = append(b.took, time.Since(begin))
		return string(reply.Data)
	}
}

// end stops the bystander and logs how long its requests took. Too long is an error,
// unless starves says that this is known.
func (b *bystander) end(what string, starves bool) {
	b.t.Helper()
	close(b.stop)
	b.done.Wait()
	slices.Sort(b.took)
	n := len(b.took)
	p99 := b.took[n*99/100]
	b.t.Logf("%s: %d requests of a bystander, median %v, p99 %v, longest %v; %d times refused",
		what, n, b.took[n/2], p99, b.took[n-1], b.refused)
	if p99 > starved && !starves {
		b.t.Errorf("%s: the bystander's p99 is %v", what, p99)
	}
}

// TestHostileClients measures how much an honest client suffers from hostile ones, and
// checks that everything is as before once they are gone.
func TestHostileClients(t *testing.T) {
	maxPending := harness.RaceTimes(bridge.DefaultMaxPending, 2048)
	many := harness.RaceTimes(100_000, 5_000) // more than may be pending
	attacks := []struct {
		name   string
		attack func(t *testing.T, e *testenv.Env)
		// starves: other clients have been seen to wait longer than they should.
		// Nothing limits what one client may ask for, so this is only logged.
		starves bool
	}{
		{"nobody else", func(t *testing.T, e *testenv.Env) { sendAll(t, e, 500, "pq.quiet.len", "raw.x", "") }, false},
		{"pushes without reply", func(t *testing.T, e *testenv.Env) { sendAll(t, e, 20_000, "pq.flood.push", "", "x") }, false},
		{"pushes of the largest payloads without reply", func(t *testing.T, e *testenv.Env) {
			sendAll(t, e, 50, "pq.flood.push", "", strings.Repeat("x", 1<<20))
		}, true},
		{fmt.Sprint(many, " requests at once"), func(t *testing.T, e *testenv.Env) {
			c := dialRaw(t, e)
			c.write(strings.Repeat(message("pq.flood.pop.min", "elsewhere", "", ""), many))
			c.request("pq.quiet.len", "", "")
		}, true},
		{"requests that are wrong", func(t *testing.T, e *testenv.Env) { sendAll(t, e, 20_000, "pq.flood.nonsense", "raw.x", "x") }, false},
		{"pops from ever new queues", func(t *testing.T, e *testenv.Env) { sendAll(t, e, 20_000, "pq.flood-%d.pop.min", "raw.x", "") }, false},
		{"pushes to ever new queues", func(t *testing.T, e *testenv.Env) { sendAll(t, e, 5_000, "pq.flood-%d.push", "", "x") }, false},
		{"service discovery", func(t *testing.T, e *testenv.Env) { sendAll(t, e, 5_000, "$SRV.STATS", "raw.x", "") }, false},
		{"searches", func(t *testing.T, e *testenv.Env) { sendAll(t, e, 5_000, "pq.quiet.items", "raw.x", `{"match":"x"}`) }, false},
		{"the largest headers", sendHeaders, true},
		{"requests whose replies are not read", func(t *testing.T, e *testenv.Env) { askAndNotRead(t, e, nil) }, true},
		{"requests whose replies are read slowly", func(t *testing.T, e *testenv.Env) {
			ticks := time.NewTicker(time.Millisecond)
			defer ticks.Stop()
			askAndNotRead(t, e, ticks.C)
		}, true},
	}
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			e := testenv.New(t, testenv.Options{Engine: testenv.Pebble(), NATS: func(o *server.Options) {
				o.WriteDeadline = 2 * time.Second // as docs/operations.md says
			}, Bridge: func(o *bridge.Options) { o.MaxPending = maxPending }})
			b := startBystander(t, e)
			a.attack(t, e)
			b.end(a.name, a.starves)
			e.Bridge.WaitReady()
			wantMetric(t, e.Bridge, "pq_pending_requests", 0)
			wantMetric(t, e.Bridge, "pq_pending_bytes", 0)
			wantMetric(t, e.Bridge, "pq_dropped_total", 0)
			wantMetric(t, e.Bridge, "pq_reply_failures_total", 0)
		})
	}
}

// sendAll sends n messages as fast as it can, reading replies but not waiting for them,
// and returns when the service has handled all of them. %d in the subject becomes the
// number of the message.
func sendAll(t *testing.T, e *testenv.Env, n int, subject, reply, payload string) {
	t.Helper()
	c := dialRaw(t, e)
	for i := range harness.RaceTimes(n, n/20) {
		to := subject
		if strings.Contains(subject, "%d") {
			to = fmt.Sprintf(subject, i)
		}
		c.write(message(to, reply, "", payload))
		if reply != "" && i%100 == 99 {
			c.request("pq.quiet.len", "", "") // which reads the replies to the others
		}
	}
	c.request("pq.quiet.len", "", "")
}

// sendHeaders pushes and pops messages with the largest headers.
func sendHeaders(t *testing.T, e *testenv.Env) {
	c := dialRaw(t, e)
	for range harness.RaceTimes(3, 1) {
		for _, block := range largeHeaders(int(e.Conn.MaxPayload())) {
			c.request("pq.flood.push", block, "")
			c.request("pq.flood.pop.min", "", "")
		}
	}
}

// askAndNotRead requests an item of 64 KiB 2,000 times, and reads 4 KiB of the replies
// at each tick, or nothing. NATS slows the service down while it holds much data for a
// client, until the data is too much or write_deadline is over.
func askAndNotRead(t *testing.T, e *testenv.Env, ticks <-chan time.Time) {
	t.Helper()
	const n = 2_000
	push(t, e, "pq.big.push", nil, strings.Repeat("x", 64<<10))
	c := dialRaw(t, e)
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		buffer := make([]byte, 4<<10)
		for {
			select {
			case <-ticks:
				if _, err := c.Read(buffer); err != nil {
					return
				}
			case <-stop:
				return
			}
		}
	})
	c.write(strings.Repeat(message("pq.big.peek.min", "raw.x", "", ""), n))
	wantMetric(t, e.Bridge, `pq_requests_total{operation="peek-min"}`, n)
	close(stop)
	reader.Wait()
}

// stuckLog is a log that blocks the line about a request without a usable reply subject
// until it is freed, so that the callback of the subscription waits.
type stuckLog struct {
	slog.Handler
	free chan struct{}
}

func (l stuckLog) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "reply subject") {
		<-l.free
	}
	return nil
}

func (l stuckLog) Enabled(context.Context, slog.Level) bool { return true }

// The NATS client keeps only a limited backlog for a slow callback, and drops nothing:
// the connection is not read meanwhile.
func TestFloodInFrontOfACallback(t *testing.T) {
	const step = 64 << 10 // read between two checks
	for _, c := range []struct {
		n, size int
		reached func(messages, bytes int) bool
	}{
		{harness.RaceTimes(200_000, 30_000), 1, func(messages, _ int) bool { return messages >= bridge.IntakeMessages }},
		{1200, 32 << 10, func(_, bytes int) bool { return bytes >= bridge.IntakeBytes }},
	} {
		t.Run(fmt.Sprintf("%d of %d bytes", c.n, c.size), func(t *testing.T) {
			log := stuckLog{slog.DiscardHandler, make(chan struct{})}
			e := testenv.New(t, testenv.Options{Bridge: func(o *bridge.Options) { o.Logger = slog.New(log) }})
			payload := strings.Repeat("x", c.size)
			for range c.n {
				publish(t, e, "pq.jobs.no-such-verb", "", payload)
			}
			must(t, e.Conn.Flush())
			testenv.Eventually(t, func() error {
				if messages, bytes := e.Bridge.MostBacklog(); !c.reached(messages, bytes) {
					return fmt.Errorf("%d messages, %d bytes wait for the callback", messages, bytes)
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
