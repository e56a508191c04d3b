package bridge_test

import (
	"context"
	"encoding/json"
	"errors"
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

// leaseOne pops with options that lease, checks the value of the item, and returns the subject of
// its acknowledgements.
func leaseOne(t *testing.T, e *testenv.Env, subject, options, want string) (ack string) {
	t.Helper()
	m := e.Request(subject, nil, []byte(options))
	if err := replyError(m.Header); err != nil || string(m.Data) != want {
		t.Fatalf("%s %s: got %q, %v: want %q", subject, options, m.Data, err, want)
	}

	until := leasedUntil(t, m)
	if until.IsZero() ||
		m.Header.Get(subjects.HeaderDeliveries) == "" || !strings.Contains(m.Reply, ".ack.") {
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

// acknowledge sends an acknowledgement and checks that it is accepted.
func acknowledge(t *testing.T, e *testenv.Env, ack, payload string) *nats.Msg {
	t.Helper()
	m := e.Request(ack, nil, []byte(payload))
	if err := replyError(m.Header); err != nil {
		t.Fatalf("%s %q: %v", ack, payload, err)
	}

	return m
}

// A lease can be extended, given back, acknowledged, and ended by +NXT, which leases the next item.
// An item that comes back has its old place. A lease that is over cannot be acknowledged.
func TestLeases(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			pushAll(t, e, kind.push, "a", "b", "c")
			a := leaseOne(t, e, kind.pop, `{"ack_wait":"1h"}`, "a")

			// Extend it, and give it back.
			if m := acknowledge(t, e, a, "+WPI"); m.Header.Get(subjects.HeaderLeaseUntil) == "" {
				t.Errorf("+WPI: %v", m.Header)
			}

			acknowledge(t, e, a, "-NAK")
			wantError(t, 409, a, e.Request(a, nil, nil))

			again := leaseOne(t, e, kind.pop, `{"ack_wait":"1h"}`, "a") // at its old place

			// Acknowledge and take the next in one request.
			m := e.Request(again, nil, []byte("+NXT"))
			if string(m.Data) != "b" || m.Header.Get(subjects.HeaderDeliveries) != "1" {
				t.Errorf("+NXT: got %q, %v", m.Data, m.Header)
			}
			wantError(t, 409, again, e.Request(again, nil, []byte("+NXT")))

			acknowledge(t, e, m.Reply, "+ACK")
			wantError(t, 409, m.Reply, e.Request(m.Reply, nil, []byte("+ACK")))

			// Published acknowledgements count as well.
			c := leaseOne(t, e, kind.pop, `{"ack_wait":0}`, "c")
			must(t, e.Conn.Publish(c, nil))
			waitUntil(t, "the end of the lease", func() bool {
				return replyError(e.Request(c, nil, []byte("+WPI")).Header) != nil
			})
			refused(t, e, 404, kind.pop, nil, []byte(`{"ack_wait":"1s"}`))
			checkStore(t, e)
		}
	}, newSteppedClock().options)
}

// clockedStore is a store whose commits take as long as the test says. Before the next one is
// answered, it calls then, if it is not nil.
type clockedStore struct {
	kv.Database
	clock *steppedClock
	takes atomic.Int64
	then  atomic.Pointer[func()]
}

// startClocked starts a bridge with such a store, and with its clock.
func startClocked(t *testing.T) (*clockedStore, *testenv.Env) {
	t.Helper()
	s := &clockedStore{clock: newSteppedClock()}
	return s, start(t, testenv.Options{
		Bridge: s.clock.options,
		Wrap:   func(db kv.Database) kv.Database { s.Database = db; return s },
	})
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
	done := tx.Transaction.Commit()
	if then := tx.store.then.Swap(nil); then != nil {
		_, _ = done.Get()
		(*then)()
	}
	return done
}

// An item whose lease is over before it can be sent goes back, and the delivery does not count. The
// pop gets 503 with an unknown outcome, whatever its options.
func TestLeaseOverBeforeItIsSent(t *testing.T) {
	s, e := startClocked(t)
	pushAll(t, e, "pq.jobs.push", "a")
	for i, options := range []string{
		"", `,"frames":true`, `,"batch":2`, `,"batch":2,"frames":true`, `,"expires":"1m"`,
	} {
		s.takes.Store(int64(2 * time.Second))
		m := e.Request("pq.jobs.pop.min", nil, []byte(`{"ack_wait":"1s"`+options+`}`))
		wantError(t, 503, options, m)
		same(t, "the outcome", m.Header.Get(subjects.HeaderOutcome), "unknown")
		wantMetric(t, e.Bridge, `pq_given_back_total{reason="late"}`, float64(i+1))

		s.takes.Store(0)
	}

	m := e.Request("pq.jobs.pop.min", nil, []byte(`{"ack_wait":"1s"}`))
	same(t, "deliveries of "+string(m.Data), m.Header.Get(subjects.HeaderDeliveries), "1")
}

// The first delivery of an item can come behind its second one: the lease was over by the clock of
// a bridge that was faster, and is not by the clock of the bridge that sends it.
func TestFirstDeliveryBehindTheSecond(t *testing.T) {
	s, e := startClocked(t)
	pushAll(t, e, "pq.jobs.push", "a")
	lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: jobsOf(t, e), Lease: time.Minute}
	errOther := errors.New("this was another commit of the bridge")
	var elsewhere func()
	elsewhere = func() {
		_, err := kv.Transact(t.Context(), e.DB, func(tx kv.Transaction) (struct{}, error) {
			results, err := fdbpq.Apply(tx, []fdbpq.Op{lease}, s.clock.now().Add(2*time.Second))
			if err == nil {
				err = results[0].Err
			}
			if err == nil && results[0].Lease.Deliveries != 2 {
				err = errOther
			}
			return struct{}{}, err
		})
		if errors.Is(err, errOther) {
			s.then.Store(&elsewhere)
		} else if err != nil {
			t.Errorf("the second delivery: %v", err)
		}
	}
	s.then.Store(&elsewhere)

	m := ok(t, e, "pq.jobs.pop.min", nil, `{"ack_wait":"1s"}`)
	same(t, "deliveries of "+string(m.Data), m.Header.Get(subjects.HeaderDeliveries), "1")
	wantError(t, 409, m.Reply, e.Request(m.Reply, nil, nil))
}

// An item whose lease runs out, or that was given back with a delay, comes back at its time, even
// after a restart. An acknowledgement after the end counts if nobody has had the item since.
func TestLeaseEnds(t *testing.T) {
	clock := newSteppedClock()
	e := start(t, testenv.Options{Bridge: clock.options})
	push(t, e, "pq.jobs.push", nil, "a")
	first := leaseOne(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "a")

	refused(t, e, 404, "pq.jobs.pop.min", nil, nil)

	clock.step(time.Hour)
	again := ok(t, e, "pq.jobs.pop.max", nil, `{"ack_wait":"2h"}`)
	same(t, "deliveries", again.Header.Get(subjects.HeaderDeliveries), "2")
	same(t, "the end", leasedUntil(t, again).Equal(clock.now().Add(2*time.Hour)), true)
	wantError(t, 409, first, e.Request(first, nil, nil))

	restart(t, e) // a lease outlives the bridge that has granted it
	refused(t, e, 404, "pq.jobs.pop.min", nil, nil)

	acknowledge(t, e, again.Reply, `-NAK {"delay":"30m","snooze":true}`)
	refused(t, e, 404, "pq.jobs.pop.min", nil, nil)

	clock.step(30 * time.Minute)
	again = ok(t, e, "pq.jobs.pop.min", nil, `{"ack_wait":"1h"}`)
	same(t, "deliveries without the snoozed", again.Header.Get(subjects.HeaderDeliveries), "2")

	clock.step(2 * time.Hour)
	acknowledge(t, e, again.Reply, "+ACK") // an hour late
	refused(t, e, 404, "pq.jobs.pop.min", nil, nil)
}

// The page of items shows who holds a lease and since when, until it ends. A holder is one line of
// up to 128 bytes, and only a pop that leases has one.
func TestHolders(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine testenv.Engine) {
		clock := newSteppedClock()
		e := testenv.New(t, testenv.Options{Engine: engine, Bridge: clock.options})

		for _, kind := range kinds {
			pushAll(t, e, kind.push, "a", "b")

			// wantHeld compares the items of the queue: each with its value, its holder, and how
			// long after its lease began it ends, or "-" for a ready item.
			wantHeld := func(want string) {
				t.Helper()
				got := ""
				for _, item := range page(t, e, kind.queue, "").Items {
					if item.LeasedAt == nil {
						got += string(item.Value) + " " + item.Holder + "- "
					} else {
						got += fmt.Sprintf("%s %s+%v ", item.Value, item.Holder,
							item.Due.Sub(*item.LeasedAt).Round(time.Second))
					}
				}
				same(t, kind.queue, got, want)
			}

			ack := leaseOne(t, e, kind.pop, `{"ack_wait":"1h","holder":"me, at home"}`, "a")
			wantHeld("a me, at home+1h0m0s b - ")

			// Extending a lease does not change when it began.
			clock.step(time.Minute)
			acknowledge(t, e, ack, "+WPI")
			wantHeld("a me, at home+1h1m0s b - ")

			// The holder of a lease also holds the next that +NXT leases, until that ends.
			same(t, "next", string(acknowledge(t, e, ack, "+NXT").Data), "b")
			wantHeld("b me, at home+1h0m0s ")

			clock.step(time.Hour)
			ok(t, e, kind.queue+".len", nil, "") // a page itself does not wait for the sweep
			wantHeld("b - ")

			// An item that was given back has no holder, nor has a lease taken without one.
			ack = leaseOne(t, e, kind.pop, `{"ack_wait":"1h","holder":"you"}`, "b")
			acknowledge(t, e, ack, "-NAK 1h")
			wantHeld("b - ")
			clock.step(time.Hour)
			ack = leaseOne(t, e, kind.pop, `{"ack_wait":"1h"}`, "b")
			wantHeld("b +1h0m0s ")
			acknowledge(t, e, ack, "")

			refused(t, e, 400, kind.pop, nil, []byte(`{"holder":"me"}`))
			refused(t, e, 400, kind.pop, nil, []byte(`{"ack_wait":"1h","holder":"a\nb"}`))
			refused(t, e, 400, kind.pop, nil,
				[]byte(`{"ack_wait":"1h","holder":"`+strings.Repeat("x", 129)+`"}`))
		}
	})
}

// Bad options and acknowledgements are refused with 400, tokens without a lease with 409, and the
// lease stays as it was.
func TestBadLeaseRequests(t *testing.T) {
	e := start(t, testenv.Options{})
	push(t, e, "pq.jobs.push", nil, "a")

	for _, options := range []string{
		`x`, `[]`, `{"batch":0}`, `{"batch":1001}`, `{"ack_wait":"1ms"}`, `{"unknown":1}`,
		`{"batch":1} ` + "\x00",
	} {
		refused(t, e, 400, "pq.jobs.pop.min", nil, []byte(options))
	}

	ack := leaseOne(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "a")
	for _, payload := range []string{
		"ACK", "+ACK please", "-NAK never", "+NXT 0", `-NAK {"delay":-1}`,
	} {
		wantError(t, 400, ack, e.Request(ack, nil, []byte(payload)))
	}

	for _, subject := range []string{
		"pq.jobs.ack.x", "pq.jobs.ack." + strings.Repeat("x", 80), "q.jobs.ack.-",
	} {
		refused(t, e, 400, subject, nil, nil)
	}
	refused(t, e, 400, "pq.jobs.ack", nil, nil)
	refused(t, e, 400, ack, nats.Header{"Pq-Priority": {"5"}}, nil)

	// A token of another queue, and one that was never given.
	refused(t, e, 409, strings.Replace(ack, "pq.jobs.", "pq.other.", 1), nil, nil)
	refused(t, e, 409, "pq.jobs.ack."+fdbpq.Token{Fence: 7}.String(), nil, nil)

	acknowledge(t, e, ack, "")
}

// Headers that a program stores under the protocol's own names are not sent, so that an item is
// never taken for the end of a batch. Its other headers are.
func TestReservedHeadersOfStoredItems(t *testing.T) {
	e := start(t, testenv.Options{})
	store(t, e, 1, fdbpq.Message{
		Value: []byte("x"),
		Headers: map[string][]string{
			"Pq-Batch-Count": {"1"},
			"pq-deliveries":  {"7"},
			"Kept":           {"yes"},
		},
	})

	m := e.Request("pq.jobs.pop.min", nil, nil)
	if string(m.Data) != "x" || m.Header.Get(subjects.HeaderBatchCount) != "" ||
		len(m.Header["pq-deliveries"]) > 0 || m.Header.Get("Kept") != "yes" {
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
		ok(t, e, q.push+".batch", nil, frames(
			frame(0, "", "too"),
			frame(0, "Pq-Delay: 87600h\r\n", "in ten years"),
			frame(0, "Nats-Schedule: "+at+"\r\n", "b"),
		))
		push(t, e, q.push, nats.Header{"Pq-Delay": {"0s"}}, "also")

		// At first only the items without a delay are there, then the two of the next minute.
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

// Items expire as their headers or the settings say, delayed ones too, and not while they are
// leased. The header comes back with them.
func TestExpiringPushes(t *testing.T) {
	clock := newSteppedClock()
	e := start(t, testenv.Options{Bridge: clock.options})
	configure(t, e, "pq.jobs", `{"ttl":"1h"}`, `{"ttl":"1h0m0s"}`)
	push(t, e, "pq.jobs.push", nats.Header{"Nats-TTL": {"30s"}}, "leased")
	ack := leaseOne(t, e, "pq.jobs.pop.min", `{"ack_wait":"90m"}`, "leased")
	push(t, e, "pq.jobs.push", nats.Header{"Nats-TTL": {"120"}}, "two minutes")
	push(t, e, "pq.jobs.push", nats.Header{"nats-ttl": {"Never"}}, "never")
	push(t, e, "pq.jobs.push", nil, "an hour")
	push(t, e, "pq.jobs.push", nats.Header{"Nats-TTL": {"1m30s"}, "Pq-Delay": {"80m"}},
		"never seen")
	ok(t, e, "pq.jobs.push.batch", nil,
		frames(frame(0, "Nats-TTL: 2h\r\n", "two hours"), frame(0, "", "in a batch")))

	// After a minute, all are there but the leased one and the delayed one.
	clock.step(time.Minute)
	wantLen(t, e, "pq", "jobs", 5)

	// After two, "two minutes" has expired, and the delayed one too.
	clock.step(time.Minute)
	wantLen(t, e, "pq", "jobs", 4)
	wantMetric(t, e.Bridge, "pq_expired_total", 2)

	// The leased item can be acknowledged long after its TTL.
	acknowledge(t, e, ack, "+ACK")

	// After an hour, so have "an hour" and "in a batch", whose TTL is the setting.
	clock.step(59 * time.Minute)
	never := ok(t, e, "pq.jobs.pop.min", nil, "")
	wantData(t, never, "never")
	wantHeaders(t, never, nats.Header{"nats-ttl": {"Never"}})

	m := ok(t, e, "pq.jobs.pop.min", nil, "")
	if string(m.Data) != "two hours" || m.Header.Get("Nats-TTL") != "2h" {
		t.Errorf("popped %q %v", m.Data, m.Header)
	}
	wantLen(t, e, "pq", "jobs", 0)
	wantMetric(t, e.Bridge, "pq_expired_total", 4)
}

// tokenOf returns the last token of the subject of an acknowledgement.
func tokenOf(ack string) string { return ack[strings.LastIndexByte(ack, '.')+1:] }

// alsoPayload returns the payload of an acknowledgement, +ACK or +NXT, that also acknowledges the
// leases with these subjects. The options are further members of its object.
func alsoPayload(verb string, acks []string, options ...string) string {
	tokens := make([]string, len(acks))
	for i, ack := range acks {
		tokens[i] = tokenOf(ack)
	}

	list, _ := json.Marshal(tokens)
	return fmt.Sprintf(`%s {"also":%s%s}`, verb, list,
		strings.Join(append([]string{""}, options...), ","))
}

// pushAndLease pushes n items and leases them. It returns the subjects of their acknowledgements.
func pushAndLease(t *testing.T, e *testenv.Env, queue string, n int) (acks []string) {
	t.Helper()
	for i := range n {
		push(t, e, "pq."+queue+".push", nil, fmt.Sprint("leased ", i))
	}

	replies := ask(t, e.Conn, "pq."+queue+".pop.min",
		fmt.Sprintf(`{"ack_wait":"1h","batch":%d}`, max(n, 2)))
	for i := range n {
		acks = append(acks, wantNext(t, replies, fmt.Sprint("leased ", i)).Reply)
	}

	wantEnd(t, replies, n, "")
	return acks
}

// One request acknowledges several leases, or none of them if one is lost, and leases the next
// items. The acknowledgements count at once, even if the request then waits for items.
func TestAckSeveral(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		acks := pushAndLease(t, e, "jobs", 8)
		acknowledge(t, e, acks[0], alsoPayload("+ACK", acks[1:3]))

		// Of the five leases here, numbers 2 and 4 have just been acknowledged.
		lost := e.Request(acks[3], nil,
			[]byte(alsoPayload("+NXT", []string{acks[4], acks[0], acks[5], acks[2]})))

		err := wantError(t, 409, acks[3], lost)
		same(t, "lost leases", lost.Header.Get(subjects.HeaderLost), "2,4")
		if !strings.Contains(err.Text, "2 of 5 leases, the first is number 2") {
			t.Errorf("%v", err)
		}

		// The others are still leased, so that they can be acknowledged now.
		push(t, e, "pq.jobs.push", nil, "next")
		m := acknowledge(t, e, acks[3], alsoPayload("+NXT", acks[4:6]))
		if string(m.Data) != "next" {
			t.Errorf("the next is %q", m.Data)
		}

		// The acknowledgements of a request that waits count before it waits.
		replies := ask(t, e.Conn, m.Reply,
			alsoPayload("+NXT", []string{acks[6]}, `"batch":3`, `"expires":"1h"`))
		waitForWaiters(t, e.Bridge, "jobs", 1)
		wantError(t, 409, acks[6], e.Request(acks[6], nil, nil))

		// Others that come while one waits count at once as well.
		second := ask(t, e.Conn, acks[7], alsoPayload("+NXT", nil, `"batch":2`, `"expires":"1h"`))
		waitForWaiters(t, e.Bridge, "jobs", 2)

		// The first gets three items, and the second two.
		for i := range 5 {
			push(t, e, "pq.jobs.push", nil, fmt.Sprint("more ", i))
		}

		var more []string
		for i := range 3 {
			more = append(more, wantNext(t, replies, fmt.Sprint("more ", i)).Reply)
		}

		wantEnd(t, replies, 3, "")
		for i := range 2 {
			more = append(more, wantNext(t, second, fmt.Sprint("more ", 3+i)).Reply)
		}

		wantEnd(t, second, 2, "")

		// So do those of a request that waits behind a pop. With a lost lease it does not wait.
		first := askAndWait(t, e, "jobs", "pop.min", `{"expires":"1h","ack_wait":"1h"}`)
		third := ask(t, e.Conn, more[0],
			alsoPayload("+NXT", more[1:4], `"batch":2`, `"expires":"1h"`))
		waitForWaiters(t, e.Bridge, "jobs", 2)

		wantError(t, 409, more[3], e.Request(more[3], nil, nil))

		lostOne := alsoPayload("+NXT", more[:1], `"batch":2`, `"expires":"1h"`)
		wantEnd(t, ask(t, e.Conn, more[4], lostOne), 0, "409")

		for i := range 3 {
			push(t, e, "pq.jobs.push", nil, fmt.Sprint("last ", i))
		}

		wantNext(t, first, "last 0")
		wantNext(t, third, "last 1")
		wantNext(t, third, "last 2")
		wantEnd(t, third, 2, "")

		// Published without a reply subject, +NXT only acknowledges: three are leased.
		publish(t, e, more[4], "", alsoPayload("+NXT", nil))

		waitUntil(t, "the end of the lease", func() bool {
			return replyError(e.Request(more[4], nil, []byte("+WPI")).Header) != nil
		})

		info := e.Request("pq.jobs.info", nil, nil)
		if !strings.Contains(string(info.Data), `"leased":3`) {
			t.Errorf("left: %s", info.Data)
		}
	})
}

// A request may acknowledge 1,000 leases and lease as many, even if that takes many transactions.
// One more lease in it is refused.
func TestAckVeryMany(t *testing.T) {
	e := start(t, testenv.Options{Bridge: func(o *bridge.Options) { o.MaxBatch = 10 }})
	const most = 1000
	payload := frames(slices.Repeat([]subjects.Frame{frame(1, "", "x")}, 2*most)...)
	must(t, replyError(e.Request("pq.jobs.push.batch", nil, []byte(payload)).Header))

	receive := func(subject, options string) (acks []string) {
		replies := ask(t, e.Conn, subject, options)
		for range most {
			acks = append(acks, next(t, replies).Reply)
		}

		wantEnd(t, replies, most, "")
		return acks
	}

	acks := receive("pq.jobs.pop.min", `{"ack_wait":"1h","batch":1000}`)
	acks = receive(acks[0], alsoPayload("+NXT", acks[1:], `"batch":1000`))

	tooMany := alsoPayload("+ACK", append(acks[1:], acks[0])) // and the one in the subject
	wantError(t, 400, acks[0], e.Request(acks[0], nil, []byte(tooMany)))

	acknowledge(t, e, acks[0], alsoPayload("+ACK", acks[1:]))
	info := e.Request("pq.jobs.info", nil, nil)
	if !strings.Contains(string(info.Data), `"ready":0,"leased":0`) {
		t.Errorf("left: %s", info.Data)
	}
}

// An acknowledgement is refused and changes nothing if its list of further leases cannot be read,
// or if one is given twice or belongs to another queue. The reply says which are lost.
func TestBadAlso(t *testing.T) {
	e := start(t, testenv.Options{})
	acks := pushAndLease(t, e, "jobs", 3)

	for payload, words := range map[string]string{
		alsoPayload("+ACK", []string{acks[1], "x.-"}): "also: element 1: ",
		`+NXT {"also":["` + acks[1] + `"]}`:           "want one that came with a leased item",

		`+ACK {"also":"` + tokenOf(acks[1]) + `"}`:             "want an array of strings",
		`+ACK {"also":["` + tokenOf(acks[1]) + `"],"batch":2}`: "unknown member",
		`-NAK {"also":["` + tokenOf(acks[1]) + `"]}`:           "unknown member",
	} {
		err := wantError(t, 400, acks[0], e.Request(acks[0], nil, []byte(payload)))
		if !strings.Contains(err.Text, words) {
			t.Errorf("%s: %v: want %q", payload, err, words)
		}
	}

	// A token that is given again is lost, and nothing is acknowledged.
	for payload, lost := range map[string]string{
		alsoPayload("+ACK", acks[:1]):                            "1",
		alsoPayload("+NXT", []string{acks[1], acks[2], acks[1]}): "3",
		alsoPayload("+ACK", []string{acks[1], acks[0], acks[2]}): "2",
	} {
		m := e.Request(acks[0], nil, []byte(payload))
		wantError(t, 409, acks[0], m)
		same(t, "lost", m.Header.Get(subjects.HeaderLost), lost)
	}

	// So are tokens of another queue.
	m := e.Request(strings.Replace(acks[0], "pq.jobs.", "pq.other.", 1), nil,
		[]byte(alsoPayload("+ACK", acks[1:])))
	wantError(t, 409, acks[0], m)
	same(t, "lost", m.Header.Get(subjects.HeaderLost), "0,1,2")

	acknowledge(t, e, acks[0], alsoPayload("+ACK", acks[1:]))
}

// An acknowledgement of several leases that wants the next item goes to the bridge that owns the
// queue, and runs once.
func TestAckSeveralIsForwarded(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, second *testenv.Bridge) {
		queues, replies := waitOn(t, e, second, e.Bridge, 1, `{"expires":"1h"}`)
		push(t, e, "pq."+queues[0]+".push", nil, "first")
		wantNext(t, replies[0], "first")

		before := count(t, e.Bridge, "pq_passed_total")
		acks := pushAndLease(t, e, queues[0], 3)
		push(t, e, "pq."+queues[0]+".push", nil, "next")

		wantData(t, acknowledge(t, e, acks[0], alsoPayload("+NXT", acks[1:])), "next")

		m := e.Request(acks[0], nil, []byte(alsoPayload("+NXT", acks[1:])))
		wantError(t, 409, acks[0], m)
		same(t, "lost", m.Header.Get(subjects.HeaderLost), "0,1,2")

		// The pop and both acknowledgements were forwarded.
		wantMetric(t, e.Bridge, "pq_passed_total", before+3)
	})
}
