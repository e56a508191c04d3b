package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// leased pops with options, and returns the item and the subject of its acknowledgements.
func leased(t *testing.T, e *testenv.Env, subject, options, want string) (ack string) {
	t.Helper()
	m := e.Request(subject, nil, []byte(options))
	if err := bridge.ErrorFromHeaders(m.Header); err != nil || string(m.Data) != want {
		t.Fatalf("%s %s: got %q, %v: want %q", subject, options, m.Data, err, want)
	}
	if until := leasedUntil(t, m); until.IsZero() || m.Header.Get(subjects.HeaderDeliveries) == "" || !strings.Contains(m.Reply, ".ack.") {
		t.Fatalf("%s: headers %v, reply subject %q", subject, m.Header, m.Reply)
	}
	return m.Reply
}

// leasedUntil returns when the lease of an item ends.
func leasedUntil(t *testing.T, m *nats.Msg) time.Time {
	t.Helper()
	until, err := time.Parse(subjects.TimeLayout, m.Header.Get(subjects.HeaderLeaseUntil))
	must(t, err)
	return until
}

// acked sends an acknowledgement and checks that it is accepted.
func acked(t *testing.T, e *testenv.Env, ack, payload string) *nats.Msg {
	t.Helper()
	m := e.Request(ack, nil, []byte(payload))
	if err := bridge.ErrorFromHeaders(m.Header); err != nil {
		t.Fatalf("%s %q: %v", ack, payload, err)
	}
	return m
}

// A worker's day: leases, acknowledgements of all kinds, redelivery at the old place.
func TestLeases(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			pushAll(t, e, kind.push, "a", "b", "c")
			a := leased(t, e, kind.pop, `{"ack_wait":"1h"}`, "a")
			if m := acked(t, e, a, "+WPI"); m.Header.Get(subjects.HeaderLeaseUntil) == "" {
				t.Errorf("+WPI: %v", m.Header)
			}
			acked(t, e, a, "-NAK")
			isError(t, 409, a, e.Request(a, nil, nil))
			b := leased(t, e, kind.pop, `{"ack_wait":"1h"}`, "a") // at its old place
			// Acknowledge and take the next in one request.
			m := e.Request(b, nil, []byte("+NXT"))
			if string(m.Data) != "b" || m.Header.Get(subjects.HeaderDeliveries) != "1" {
				t.Errorf("+NXT: got %q, %v", m.Data, m.Header)
			}
			isError(t, 409, b, e.Request(b, nil, []byte("+NXT")))
			acked(t, e, m.Reply, "+ACK")
			isError(t, 409, m.Reply, e.Request(m.Reply, nil, []byte("+ACK")))
			// Published acknowledgements count as well.
			c := leased(t, e, kind.pop, `{"ack_wait":0}`, "c")
			must(t, e.Conn.Publish(c, nil))
			comes(t, "the end of the lease", func() bool { return bridge.ErrorFromHeaders(e.Request(c, nil, []byte("+WPI")).Header) != nil })
			refused(t, e, 404, kind.pop, nil, []byte(`{"ack_wait":"1s"}`))
			consistent(t, e)
		}
	}, newSteppedClock().options)
}

// clockedStore is a store whose commits take as long as the test says.
type clockedStore struct {
	kv.Database
	clock *steppedClock
	takes atomic.Int64
}

func (s *clockedStore) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	tx, err := s.Database.Begin(ctx, o)
	return clockedTx{tx, s}, err
}

type clockedTx struct {
	kv.Transaction
	store *clockedStore
}

func (tx clockedTx) Commit() kv.Future[struct{}] {
	tx.store.clock.step(time.Duration(tx.store.takes.Load()))
	return tx.Transaction.Commit()
}

// An item whose lease is over before it can be sent goes back, and the delivery does not count.
func TestLeaseOverBeforeItIsSent(t *testing.T) {
	s := &clockedStore{clock: newSteppedClock()}
	e := start(t, testenv.Options{Bridge: s.clock.options, Wrap: func(db kv.Database) kv.Database { s.Database = db; return s }})
	pushAll(t, e, "pq.jobs.push", "a")
	for i, options := range []string{"", `,"frames":true`, `,"batch":2`, `,"batch":2,"frames":true`, `,"expires":"1m"`} {
		s.takes.Store(int64(2 * time.Second))
		m := e.Request("pq.jobs.pop.min", nil, []byte(`{"ack_wait":"1s"`+options+`}`))
		isError(t, 503, options, m)
		same(t, "the outcome", m.Header.Get(subjects.HeaderOutcome), "unknown")
		wantMetric(t, e.Bridge, `pq_given_back_total{reason="late"}`, float64(i+1))
		s.takes.Store(0)
	}
	m := e.Request("pq.jobs.pop.min", nil, []byte(`{"ack_wait":"1s"}`))
	same(t, "deliveries of "+string(m.Data), m.Header.Get(subjects.HeaderDeliveries), "1")
}

// A lease that runs out, or an item that was given back with a delay, comes back at its time.
func TestLeaseEnds(t *testing.T) {
	clock := newSteppedClock()
	e := start(t, testenv.Options{Bridge: clock.options})
	push(t, e, "pq.jobs.push", nil, "a")
	first := leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "a")
	refused(t, e, 404, "pq.jobs.pop.min", nil, nil)
	clock.step(time.Hour)
	again := ok(t, e, "pq.jobs.pop.max", nil, `{"ack_wait":"2h"}`)
	same(t, "deliveries", again.Header.Get(subjects.HeaderDeliveries), "2")
	same(t, "the end", leasedUntil(t, again).Equal(clock.now().Add(2*time.Hour)), true)
	isError(t, 409, first, e.Request(first, nil, nil))
	restart(t, e) // a lease outlives the bridge that has granted it
	refused(t, e, 404, "pq.jobs.pop.min", nil, nil)
	acked(t, e, again.Reply, `-NAK {"delay":"30m","snooze":true}`)
	refused(t, e, 404, "pq.jobs.pop.min", nil, nil)
	clock.step(30 * time.Minute)
	again = ok(t, e, "pq.jobs.pop.min", nil, `{"ack_wait":"1h"}`)
	same(t, "deliveries without that of the snooze", again.Header.Get(subjects.HeaderDeliveries), "2")
	clock.step(2 * time.Hour)
	acked(t, e, again.Reply, "+ACK") // late, and it counts: nobody has had the item since
	refused(t, e, 404, "pq.jobs.pop.min", nil, nil)
}

// Options and acknowledgements that are wrong change nothing, and say what would be right.
// items shows who holds a lease, and since when, until it ends.
func TestHolders(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine testenv.Engine) {
		clock := newSteppedClock()
		e := testenv.New(t, testenv.Options{Engine: engine, Bridge: clock.options})
		for _, kind := range kinds {
			pushAll(t, e, kind.push, "a", "b")
			held := func(want string) {
				t.Helper()
				reply := ok(t, e, kind.queue+".items", nil, "")
				page, err := subjects.ParseReply[subjects.ItemsPage](reply.Data)
				must(t, err)
				got := ""
				for _, item := range page.Items {
					if item.LeasedAt == nil {
						got += string(item.Value) + " " + item.Holder + "- "
					} else {
						got += fmt.Sprintf("%s %s+%v ", item.Value, item.Holder, item.Due.Sub(*item.LeasedAt).Round(time.Second))
					}
				}
				same(t, kind.queue, got, want)
			}

			ack := leased(t, e, kind.pop, `{"ack_wait":"1h","holder":"me, at home"}`, "a")
			held("a me, at home+1h0m0s b - ")
			clock.step(time.Minute)
			acked(t, e, ack, "+WPI") // the lease goes on
			held("a me, at home+1h1m0s b - ")
			same(t, "next", string(acked(t, e, ack, "+NXT").Data), "b")
			held("b me, at home+1h0m0s ")
			clock.step(time.Hour)
			ok(t, e, kind.queue+".len", nil, "") // a page would not wait for long until it is swept
			held("b - ")

			ack = leased(t, e, kind.pop, `{"ack_wait":"1h","holder":"you"}`, "b")
			acked(t, e, ack, "-NAK 1h")
			held("b - ")
			clock.step(time.Hour)
			ack = leased(t, e, kind.pop, `{"ack_wait":"1h"}`, "b")
			held("b +1h0m0s ")
			acked(t, e, ack, "")

			refused(t, e, 400, kind.pop, nil, []byte(`{"holder":"me"}`))
			refused(t, e, 400, kind.pop, nil, []byte(`{"ack_wait":"1h","holder":"a\nb"}`))
			refused(t, e, 400, kind.pop, nil, []byte(`{"ack_wait":"1h","holder":"`+strings.Repeat("x", 129)+`"}`))
		}
	})
}

func TestBadLeaseRequests(t *testing.T) {
	e := start(t, testenv.Options{})
	push(t, e, "pq.jobs.push", nil, "a")
	for _, options := range []string{`x`, `[]`, `{"batch":0}`, `{"batch":1001}`, `{"ack_wait":"1ms"}`, `{"unknown":1}`, `{"batch":1} ` + "\x00"} {
		refused(t, e, 400, "pq.jobs.pop.min", nil, []byte(options))
	}
	ack := leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "a")
	for _, payload := range []string{"ACK", "+ACK please", "-NAK never", "+NXT 0", `-NAK {"delay":-1}`} {
		isError(t, 400, ack, e.Request(ack, nil, []byte(payload)))
	}
	for _, subject := range []string{"pq.jobs.ack.x", "pq.jobs.ack." + strings.Repeat("x", 80), "q.jobs.ack.-"} {
		refused(t, e, 400, subject, nil, nil)
	}
	refused(t, e, 400, "pq.jobs.ack", nil, nil)
	refused(t, e, 400, ack, nats.Header{"Pq-Priority": {"5"}}, nil)
	// A token of another queue, and one that was never given.
	refused(t, e, 409, strings.Replace(ack, "pq.jobs.", "pq.other.", 1), nil, nil)
	refused(t, e, 409, "pq.jobs.ack."+fdbpq.Token{Fence: 7}.String(), nil, nil)
	acked(t, e, ack, "")
}

// What a program stores under the protocol's own names is not sent: an item is never taken for
// the end of a batch.
func TestReservedHeadersOfStoredItems(t *testing.T) {
	e := start(t, testenv.Options{})
	store(t, e, 1, fdbpq.Message{Value: []byte("x"), Headers: map[string][]string{
		"Pq-Batch-Count": {"1"}, "pq-deliveries": {"7"}, "Kept": {"yes"},
	}})
	m := e.Request("pq.jobs.pop.min", nil, nil)
	if string(m.Data) != "x" || m.Header.Get(subjects.HeaderBatchCount) != "" || len(m.Header["pq-deliveries"]) > 0 || m.Header.Get("Kept") != "yes" {
		t.Errorf("got %q, %v", m.Data, m.Header)
	}
}

// Items that are pushed with a delay are held back, alone and in batches, in both kinds of queues.
// The header does not come back with them.
func TestDelayedPushes(t *testing.T) {
	clock := newSteppedClock()
	e := start(t, testenv.Options{Bridge: clock.options})
	for _, q := range kinds {
		at := subjects.FormatSchedule(clock.now().Add(time.Minute))
		push(t, e, q.push, nats.Header{"Pq-Delay": {"1h"}}, "in an hour")
		push(t, e, q.push, nats.Header{"Nats-Schedule": {at}, "Other": {"x"}}, "a")
		push(t, e, q.push, nats.Header{"nats-schedule": {"@at 1999-12-31T23:59:59+01:00"}}, "now")
		ok(t, e, q.push+".batch", nil, frames(frame(0, "", "too"), frame(0, "Pq-Delay: 87600h\r\n", "in ten years"), frame(0, "Nats-Schedule: "+at+"\r\n", "b")))
		push(t, e, q.push, nats.Header{"Pq-Delay": {"0s"}}, "also")
		for _, want := range []string{"now", "too", "also"} {
			m := ok(t, e, q.pop, nil, "")
			wantData(t, m, want)
			wantHeaders(t, m, nats.Header{})
		}
		refused(t, e, 404, q.pop, nil, nil)
		clock.step(time.Minute + time.Second)
		m := ok(t, e, q.pop, nil, "")
		wantData(t, m, "a")
		wantHeaders(t, m, nats.Header{"Other": {"x"}})
		wantPopped(t, e, q.pop, "b")
		wantLen(t, e, strings.TrimSuffix(q.queue, ".jobs"), "jobs", 0)
		info := string(ok(t, e, q.queue+".info", nil, "").Data)
		same(t, "two items are left in "+info, strings.Contains(info, `"delayed":2`), true)
	}
}

// Items expire as their headers or the settings say, delayed ones too, and not while they are leased. The
// header comes back with them.
func TestExpiringPushes(t *testing.T) {
	clock := newSteppedClock()
	e := start(t, testenv.Options{Bridge: clock.options})
	configured(t, e, "pq.jobs", `{"ttl":"1h"}`, `{"ttl":"1h0m0s"}`)
	push(t, e, "pq.jobs.push", nats.Header{"Nats-TTL": {"30s"}}, "leased")
	ack := leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"90m"}`, "leased")
	push(t, e, "pq.jobs.push", nats.Header{"Nats-TTL": {"120"}}, "two minutes")
	push(t, e, "pq.jobs.push", nats.Header{"nats-ttl": {"Never"}}, "never")
	push(t, e, "pq.jobs.push", nil, "an hour")
	push(t, e, "pq.jobs.push", nats.Header{"Nats-TTL": {"1m30s"}, "Pq-Delay": {"80m"}}, "never seen")
	ok(t, e, "pq.jobs.push.batch", nil, frames(frame(0, "Nats-TTL: 2h\r\n", "two hours"), frame(0, "", "in a batch")))
	clock.step(time.Minute)
	wantLen(t, e, "pq", "jobs", 5)
	clock.step(time.Minute)
	wantLen(t, e, "pq", "jobs", 4)
	wantMetric(t, e.Bridge, "pq_expired_total", 2)
	acked(t, e, ack, "+ACK")
	clock.step(59 * time.Minute)
	never := ok(t, e, "pq.jobs.pop.min", nil, "")
	wantData(t, never, "never")
	wantHeaders(t, never, nats.Header{"nats-ttl": {"Never"}})
	if m := ok(t, e, "pq.jobs.pop.min", nil, ""); string(m.Data) != "two hours" || m.Header.Get("Nats-TTL") != "2h" {
		t.Errorf("popped %q %v", m.Data, m.Header)
	}
	wantLen(t, e, "pq", "jobs", 0)
	wantMetric(t, e.Bridge, "pq_expired_total", 4)
}

// tokenOf returns the last token of the subject of an acknowledgement.
func tokenOf(ack string) string { return ack[strings.LastIndexByte(ack, '.')+1:] }

// also returns a payload that names further leases, given by the subjects of their acknowledgements.
func also(verb string, acks []string, options ...string) string {
	tokens := make([]string, len(acks))
	for i, ack := range acks {
		tokens[i] = tokenOf(ack)
	}
	list, _ := json.Marshal(tokens)
	return fmt.Sprintf(`%s {"also":%s%s}`, verb, list, strings.Join(append([]string{""}, options...), ","))
}

// leasedMany pushes items and leases them.
func leasedMany(t *testing.T, e *testenv.Env, queue string, n int) (acks []string) {
	t.Helper()
	for i := range n {
		push(t, e, "pq."+queue+".push", nil, fmt.Sprint("leased ", i))
	}
	replies := ask(t, e.Conn, "pq."+queue+".pop.min", fmt.Sprintf(`{"ack_wait":"1h","batch":%d}`, max(n, 2)))
	for i := range n {
		acks = append(acks, got(t, replies, fmt.Sprint("leased ", i)).Reply)
	}
	ended(t, replies, n, "")
	return acks
}

// One request acknowledges several leases, or none of them, and leases the next.
func TestAckSeveral(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		acks := leasedMany(t, e, "jobs", 8)
		acked(t, e, acks[0], also("+ACK", acks[1:3]))
		lost := e.Request(acks[3], nil, []byte(also("+NXT", []string{acks[4], acks[0], acks[5], acks[2]})))
		err := isError(t, 409, acks[3], lost)
		if got := lost.Header.Get(subjects.HeaderLost); got != "2,4" || !strings.Contains(err.Text, "2 of 5 leases, the first is number 2") {
			t.Errorf("lost are %s: %v", got, err)
		}
		push(t, e, "pq.jobs.push", nil, "next")
		m := acked(t, e, acks[3], also("+NXT", acks[4:6]))
		if string(m.Data) != "next" {
			t.Errorf("the next is %q", m.Data)
		}
		replies := ask(t, e.Conn, m.Reply, also("+NXT", []string{acks[6]}, `"batch":3`, `"expires":"1h"`))
		waiters(t, e.Bridge, "jobs", 1)
		isError(t, 409, acks[6], e.Request(acks[6], nil, nil)) // it counts before it waits
		// Others that come while one waits count at once as well.
		second := ask(t, e.Conn, acks[7], also("+NXT", nil, `"batch":2`, `"expires":"1h"`))
		waiters(t, e.Bridge, "jobs", 2)
		var more []string
		for i := range 5 {
			push(t, e, "pq.jobs.push", nil, fmt.Sprint("more ", i))
		}
		for i := range 3 {
			more = append(more, got(t, replies, fmt.Sprint("more ", i)).Reply)
		}
		ended(t, replies, 3, "")
		for i := range 2 {
			more = append(more, got(t, second, fmt.Sprint("more ", 3+i)).Reply)
		}
		ended(t, second, 2, "")
		first := asked(t, e, "jobs", "pop.min", `{"expires":"1h","ack_wait":"1h"}`)
		third := ask(t, e.Conn, more[0], also("+NXT", more[1:4], `"batch":2`, `"expires":"1h"`))
		waiters(t, e.Bridge, "jobs", 2)
		isError(t, 409, more[3], e.Request(more[3], nil, nil))
		ended(t, ask(t, e.Conn, more[4], also("+NXT", more[:1], `"batch":2`, `"expires":"1h"`)), 0, "409")
		for i := range 3 {
			push(t, e, "pq.jobs.push", nil, fmt.Sprint("last ", i))
		}
		got(t, first, "last 0")
		got(t, third, "last 1")
		got(t, third, "last 2")
		ended(t, third, 2, "")
		// Published, it only acknowledges.
		publish(t, e, more[4], "", also("+NXT", nil))
		comes(t, "the end of the lease", func() bool { return bridge.ErrorFromHeaders(e.Request(more[4], nil, []byte("+WPI")).Header) != nil })
		if info := e.Request("pq.jobs.info", nil, nil); !strings.Contains(string(info.Data), `"leased":3`) {
			t.Errorf("left: %s", info.Data)
		}
	})
}

// A request may acknowledge 1,000 leases and lease as many.
func TestAckVeryMany(t *testing.T) {
	e := start(t, testenv.Options{Bridge: func(o *bridge.Options) { o.MaxBatch = 10 }})
	push := func(n int) {
		payload := frames(slices.Repeat([]subjects.Frame{frame(1, "", "x")}, n)...)
		must(t, bridge.ErrorFromHeaders(e.Request("pq.jobs.push.batch", nil, []byte(payload)).Header))
	}
	push(2000)
	receive := func(subject, options string) (acks []string) {
		replies := ask(t, e.Conn, subject, options)
		for range 1000 {
			acks = append(acks, next(t, replies).Reply)
		}
		ended(t, replies, 1000, "")
		return acks
	}
	acks := receive("pq.jobs.pop.min", `{"ack_wait":"1h","batch":1000}`)
	acks = receive(acks[0], also("+NXT", acks[1:], `"batch":1000`))
	isError(t, 400, acks[0], e.Request(acks[0], nil, []byte(also("+ACK", append(acks[1:], acks[0])))))
	acked(t, e, acks[0], also("+ACK", acks[1:]))
	if info := e.Request("pq.jobs.info", nil, nil); !strings.Contains(string(info.Data), `"ready":0,"leased":0`) {
		t.Errorf("left: %s", info.Data)
	}
}

// What is wrong with the further leases is refused, and changes nothing.
func TestBadAlso(t *testing.T) {
	e := start(t, testenv.Options{})
	acks := leasedMany(t, e, "jobs", 3)
	none := fdbpq.Token{Fence: 7}.String()
	for payload, words := range map[string]string{
		also("+ACK", acks[:1]):                                 "element 0 is the token of the subject: want other leases",
		also("+NXT", []string{acks[1], none, acks[1]}):         "elements 0 and 2 are the same token",
		also("+ACK", []string{acks[1], "x.-"}):                 "also: element 1: ",
		`+NXT {"also":["` + acks[1] + `"]}`:                    "want one as a leased item came with it",
		`+ACK {"also":"` + tokenOf(acks[1]) + `"}`:             "want an array of texts",
		`+ACK {"also":["` + tokenOf(acks[1]) + `"],"batch":2}`: "unknown member",
		`-NAK {"also":["` + tokenOf(acks[1]) + `"]}`:           "unknown member",
	} {
		if err := isError(t, 400, acks[0], e.Request(acks[0], nil, []byte(payload))); !strings.Contains(err.Text, words) {
			t.Errorf("%s: %v: want %q", payload, err, words)
		}
	}
	// Tokens of another queue are lost here.
	m := e.Request(strings.Replace(acks[0], "pq.jobs.", "pq.other.", 1), nil, []byte(also("+ACK", acks[1:])))
	isError(t, 409, acks[0], m)
	same(t, "lost", m.Header.Get(subjects.HeaderLost), "0,1,2")
	acked(t, e, acks[0], also("+ACK", acks[1:]))
}

// An acknowledgement of several leases that wants the next ones runs once, on either bridge.
func TestAckSeveralIsForwarded(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, second *testenv.Bridge) {
		queues, replies := waitOn(t, e, second, e.Bridge, 1, `{"expires":"1h"}`)
		push(t, e, "pq."+queues[0]+".push", nil, "first")
		got(t, replies[0], "first")
		before := count(t, e.Bridge, "pq_passed_total")
		acks := leasedMany(t, e, queues[0], 3)
		push(t, e, "pq."+queues[0]+".push", nil, "next")
		wantData(t, acked(t, e, acks[0], also("+NXT", acks[1:])), "next")
		m := e.Request(acks[0], nil, []byte(also("+NXT", acks[1:])))
		isError(t, 409, acks[0], m)
		same(t, "lost", m.Header.Get(subjects.HeaderLost), "0,1,2")
		wantMetric(t, e.Bridge, "pq_passed_total", before+3)
	})
}
