package jetstream

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// Calls and pulls that a face finds in its socket after it stood still are refused, because their
// clients have given up. A pull that may still wait gets its item.
func TestOldRequests(t *testing.T) {
	s := newSystem(t)
	s.push("jobs", "stays")

	receive := func(call, payload string) {
		s.receive(&leaf.Message{
			Subject: "$JS.pq.API." + call,
			Reply:   nats.NewInbox(),
			Payload: []byte(payload),
			Waited:  patience,
		})
	}

	receive("STREAM.PURGE.jobs", "")
	if m := s.sent(); !strings.Contains(string(m.Payload), `"err_code":10008`) {
		t.Errorf("an old purge got %s", m.Payload)
	}

	for _, pull := range []string{`{"no_wait":true}`, `{"expires":1000000000}`} {
		receive("CONSUMER.MSG.NEXT.jobs.min", pull)
		s.nextStatus("408 Request Timeout")
	}

	same(t, "items", s.do(subjects.Priority, "jobs", fdbpq.Op{Kind: fdbpq.OpLen})[0].Len, 1)

	receive("CONSUMER.MSG.NEXT.jobs.min", pullForAnHour)
	same(t, "item", string(s.sent().Payload), "stays")
}

// pullOf starts a pull of a consumer that delivers each item once. The answers go to _INBOX.late,
// and the pull has waited for that long to be read.
func (s *system) pullOf(payload string, waited time.Duration) {
	s.startPull(worker(jetstream.ConsumerConfig{MaxDeliver: 1}),
		&leaf.Message{Reply: "_INBOX.late", Payload: []byte(payload), Waited: waited})
}

// wantUntouched checks that the only item was not leased, and that another client gets it as its
// first delivery.
func (s *system) wantUntouched() {
	s.t.Helper()
	ready, leased := s.count("jobs")
	same(s.t, "ready", ready, 1)
	same(s.t, "leased", leased, 0)
	same(s.t, "messages", len(s.sender.sent), 0)

	s.pullAs(jetstream.ConsumerConfig{MaxDeliver: 1}, pullWithoutWait)
	s.nextItem("a")
}

// A pull of a client that is gone leases nothing, so nothing counts as delivered. It ends once news
// of a subscription would have come: as long after it was sent, however late it is read.
func TestPullOfAClientThatIsGone(t *testing.T) {
	for _, payload := range []string{pullWithoutWait, pullForAnHour, pullForAMinute} {
		for _, waited := range []time.Duration{0, time.Second, 10 * time.Second} {
			t.Run(fmt.Sprint(payload, waited), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSystem(t)
					s.sender.deaf.Store(new("_INBOX.late"))
					s.push("jobs", "a")

					begun := time.Now()
					s.pullOf(payload, waited)
					eventually(t, "its end", func() bool { return s.counts(jobsW).Waiting == 0 })
					synctest.Wait()

					took, most := time.Since(begun), max(newInterest-waited, 0)
					if took < most || took > most+2*interestPause {
						t.Errorf("it ended after %v, want %v", took, most)
					}
					s.wantUntouched()
				})
			})
		}
	}
}

// A pull whose subscription becomes known a little later gets its item then.
func TestLateInterest(t *testing.T) {
	for _, payload := range []string{pullWithoutWait, pullForAnHour, pullForAMinute} {
		t.Run(payload, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSystem(t)
				s.sender.deaf.Store(new("_INBOX.late"))
				s.push("jobs", "a")
				s.pullOf(payload, 0)

				time.Sleep(newInterest / 2)
				synctest.Wait()
				same(t, "messages to nobody", len(s.sender.sent), 0)

				s.sender.deaf.Store(nil)
				s.nextItem("a")
			})
		})
	}
}

// The end of a subscription may stand in the socket behind the pull of a bridge that stood still.
// So the pull leases nothing before all of that is read. It also ends if the bridge stops, or the
// connection is lost.
func TestPullIsReadAfterAFreeze(t *testing.T) {
	for name, then := range map[string]func(s *system){
		"its client is gone": func(s *system) {
			s.sender.deaf.Store(new("_INBOX.late"))
			s.interestGone("_INBOX.late")
			(<-s.sender.barriers)()
		},
		"its client was gone before": func(s *system) {
			s.sender.deaf.Store(new("_INBOX.late"))
			(<-s.sender.barriers)()
		},
		"the connection is lost": func(s *system) { s.dropPulls() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSystem(t)
				s.sender.barriers = make(chan func(), 1)
				s.push("jobs", "a")
				s.pullOf(pullForAnHour, 10*time.Second)
				time.Sleep(10 * newInterest)
				synctest.Wait()
				same(t, "pulls", s.counts(jobsW).Waiting, 1)

				then(s)
				eventually(t, "its end", func() bool { return s.counts(jobsW).Waiting == 0 })
				s.wantUntouched()
			})
		})
	}

	synctest.Test(t, func(t *testing.T) {
		s := newSystem(t)
		s.sender.barriers = make(chan func(), 2)
		s.push("jobs", "a")
		s.pullOf(pullForAnHour, 10*time.Second)
		(<-s.sender.barriers)()
		s.nextItem("a")

		s.pullOf(pullForAnHour, 10*time.Second)
		s.endPulls()
		s.nextStatus("409 Server Shutdown")
		s.waitForRequests()
	})
}

// A bridge that stood still forwards no requests that it finds in its socket, because the owner of
// the queue would take them for new. It forwards acknowledgements: the token decides.
func TestOldRequestsStay(t *testing.T) {
	s := newSystem(t, func(c *Config) {
		c.Owner = func(*dispatch.Queue) string { return "bridge2" }
	})
	s.push("jobs", "a")
	receive := func(subject, payload string) {
		s.receive(&leaf.Message{
			Subject: subject,
			Reply:   "_INBOX.x",
			Payload: []byte(payload),
			Waited:  patience,
		})
	}

	receive("$JS.pq.API.STREAM.PURGE.jobs", "")
	if m := s.sent(); !strings.Contains(string(m.Payload), `"err_code":10008`) {
		t.Errorf("an old purge got %s", m.Payload)
	}
	receive("$JS.pq.API.CONSUMER.MSG.NEXT.jobs.min", pullWithoutWait)
	s.nextStatus("408 Request Timeout")
	receive("$JS.pq.API.CONSUMER.MSG.NEXT.jobs.min", pullForAnHour)
	ack, _, _ := strings.Cut(s.nextItem("a").Reply, "@")

	receive(ack, "+WPI")
	if to := s.sent().Subject; !strings.HasPrefix(to, forwardRoot) {
		t.Errorf("an acknowledgement was sent to %s", to)
	}
	receive(ack, "+NXT "+pullWithoutWait)
	s.nextStatus("408 Request Timeout")
}
