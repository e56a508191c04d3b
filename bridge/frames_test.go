package bridge_test

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/testenv"
)

// frameHead is how many bytes a frame has besides its headers and value.
const frameHead = 16

// frames returns the payload of a batch of pushes.
func frames(list ...subjects.Frame) string {
	var payload []byte
	for _, f := range list {
		payload = subjects.AppendFrame(payload, f)
	}

	return string(payload)
}

// frame returns a frame whose headers are these lines.
func frame(priority int64, lines, value string) subjects.Frame {
	f := subjects.Frame{Priority: priority, Value: []byte(value)}
	if lines != "" {
		f.Headers = []byte("NATS/1.0\r\n" + lines + "\r\n")
	}

	return f
}

// pushedIDs returns the ids in the reply to a batch of n pushes.
func pushedIDs(t *testing.T, queue string, n int, reply []byte) []string {
	t.Helper()
	got, err := subjects.ParsePushedBatch(reply)
	if err != nil || len(got.IDs) != n || got.Queue != queue || got.Stream != queue ||
		got.Seq == 0 || got.Seq >= 1<<53 {
		t.Fatalf("reply %.300q: %+v, %v", reply, got, err)
	}

	return got.IDs
}

// Each item of a batch has its own priority and headers, and comes back in its order, among others,
// as if it had been pushed by itself.
func TestPushBatch(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		push(t, e, "pq.jobs.push.2", nil, "old")
		batch := []subjects.Frame{
			frame(3, "", "e"),
			frame(2, "a: 1\r\nb: 2\r\na: 3\r\n", "c"),
			frame(math.MinInt64, "Pq-Priority: -9223372036854775808\r\n", "a"),
			frame(2, "a:1\r\n", ""),
			frame(math.MaxInt64, "Nats-Msg-Id: 5\r\n", "f"),
			frame(1, "Nats-Expected-Stream: jobs\r\n", "b"),
		}

		ids := pushedIDs(t, "jobs", 6, ok(t, e, "pq.jobs.push.batch", nil, frames(batch...)).Data)
		for _, want := range []struct {
			at      int // the index in the batch, -1 for the item that was there before
			value   string
			headers nats.Header
		}{
			{2, "a", nil},
			{5, "b", nil},
			{-1, "old", nil},
			{1, "c", nats.Header{"a": {"1", "3"}, "b": {"2"}}},
			{3, "", nats.Header{"a": {"1"}}},
			{0, "e", nil},
			{4, "f", nats.Header{"Nats-Msg-Id": {"5"}}},
		} {
			m := ok(t, e, "pq.jobs.pop.min", nil, "")
			wantData(t, m, want.value)
			if want.at >= 0 {
				priority := strconv.FormatInt(batch[want.at].Priority, 10)
				same(t, "id", m.Header.Get(subjects.HeaderID), ids[want.at])
				same(t, "priority", m.Header.Get(subjects.HeaderPriority), priority)
			}

			wantHeaders(t, m, want.headers)
		}
		wantLen(t, e, "pq", "jobs", 0)

		// The reply to a batch of one is that of a batch.
		got := string(ok(t, e, "pq.jobs.push.batch", nil, frames(frame(0, "", "one"))).Data)
		if !strings.HasPrefix(got, `{"queue":"jobs","ids":["`) {
			t.Errorf("reply %s", got)
		}
	})
}

// The largest batch is pushed even in the worst order of priorities, and one item more is refused.
func TestLargestPushBatch(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine testenv.Engine) {
		e := testenv.New(t, testenv.Options{Engine: engine})
		var list []subjects.Frame
		for i := range subjects.MaxFrames {
			list = append(list, frame(int64(-i), "", strconv.Itoa(i))) // each before the last
		}

		reply := ok(t, e, "pq.jobs.push.batch", nil, frames(list...))

		ids := pushedIDs(t, "jobs", len(list), reply.Data)
		wantLen(t, e, "pq", "jobs", len(list))

		for i := len(list) - 1; i > len(list)-20; i-- {
			m := ok(t, e, "pq.jobs.pop.min", nil, "")
			if string(m.Data) != strconv.Itoa(i) || m.Header.Get(subjects.HeaderID) != ids[i] {
				t.Fatalf("got %q, want %d", m.Data, i)
			}
		}

		err := refused(t, e, 413, "pq.more.push.batch", nil,
			[]byte(frames(append(list, list[0])...)))
		tooMany := errors.Is(err, subjects.ErrTooManyFrames)
		if !tooMany || !strings.Contains(err.Text, "too many frames: want at most 4096") {
			t.Errorf("%v", err)
		}
		wantLen(t, e, "pq", "more", 0)
		checkStore(t, e)
	})
}

// A bad batch is refused with what is wrong, in which item, whether nats.go sends it or a client
// without a library. It changes nothing. Headers of the batch that are not ours do not matter.
func TestBadPushBatch(t *testing.T) {
	e := start(t, testenv.Options{})
	good := frame(0, "", "good")
	c := dialRaw(t, e)

	for _, test := range []struct {
		name, subject, headers, payload string
		is                              error
		text                            string
	}{
		{
			"empty", "pq.jobs.push.batch", "", "", subjects.ErrFrame,
			"there are none: want 1 to 4096",
		},
		{
			"cut value", "pq.jobs.push.batch", "", frames(good, good)[:2*(frameHead+len("good"))-1],
			subjects.ErrFrame,
			"frame 1 has a value of 4 bytes according to its lengths, but only 3",
		},
		{
			"priority differs", "pq.jobs.push.batch", "",
			frames(good, frame(1, "Pq-Priority: 2\r\n", "x")), subjects.ErrPriority,
			"item 1: bad priority: given twice and different, 1 and 2",
		},
		{
			"priority of FIFO", "q.jobs.push.batch", "", frames(good, good, frame(7, "", "x")),
			subjects.ErrPriority, "item 2: bad priority: 7 in a FIFO queue: want 0",
		},
		{
			"priority header of FIFO", "q.jobs.push.batch", "",
			frames(good, frame(0, "Pq-Priority: 0\r\n", "x")), errBadRequest,
			"item 1: bad request: header Pq-Priority with push",
		},
		{
			"unknown Pq- header", "pq.jobs.push.batch", "",
			frames(good, frame(0, "Pq-Wait: 5\r\n", "x")), errBadRequest,
			`item 1: bad request: unknown header "Pq-Wait"`,
		},
		{
			"condition", "pq.jobs.push.batch", "",
			frames(good, frame(0, "Nats-Expected-Last-Sequence: 5\r\n", "x")), errBadRequest,
			"item 1: bad request: header \"Nats-Expected-Last-Sequence\": it is a condition",
		},
		{
			"status", "pq.jobs.push.batch", "",
			frames(subjects.Frame{Headers: []byte("NATS/1.0 503\r\n\r\n")}), errBadRequest,
			"more than one way",
		},
		{
			"name", "pq.jobs.push.batch", "", frames(frame(0, "a b: x\r\n", "x")), errBadRequest,
			"want a name of letters",
		},
		{
			"no colon", "pq.jobs.push.batch", "", frames(good, frame(0, "x\r\n", "x")),
			errBadRequest, "item 1: bad request: the headers cannot be read",
		},
		{
			"CR in a value", "pq.jobs.push.batch", "", frames(frame(0, "a: b\rc\r\n", "x")),
			errBadRequest, "has a CR in it",
		},
		{
			"long key", "pq.jobs.push.batch", "",
			frames(good, frame(0, "Pq-Unique: "+strings.Repeat("x", 513)+"\r\n", "")),
			subjects.ErrKey, "item 1: bad key: header Pq-Unique has 513",
		},
		{
			"weight", "q.jobs.push.batch", "",
			frames(good, frame(0, "Pq-Group: g\r\nPq-Weight: 101\r\n", "x")),
			subjects.ErrWeight, `item 1: bad Pq-Weight "101"`,
		},
		{
			"delay", "pq.jobs.push.batch", "", frames(good, frame(0, "Pq-Delay: 5\r\n", "x")),
			subjects.ErrTiming, "item 1: header Pq-Delay",
		},
		{
			"delay of a joiner", "q.jobs.push.batch", "",
			frames(good, frame(0, "Pq-Delay: 0s\r\nPq-Join: 1h\r\n", "x")), errBadRequest,
			"item 1: bad request: headers Pq-Delay and Pq-Join: want one of them",
		},
		{
			"Pq- header of the batch", "pq.jobs.push.batch", "Pq-Priority: 0\r\n", frames(good),
			errBadRequest, "header Pq-Priority with push.batch",
		},
		{
			"Nats- header of the batch", "pq.jobs.push.batch", "Nats-Msg-Id: 1\r\n", frames(good),
			errBadRequest, "give them to the items in it",
		},
		{
			"a priority in the subject", "pq.jobs.push.batch.5", "", frames(good),
			subjects.ErrPriority, `bad priority "batch.5"`,
		},
		{"unknown verb", "pq.jobs.pop.batch", "", frames(good), subjects.ErrVerb, "push.batch"},
	} {
		t.Run(test.name, func(t *testing.T) {
			block, h := "", nats.Header(nil)
			if test.headers != "" {
				block = "NATS/1.0\r\n" + test.headers + "\r\n"
				h = decoded(t, block)
			}

			err := refused(t, e, 400, test.subject, h, []byte(test.payload))
			if !errors.Is(err, test.is) || !strings.Contains(err.Text, test.text) {
				t.Errorf("%v: want it to say %q", err, test.text)
			}

			c.t = t
			m := c.request(test.subject, block, test.payload)
			if got := replyError(decoded(t, m.headers)); got == nil || got.Error() != err.Error() {
				t.Errorf("over TCP: %v, want %v", got, err)
			}

			var body struct{ Error struct{ Code int } }
			must(t, json.Unmarshal([]byte(m.payload), &body))
			if body.Error.Code != 400 {
				t.Errorf("payload %q", m.payload)
			}
		})
	}
	wantLen(t, e, "pq", "jobs", 0)
	wantLen(t, e, "q", "jobs", 0)
	wantMetric(t, e.Bridge, "pq_pending_requests", 0)
	wantMetric(t, e.Bridge, "pq_pending_bytes", 0)

	ok(t, e, "pq.jobs.push.batch", nats.Header{
		"traceparent":       {"x"},
		"Nats-Request-Info": {"{}"},
		"Other":             {"x"},
	}, frames(good))
	if m := ok(t, e, "pq.jobs.pop.min", nil, ""); len(m.Header) != 3 {
		t.Errorf("headers %v", m.Header)
	}
}

// A batch may be as large as the server allows. It is refused if an item with its headers, or the
// ids in the reply, would not fit into a message, but it may have any number of items without a
// reply.
func TestPushBatchAndMaxPayload(t *testing.T) {
	const most = 8192
	e := start(t, testenv.Options{NATS: func(o *server.Options) { o.MaxPayload = most }})
	one := frame(0, "", strings.Repeat("x", most-2*frameHead-len("y"))) // beside "y"
	reply := ok(t, e, "pq.jobs.push.batch", nil, frames(frame(0, "", "y"), one))
	pushedIDs(t, "jobs", 2, reply.Data)
	ok(t, e, "pq.jobs.pop.min", nil, "")

	if m := ok(t, e, "pq.jobs.pop.min", nil, ""); len(m.Data) != len(one.Value) {
		t.Errorf("%d bytes came back", len(m.Data))
	}

	// It just fits into the batch, but not, with its headers, into a message.
	lines := strings.Repeat("a:b\r\n", 40)
	around := len("NATS/1.0\r\n") + len("\r\n")
	value := strings.Repeat("x", most-frameHead-len(lines)-around)
	err := refused(t, e, 413, "pq.jobs.push.batch", nil, []byte(frames(frame(0, lines, value))))
	if !errors.Is(err, errTooLarge) || !strings.Contains(err.Text, "item 0: ") {
		t.Errorf("%v", err)
	}

	many := frames(slices.Repeat([]subjects.Frame{frame(0, "", "")}, 300)...)
	err = refused(t, e, 413, "pq.jobs.push.batch", nil, []byte(many))
	if !errors.Is(err, errTooLarge) ||
		!strings.Contains(err.Text, "a reply with 300 ids can have") {
		t.Errorf("%v", err)
	}
	wantLen(t, e, "pq", "jobs", 0)

	publish(t, e, "pq.jobs.push.batch", "", many) // needs no room for a reply
	wantQueued(t, e, 300)
}

// The bound for the size of a reply holds for the longest names and ids.
func TestMaxPushedBatch(t *testing.T) {
	id := fdbpq.ID{Priority: -1 << 63, Count: 1<<63 - 1}
	for i := range id.Random {
		id.Random[i] = 0xff
	}

	name := strings.Repeat("n", settings.MaxQueueName)
	latest := time.UnixMicro(1<<63 - 1)

	for _, n := range []int{1, 2, subjects.MaxFrames} {
		reply := subjects.AppendPushedBatch(nil, name, n,
			func(b []byte, _ int) []byte { return id.AppendTo(b) }, latest)
		if got, limit := len(reply), subjects.MaxPushedBatch(n); got > limit || got < limit-10 {
			t.Errorf("%d ids take %d bytes, the bound is %d", n, got, limit)
		}
	}
}

// A batch that exceeds any transaction is refused, with the limit, and harms no other request.
func TestPushBatchTooLargeForATransaction(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine testenv.Engine) {
		e := testenv.New(t, testenv.Options{Engine: engine, NATS: func(o *server.Options) {
			o.MaxPayload = 12 << 20
			o.MaxPending = 64 << 20
		}})

		item := frame(0, "", strings.Repeat("x", 1<<20))
		large := frames(slices.Repeat([]subjects.Frame{item}, 10)...)
		refusal := ask(t, e.Conn, "pq.jobs.push.batch", large)
		others := ask(t, e.Conn, "pq.jobs.push", "x")

		err := wantError(t, 413, "push.batch", next(t, refusal))
		if !strings.Contains(err.Text, "10 items take") ||
			!strings.Contains(err.Text, "at most 9900000") {
			t.Errorf("%v", err)
		}
		must(t, replyError(next(t, others).Header))

		wantLen(t, e, "pq", "jobs", 1)

		large = frames(frame(0, "", "y"), frame(0, "", strings.Repeat("x", fdbpq.MaxMessageSize+1)))
		err = refused(t, e, 413, "pq.jobs.push.batch", nil, []byte(large))
		if !strings.Contains(err.Text, "item 1: ") {
			t.Errorf("%v", err)
		}
		wantLen(t, e, "pq", "jobs", 1)

		ok(t, e, "pq.jobs.push.batch", nil, frames(slices.Repeat([]subjects.Frame{item}, 9)...))
		wantLen(t, e, "pq", "jobs", 10)
	})
}

// A batch without a reply subject is pushed, and a len behind it counts its items. If it fails, a
// metric counts it.
func TestPushBatchWithoutReply(t *testing.T) {
	e := start(t, testenv.Options{})
	for n := range 20 {
		publish(t, e, "pq.jobs.push.batch", "", frames(frame(1, "", "a"), frame(2, "", "b")))
		wantLen(t, e, "pq", "jobs", 2*(n+1))
	}

	publish(t, e, "pq.jobs.push.batch", "", "bad")
	publish(t, e, "q.jobs.push.batch", "pq.jobs.push", frames(frame(0, "", "x")))
	wantMetric(t, e.Bridge, "pq_unanswered_total", 2)
	wantLen(t, e, "q", "jobs", 0)
}

// Damage at the priority of one item fails the whole batch, and only that.
func TestPushBatchBesideDamage(t *testing.T) {
	e := start(t, testenv.Options{})
	id := store(t, e, 5, fdbpq.Message{Value: []byte("v")})
	must(t, kv.Update(t.Context(), e.DB, func(tx kv.Transaction) error { return damage(tx, id) }))

	refusal := refused(t, e, 500, "pq.jobs.push.batch", nil,
		[]byte(frames(frame(1, "", "a"), frame(5, "", "b"), frame(9, "", "c"))))
	if !strings.Contains(refusal.Text, "item 1: ") {
		t.Errorf("%v", refusal)
	}
	wantLen(t, e, "pq", "jobs", 1)

	ok(t, e, "pq.jobs.push.batch", nil, frames(frame(1, "", "a"), frame(9, "", "c")))
	wantLen(t, e, "pq", "jobs", 3)
}

// damage writes a key right behind an item, of a form that no item has.
func damage(tx kv.Transaction, id fdbpq.ID) error {
	all := kv.Range{Begin: []byte{0}, End: []byte{0xff}}
	pairs, err := tx.GetRange(all, kv.RangeOptions{}).Get()
	for _, pair := range pairs {
		if strings.Contains(string(pair.Key), string(id.Random[8:10])) {
			tx.Set(append(slices.Clone(pair.Key), 0x15, 1), []byte("x"))
			return nil
		}
	}

	return errors.Join(err, errors.New("no such item"))
}
