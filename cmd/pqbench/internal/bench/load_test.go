package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/process"
	"github.com/pqbridge/pqbridge/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eachLoad runs a test with both kinds of clients.
func eachLoad(t *testing.T, test func(t *testing.T, l *load, nc *nats.Conn)) {
	for _, lean := range []bool{false, true} {
		t.Run(fmt.Sprintf("lean=%v", lean), func(t *testing.T) {
			env := testenv.New(t, testenv.Options{})
			l, err := newLoad(func() (*nats.Conn, error) { return nats.Connect(env.NATS.URL()) }, 7, 3, lean)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(l.close)
			test(t, l, env.Conn)
		})
	}
}

func answer(t *testing.T, nc *nats.Conn, subject string, handle func(*nats.Msg)) []step {
	t.Helper()
	if _, err := nc.Subscribe(subject, handle); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return []step{{subject: subject}}
}

func TestLoadCountsRequests(t *testing.T) {
	eachLoad(t, func(t *testing.T, l *load, nc *nats.Conn) {
		var seen atomic.Int64
		steps := answer(t, nc, "count", func(m *nats.Msg) {
			seen.Add(1)
			_ = m.Respond(nil)
		})
		for range 2 { // nothing of the first run may show in the second
			seen.Store(0)
			out, err := l.run(t.Context(), steps, limit{steps: 100})
			if err != nil || out.items != 100 || seen.Load() != 100 || out.dry {
				t.Errorf("%d requests counted, %d seen, dry %v, %v: want 100 of each", out.items, seen.Load(), out.dry, err)
			}
			if out.latency.TotalCount() != 100 || out.elapsed <= 0 || out.rate() <= 0 {
				t.Errorf("latencies of %d requests, elapsed %v", out.latency.TotalCount(), out.elapsed)
			}
		}
		out, err := l.run(t.Context(), steps, limit{duration: 20 * time.Millisecond})
		if err != nil || out.items == 0 || out.elapsed < 10*time.Millisecond {
			t.Errorf("%d requests in %v, %v", out.items, out.elapsed, err)
		}
	})
}

func TestLoadStopsWhenDry(t *testing.T) {
	eachLoad(t, func(t *testing.T, l *load, nc *nats.Conn) {
		var left atomic.Int64
		left.Store(50)
		steps := answer(t, nc, "pop", func(m *nats.Msg) {
			if left.Add(-1) < 0 {
				_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Nats-Service-Error-Code": {"404"}}})
				return
			}
			_ = m.Respond([]byte("item"))
		})
		out, err := l.run(t.Context(), steps, limit{duration: time.Minute})
		if err != nil || out.items != 50 || !out.dry {
			t.Errorf("%d requests, dry %v, %v: want the 50 that had an item", out.items, out.dry, err)
		}
	})
}

func TestLoadEndsWithErrors(t *testing.T) {
	eachLoad(t, func(t *testing.T, l *load, nc *nats.Conn) {
		steps := answer(t, nc, "fail", func(m *nats.Msg) {
			_ = m.RespondMsg(&nats.Msg{Header: nats.Header{
				"Nats-Service-Error-Code": {"503"}, "Nats-Service-Error": {"the store is away"},
			}})
		})
		_, err := l.run(t.Context(), steps, limit{duration: time.Minute})
		if err == nil || err.Error() != "the store is away (503)" {
			t.Errorf("error reply: %v", err)
		}
		_, err = l.run(t.Context(), []step{{subject: "nobody"}}, limit{duration: time.Minute})
		if !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("nobody listens: %v", err)
		}
	})
}

func TestLoadEndsWithContext(t *testing.T) {
	eachLoad(t, func(t *testing.T, l *load, nc *nats.Conn) {
		ctx, cancel := context.WithCancelCause(t.Context())
		reason := errors.New("told to stop")
		var seen atomic.Int64
		steps := answer(t, nc, "slow", func(m *nats.Msg) {
			if seen.Add(1) == 20 {
				cancel(reason)
			}
			_ = m.Respond(nil)
		})
		if _, err := l.run(ctx, steps, limit{}); !errors.Is(err, reason) {
			t.Errorf("error %v, want %v", err, reason)
		}
	})
}

func TestReportOfUnknowns(t *testing.T) {
	out := newOutcome()
	out.note(1, time.Millisecond, 3*time.Millisecond)
	out.dry = true
	r := newReport(Options{Payload: 128, Clients: 1, Connections: 1, Priorities: 1, Duration: time.Second})
	unknown := func(name string) *measured {
		return &measured{phase: phase{name: name}, out: out, used: make([]process.Usage, 3)}
	}
	slowed := unknown("push")
	slowed.all = process.Machine{All: 4 * time.Second, Stolen: time.Second}
	r.setOperations([]*measured{unknown("echo"), unknown("pop.min"), slowed})
	r.setBridges([]BridgesRow{{Bridges: 8, Push: newRow(unknown("push")), Pop: newRow(unknown("pop.min"))}})
	var b strings.Builder
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"pop.min*", "n/a", "2.00 ms", "1.00", "8*", "ran empty", "25 %"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in the table:\n%s", want, b.String())
		}
	}
}
