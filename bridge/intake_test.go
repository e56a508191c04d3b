package bridge_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/race"
)

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
		{race.Times(200_000, 30_000), 1, func(messages, _ int) bool { return messages >= bridge.IntakeMessages }},
		{1200, 32 << 10, func(_, bytes int) bool { return bytes >= bridge.IntakeBytes }},
	} {
		t.Run(fmt.Sprintf("%d of %d bytes", c.n, c.size), func(t *testing.T) {
			log := stuckLog{slog.DiscardHandler, make(chan struct{})}
			e := testenv.New(t, testenv.Options{Bridge: func(o *bridge.Options) { o.Logger = slog.New(log) }})
			payload := strings.Repeat("x", c.size)
			for range c.n {
				publish(t, e, "pq.jobs.no-such-verb", "", payload)
			}
			if err := e.Conn.Flush(); err != nil {
				t.Fatal(err)
			}
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
