package bridge_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// restricted returns the options of a server on which the bridge has the given
// permissions and clients have all.
func restricted(p *server.Permissions, o testenv.Options) testenv.Options {
	o.NATS = func(s *server.Options) {
		s.Users = []*server.User{
			{Username: "bridge", Password: "p", Permissions: p},
			{Username: "client", Password: "p"},
		}
		s.NoAuthUser = "client"
	}

	change := o.Bridge
	o.Bridge = func(b *bridge.Options) {
		b.NATSOptions = append(b.NATSOptions, nats.UserInfo("bridge", "p"))
		if change != nil {
			change(b)
		}
	}

	return o
}

// inboxesOnly lets the bridge publish only what it must.
func inboxesOnly() *server.Permissions {
	return &server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{"_INBOX.>", "raw.>", "_pqbridge.>"}},
	}
}

// refusedSubjects are reply subjects that a restricted bridge may not publish to.
var refusedSubjects = []string{
	"elsewhere", "Else.Where", "else.where", `quotes."x"`, `back\slash\n`, "apostrophe'",
	"größe.日本", "\x00\xff\x7f", ">", "a.*.b", `Permissions."violation"`, "'",
	`to"_pqbridge.x"`, strings.Repeat("x", 2048), strings.Repeat("\x01", 2048), "_INBOX",
	"same", "same",
}

// An item goes back as it was if NATS refuses its reply, whatever subject the client chose.
func TestRefusedReplies(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine testenv.Engine) {
		e := testenv.New(t, restricted(inboxesOnly(), testenv.Options{Engine: engine}))
		c := dialRaw(t, e)
		h := nats.Header{"Trace": {"a", "b"}}
		var values []string
		for i := range refusedSubjects {
			value := fmt.Sprintf("%02d", i) // so that they sort
			values = append(values, value)
			push(t, e, "pq.jobs.push", h, value)
			push(t, e, "q.jobs.push", h, value)
		}

		for _, reply := range refusedSubjects {
			c.write(message("pq.jobs.pop.min", reply, "", ""))
			c.write(message("q.jobs.pop", reply, "", ""))
		}

		// All pops have failed once they count; the items are back a moment later.
		wantMetric(t, e.Bridge, "pq_reply_failures_total", float64(2*len(values)))
		for _, subject := range []string{"pq.jobs.pop.min", "q.jobs.pop"} {
			var back []string
			for range values {
				m := ok(t, e, subject, nil, `{"expires":"1m"}`)
				back = append(back, string(m.Data))
				same(t, "a header with two lines", len(m.Header["Trace"]), 2)
			}
			slices.Sort(back)
			same(t, "values", strings.Join(back, " "), strings.Join(values, " "))
			refused(t, e, 404, subject, nil, nil)
		}
	})
}

// A reply that NATS refuses counts once, whatever was asked.
func TestRefusedRepliesCount(t *testing.T) {
	e := start(t, restricted(inboxesOnly(), testenv.Options{}))
	for _, subject := range []string{"pq.jobs.pop.min", "pq.jobs.peek.min", "pq.jobs.pop.fastest"} {
		publish(t, e, subject, "elsewhere", "")
	}

	wantMetric(t, e.Bridge, "pq_reply_failures_total", 3)
	wantMetric(t, e.Bridge, "pq_nats_errors_total", 3)
}

// A bridge that shuts down puts back the items whose replies were refused last.
func TestRefusedReplyAtTheEnd(t *testing.T) {
	e := start(t, restricted(inboxesOnly(), testenv.Options{}))
	push(t, e, "pq.jobs.push", nil, "stays")

	for range harness.Times(3, 20) {
		publish(t, e, "pq.jobs.pop.min", "elsewhere", "")
		ok(t, e, "pq.jobs.len", nil, "") // the bridge has it
		e.Bridge.MustStop()

		wantQueued(t, e, 1)

		e.Bridge = newBridge(e)
	}
}

// A delivered item does not go back because other replies to the same subject were refused: it
// would come twice.
func TestSomeRepliesRefused(t *testing.T) {
	p := &server.Permissions{
		Publish: &server.SubjectPermission{Allow: []string{"_pqbridge.>"}},
		// The server counts the second request for as much as a reply.
		Response: &server.ResponsePermission{MaxMsgs: 2, Expires: time.Minute},
	}

	e := start(t, restricted(p, testenv.Options{}))
	c := dialRaw(t, e)

	var delivered []string
	for i, second := range []string{
		"pq.jobs.pop.min", "pq.jobs.peek.min", "pq.jobs.len", "pq.jobs.nonsense",
		"pq.empty.pop.min",
	} {
		first := fmt.Sprint(i)
		push(t, e, "pq.jobs.push", nil, first)
		// Both requests are there before one is answered, so one answer is refused.
		reply := "raw.twice." + first
		c.write(message("pq.jobs.pop.min", reply, "", "") + message(second, reply, "", ""))

		if c.next().payload == first {
			delivered = append(delivered, first)
		}
		wantMetric(t, e.Bridge, "pq_reply_failures_total", float64(i+1))

		e.Request("pq.jobs.pop.min", nil, nil) // the next one finds the queue empty
	}
	if len(delivered) == 0 {
		t.Error("no item was delivered")
	}

	restart(t, e) // any item to push again has been pushed by then
	for _, value := range popAll(t, e, "pq.jobs.pop.min") {
		if slices.Contains(delivered, value) {
			t.Errorf("%q came twice", value)
		}
	}
}

// An item goes back however late the NATS client reports the refusal, which it does from a
// goroutine of its own.
func TestRefusalHeardLate(t *testing.T) {
	log := newStuckLog("NATS refused a reply")
	e := start(t, restricted(inboxesOnly(), testenv.Options{
		Bridge: func(o *bridge.Options) { o.Logger = slog.New(log) },
	}))
	pushAll(t, e, "pq.jobs.push", "first", "second")
	publish(t, e, "pq.jobs.pop.min", "elsewhere", "")
	<-log.begun
	publish(t, e, "pq.jobs.pop.min", "elsewhere.too", "")

	for range 300 { // many confirmed replies
		ok(t, e, "pq.jobs.len", nil, "")
	}

	close(log.free)
	wantQueued(t, e, 2)
}

// Other errors that NATS reports at the same time change nothing.
func TestRefusalsAmongOtherErrors(t *testing.T) {
	e := start(t, restricted(inboxesOnly(), testenv.Options{}))
	c := dialRaw(t, e)
	push(t, e, "pq.jobs.push", nil, "stays")

	for i := range 20 {
		c.write(message("pq.jobs.pop.min", "elsewhere", "", ""))
		c.write(message("pq.jobs.push", "raw.0", "NATS/1.0\r\nno colon\r\n\r\n", "x"))
		wantMetric(t, e.Bridge, "pq_reply_failures_total", float64(i+1))
		wantQueued(t, e, 1)
	}
}

// Items whose replies NATS had before the connection was lost are not put back: they
// may have been delivered.
func TestUnconfirmedWhenNATSGoes(t *testing.T) {
	e := start(t, restricted(inboxesOnly(), testenv.Options{}))
	const n = 200
	pushNumbers(t, e, "pq.jobs.push", n)
	inbox := nats.NewInbox()
	replies := subscribe(t, e.Conn, inbox)

	for range n / 2 {
		publish(t, e, "pq.jobs.pop.min", inbox, "")
	}
	must(t, e.Conn.FlushTimeout(testenv.Patience))
	e.NATS.Restart()
	e.Bridge.WaitReady()

	testenv.Eventually(t, e.Conn.Flush)

	ok(t, e, "pq.jobs.len", nil, "")

	seen := map[string]int{}
	for {
		m, err := replies.NextMsg(time.Millisecond)
		if errors.Is(err, nats.ErrTimeout) {
			break
		}
		must(t, err)

		seen[string(m.Data)]++
	}

	for _, value := range popAll(t, e, "pq.jobs.pop.min") {
		seen[value]++
	}

	for value, times := range seen {
		if times > 1 {
			t.Errorf("%q came %d times", value, times)
		}
	}
}

// A bridge serves again once an operator gives permissions back that were missing at the start or
// taken away later. Meanwhile it serves what is permitted.
func TestPermissionsComeBack(t *testing.T) {
	less := inboxesOnly()
	less.Subscribe = &server.SubjectPermission{Deny: []string{"pq.>", "_PQ.>"}}
	change := func(e *testenv.Env, p *server.Permissions) {
		e.NATS.Change(func(o *server.Options) { restricted(p, testenv.Options{}).NATS(o) })
	}
	var log syncLog

	o := restricted(less, testenv.Options{
		Stopped: true,
		Bridge:  func(o *bridge.Options) { o.Logger = log.logger() },
	})

	e := start(t, o)
	e.NATS.Start()
	e.Bridge = e.StartBridge()
	notReady(t, e.Bridge, "pq.>")
	e.Conn = e.Connect()
	push(t, e, "q.jobs.push", nil, "permitted")
	change(e, inboxesOnly())
	e.NATS.Restart()
	e.Bridge.WaitReady()

	testenv.Eventually(t, e.Conn.Flush)

	push(t, e, "pq.jobs.push", nil, "a")

	change(e, less)
	e.NATS.Reload()
	notReady(t, e.Bridge, "nats: Permissions Violation for Subscription to pq.>")

	wantMetric(t, e.Bridge, "pq_ready", 0)

	push(t, e, "q.jobs.push", nil, "served as ever")
	e.Bridge.AskAgain() // before it is permitted
	notReady(t, e.Bridge, "pq.>")
	// Once this is refused, it has heard of _PQ.>, too.
	publish(t, e, "q.jobs.peek", "elsewhere", "")

	wantMetric(t, e.Bridge, "pq_reply_failures_total", 1)

	change(e, inboxesOnly())
	e.NATS.Reload()
	e.Bridge.AskAgain()
	e.Bridge.WaitReady()

	wantMetric(t, e.Bridge, "pq_ready", 1)

	e.Bridge.AskAgain() // which denied nothing
	log.wantSays(t, `msg="NATS permits requests again" subjects=[pq.>]`)
	wantPopped(t, e, "pq.jobs.pop.min", "a")

	push(t, e, "pq.jobs.push", nil, "b")
	publish(t, e, "pq.jobs.pop.min", nats.NewInbox(), "")
	wantMetric(t, e.Bridge, noResponders, 1)
	wantPopped(t, e, "pq.jobs.pop.min", "b")

	serving, _ := e.Bridge.Subscriptions()
	if slices.ContainsFunc(serving, func(s *nats.Subscription) bool { return !s.IsValid() }) {
		t.Error("the bridge still counts on subscriptions that have ended")
	}
}
