package bridge_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// sentItem is an item of a reply that may have frames.
type sentItem struct {
	value  string
	header nats.Header
	ack    string // subject of the acknowledgements of a leased item
}

// unpacked returns the items in a message, which has frames or is an item; none if it ends a batch
// and has no items. queue is how the subjects of the acknowledgements begin.
func unpacked(t *testing.T, queue string, m *nats.Msg) (items []sentItem) {
	t.Helper()
	n, err := subjects.FramesOf(m.Header)
	must(t, err)

	if n == 0 {
		if m.Header.Get(subjects.HeaderBatchCount) != "" {
			return nil
		}

		item := sentItem{value: string(m.Data), header: m.Header}
		if strings.Contains(m.Reply, ".ack.") || strings.HasPrefix(m.Reply, "_R_.") {
			item.ack = m.Reply
		}

		return []sentItem{item}
	}

	list, err := subjects.ParseFrames(m.Data)
	if err != nil || len(list) != n || m.Header.Get(subjects.HeaderErrorCode) != "" {
		t.Fatalf("%v with %d bytes: %d frames, %v", m.Header, len(m.Data), len(list), err)
	}

	for i, f := range list {
		item := sentItem{value: string(f.Value)}
		if item.header, err = nats.DecodeHeadersMsg(f.Headers); err != nil {
			t.Fatalf("frame %d: %q: %v", i, f.Headers, err)
		}

		want := ""
		if !strings.HasPrefix(queue, "q.") {
			want = strconv.FormatInt(f.Priority, 10)
		}

		got := item.header.Get(subjects.HeaderPriority)
		if got != want || want == "" && f.Priority != 0 {
			t.Errorf("frame %d has priority %d, and its headers have %q", i, f.Priority, got)
		}

		if token := item.header.Get(subjects.HeaderToken); token != "" {
			item.ack = queue + ".ack." + token
			delete(item.header, subjects.HeaderToken)
		}

		items = append(items, item)
	}

	return items
}

// receiveFrames receives the reply to a pop with frames until its end, which has that error code.
// It returns the items, and how many of them each message had.
func receiveFrames(
	t *testing.T, queue string, replies *nats.Subscription, code string,
) (items []sentItem, sizes []int) {
	t.Helper()
	for {
		m := next(t, replies)
		if subjects.IsHeartbeat(m.Header) {
			continue
		}

		more := unpacked(t, queue, m)
		items = append(items, more...)

		if len(more) > 0 {
			sizes = append(sizes, len(more))
		}

		sent, ends, err := subjects.ParseBatchEnd(m.Header)
		must(t, err)
		if !ends {
			continue
		}

		if m.Header.Get(subjects.HeaderErrorCode) != code || sent != len(items) {
			t.Fatalf("got %d items, and the end is %v: want code %q", len(items), m.Header, code)
		}
		return items, sizes
	}
}

// popFramed pops up to n items with frames and other options. It returns the items, and how many of
// them each message had. The end of the reply has to have that error code.
func popFramed(
	t *testing.T, e *testenv.Env, subject string, n int, options, code string,
) (items []sentItem, sizes []int) {
	t.Helper()
	replies := ask(t, e.Conn, subject, fmt.Sprintf(`{"batch":%d,"frames":true%s}`, n, options))
	return receiveFrames(t, queueOf(subject), replies, code)
}

// queueOf returns the first two tokens of a subject.
func queueOf(subject string) string { return strings.Join(strings.Split(subject, ".")[:2], ".") }

// valuesOf returns the values of items, in their order.
func valuesOf(items []sentItem) string {
	var list []string
	for _, item := range items {
		list = append(list, item.value)
	}

	return strings.Join(list, " ")
}

// acksOf returns the subjects of the acknowledgements of items.
func acksOf(items []sentItem) (acks []string) {
	for _, item := range items {
		acks = append(acks, item.ack)
	}
	return acks
}

// wantSizes checks how many items the messages had.
func wantSizes(t *testing.T, sizes []int, want ...int) {
	t.Helper()
	if !slices.Equal(sizes, want) {
		t.Errorf("the messages have %v items, want %v", sizes, want)
	}
}

// An item in a frame has the value, the headers and the token that it would have in a message of
// its own, leased or popped, also as a dead letter.
func TestFramesAreItems(t *testing.T) {
	clock := newSteppedClock()
	each(t, func(t *testing.T, e *testenv.Env) {
		headers := []nats.Header{
			nil,
			{"A": {"1", "2", "1"}, "a": {""}},
			{"Nats-Msg-Id": {"id"}, "Pq-Unique": {"key"}, "Nats-TTL": {"1h"}},
			{"traceparent": {"00-abc-def-01"}},
			{"Status": {"503"}},
		}

		for _, c := range []struct{ queue, pop string }{
			{"pq.jobs", "pop.min"},
			{"pq.back", "pop.max"},
			{"q.jobs", "pop"},
		} {
			// One of the items is a dead letter of another queue.
			push(t, e, c.queue+"-other.push", nats.Header{"Own": {"x"}}, "dead")
			_, name, _ := strings.Cut(c.queue, ".")
			setting := fmt.Sprintf(`{"dead_letter":%q}`, name)
			configure(t, e, c.queue+"-other", setting, setting)
			dead := leaseOne(t, e, c.queue+"-other."+c.pop, `{"ack_wait":"1h"}`, "dead")
			acknowledge(t, e, dead, "+TERM broken\r\n")

			// The others have various headers, priorities and values.
			priorities := []int64{5, math.MinInt64, 0, math.MaxInt64, 5}
			values := []string{"", "x", strings.Repeat("x", 1000), "\x00\r\n", "y"}
			for i, h := range headers {
				subject := c.queue + ".push"
				if strings.HasPrefix(c.queue, "pq.") {
					subject += fmt.Sprint(".", priorities[i])
				}
				push(t, e, subject, h, values[i])
			}

			// The same lease twice: in messages of their own, and in one. Snoozed, they are as
			// before.
			n := len(headers) + 1
			subject := c.queue + "." + c.pop
			replies := ask(t, e.Conn, subject, fmt.Sprintf(`{"ack_wait":"1h","batch":%d}`, n))
			var want []sentItem
			for range n {
				want = append(want, unpacked(t, c.queue, next(t, replies))...)
			}

			wantEnd(t, replies, n, "")
			for _, item := range want {
				acknowledge(t, e, item.ack, `-NAK {"snooze":true}`)
			}

			got, sizes := popFramed(t, e, subject, n, `,"ack_wait":"1h"`, "")
			wantSizes(t, sizes, n)

			for i := range got {
				text := got[i].header.Get(subjects.HeaderLeaseUntil)
				until, err := time.Parse(subjects.TimeLayout, text)
				if left := until.Sub(clock.now()); err != nil || left != time.Hour {
					t.Errorf("%v: leased for %v, %v", got[i].header, left, err)
				}

				delete(got[i].header, subjects.HeaderLeaseUntil)
				delete(want[i].header, subjects.HeaderLeaseUntil)
				wantSame(t, got[i], want[i])

				acknowledge(t, e, got[i].ack, `-NAK {"snooze":true}`)
				delete(want[i].header, subjects.HeaderDeliveries)
			}

			// Popped, they have no leases and no tokens.
			got, sizes = popFramed(t, e, subject, n, "", "")
			wantSizes(t, sizes, n)

			for i := range got {
				wantSame(t, got[i], want[i])
				if got[i].ack != "" {
					t.Errorf("a popped item has a token: %s", got[i].ack)
				}
			}

			i := slices.IndexFunc(got, func(item sentItem) bool { return item.value == "dead" })
			same(t, "reason", got[i].header.Get(subjects.HeaderDeadReason), "broken")

			popFramed(t, e, subject, n, "", "404")
		}
		checkStore(t, e)
	}, clock.options)
}

// wantSame compares an item and its headers.
func wantSame(t *testing.T, got, want sentItem) {
	t.Helper()
	if got.value != want.value || !maps.EqualFunc(got.header, want.header, slices.Equal) {
		t.Errorf("got %q with %v, want %q with %v", got.value, got.header, want.value, want.header)
	}
}

// A token from a frame acknowledges like any other, and +NXT may ask for frames. A reply of one
// plain item has none.
func TestFramesOfLeases(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, c := range kinds {
			// Items "0" to "4" are leased, and 5 to 11 stay.
			pushNumbers(t, e, c.push, 12)
			list, _ := popFramed(t, e, c.pop, 5, `,"ack_wait":0`, "")
			acks := acksOf(list)
			acknowledge(t, e, acks[0], "")

			wantError(t, 409, acks[0], e.Request(acks[0], nil, nil))

			acknowledge(t, e, acks[1], "+WPI")
			acknowledge(t, e, acks[1], alsoPayload("+ACK", acks[2:4]))

			// +NXT of the last one leases three, and +NXT of those the other four.
			if list, _ = receiveFrames(t, c.queue, ask(t, e.Conn, acks[4],
				`+NXT {"batch":3,"frames":true}`), ""); valuesOf(list) != "5 6 7" {
				t.Errorf("the next are %q", valuesOf(list))
			}

			acks = acksOf(list)
			replies := ask(t, e.Conn, acks[0],
				alsoPayload("+NXT", acks[1:], `"batch":9`, `"frames":true`))

			list, sizes := receiveFrames(t, c.queue, replies, "")
			wantSizes(t, sizes, 4)
			if valuesOf(list) != "8 9 10 11" ||
				list[0].header.Get(subjects.HeaderDeliveries) != "1" {
				t.Errorf("the next are %q", valuesOf(list))
			}
			wantError(t, 409, acks[2], e.Request(acks[2], nil, nil))

			// With a lost lease among them, none is acknowledged.
			lost := ask(t, e.Conn, list[0].ack,
				alsoPayload("+NXT", []string{acks[0], list[1].ack}, `"batch":9`, `"frames":true`))
			if m := wantEnd(t, lost, 0, "409"); m.Header.Get(subjects.HeaderLost) != "1" {
				t.Errorf("lost is %v", m.Header)
			}

			acknowledge(t, e, list[0].ack, alsoPayload("+ACK", acksOf(list[1:])))
			popFramed(t, e, c.pop, 2, `,"ack_wait":0`, "404")

			// A single popped item is not in a frame, nor are items that were popped without them.
			push(t, e, c.push, nil, "one")

			for _, options := range []string{
				`{"frames":true}`, `{"batch":1,"frames":true}`,
				`{"batch":2,"frames":false,"ack_wait":"1h"}`,
			} {
				m := next(t, ask(t, e.Conn, c.pop, options))
				if string(m.Data) != "one" || m.Header.Get(subjects.HeaderFrames) != "" ||
					m.Header.Get(subjects.HeaderToken) != "" {
					t.Errorf("%s: got %q with %v", options, m.Data, m.Header)
				}

				if strings.Contains(options, "ack_wait") {
					acknowledge(t, e, m.Reply, "-NAK")
				} else {
					push(t, e, c.push, nil, "one")
				}
			}

			// A single leased item is in a frame, for its token, and no message says that it ends.
			one := next(t, ask(t, e.Conn, c.pop, `{"frames":true,"ack_wait":"1h"}`))
			alone := unpacked(t, c.queue, one)
			if len(alone) != 1 || alone[0].value != "one" ||
				one.Header.Get(subjects.HeaderBatchCount) != "" {
				t.Errorf("got %q with %v", one.Data, one.Header)
			}

			acknowledge(t, e, alone[0].ack, "-NAK")
			wantPopped(t, e, c.pop, "one")
		}

		// Leased in each queue: five, three, four, and "one" with and without a frame.
		wantMetric(t, e.Bridge, "pq_deliveries_total", 2*(5+3+4+2))
		wantMetric(t, e.Bridge, noResponders, 0)
		checkStore(t, e)
	}, newSteppedClock().options)
}

// The bounds of a message with frames, as package requests has them, and of our headers in a frame.
const (
	mostFramed       = 128 << 10 // bytes, if max_payload allows as many
	framedHeaders    = 128       // bytes of max_payload that are left to the headers of the message
	mostFrameHeaders = 250       // bytes of the headers of a frame
)

// framedMessage is a message of a reply that may have frames.
type framedMessage struct {
	items  []sentItem
	bytes  int // of the payload
	framed bool
}

// receiveMessages receives the messages of a reply until its end, which is no error.
func receiveMessages(
	t *testing.T, queue string, replies *nats.Subscription,
) (messages []framedMessage) {
	t.Helper()
	for {
		m := next(t, replies)
		framed := m.Header.Get(subjects.HeaderFrames) != ""
		messages = append(messages, framedMessage{unpacked(t, queue, m), len(m.Data), framed})

		_, ends, err := subjects.ParseBatchEnd(m.Header)
		must(t, err)
		if ends {
			same(t, "the error at the end", m.Header.Get(subjects.HeaderErrorCode), "")
			return messages
		}
	}
}

// wantFull fails the test if a message with frames has more than most bytes, or if it had room for
// the first item of the next one.
func wantFull(t *testing.T, messages []framedMessage, most int) {
	t.Helper()
	for i, m := range messages {
		if m.framed && m.bytes > most {
			t.Errorf("message %d has %d bytes, want at most %d", i, m.bytes, most)
		}
		if i == 0 || !m.framed || !messages[i-1].framed {
			continue
		}

		value := len(m.items[0].value)
		both := messages[i-1].bytes + frameHead + mostFrameHeaders + value
		if both < most-framedHeaders {
			t.Errorf("message %d has %d bytes, and had room for the next item, whose value has %d",
				i-1, messages[i-1].bytes, value)
		}
	}
}

// drawValues draws values for messages of at most that many bytes. Several of most values fit into
// a message. Of twelve, one is empty, and one is about as large as what a message has room for.
func drawValues(random *rand.Rand, n, most int) (values []string) {
	largest := most - frameHead
	for range n {
		size := random.IntN(most / 8)
		switch random.IntN(12) {
		case 0:
			size = 0
		case 1:
			size = largest - random.IntN(mostFrameHeaders+framedHeaders)
		}
		values = append(values, strings.Repeat("x", size))
	}
	return values
}

// Whatever the sizes of items and messages, all items come in their order. No message is larger
// than it may be, nor smaller than it could be.
func TestFramesOfAllSizes(t *testing.T) {
	t.Parallel()

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))

	for _, maxPayload := range []int{1 << 10, 5_000, 1 << 20} {
		e := testenv.New(t,
			testenv.Options{NATS: func(o *server.Options) { o.MaxPayload = int32(maxPayload) }})
		most := min(maxPayload, mostFramed)

		for range harness.Times(1, 2) {
			for _, options := range []string{"", `,"ack_wait":"1h"`} {
				values := drawValues(random, 60, most)
				pushAll(t, e, "pq.jobs.push", values...)

				replies := ask(t, e.Conn, "pq.jobs.pop.min",
					fmt.Sprintf(`{"batch":%d,"frames":true%s}`, len(values)+1, options))
				messages := receiveMessages(t, "pq.jobs", replies)

				var items []sentItem
				for _, m := range messages {
					items = append(items, m.items...)
				}
				same(t, "the values", valuesOf(items), strings.Join(values, " "))
				wantFull(t, messages, most)

				// Five tokens fit into an acknowledgement whatever max_payload is.
				popped := func(ack string) bool { return ack == "" }
				leased := slices.DeleteFunc(acksOf(items), popped)
				for some := range slices.Chunk(leased, 5) {
					acknowledge(t, e, some[0], alsoPayload("+ACK", some[1:]))
				}
				info := string(e.Request("pq.jobs.info", nil, nil).Data)
				if !strings.Contains(info, `"ready":0,"leased":0`) {
					t.Errorf("left: %s", info)
				}
			}
		}
	}
}

// An item that needs a message of its own comes in one, between those before it and those after it.
func TestFramesAroundALargeItem(t *testing.T) {
	const limit = 1 << 10
	e := start(t, testenv.Options{NATS: func(o *server.Options) { o.MaxPayload = limit }})
	largest := strings.Repeat("l", limit) // has no room for headers

	for _, options := range []string{"", `,"ack_wait":"1h"`} {
		pushAll(t, e, "pq.jobs.push", "a", "b", largest, "", "c", largest, largest, "d")
		list, sizes := popFramed(t, e, "pq.jobs.pop.min", 20, options, "")
		wantSizes(t, sizes, 2, 1, 2, 1, 1, 1)

		want := strings.Join([]string{"a", "b", largest, "", "c", largest, largest, "d"}, " ")
		if valuesOf(list) != want {
			t.Errorf("%s: got %q", options, valuesOf(list))
		}

		if options != "" {
			for _, item := range list {
				acknowledge(t, e, item.ack, "")
			}
		}
	}

	// If the last is that large, the end comes by itself.
	pushAll(t, e, "pq.jobs.push", "a", largest)
	_, sizes := popFramed(t, e, "pq.jobs.pop.min", 2, "", "")
	wantSizes(t, sizes, 1, 1)
}

// An item that NATS cannot carry ends the reply with 500, after the items before it. It stays in
// the queue with all items behind it.
func TestFramesThatCannotBeSent(t *testing.T) {
	e := start(t, testenv.Options{})
	storeItem := func(priority int64, headers map[string][]string, value string) {
		t.Helper()
		store(t, e, priority, fdbpq.Message{Value: []byte(value), Headers: headers})
	}

	storeItem(1, map[string][]string{
		"Pq-Batch-Count": {"1"},
		"Pq-Frames":      {"7"},
		"pq-token":       {"x"},
		"Kept":           {" a\nb "},
	}, "a")

	writeForeign(t, e.DB, "jobs", 2, "b")
	storeItem(3, nil, "")
	storeItem(4, map[string][]string{"bad name": {"x"}}, "d") // cannot be sent
	storeItem(5, nil, "e")

	for _, options := range []string{`,"ack_wait":"1h"`, ""} {
		list, _ := popFramed(t, e, "pq.jobs.pop.min", 9, options, "500")
		if valuesOf(list) != "a b " || len(list[0].header["pq-token"]) > 0 ||
			list[0].header.Get("Kept") != "a b" ||
			list[1].header.Get(subjects.HeaderPushedAt) != "" {
			t.Errorf("got %q, %v", list, options)
		}

		if options == "" {
			break // they were popped
		}

		for _, item := range list {
			acknowledge(t, e, item.ack, "-NAK")
		}

		// The items "d" and "e" were leased as well, and went back.
		wantMetric(t, e.Bridge, `pq_given_back_total{reason="unsendable"}`, 2)
	}
	wantMetric(t, e.Bridge, `pq_given_back_total{reason="unsendable"}`, 4)

	popFramed(t, e, "pq.jobs.pop.min", 9, "", "500") // "d" is the first now
	list, _ := popFramed(t, e, "pq.jobs.pop.max", 9, "", "500")
	if valuesOf(list) != "e" {
		t.Errorf("from the other end: %q", valuesOf(list))
	}
	wantMetric(t, e.Bridge, "pq_lost_items_total", 0)
}
