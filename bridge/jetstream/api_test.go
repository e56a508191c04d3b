package jetstream

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

func apiCode(n int) jetstream.ErrorCode { return jetstream.ErrorCode(n) }

// INFO says that the domain is there.
func TestAccountInfo(t *testing.T) {
	s := newSystem(t)
	same(t, "domain", s.succeeds("pq.API.INFO", "").Domain, "pq")
	same(t, "domain", s.succeeds("q.API.INFO", "{}").Domain, "q")
}

// Calls that no queue can carry out, and subjects and payloads that no call has, are refused with a
// reason, and change nothing.
func TestRefusals(t *testing.T) {
	s := newSystem(t)
	s.push("jobs", "a")

	for _, wrong := range []struct {
		subject string
		code    int
		part    string
	}{
		{"STREAM.DELETE.jobs", errBadRequest, "purge it"},
		{"STREAM.MSG.GET.jobs", errBadRequest, "sequence numbers"},
		{"STREAM.MSG.DELETE.jobs", errBadRequest, "sequence numbers"},
		{"CONSUMER.PAUSE.jobs.min", errBadRequest, "pause_until"},
		{"CONSUMER.RESET.jobs.min", errBadRequest, "sequence numbers"},
		{"CONSUMER.UNPIN.jobs.min", errBadRequest, "priority groups"},
		{"STREAM.SNAPSHOT.jobs", errBadRequest, "no such call"},
		{"STREAM", errBadRequest, "no such call"},
		{"info", errBadRequest, "no such call"},
		{"STREAM.INFO", errBadRequest, "0 tokens"},
		{"STREAM.INFO.jobs.more", errBadRequest, "2 tokens"},
		{"CONSUMER.INFO.jobs", errBadRequest, "1 tokens"},
		{"CONSUMER.DURABLE.CREATE.jobs", errBadRequest, "1 tokens"},
		{"STREAM.INFO.a b", errNoStream, "stream not found"},
		{"STREAM.INFO." + strings.Repeat("a", 10_000), errNoStream, "stream not found"},
	} {
		s.fails("pq.API."+wrong.subject, "", apiCode(wrong.code), wrong.part)
	}
	s.fails("pq.API.CONSUMER.INFO.jobs.min", "x", errNotEmpty, "empty")
	same(t, "messages", s.succeeds("pq.API.STREAM.INFO.jobs", "").State.Msgs, 1)
}

// A request is not answered if its reply subject belongs to NATS or the service, where clients may
// not publish, nor is a request of another domain.
func TestReplySubjects(t *testing.T) {
	s := newSystem(t)
	for _, reply := range []string{
		"$JS.ACK.pq.x", "$SYS.REQ.SERVER", "pq.jobs.push", "q.jobs.push",
	} {
		s.receive(&leaf.Message{Subject: "$JS.pq.API.INFO", Reply: reply})
	}

	s.receive(&leaf.Message{Subject: "$JS.other.API.INFO", Reply: "_INBOX.other"})
	s.receive(&leaf.Message{Subject: "$JS.pq.API.INFO", Reply: "_INBOX.last"})
	same(t, "the only reply subject", s.sent().Subject, "_INBOX.last")
}

// A change without a reply subject is made all the same.
func TestWithoutReply(t *testing.T) {
	s := newSystem(t)
	s.push("jobs", "a")
	s.receive(&leaf.Message{Subject: "$JS.pq.API.STREAM.PURGE.jobs"})
	s.running.Wait()

	same(t, "messages", s.succeeds("pq.API.STREAM.INFO.jobs", "").State.Msgs, 0)
}

// Calls beyond the number that may wait get an error at once, and the others their answers. Once
// there is room, calls succeed again, until the bridge ends.
func TestTooManyCalls(t *testing.T) {
	held := make(chan struct{})
	s := newSystem(t, func(c *Config) {
		c.List = func(
			context.Context, subjects.Kind, subjects.ListOptions,
		) (subjects.QueueList, error) {
			<-held
			return subjects.QueueList{}, nil
		}
	})

	for range maxTasks + maxWaitingTasks {
		s.receive(&leaf.Message{Subject: "$JS.pq.API.STREAM.NAMES", Reply: "_INBOX.waiting"})
	}
	s.fails("pq.API.STREAM.NAMES", "", errNoResources, "insufficient resources")

	close(held)
	for range maxTasks + maxWaitingTasks {
		same(t, "reply", s.sent().Subject, "_INBOX.waiting")
	}

	s.running.Wait()
	s.succeeds("pq.API.STREAM.NAMES", "")

	s.tasks.end(context.Background())
	s.fails("pq.API.STREAM.NAMES", "", errNoResources, "insufficient resources")
}

// A call that has waited for longer than a request may take is not run.
func TestCallWaitsTooLong(t *testing.T) {
	s := newSystem(t, func(c *Config) { c.RequestTimeout = 1 })
	s.push("jobs", "a")
	s.fails("pq.API.STREAM.PURGE.jobs", "", errUnavailable, "waited for too long")
	same(t, "length", s.do(subjects.Priority, "jobs", fdbpq.Op{Kind: fdbpq.OpLen})[0].Len, 1)
}

// An error of the store gets the code of JetStream that fits its status, and keeps its text.
func TestStoreErrors(t *testing.T) {
	code := 503
	s := newSystem(t, func(c *Config) {
		c.List = func(
			context.Context, subjects.Kind, subjects.ListOptions,
		) (subjects.QueueList, error) {
			return subjects.QueueList{}, fmt.Errorf("the store is away")
		}
		c.ErrorText = func(err error) (int, string) { return code, err.Error() }
	})

	for code = range map[int]bool{503: true, 429: true, 500: true, 400: true} {
		want := map[int]int{
			503: errUnavailable,
			429: errNoResources,
			500: errGeneral,
			400: errBadRequest,
		}[code]
		s.fails("pq.API.STREAM.LIST", "", apiCode(want), "the store is away")
	}
}
