package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// AckAll acknowledges the deliveries that hold, whichever else are lost, and whatever the bridge knows.
func TestAckAll(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		t.Run(fmt.Sprintf("refuses=%t", refuses), func(t *testing.T) {
			s := newWorkshop(t)
			requests := 0
			q := s.relayed(func(m *nats.Msg) *nats.Msg {
				if strings.Contains(m.Subject, ".ack.") {
					requests++ // one at a time
				}
				if a, err := subjects.ParseAck(m.Data); refuses && err == nil && len(a.Also) > 0 {
					return refusal(subjects.CodeBadRequest)
				}
				return nil
			})
			s.push("a", "b", "c", "d", "e", "f")
			c := client.New(s.e.Conn)
			list := must(q.LeaseMinBatch(t.Context(), 6, client.AckWait(time.Minute)))
			if errs := c.AckAll(t.Context()); errs != nil {
				t.Errorf("none: %v", errs)
			}
			if errs := c.AckAll(t.Context(), list[:3]...); errs != nil {
				t.Errorf("three that hold: %v", errs)
			}
			if want := map[bool]int{false: 1, true: 4}[refuses]; requests != want {
				t.Errorf("%d requests, want %d", requests, want)
			}
			// One is lost, one is in another queue, and one is there twice.
			other := s.e.Request("pq.other.push", nil, []byte("x"))
			if other == nil {
				t.Fatal("no reply")
			}
			far := must(client.New(s.e.Conn).PriorityQueue("other").LeaseMin(t.Context()))
			errs := c.AckAll(t.Context(), list[3], list[0], far, list[4], list[4], list[5])
			for i, want := range []error{nil, client.ErrLeaseLost, nil, nil, client.ErrLeaseLost, nil} {
				if len(errs) != 6 || !errors.Is(errs[i], want) {
					t.Fatalf("errors %v: want %v for %d", errs, want, i)
				}
			}
			s.empty()
		})
	}
}

// If some leases are lost, a second request acknowledges the others. Without word of which are, or if its outcome is
// unknown, AckAll does as for any other refusal.
func TestAckAllLeavesOutLostLeases(t *testing.T) {
	for _, test := range []struct {
		name     string
		relay    func(request int) *nats.Msg // of AckAll, from 1
		requests int
		want     error // of those that hold
	}{
		{"named", func(int) *nats.Msg { return nil }, 2, nil},
		{"not named", func(n int) *nats.Msg {
			if n == 1 {
				return refusal(subjects.CodeConflict)
			}
			return nil
		}, 6, nil},
		{"and the rest unknown", func(n int) *nats.Msg {
			if n == 2 {
				return &nats.Msg{Header: (&subjects.Error{Code: subjects.CodeUnavailable, Unknown: true}).Headers()}
			}
			return nil
		}, 2, client.ErrUnknownOutcome},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newWorkshop(t)
			requests, counts := 0, false
			q := s.relayed(func(m *nats.Msg) *nats.Msg {
				if !counts || !strings.Contains(m.Subject, ".ack.") {
					return nil
				}
				requests++ // one at a time
				return test.relay(requests)
			})
			s.push("a", "b", "c", "d", "e")
			list := must(q.LeaseMinBatch(t.Context(), 5, client.AckWait(time.Minute)))
			for _, n := range []int{0, 3} {
				ok(t, list[n].Ack(t.Context()))
			}
			counts = true
			c := client.New(s.e.Conn)
			errs := c.AckAll(t.Context(), list...)
			for i, want := range []error{client.ErrLeaseLost, test.want, test.want, client.ErrLeaseLost, test.want} {
				if len(errs) != 5 || !errors.Is(errs[i], want) {
					t.Fatalf("errors %v: want %v for %d", errs, want, i)
				}
			}
			if requests != test.requests {
				t.Errorf("%d requests, want %d", requests, test.requests)
			}
			if test.want != nil {
				if errs := c.AckAll(t.Context(), list[1], list[2], list[4]); errs != nil {
					t.Errorf("once more: %v", errs)
				}
			}
			s.empty()
		})
	}
}

// A context whose cause is an error of this package, such as that of a job whose lease is lost, says nothing about the
// deliveries.
func TestAckAllContextEnds(t *testing.T) {
	for _, cause := range []error{client.ErrLeaseLost, client.ErrBadRequest, client.ErrInternal} {
		s := newWorkshop(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		returned, relayed := make(chan struct{}), make(chan struct{})
		q := s.relayed(func(m *nats.Msg) *nats.Msg {
			if !strings.Contains(m.Subject, ".ack.") {
				return nil
			}
			defer close(relayed)
			s.e.Request("pq"+strings.TrimPrefix(m.Subject, "far"), nil, m.Data) // it counts
			cancel(cause)
			<-returned
			return &nats.Msg{} // too late
		})
		s.push("a", "b")
		list := must(q.LeaseMinBatch(t.Context(), 2, client.AckWait(time.Minute)))
		c := client.New(s.e.Conn)
		for _, err := range c.AckAll(ctx, list...) {
			if !errors.Is(err, client.ErrUnknownOutcome) {
				t.Errorf("%v, under way: %v, want %v", cause, err, client.ErrUnknownOutcome)
			}
		}
		close(returned)
		<-relayed
		for _, err := range c.AckAll(ctx, list...) {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v, before: %v", cause, err)
			}
		}
	}
}
