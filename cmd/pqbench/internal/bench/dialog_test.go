package bench

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
)

// leaser is a service with some items, which counts those that are acknowledged.
type leaser struct {
	nc           *nats.Conn
	left, leased atomic.Int64
	acked        atomic.Int64
}

// newLeaser serves lease, with the size of a batch as its payload, and ack.>.
func newLeaser(t *testing.T, nc *nats.Conn, items int64) *leaser {
	l := &leaser{nc: nc}
	l.left.Store(items)
	answer(t, nc, "lease", func(m *nats.Msg) { l.lease(m, string(m.Data)) })
	answer(t, nc, "ack.*", func(m *nats.Msg) {
		l.acked.Add(1)
		if string(m.Data) == payloadNext {
			l.lease(m, "")
		} else if m.Reply != "" {
			_ = m.Respond(nil)
		}
	})
	return l
}

// lease answers a pop.
func (l *leaser) lease(m *nats.Msg, batch string) {
	header := nats.Header{}
	wanted, err := strconv.Atoi(batch)
	if err != nil {
		wanted = 1
	}
	sent := 0
	for ; sent < wanted && l.left.Add(-1) >= 0; sent++ {
		_ = l.nc.PublishRequest(m.Reply, fmt.Sprintf("ack.%d", l.leased.Add(1)), []byte("item"))
	}
	if sent == 0 {
		header.Set("Nats-Service-Error-Code", "404")
	}
	if batch != "" {
		header.Set("Pq-Batch-Count", strconv.Itoa(sent))
	}
	if batch != "" || sent == 0 {
		_ = m.RespondMsg(&nats.Msg{Header: header})
	}
}

func TestLoadOfSteps(t *testing.T) {
	const items = 1000
	for name, c := range map[string]struct {
		step  step
		acked int64 // in the end
	}{
		"acked":       {step{subject: "lease", talk: acked}, items},
		"chained":     {step{subject: "lease", talk: chained}, items},
		"batch":       {step{subject: "lease", payload: []byte("30"), talk: batch}, 0},
		"batch acked": {step{subject: "lease", payload: []byte("30"), talk: batchAcked}, items},
	} {
		t.Run(name, func(t *testing.T) {
			eachLoad(t, func(t *testing.T, l *load, nc *nats.Conn) {
				service := newLeaser(t, nc, items)
				out, err := l.run(t.Context(), []step{c.step}, limit{})
				if err != nil || out.items != items || !out.dry {
					t.Errorf("%d items, dry %v, %v: want %d until the queue is empty", out.items, out.dry, err, items)
				}
				for _, conn := range l.conns { // what they published has arrived then
					flush(t, conn)
				}
				if _, err := nc.Request("ack.0", nil, grace); err != nil { // the service has handled it then
					t.Fatal(err)
				}
				if got := service.acked.Load() - 1; got != c.acked {
					t.Errorf("%d items acknowledged, want %d", got, c.acked)
				}
			})
		})
	}
}

// TestLoadReturnsLeases ends a load whose clients still have an item each.
func TestLoadReturnsLeases(t *testing.T) {
	eachLoad(t, func(t *testing.T, l *load, nc *nats.Conn) {
		service := newLeaser(t, nc, 1000)
		out, err := l.run(t.Context(), []step{{subject: "lease", talk: chained}}, limit{steps: 50})
		if err != nil || out.items != 50 {
			t.Errorf("%d items, %v: want 50", out.items, err)
		}
		if leased, acked := service.leased.Load(), service.acked.Load(); leased != 50 || acked != 50 {
			t.Errorf("%d leased, %d acknowledged, want 50 of each", leased, acked)
		}
	})
}

func TestLoadEndsWithBadReplies(t *testing.T) {
	for want, reply := range map[string]*nats.Msg{
		"has no reply subject": {Data: []byte("item")},
		"0 of 3 items arrived": {Header: nats.Header{"Pq-Batch-Count": {"3"}}},
		"Pq-Batch-Count":       {Header: nats.Header{"Pq-Batch-Count": {"x"}}},
		"the store is away":    {Header: nats.Header{"Nats-Service-Error-Code": {"503"}, "Nats-Service-Error": {"the store is away"}}},
	} {
		t.Run(want, func(t *testing.T) {
			eachLoad(t, func(t *testing.T, l *load, nc *nats.Conn) {
				steps := answer(t, nc, "bad", func(m *nats.Msg) {
					_ = m.RespondMsg(&nats.Msg{Header: reply.Header, Data: reply.Data})
				})
				steps[0].talk = batchAcked
				_, err := l.run(t.Context(), steps, limit{steps: 100})
				checkError(t, err, want)
			})
		})
	}
}

func checkError(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v, want words %q", err, words)
	}
}

// flush returns when the server has everything that the clients of c sent.
func flush(t *testing.T, c conn) {
	t.Helper()
	nc := (*nats.Conn)(nil)
	switch c := c.(type) {
	case *requestConn:
		nc = c.nc
	case *leanConn:
		nc = c.nc
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}
