package jetstream

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

var (
	jobsW   = consumerKey{stream{subjects.Priority, "jobs"}, "w"}
	jobsMin = consumerKey{stream{subjects.Priority, "jobs"}, "min"}
)

// hour is a pull that waits for as long.
const hour = `{"expires":3600000000000}`

// worker returns a consumer of the queue "jobs" with that configuration.
func worker(c jetstream.ConsumerConfig) *consumer {
	c.MaxWaiting = max(c.MaxWaiting, 10)
	return &consumer{stream: jobsW.stream, name: jobsW.name, config: c}
}

// pullAs is a pull of a consumer with that configuration.
func (s *system) pullAs(c jetstream.ConsumerConfig, payload string) {
	s.startPull(worker(c), &leaf.Message{Reply: "_INBOX.x", Payload: []byte(payload)})
}

// nextItem is the next item that was sent.
func (s *system) nextItem(value string) *leaf.Message {
	s.t.Helper()
	m := s.sent()
	if string(m.Payload) != value || !strings.HasPrefix(m.Reply, ackPrefix) {
		s.t.Fatalf("sent %q with %q to %s, want %s", m.Payload, m.Header, m.Subject, value)
	}
	return m
}

// settles waits until that much is outstanding: a message may arrive before its pull is through.
func (s *system) settles(want counts) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%+v outstanding", want), func() bool { return s.counts(jobsW) == want })
}

// status checks the status that was sent next.
func (s *system) nextStatus(want string) {
	s.t.Helper()
	m := s.sent()
	line, _, _ := strings.Cut(string(m.Header), "\r\n")
	same(s.t, "status", strings.TrimPrefix(line, "NATS/1.0 "), want)
}

// acknowledge answers an item.
func (s *system) acknowledge(m *leaf.Message, payload string) {
	subject, _, _ := strings.Cut(m.Reply, "@")
	s.ack(&leaf.Message{Subject: subject, Payload: []byte(payload)}, false)
}

// The place of a delivery is free when its lease is over, without an acknowledgement, which counts no
// more then.
func TestPlaceIsFreeAfterTheLease(t *testing.T) {
	s := newSystem(t)
	s.push("jobs", "a", "b")
	s.pullAs(jetstream.ConsumerConfig{MaxAckPending: 1, AckWait: time.Minute}, `{"batch":2,"expires":3600000000000}`)
	first := s.nextItem("a")
	s.settles(counts{Delivered: 1, AckPending: 1, Waiting: 1})
	s.clock.advance(2 * time.Minute)

	s.freeExpired(s.byConsumer[jobsW]) // what a timer does
	second := s.nextItem("a")
	s.settles(counts{Delivered: 2, AckPending: 1, Redelivered: 1})
	s.askFor(first, "+ACK")
	s.askFor(second, "+ACK")
	same(t, "the confirmation", s.sent().Subject, ackInbox)
	s.settles(counts{Delivered: 2})
	same(t, "more answers", len(s.sender.sent), 0)
}

// max_ack_pending bounds what a consumer has, and an acknowledgement lets it have more.
func TestMaxAckPending(t *testing.T) { synctest.Test(t, testMaxAckPending) }

func testMaxAckPending(t *testing.T) {
	s := newSystem(t)
	c := jetstream.ConsumerConfig{MaxAckPending: 2, AckWait: time.Hour}
	s.push("jobs", "a", "b", "c", "d", "e")
	s.pullAs(c, `{"batch":5,"expires":3600000000000}`)
	first, second := s.nextItem("a"), s.nextItem("b")
	s.settles(counts{Delivered: 2, AckPending: 2, Waiting: 1})
	s.pullAs(c, `{"no_wait":true}`)
	s.nextStatus("404 No Messages")

	s.acknowledge(first, "+ACK")
	third := s.nextItem("c")
	s.acknowledge(second, "-NAK")
	s.acknowledge(s.nextItem("b"), "+ACK")
	s.acknowledge(third, "+ACK")
	s.nextItem("d")
	s.settles(counts{Delivered: 5, AckPending: 1})
}

// What belongs to the queue of another bridge is forwarded to that, as it came, if it listens. Otherwise,
// and if another bridge forwarded it, it is served here.
func TestForward(t *testing.T) {
	owner := "bridge2"
	s := newSystem(t, func(c *Config) { c.Owner = func(*dispatch.Queue) string { return owner } })
	forwarded := func(subject, payload string) {
		t.Helper()
		s.receive(&leaf.Message{Subject: subject, Reply: "_INBOX.x", Header: []byte("NATS/1.0\r\nNats-Trace-Dest: x\r\n\r\n"), Payload: []byte(payload)})
		m := s.sent()
		same(t, "the subject", m.Subject, "_pqbridge.jetstream."+s.domains.hash+".bridge2."+subject)
		same(t, "the rest", m.Reply+string(m.Header)+string(m.Payload), "_INBOX.x"+payload)
	}
	const pull = "$JS.pq.API.CONSUMER.MSG.NEXT.jobs.min"
	forwarded(pull, `{"batch":2,"expires":3600000000000}`)
	forwarded("$JS.pq.API.CONSUMER.INFO.jobs.min", "")

	s.push("jobs", "a", "b", "c")
	s.receive(&leaf.Message{Subject: s.forwarded + pull, Reply: "_INBOX.x"})
	a := s.nextItem("a")
	ack, _, _ := strings.Cut(a.Reply, "@")
	forwarded(ack, "+ACK")
	s.receive(&leaf.Message{Subject: ack, Reply: "$SYS.x"})
	same(t, "a reply subject that belongs to NATS", s.sent().Reply, "")
	eventually(t, "the delivery", func() bool { return s.counts(jobsMin).AckPending == 1 })
	s.receive(&leaf.Message{Subject: s.forwarded + ack, Reply: "_INBOX.ack"})
	same(t, "the confirmation", s.sent().Subject, "_INBOX.ack")
	same(t, "outstanding after that", s.counts(jobsMin).AckPending, 0)

	s.sender.deaf = forwardRoot
	s.receive(&leaf.Message{Subject: pull, Reply: "_INBOX.x"})
	s.nextItem("b")
	owner, s.sender.deaf = s.config.Self, ""
	s.receive(&leaf.Message{Subject: pull, Reply: "_INBOX.x"})
	s.nextItem("c")
}

func TestDecodeAck(t *testing.T) {
	for payload, want := range map[string]fdbpq.Op{
		"":                    {Kind: fdbpq.OpAck},
		"+ACK":                {Kind: fdbpq.OpAck},
		"+OK":                 {Kind: fdbpq.OpAck},
		"+NXT 5":              {Kind: fdbpq.OpAck},
		"-NAK":                {Kind: fdbpq.OpNak, Delay: fdbpq.Backoff},
		`-NAK {"delay":1000}`: {Kind: fdbpq.OpNak, Delay: 1000},
		`-NAK {"delay":0}`:    {Kind: fdbpq.OpNak},
		`-NAK {"delay":-5}`:   {Kind: fdbpq.OpNak},
		`-NAK 5s`:             {Kind: fdbpq.OpNak, Delay: 5 * time.Second},
		`-NAK soon`:           {Kind: fdbpq.OpNak, Delay: fdbpq.Backoff},
		`-NAK {"delay":9e18}`: {Kind: fdbpq.OpNak, Delay: fdbpq.Backoff},
		fmt.Sprintf(`-NAK {"delay":%d}`, math.MaxInt64): {Kind: fdbpq.OpNak, Delay: fdbpq.MaxDelay},
		"+WPI":           {Kind: fdbpq.OpExtend},
		"+TERM":          {Kind: fdbpq.OpTerm},
		"+TERM no good ": {Kind: fdbpq.OpTerm, Reason: "no good"},
	} {
		var op fdbpq.Op
		if !decodeAckPayload([]byte(payload), &op) || op.Kind != want.Kind || op.Delay != want.Delay || op.Reason != want.Reason {
			t.Errorf("%q: got kind %d, delay %v, reason %q", payload, op.Kind, op.Delay, op.Reason)
		}
	}
	var long fdbpq.Op // of which little waits
	known := decodeAckPayload([]byte("+TERM "+strings.Repeat("x", 1<<20)), &long)
	if n := len(long.Reason); !known || n < fdbpq.MaxTermReason || n > maxAckPayload {
		t.Errorf("%d bytes of a long reason wait", n)
	}
	for _, payload := range []string{"x", "+", "+AC", "ACK", "-nak", "\x00"} {
		if decodeAckPayload([]byte(payload), new(fdbpq.Op)) {
			t.Errorf("%q is an acknowledgement", payload)
		}
	}
}

// A consumer may allow fewer deliveries than the queue.
func TestMaxDeliver(t *testing.T) {
	s := newSystem(t)
	s.push("jobs", "a", "b")
	c := worker(jetstream.ConsumerConfig{MaxDeliver: 1})
	s.startPull(c, &leaf.Message{Reply: "_INBOX.x"})
	s.acknowledge(s.nextItem("a"), "-NAK")
	eventually(t, "the item again", func() bool { ready, _ := s.count("jobs"); return ready == 2 })
	s.startPull(c, &leaf.Message{Reply: "_INBOX.x"})
	s.nextItem("b")
	eventually(t, "the dead letter", func() bool { ready, _ := s.count("jobs-dead"); return ready == 1 })
	s.settles(counts{Delivered: 2, AckPending: 1})
}

// A pull that does not wait gets what is there, also if that takes several requests, and all its
// acknowledgements arrive.
func TestBurstOfAcknowledgements(t *testing.T) { synctest.Test(t, testBurstOfAcknowledgements) }

func testBurstOfAcknowledgements(t *testing.T) {
	const n = 2*maxAtOnce + 100
	s := newSystem(t)
	s.push("jobs", make([]string, n)...)
	s.pullAs(jetstream.ConsumerConfig{}, fmt.Sprintf(`{"batch":%d,"no_wait":true}`, n))
	var items []*leaf.Message
	for range n {
		items = append(items, s.nextItem(""))
	}
	for _, m := range items {
		s.acknowledge(m, "+ACK")
	}
	eventually(t, "the end of the queue", func() bool { ready, leased := s.count("jobs"); return ready+leased == 0 })
}

// returns has what could not be sent go back at once, and tells of it.
func returns(to chan<- *fdbpq.Result) func(*Config) {
	return func(c *Config) {
		c.Return = func(q *dispatch.Queue, r *fdbpq.Result, _ bool) {
			op := fdbpq.Op{Kind: fdbpq.OpNak, Queue: q.Target, Token: r.Lease.Token, Uncounted: true}
			_ = c.Dispatcher.Requeue(&dispatch.Request{Queue: q, Replier: ignore{}, Received: time.Now()}, []fdbpq.Op{op})
			to <- r
		}
	}
}

// Items whose leases end before they can be sent go back, and their client pulls again.
func TestLeaseOverBeforeItIsSent(t *testing.T) {
	var took atomic.Int64
	returned := make(chan *fdbpq.Result, 10)
	s := newSystem(t, func(c *Config) {
		now := c.Now
		c.Now = func() time.Time { return now().Add(time.Duration(took.Load())) }
	}, returns(returned))
	s.push("jobs", "a", "b")
	took.Store(int64(time.Minute))
	s.pullAs(jetstream.ConsumerConfig{AckWait: time.Minute}, `{"batch":2,"expires":3600000000000}`)
	s.nextStatus("409 Leadership Change")
	within(t, "return", returned)
	within(t, "return", returned)

	took.Store(0)
	s.pullAs(jetstream.ConsumerConfig{AckWait: time.Minute}, "")
	s.nextItem("a")
	s.settles(counts{Delivered: 1, AckPending: 1})
}

// What cannot be sent goes back, and the client pulls again.
func TestConnectionIsFull(t *testing.T) { synctest.Test(t, testConnectionIsFull) }

func testConnectionIsFull(t *testing.T) {
	returned := make(chan *fdbpq.Result, 10)
	s := newSystem(t, returns(returned))
	s.sender.err.Store(&leaf.ErrPending)
	s.push("jobs", "a")
	s.pullAs(jetstream.ConsumerConfig{}, `{"batch":1,"expires":3600000000000}`)
	within(t, "return", returned)
	s.nextStatus("409 Leadership Change")
	s.sender.err.Store(nil)
	s.pullAs(jetstream.ConsumerConfig{}, "")
	s.nextItem("a")

	s.sender.err.Store(&leaf.ErrTooLarge)
	s.push("jobs", "b")
	s.pullAs(jetstream.ConsumerConfig{}, hour)
	within(t, "return", returned)
	s.nextStatus("409 Message Size Exceeds MaxBytes")
}

// A pull with max_bytes gets no more than its client counts, which is all of each message: clients drop
// what exceeds it, and it would come again only after ack_wait.
func TestPullMaxBytes(t *testing.T) {
	var extra atomic.Int64 // of a header
	s := newSystem(t, func(c *Config) {
		c.AppendHeader = func(to []byte, _ *dispatch.Queue, _ *fdbpq.Item, lease *fdbpq.Lease) ([]byte, error) {
			return append(to, "NATS/1.0\r\nX: "+strings.Repeat("x", int(extra.Load()))+"\r\n\r\n"...), nil
		}
	}, returns(make(chan *fdbpq.Result, 100)))
	s.push("jobs", "aaaaaaaaaa", "bbbbbbbbbb", "cccccccccc")
	pull := func(payload string) { s.pullAs(jetstream.ConsumerConfig{}, payload) }

	pull(`{"batch":1000000,"max_bytes":100}`)
	s.nextStatus("409 Message Size Exceeds MaxBytes")
	pull(`{"batch":1000000,"max_bytes":600,"expires":3600000000000}`)
	left := 600
	for _, want := range []string{"aaaaaaaaaa", "bbbbbbbbbb"} {
		m := s.sent()
		same(t, "the value", string(m.Payload), want)
		left -= len(m.Reply) - 1 + len(m.Header) + len(m.Payload)
	}
	m := s.sent()
	if header := string(m.Header); left < 0 || !strings.HasPrefix(header, "NATS/1.0 409 Message Size Exceeds MaxBytes\r\n") ||
		!strings.Contains(header, "Nats-Pending-Bytes: "+strconv.Itoa(left)+"\r\n") {
		t.Errorf("%d bytes are left, and the status is %q", left, header)
	}
	_, leased := s.count("jobs")
	same(t, "leased", leased, 2)

	// One whose headers are longer than most goes back.
	extra.Store(1000)
	pull(`{"batch":1,"max_bytes":1000,"expires":3600000000000}`)
	s.nextStatus("409 Message Size Exceeds MaxBytes")
	eventually(t, "the return of what did not fit", func() bool { ready, _ := s.count("jobs"); return ready == 1 })
	pull(`{"batch":1,"max_bytes":2000,"expires":3600000000000}`)
	s.nextItem("cccccccccc")
}

// ignore is a Replier of what nobody waits for.
type ignore struct{}

func (ignore) Answer(*dispatch.Request, []fdbpq.Op, []fdbpq.Result) {}
func (ignore) Fail(*dispatch.Request, []fdbpq.Op, error)            {}

// A pull that fails says so, but not with 503. One for which there is no room is told as JetStream does.
func TestPullAfterAFailure(t *testing.T) {
	s := newSystem(t)
	pull := func(payload string) *pull {
		s.pullAs(jetstream.ConsumerConfig{}, payload)
		s.pulls.mu.Lock()
		defer s.pulls.mu.Unlock()
		for p := range s.inboxes["_INBOX.x"] {
			return p
		}
		return nil
	}
	for err, want := range map[error]string{
		fmt.Errorf("%w: no store", dispatch.ErrUnavailable):     "409 unavailable: no store",
		fmt.Errorf("%w: no answer", dispatch.ErrUnknownOutcome): "409 the outcome is unknown: no answer",
		dispatch.ErrTooManyWaiters:                              "409 Exceeded MaxWaiting",
		dispatch.ErrTooManyRequests:                             "409 Exceeded MaxWaiting",
	} {
		p := pull(hour)
		p.Fail(nil, nil, err)
		s.nextStatus(want)
		s.dispatcher.Cancel(p.waits)
		s.nextStatus("409 " + dispatch.ErrCancelled.Error()) // of its request, which went on
	}
}

// A pull from behind a gateway is answered through it while the gateway remembers the way.
func TestGatewayInbox(t *testing.T) {
	s := newSystem(t)
	const way = "_GR_.cluster.server._INBOX.x.y"
	p := inboxOf(way, s.out)
	same(t, "at first", p.to(p.received), way)
	same(t, "later", p.to(p.received.Add(3*time.Second)), "_INBOX.x.y")
	for reply, may := range map[string]bool{way: true, "_INBOX.x": true, "_GR_.c.s.$JS.API.STREAM.DELETE.x": false, "$JS.API.X": false, "_GR_.c.s.pq.jobs.push": false,
		"_GR_.c.s._GR_.c.s.pq.jobs.push": false} {
		same(t, reply, s.mayReply(reply), may)
	}
}

// A flood of pulls is bounded by what may wait in the dispatcher, and a pull beyond that is told so.
func TestTooManyPulls(t *testing.T) {
	s := newSystem(t)
	c := jetstream.ConsumerConfig{MaxWaiting: 2 * maxWaiters}
	for range maxWaiters {
		s.pullAs(c, hour)
	}
	s.startPull(worker(c), &leaf.Message{Reply: "_INBOX.y", Payload: []byte(hour)})
	same(t, "to", func() string { m := s.sent(); return m.Subject + string(m.Header) }(), "_INBOX.yNATS/1.0 409 Exceeded MaxWaiting\r\n\r\n")

	// The others end with the bridge, and later ones at once.
	s.endPulls()
	s.pullAs(c, "")
	for range maxWaiters + 1 {
		s.nextStatus("409 Server Shutdown")
	}
	s.endsAcks()
}

// Pulls of one inbox end together.
func TestInterestGone(t *testing.T) {
	s := newSystem(t)
	for range 3 {
		s.pullAs(jetstream.ConsumerConfig{}, hour)
		s.startPull(worker(jetstream.ConsumerConfig{}), &leaf.Message{Reply: "_INBOX.y", Payload: []byte(hour)})
	}
	s.interestGone("_INBOX.z")
	s.interestGone("_INBOX.x")
	eventually(t, "their end", func() bool { return s.counts(jobsW).Waiting == 3 })
	s.dropPulls()
	eventually(t, "the end of all", func() bool { return s.counts(jobsW).Waiting == 0 })
	if len(s.sender.sent) > 0 {
		t.Errorf("%d messages to nobody", len(s.sender.sent))
	}
}

// Pulls that nobody was ever seen to listen for do not keep the places of others.
func TestPullsOfNobody(t *testing.T) { synctest.Test(t, testPullsOfNobody) }

func testPullsOfNobody(t *testing.T) {
	s := newSystem(t)
	s.sender.deaf = "_INBOX.nobody"
	pull := func(inbox string) {
		s.startPull(worker(jetstream.ConsumerConfig{MaxWaiting: 10}), &leaf.Message{Reply: inbox, Payload: []byte(hour)})
	}
	for range 10 {
		pull("_INBOX.nobody")
	}
	eventually(t, "their end", func() bool { return s.counts(jobsW).Waiting == 0 })
	pull("_INBOX.x")
	s.push("jobs", "a")
	s.nextItem("a")
}

// When another bridge serves a queue, pulls go there, and what was delivered here takes no place any more.
func TestOwnerChanges(t *testing.T) {
	var owner atomic.Value
	owner.Store("bridge1")
	s := newSystem(t, func(c *Config) { c.Owner = func(*dispatch.Queue) string { return owner.Load().(string) } })
	s.push("jobs", "a", "b")
	pull := func() { s.pullAs(jetstream.ConsumerConfig{MaxAckPending: 1, AckWait: time.Minute}, hour) }
	pull()
	s.nextItem("a")
	s.settles(counts{Delivered: 1, AckPending: 1})
	pull()
	s.endForeign()
	s.settles(counts{Delivered: 1, AckPending: 1, Waiting: 1})

	owner.Store("bridge2")
	s.endForeign()
	s.nextStatus("409 Leadership Change")
	owner.Store("bridge1")
	pull()
	s.nextItem("b")
}

// Numbers that JetStream does not take for a batch are one message, and what is wrong is said briefly.
func TestParsePull(t *testing.T) {
	for payload, want := range map[string]int{"": 1, "5": 5, " 7 ": 7, "99999999999999999999": 1, "x": 1, `{"batch":3}`: 3} {
		r, e := parsePull([]byte(payload), new(jetstream.ConsumerConfig))
		if got := max(r.Batch, 1); e != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", payload, got, e, want)
		}
	}
	_, e := parsePull([]byte(`{"batch":`+strings.Repeat("9", 1<<20)+`}`), new(jetstream.ConsumerConfig))
	if e == nil || e.code != 400 || len(e.text) > 1000 {
		t.Errorf("a number of a megabyte: %v", e)
	}
}
