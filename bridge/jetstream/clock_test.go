package jetstream

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// next pulls as the consumer jobs.w.
func (s *system) next(payload string) {
	subject := "$JS.pq.API.CONSUMER.MSG.NEXT.jobs.w"
	s.receive(&leaf.Message{Subject: subject, Reply: "_INBOX.x", Payload: []byte(payload)})
}

// lets lets time pass, by all clocks, and then has the queue jobs looked at.
func (s *system) lets(pass time.Duration) {
	s.t.Helper()
	s.clock.advance(pass)
	time.Sleep(pass)
	synctest.Wait()
	s.looks()
}

// looks has the queue jobs looked at, so that due items are handled.
func (s *system) looks() {
	s.t.Helper()
	s.do(jobsW.stream.kind, jobsW.stream.name, fdbpq.Op{Kind: fdbpq.OpLen})
	s.running.Wait()
	s.cache.drop(jobsW.stream)
}

// wantConsumers checks how many consumers the queue jobs has.
func (s *system) wantConsumers(when string, want int) {
	s.t.Helper()
	read := fdbpq.Op{Kind: fdbpq.OpConsumers}
	same(s.t, "consumers "+when, len(s.do(jobsW.stream.kind, jobsW.stream.name, read)[0].Records),
		want)
}

// A consumer whose pull waits stays, whatever the clock does, and its client goes on pulling.
func TestClockSetForwardWhileAPullWaits(t *testing.T) {
	for _, heartbeat := range []time.Duration{0, 20 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := newSystem(t)
			s.succeeds("pq.API.CONSUMER.CREATE.jobs.w", create(`{}`))
			s.next(fmt.Sprintf(`{"expires":%d,"idle_heartbeat":%d,"batch":2}`, time.Hour,
				heartbeat))
			synctest.Wait()

			for _, step := range []time.Duration{
				2 * time.Hour, 100 * time.Hour, time.Minute, -time.Hour, 2 * time.Hour,
			} {
				s.clock.advance(step)
				s.looks()
				s.wantConsumers(fmt.Sprint("after a step of ", step), 1)

				for range 6 {
					s.lets(minThreshold / 2)
				}
				s.wantConsumers(fmt.Sprint("some time after a step of ", step), 1)
			}

			for len(s.sender.sent) > 0 { // heartbeats
				s.sent()
			}

			s.push("jobs", "a")
			s.nextItem("a")
			s.next(`{"no_wait":true}`)
			s.nextStatus("404 No Messages")
		})
	}
}

// A client that is at work while the clock is set forward can pull again as long after that as its
// consumer's inactive_threshold says. Then the consumer goes.
func TestClockSetForwardBetweenPulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t)
		s.succeeds("pq.API.CONSUMER.CREATE.jobs.w", create(`{}`))
		s.next(`{"no_wait":true}`)
		s.nextStatus("404 No Messages")

		s.clock.advance(10 * time.Hour)
		s.looks()

		for range 3 {
			s.lets(minThreshold - 10*time.Second)
			s.next(`{"no_wait":true}`)
			s.nextStatus("404 No Messages")
			s.running.Wait()
		}

		s.lets(2 * minThreshold)
		s.wantConsumers("in the last term", 1)

		s.lets(2 * minThreshold)
		s.wantConsumers("in the end", 0)

		s.next(`{"no_wait":true}`)
		s.nextStatus("503")
	})
}

// The credit of a lease that was extended is back when the lease is over by the clock that ends
// leases, not later.
func TestClockSetForwardAfterAnExtension(t *testing.T) {
	s := newSystem(t)
	s.push("jobs", "a")
	s.pullAs(jetstream.ConsumerConfig{MaxAckPending: 1, AckWait: time.Hour}, "")
	s.acknowledge(s.nextItem("a"), "+WPI")

	for _, held := range s.byConsumer[jobsW].leases {
		same(t, "the end of the lease, with and without a monotonic reading", held.until,
			held.until.Round(0))
	}
	same(t, "leases", len(s.byConsumer[jobsW].leases), 1)
}
