package jetstream

import (
	"fmt"
	"math"
	"reflect"
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

// The payloads of pulls have their times in nanoseconds.
const (
	pullForAnHour   = `{"expires":3600000000000}`
	pullForAMinute  = `{"batch":5,"expires":60000000000}`
	pullWithoutWait = `{"no_wait":true}`
)

// batchForAnHour is a pull of up to n items that waits for an hour.
func batchForAnHour(n int) string {
	return fmt.Sprintf(`{"batch":%d,"expires":%d}`, n, time.Hour)
}

// worker returns the consumer "w" of the queue "jobs" with that configuration. Up to ten of its
// pulls can wait unless the configuration allows more.
func worker(c jetstream.ConsumerConfig) *consumer {
	c.MaxWaiting = max(c.MaxWaiting, 10)
	return &consumer{consumerKey: jobsW, config: c}
}

// pullAs starts a pull of the consumer "w" with that configuration. The answers go to _INBOX.x.
func (s *system) pullAs(c jetstream.ConsumerConfig, payload string) {
	s.startPull(worker(c), &leaf.Message{Reply: "_INBOX.x", Payload: []byte(payload)})
}

// nextItem returns the next message that was sent, which has to be the item with this value.
func (s *system) nextItem(value string) *leaf.Message {
	s.t.Helper()
	m := s.sent()
	if string(m.Payload) != value || !strings.HasPrefix(m.Reply, ackPrefix) {
		s.t.Fatalf("sent %q with %q to %s, want %s", m.Payload, m.Header, m.Subject, value)
	}

	return m
}

// waitOutstanding waits until the consumer "w" has that much outstanding: a message may arrive
// before its pull is through.
func (s *system) waitOutstanding(want counts) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%+v outstanding", want),
		func() bool { return s.counts(jobsW) == want })
}

// nextStatus checks that the next message that was sent has this status.
func (s *system) nextStatus(want string) {
	s.t.Helper()
	m := s.sent()
	line, _, _ := strings.Cut(string(m.Header), "\r\n")
	same(s.t, "status", strings.TrimPrefix(line, "NATS/1.0 "), want)
}

// acknowledge acknowledges an item with a payload such as "-NAK", and asks for no confirmation.
func (s *system) acknowledge(m *leaf.Message, payload string) {
	subject, _, _ := strings.Cut(m.Reply, "@")
	s.ack(&leaf.Message{Subject: subject, Payload: []byte(payload)}, false)
}

// When a lease ends, its delivery no longer counts against max_ack_pending, and an acknowledgement
// of it gets no answer.
func TestPlaceIsFreeAfterTheLease(t *testing.T) {
	s := newSystem(t)
	s.push("jobs", "a", "b")
	s.pullAs(jetstream.ConsumerConfig{MaxAckPending: 1, AckWait: time.Minute},
		batchForAnHour(2))
	first := s.nextItem("a")
	s.waitOutstanding(counts{Delivered: 1, AckPending: 1, Waiting: 1})

	s.clock.advance(2 * time.Minute)
	s.freeExpired(s.byConsumer[jobsW]) // what a timer does
	second := s.nextItem("a")
	s.waitOutstanding(counts{Delivered: 2, AckPending: 1, Redelivered: 1})
	s.acknowledgeWithReply(first, "+ACK") // too late
	s.acknowledgeWithReply(second, "+ACK")

	same(t, "the confirmation", s.sent().Subject, ackInbox)

	s.waitOutstanding(counts{Delivered: 2})
	same(t, "more answers", len(s.sender.sent), 0)
}

// max_ack_pending bounds how many items a consumer has. At the limit a pull that does not wait gets
// 404, and each +ACK or -NAK lets the consumer have one more.
func TestMaxAckPending(t *testing.T) { synctest.Test(t, testMaxAckPending) }

func testMaxAckPending(t *testing.T) {
	s := newSystem(t)
	c := jetstream.ConsumerConfig{MaxAckPending: 2, AckWait: time.Hour}
	s.push("jobs", "a", "b", "c", "d", "e")
	s.pullAs(c, batchForAnHour(5))
	first, second := s.nextItem("a"), s.nextItem("b")
	s.waitOutstanding(counts{Delivered: 2, AckPending: 2, Waiting: 1})

	s.pullAs(c, pullWithoutWait)
	s.nextStatus("404 No Messages")

	s.acknowledge(first, "+ACK")
	third := s.nextItem("c")
	s.acknowledge(second, "-NAK") // comes again at once, before "d"
	s.acknowledge(s.nextItem("b"), "+ACK")
	s.acknowledge(third, "+ACK")
	s.nextItem("d")
	s.waitOutstanding(counts{Delivered: 5, AckPending: 1})
}

// Messages for the queue of another bridge are forwarded to that bridge, without their headers, if
// it listens. If it does not, or if another bridge forwarded the message, it is served here. A
// forwarded acknowledgement has no reply subject that belongs to NATS.
func TestForward(t *testing.T) {
	owner := "bridge2"
	s := newSystem(t, func(c *Config) { c.Owner = func(*dispatch.Queue) string { return owner } })

	// wantForwarded checks that a message goes to the owner, with its reply subject and payload.
	wantForwarded := func(subject, payload string) {
		t.Helper()
		s.receive(&leaf.Message{
			Subject: subject,
			Reply:   "_INBOX.x",
			Header:  []byte("NATS/1.0\r\nNats-Trace-Dest: x\r\n\r\n"),
			Payload: []byte(payload),
		})

		m := s.sent()
		same(t, "the subject", m.Subject, "_pqbridge.jetstream."+s.domains.hash+".bridge2."+subject)
		same(t, "the rest", m.Reply+string(m.Header)+string(m.Payload), "_INBOX.x"+payload)
	}

	const pull = "$JS.pq.API.CONSUMER.MSG.NEXT.jobs.min"
	wantForwarded(pull, batchForAnHour(2))
	wantForwarded("$JS.pq.API.CONSUMER.INFO.jobs.min", "")

	// A message that was forwarded to this bridge is served here.
	s.push("jobs", "a", "b", "c")
	s.receive(&leaf.Message{Subject: s.forwarded + pull, Reply: "_INBOX.x"})
	a := s.nextItem("a")
	ack, _, _ := strings.Cut(a.Reply, "@")
	wantForwarded(ack, "+ACK")
	s.receive(&leaf.Message{Subject: ack, Reply: "$SYS.x"})

	same(t, "a reply subject that belongs to NATS", s.sent().Reply, "")
	eventually(t, "the delivery", func() bool { return s.counts(jobsMin).AckPending == 1 })

	s.receive(&leaf.Message{Subject: s.forwarded + ack, Reply: "_INBOX.ack"})
	same(t, "the confirmation", s.sent().Subject, "_INBOX.ack")
	same(t, "outstanding after that", s.counts(jobsMin).AckPending, 0)

	// If the owner does not listen, or is this bridge, the pull is served here.
	s.sender.deaf.Store(new(forwardRoot))
	s.receive(&leaf.Message{Subject: pull, Reply: "_INBOX.x"})
	s.nextItem("b")
	owner = s.config.Self
	s.sender.deaf.Store(nil)
	s.receive(&leaf.Message{Subject: pull, Reply: "_INBOX.x"})
	s.nextItem("c")
}

// Every form of acknowledgement that JetStream knows is decoded, and -NAK also takes the snooze and
// the reason of the bridge's own subjects.
func TestDecodeAck(t *testing.T) {
	const snooze = `-NAK {"delay":"2s","snooze":true,"reason":" boom "}`
	for payload, want := range map[string]fdbpq.Op{
		"":                    {Kind: fdbpq.OpAck},
		"+ACK":                {Kind: fdbpq.OpAck},
		"+OK":                 {Kind: fdbpq.OpAck},
		"+NXT 5":              {Kind: fdbpq.OpAck},
		`+NXT {"no_wait":1}`:  {Kind: fdbpq.OpAck},
		"-NAK":                {Kind: fdbpq.OpNak, Delay: fdbpq.Backoff},
		`-NAK {"delay":1000}`: {Kind: fdbpq.OpNak, Delay: 1000 * time.Nanosecond},
		`-NAK {"delay":0}`:    {Kind: fdbpq.OpNak},
		`-NAK 5s`:             {Kind: fdbpq.OpNak, Delay: 5 * time.Second},
		`-NAK {"retry_delay":"1s"}`: {
			Kind:       fdbpq.OpNak,
			Delay:      fdbpq.Backoff,
			RetryDelay: time.Second,
		},
		`-NAK {"reason":"x"}`: {Kind: fdbpq.OpNak, Delay: fdbpq.Backoff, Reason: "x"},
		snooze: {
			Kind:      fdbpq.OpNak,
			Delay:     2 * time.Second,
			Uncounted: true,
			Reason:    "boom",
		},
		`-NAK{"delay":1}`: {Kind: fdbpq.OpNak, Delay: 1},
		"-NAK\n":          {Kind: fdbpq.OpNak, Delay: fdbpq.Backoff},
		"+TERM\treason":   {Kind: fdbpq.OpTerm, Reason: "reason"},
		"+WPI":            {Kind: fdbpq.OpExtend},
		"+TERM":           {Kind: fdbpq.OpTerm},
		"+TERM no good ":  {Kind: fdbpq.OpTerm, Reason: "no good"},
	} {
		op, known, err := decoded(payload)
		if err != nil || !known || !reflect.DeepEqual(op, want) {
			t.Errorf("%q: got %+v, known %v, %v; want %+v", payload, op, known, err, want)
		}
	}
}

// decoded returns what decodeAck makes of a payload.
func decoded(payload string) (op fdbpq.Op, known bool, err error) {
	known, err = decodeAck([]byte(payload), &op)
	return op, known, err
}

// A -NAK with options that cannot be read is an error, and gives the item back all the same,
// without a reason and with the queue's backoff or the nearest delay.
func TestUnreadableNak(t *testing.T) {
	for payload, want := range map[string]time.Duration{
		`-NAK soon`:           fdbpq.Backoff,
		`-NAK {"delay":9e18}`: fdbpq.Backoff,
		`-NAK {"reason":1}`:   fdbpq.Backoff,
		`-NAK {"delay":"5s","reason":"x","bogus":1}`: fdbpq.Backoff,
		`-NAK {"delay":99999999999999999999}`:        fdbpq.Backoff,
		`-NAK {"retry_delay":-5}`:                    fdbpq.Backoff,
		`-NAK {"retry_delay":5,"delay":7}`:           7,

		// A delay that can be read, but is out of bounds, becomes the nearest bound.
		`-NAK {"delay":-5}`:                             0,
		fmt.Sprintf(`-NAK {"delay":%d}`, math.MaxInt64): fdbpq.MaxDelay,
	} {
		op, known, err := decoded(payload)

		if err == nil || !known || op.Kind != fdbpq.OpNak || op.Delay != want || op.Reason != "" ||
			op.RetryDelay != 0 {
			t.Errorf("%q: got %+v, known %v, %v; want a delay of %v", payload, op, known, err, want)
		}
	}
}

// A reason of a megabyte is cut when it is decoded, but not below the length that is stored.
func TestLongReason(t *testing.T) {
	op, known, err := decoded("+TERM " + strings.Repeat("x", 1<<20))
	if n := len(op.Reason); err != nil || !known || n < fdbpq.MaxTermReason || n > maxAckPayload {
		t.Errorf("%d bytes of a long reason are kept, known %v, %v", n, known, err)
	}
}

// A payload that is no acknowledgement of JetStream is an error, and does nothing.
func TestUnknownAck(t *testing.T) {
	for _, payload := range []string{
		"x", "+", "+AC", "ACK", "-nak", "\x00", "+ACK x", "+WPI x", `+ACK {"also":["x"]}`,
	} {
		if _, known, err := decoded(payload); known || err == nil {
			t.Errorf("%q is an acknowledgement: known %v, %v", payload, known, err)
		}
	}
}

// A dead letter has the reason of the last -NAK through JetStream. A -NAK that cannot be read
// counts as failed, and gives the item back all the same.
func TestReasonOfANak(t *testing.T) {
	var failed atomic.Int64
	s := newSystem(t, func(c *Config) {
		c.Counted = func(call string, bad bool) {
			if call == countedAck && bad {
				failed.Add(1)
			}
		}
	})

	s.configure("jobs", func(x *fdbpq.Settings) { x.MaxDeliver = 2 })
	s.push("jobs", "a")

	s.pullAs(jetstream.ConsumerConfig{}, "")
	s.acknowledge(s.nextItem("a"), `-NAK {"dealy":"1s"}`) // no such member
	s.waitForRequests()
	s.pullAs(jetstream.ConsumerConfig{}, "")
	s.acknowledge(s.nextItem("a"), `-NAK {"reason":"boom"}`)
	s.waitForRequests()

	same(t, "acknowledgements that count as failed", failed.Load(), 1)

	dead := s.do(subjects.Priority, "jobs-dead",
		fdbpq.Op{Kind: fdbpq.OpLease, Lease: time.Minute})[0]
	if dead.Err != nil || dead.Item.DeadLetter == nil || dead.Item.DeadLetter.Error != "boom" {
		t.Errorf("the dead letter: %+v, %v", dead.Item.DeadLetter, dead.Err)
	}
}

// A consumer may allow fewer deliveries than the queue: after the last of them, the item becomes a
// dead letter.
func TestMaxDeliver(t *testing.T) {
	s := newSystem(t)
	s.push("jobs", "a", "b")
	c := worker(jetstream.ConsumerConfig{MaxDeliver: 1})
	s.startPull(c, &leaf.Message{Reply: "_INBOX.x"})
	s.acknowledge(s.nextItem("a"), "-NAK")

	eventually(t, "the item again", func() bool { ready, _ := s.count("jobs"); return ready == 2 })

	// The next pull finds that "a" has had its only delivery, and gets "b".
	s.startPull(c, &leaf.Message{Reply: "_INBOX.x"})
	s.nextItem("b")
	eventually(t, "the dead letter",
		func() bool { ready, _ := s.count("jobs-dead"); return ready == 1 })

	s.waitOutstanding(counts{Delivered: 2, AckPending: 1})
}

// A pull that does not wait gets all ready items, even if that takes several requests, and all its
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
	eventually(t, "the end of the queue",
		func() bool { ready, leased := s.count("jobs"); return ready+leased == 0 })
}

// requeueUnsent puts each item that could not be sent back into its queue at once, and then sends
// it to the channel.
func requeueUnsent(to chan<- *fdbpq.Result) func(*Config) {
	return func(c *Config) {
		c.Return = func(q *dispatch.Queue, r *fdbpq.Result, _ bool) {
			op := fdbpq.Op{
				Kind:      fdbpq.OpNak,
				Queue:     q.Target,
				Token:     r.Lease.Token,
				Uncounted: true,
			}

			_ = c.Dispatcher.Requeue(&dispatch.Request{
				Queue:    q,
				Replier:  ignore{},
				Received: time.Now(),
			}, []fdbpq.Op{op})

			to <- r
		}
	}
}

// Items whose leases end before they can be sent go back. Their pull ends with 409, and the next
// pull gets them.
func TestLeaseOverBeforeItIsSent(t *testing.T) {
	var sendingTook atomic.Int64
	returned := make(chan *fdbpq.Result, 10)

	s := newSystem(t, func(c *Config) {
		now := c.Now
		c.Now = func() time.Time { return now().Add(time.Duration(sendingTook.Load())) }
	}, requeueUnsent(returned))

	s.push("jobs", "a", "b")
	sendingTook.Store(int64(time.Minute))
	s.pullAs(jetstream.ConsumerConfig{AckWait: time.Minute}, batchForAnHour(2))
	s.nextStatus("409 Leadership Change")
	within(t, "return", returned)
	within(t, "return", returned)

	sendingTook.Store(0)
	s.pullAs(jetstream.ConsumerConfig{AckWait: time.Minute}, "")
	s.nextItem("a")
	s.waitOutstanding(counts{Delivered: 1, AckPending: 1})
}

// If the connection has no room for an item, the item goes back. Its pull ends with 409, and the
// next pull gets it.
func TestConnectionIsFull(t *testing.T) { synctest.Test(t, testConnectionIsFull) }

func testConnectionIsFull(t *testing.T) {
	returned := make(chan *fdbpq.Result, 10)
	s := newSystem(t, requeueUnsent(returned))
	s.sender.err.Store(&leaf.ErrPending)
	s.push("jobs", "a")
	s.pullAs(jetstream.ConsumerConfig{}, batchForAnHour(1))
	within(t, "return", returned)
	s.nextStatus("409 Leadership Change")
	s.sender.err.Store(nil)
	s.pullAs(jetstream.ConsumerConfig{}, "")
	s.nextItem("a")
}

// A pull whose next item is too large for a message tries once, warns once with the item's ID, and
// ends when its time is over. Once messages may be that large, the next pull gets the item.
func TestLargerThanAMessage(t *testing.T) { synctest.Test(t, testLargerThanAMessage) }

func testLargerThanAMessage(t *testing.T) {
	warnings := make(chan string, 10)
	returned := make(chan *fdbpq.Result, 10)
	s := newSystem(t, requeueUnsent(returned), func(c *Config) {
		c.Warn = func(text string, args ...any) { warnings <- text + fmt.Sprint(args...) }
	})
	s.sender.err.Store(&leaf.ErrTooLarge)
	s.push("jobs", "a")
	id := s.do(subjects.Priority, "jobs", fdbpq.Op{Kind: fdbpq.OpPeek})[0].Item.ID.String()

	for range 3 {
		begun := time.Now()
		s.pullAs(jetstream.ConsumerConfig{}, pullForAMinute)
		s.nextStatus("409 Message Size Exceeds MaxBytes")

		same(t, "the pull took", time.Since(begun), time.Minute)
		same(t, "tries", len(returned), 1)
		same(t, "warnings", len(warnings), 1)

		<-returned
		if warning := <-warnings; !strings.Contains(warning, id) {
			t.Errorf("the warning is %q, and the item's ID %s", warning, id)
		}
	}

	s.sender.err.Store(nil)
	s.pullAs(jetstream.ConsumerConfig{}, "")
	s.nextItem("a")
}

// A pull with max_bytes gets no more bytes of messages, with their reply subjects and headers. The
// rest stays in the queue, or goes back at once: a client drops a message that exceeds max_bytes,
// and its item would come again only after ack_wait.
func TestPullMaxBytes(t *testing.T) {
	const (
		tooFew     = 100  // less than the overhead of an item
		forTwo     = 600  // with short headers
		tooFewLong = 1000 // more than the expected overhead, less than the item with a long header
		enoughLong = 2000 // for the item with a long header
		batch      = 1000000
	)

	var extra atomic.Int64 // bytes in a header
	s := newSystem(t, func(c *Config) {
		c.AppendHeader = func(
			to []byte, _ *dispatch.Queue, _ *fdbpq.Item, lease *fdbpq.Lease,
		) ([]byte, error) {
			return append(to,
				"NATS/1.0\r\nX: "+strings.Repeat("x", int(extra.Load()))+"\r\n\r\n"...), nil
		}
	}, requeueUnsent(make(chan *fdbpq.Result, 100)))

	s.push("jobs", "aaaaaaaaaa", "bbbbbbbbbb", "cccccccccc")
	pull := func(batch, maxBytes int, expires time.Duration) {
		s.pullAs(jetstream.ConsumerConfig{},
			fmt.Sprintf(`{"batch":%d,"max_bytes":%d,"expires":%d}`, batch, maxBytes, expires))
	}

	pull(batch, tooFew, 0)
	s.nextStatus("409 Message Size Exceeds MaxBytes")

	pull(batch, forTwo, time.Hour)
	left := forTwo

	for _, want := range []string{"aaaaaaaaaa", "bbbbbbbbbb"} {
		m := s.sent()
		same(t, "the value", string(m.Payload), want)
		left -= len(m.Reply) - 1 + len(m.Header) + len(m.Payload)
	}

	m := s.sent()
	header := string(m.Header)
	if left < 0 || !strings.HasPrefix(header, "NATS/1.0 409 Message Size Exceeds MaxBytes\r\n") ||
		!strings.Contains(header, "Nats-Pending-Bytes: "+strconv.Itoa(left)+"\r\n") {
		t.Errorf("%d bytes are left, and the status is %q", left, header)
	}

	_, leased := s.count("jobs")
	same(t, "leased", leased, 2)

	// An item whose headers are longer than most goes back.
	extra.Store(1000)
	pull(1, tooFewLong, time.Hour)
	s.nextStatus("409 Message Size Exceeds MaxBytes")

	eventually(t, "the return of what did not fit",
		func() bool { ready, _ := s.count("jobs"); return ready == 1 })

	pull(1, enoughLong, time.Hour)
	s.nextItem("cccccccccc")
}

// ignore is a Replier of what nobody waits for.
type ignore struct{}

func (ignore) Answer(*dispatch.Request, []fdbpq.Op, []fdbpq.Result) {}
func (ignore) Fail(*dispatch.Request, []fdbpq.Op, error)            {}

// A pull that fails ends with 409 and the error, because clients take 503 for a missing consumer. A
// pull for which there is no room gets JetStream's text.
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
		fmt.Errorf("%w: no store", dispatch.ErrUnavailable): "409 unavailable: no store",
		dispatch.ErrUnknownOutcome:                          "409 the outcome is unknown",
		dispatch.ErrTooManyWaiters:                          "409 Exceeded MaxWaiting",
		dispatch.ErrTooManyRequests:                         "409 Exceeded MaxWaiting",
	} {
		p := pull(pullForAnHour)
		p.Fail(nil, nil, err)
		s.nextStatus(want)
		s.dispatcher.Cancel(p.waits)
		s.nextStatus("409 " + dispatch.ErrCancelled.Error()) // of its request, which went on
	}
}

// A pull from behind a gateway is answered through it while the gateway remembers the way. Subjects
// of NATS or of the service behind the gateway's prefix get no answers.
func TestGatewayInbox(t *testing.T) {
	s := newSystem(t)
	const way = "_GR_.cluster.server._INBOX.x.y"

	p := inboxOf(&leaf.Message{Reply: way}, s.out)
	same(t, "at first", p.to(p.received), way)
	same(t, "once the gateway has forgotten", p.to(p.received.Add(3*time.Second)), "_INBOX.x.y")

	for reply, may := range map[string]bool{
		way:                                true,
		"_INBOX.x":                         true,
		"$JS.API.X":                        false,
		"_GR_.c.s.$JS.API.STREAM.DELETE.x": false,
		"_GR_.c.s.pq.jobs.push":            false,
		"_GR_.c.s._GR_.c.s.pq.jobs.push":   false,
	} {
		same(t, reply, s.mayReply(reply), may)
	}
}

// Only as many pulls wait as the dispatcher allows, and one more gets 409. When the bridge ends,
// all of them hear so, and later pulls at once.
func TestTooManyPulls(t *testing.T) {
	s := newSystem(t)
	c := jetstream.ConsumerConfig{MaxWaiting: 2 * maxWaiters} // so that it is not the bound

	for range maxWaiters {
		s.pullAs(c, pullForAnHour)
	}

	s.startPull(worker(c), &leaf.Message{Reply: "_INBOX.y", Payload: []byte(pullForAnHour)})
	m := s.sent()
	same(t, "to", m.Subject, "_INBOX.y")
	same(t, "status", string(m.Header), "NATS/1.0 409 Exceeded MaxWaiting\r\n\r\n")

	s.endPulls()
	s.pullAs(c, "")

	for range maxWaiters + 1 {
		s.nextStatus("409 Server Shutdown")
	}

	s.waitForRequests()
}

// When nobody listens to an inbox any more, all its pulls end, and no others. They all end without
// an answer when the connection is lost.
func TestInterestGone(t *testing.T) {
	s := newSystem(t)
	for range 3 {
		s.pullAs(jetstream.ConsumerConfig{}, pullForAnHour)
		s.startPull(worker(jetstream.ConsumerConfig{}),
			&leaf.Message{Reply: "_INBOX.y", Payload: []byte(pullForAnHour)})
	}

	s.interestGone("_INBOX.z") // which has no pulls
	s.interestGone("_INBOX.x")
	eventually(t, "their end", func() bool { return s.counts(jobsW).Waiting == 3 })

	s.dropPulls()
	eventually(t, "the end of all", func() bool { return s.counts(jobsW).Waiting == 0 })
	if len(s.sender.sent) > 0 {
		t.Errorf("%d messages to nobody", len(s.sender.sent))
	}
}

// Pulls whose inboxes never had a listener end, and leave their places to others.
func TestPullsOfNobody(t *testing.T) { synctest.Test(t, testPullsOfNobody) }

func testPullsOfNobody(t *testing.T) {
	s := newSystem(t)
	s.sender.deaf.Store(new("_INBOX.nobody"))

	pull := func(inbox string) {
		s.startPull(worker(jetstream.ConsumerConfig{MaxWaiting: 10}),
			&leaf.Message{Reply: inbox, Payload: []byte(pullForAnHour)})
	}

	for range 10 { // as many as may wait
		pull("_INBOX.nobody")
	}
	eventually(t, "their end", func() bool { return s.counts(jobsW).Waiting == 0 })

	pull("_INBOX.x")
	s.push("jobs", "a")
	s.nextItem("a")
}

// When another bridge comes to serve a queue, the pulls that wait here end with 409, and items
// delivered here no longer take places.
func TestOwnerChanges(t *testing.T) {
	var owner atomic.Value
	owner.Store("bridge1")
	s := newSystem(t,
		func(c *Config) { c.Owner = func(*dispatch.Queue) string { return owner.Load().(string) } })
	s.push("jobs", "a", "b")
	pull := func() {
		s.pullAs(jetstream.ConsumerConfig{MaxAckPending: 1, AckWait: time.Minute}, pullForAnHour)
	}
	pull()
	s.nextItem("a")
	s.waitOutstanding(counts{Delivered: 1, AckPending: 1})

	// Nothing ends while this bridge serves the queue.
	pull()
	s.endForeign()
	s.waitOutstanding(counts{Delivered: 1, AckPending: 1, Waiting: 1})

	owner.Store("bridge2")
	s.endForeign()
	s.nextStatus("409 Leadership Change")

	// The item "a" would take the only place, had this bridge not forgotten it.
	owner.Store("bridge1")
	pull()
	s.nextItem("b")
}

// A pull without a number, or with one that is out of range, is for one message. An error is short
// even if the payload is not.
func TestParsePull(t *testing.T) {
	for payload, want := range map[string]int{
		"":                     1,
		"5":                    5,
		" 7 ":                  7,
		"99999999999999999999": 1,
		"x":                    1,
		`{"batch":3}`:          3,
	} {
		r, e := parsePull([]byte(payload), new(jetstream.ConsumerConfig))
		if got := max(r.Batch, 1); e != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", payload, got, e, want)
		}
	}

	_, e := parsePull([]byte(`{"batch":`+strings.Repeat("9", 1<<20)+`}`),
		new(jetstream.ConsumerConfig))
	if e == nil || e.code != 400 || len(e.text) > 1000 {
		t.Errorf("a number of a megabyte: %v", e)
	}
}
