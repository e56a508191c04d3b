package bridge_test

import (
	"bytes"
	"fmt"
	"maps"
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

// unpacked returns the items in a message, which has frames or is an item; none if it ends a batch and has no items.
// queue is how the subjects of the acknowledgements begin.
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
	if err != nil || list.Len() != n || m.Header.Get(subjects.HeaderErrorCode) != "" {
		t.Fatalf("%v with %d bytes: %d frames, %v", m.Header, len(m.Data), list.Len(), err)
	}
	for i, f := range list.All() {
		item := sentItem{value: string(f.Value)}
		if item.header, err = nats.DecodeHeadersMsg(f.Headers); err != nil {
			t.Fatalf("frame %d: %q: %v", i, f.Headers, err)
		}
		want := ""
		if !strings.HasPrefix(queue, "q.") {
			want = strconv.FormatInt(f.Priority, 10)
		}
		if got := item.header.Get(subjects.HeaderPriority); got != want || want == "" && f.Priority != 0 {
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

// inFrames receives the reply to a pop with frames until its end, with that error. It returns the items, and how many of
// them each message had.
func inFrames(t *testing.T, queue string, replies *nats.Subscription, code string) (items []sentItem, sizes []int) {
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
		if sent, ends, err := subjects.ParseBatchEnd(m.Header); err != nil {
			t.Fatal(err)
		} else if ends {
			if got := m.Header.Get(subjects.HeaderErrorCode); got != code || sent != len(items) {
				t.Fatalf("got %d items, and the end is %v: want code %q", len(items), m.Header, code)
			}
			return items, sizes
		}
	}
}

// popFramed is inFrames of a pop of up to n items with frames and other options.
func popFramed(t *testing.T, e *testenv.Env, subject string, n int, options, code string) (items []sentItem, sizes []int) {
	t.Helper()
	return inFrames(t, queueOf(subject), ask(t, e.Conn, subject, fmt.Sprintf(`{"batch":%d,"frames":true%s}`, n, options)), code)
}

// queueOf returns the first two tokens of a subject.
func queueOf(subject string) string { return strings.Join(strings.Split(subject, ".")[:2], ".") }

func valuesOf(items []sentItem) string {
	var list []string
	for _, item := range items {
		list = append(list, item.value)
	}
	return strings.Join(list, " ")
}

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

// An item in a frame is as it would be in a message of its own.
func TestFramesAreItems(t *testing.T) {
	clock := newSteppedClock()
	each(t, func(t *testing.T, e *testenv.Env) {
		headers := []nats.Header{
			nil, {"A": {"1", "2", "1"}, "a": {""}}, {"Nats-Msg-Id": {"id"}, "Pq-Unique": {"key"}, "Nats-TTL": {"1h"}},
			{"traceparent": {"00-abc-def-01"}}, {"Status": {"503"}},
		}
		for _, c := range []struct{ queue, push, pop string }{
			{"pq.jobs", "push", "pop.min"}, {"pq.back", "push", "pop.max"}, {"q.jobs", "enqueue", "dequeue"},
		} {
			push(t, e, c.queue+"-other."+c.push, nats.Header{"Own": {"x"}}, "dead")
			configured(t, e, c.queue+"-other", fmt.Sprintf(`{"dead_letter":%q}`, c.queue[strings.IndexByte(c.queue, '.')+1:]),
				fmt.Sprintf(`{"dead_letter":%q}`, c.queue[strings.IndexByte(c.queue, '.')+1:]))
			acked(t, e, leased(t, e, c.queue+"-other."+c.pop, `{"ack_wait":"1h"}`, "dead"), "+TERM broken\r\n")
			for i, h := range headers {
				subject := c.queue + "." + c.push
				if c.push == "push" {
					subject += "." + []string{"5", "-9223372036854775808", "0", "9223372036854775807", "5"}[i]
				}
				value := []string{"", "x", strings.Repeat("x", 1000), "\x00\r\n", "y"}[i]
				push(t, e, subject, h, value)
			}
			n := len(headers) + 1
			subject := c.queue + "." + c.pop
			// The same lease twice: in messages of their own, and in one. Snoozed, they are as before.
			replies := ask(t, e.Conn, subject, fmt.Sprintf(`{"ack_wait":"1h","batch":%d}`, n))
			var want []sentItem
			for range n {
				want = append(want, unpacked(t, c.queue, next(t, replies))...)
			}
			ended(t, replies, n, "")
			for _, item := range want {
				acked(t, e, item.ack, `-NAK {"snooze":true}`)
			}
			got, sizes := popFramed(t, e, subject, n, `,"ack_wait":"1h"`, "")
			wantSizes(t, sizes, n)
			for i := range got {
				until, err := time.Parse(subjects.TimeLayout, got[i].header.Get(subjects.HeaderLeaseUntil))
				if left := until.Sub(clock.now()); err != nil || left != time.Hour {
					t.Errorf("%v: leased for %v, %v", got[i].header, left, err)
				}
				delete(got[i].header, subjects.HeaderLeaseUntil)
				delete(want[i].header, subjects.HeaderLeaseUntil)
				wantSame(t, got[i], want[i])
				acked(t, e, got[i].ack, `-NAK {"snooze":true}`)
				delete(want[i].header, subjects.HeaderDeliveries)
			}
			got, sizes = popFramed(t, e, subject, n, "", "")
			wantSizes(t, sizes, n)
			for i := range got {
				wantSame(t, got[i], want[i])
				if got[i].ack != "" {
					t.Errorf("a popped item has a token: %s", got[i].ack)
				}
			}
			if dead := got[slices.IndexFunc(got, func(item sentItem) bool { return item.value == "dead" })]; dead.header.Get(subjects.HeaderDeadReason) != "broken" {
				t.Errorf("the dead letter has headers %v", dead.header)
			}
			popFramed(t, e, subject, n, "", "404")
		}
		consistent(t, e)
	}, clock.options)
}

func wantSame(t *testing.T, got, want sentItem) {
	t.Helper()
	if got.value != want.value || !maps.EqualFunc(got.header, want.header, slices.Equal) {
		t.Errorf("got %q with %v, want %q with %v", got.value, got.header, want.value, want.header)
	}
}

// The tokens of frames are as good as those of other leases, and +NXT may ask for frames.
func TestFramesOfLeases(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, c := range kinds {
			pushNumbers(t, e, c.push, 12)
			list, _ := popFramed(t, e, c.pop, 5, `,"ack_wait":0`, "")
			acks := acksOf(list)
			acked(t, e, acks[0], "")
			isError(t, 409, acks[0], e.Request(acks[0], nil, nil))
			acked(t, e, acks[1], "+WPI")
			acked(t, e, acks[1], also("+ACK", acks[2:4]))
			if list, _ = inFrames(t, c.queue, ask(t, e.Conn, acks[4], `+NXT {"batch":3,"frames":true}`), ""); valuesOf(list) != "5 6 7" {
				t.Errorf("the next are %q", valuesOf(list))
			}
			acks = acksOf(list)
			replies := ask(t, e.Conn, acks[0], also("+NXT", acks[1:], `"batch":9`, `"frames":true`))
			list, sizes := inFrames(t, c.queue, replies, "")
			wantSizes(t, sizes, 4)
			if valuesOf(list) != "8 9 10 11" || list[0].header.Get(subjects.HeaderDeliveries) != "1" {
				t.Errorf("the next are %q", valuesOf(list))
			}
			isError(t, 409, acks[2], e.Request(acks[2], nil, nil))
			// A lost one among them, and a token that is none.
			lost := ask(t, e.Conn, list[0].ack, also("+NXT", []string{acks[0], list[1].ack}, `"batch":9`, `"frames":true`))
			if m := ended(t, lost, 0, "409"); m.Header.Get(subjects.HeaderLost) != "1" {
				t.Errorf("lost is %v", m.Header)
			}
			acked(t, e, list[0].ack, also("+ACK", acksOf(list[1:])))
			inFrames(t, c.queue, ask(t, e.Conn, c.pop, `{"batch":2,"frames":true,"ack_wait":0}`), "404")
			// One plain item has no frames, nor has a pop that does not allow them.
			push(t, e, c.push, nil, "one")
			for _, options := range []string{`{"frames":true}`, `{"batch":1,"frames":true}`, `{"batch":2,"frames":false,"ack_wait":"1h"}`} {
				m := next(t, ask(t, e.Conn, c.pop, options))
				if string(m.Data) != "one" || m.Header.Get(subjects.HeaderFrames) != "" || m.Header.Get(subjects.HeaderToken) != "" {
					t.Errorf("%s: got %q with %v", options, m.Data, m.Header)
				}
				if strings.Contains(options, "ack_wait") {
					acked(t, e, m.Reply, "-NAK")
				} else {
					push(t, e, c.push, nil, "one")
				}
			}
			one := next(t, ask(t, e.Conn, c.pop, `{"frames":true,"ack_wait":"1h"}`)) // and no end
			alone := unpacked(t, c.queue, one)
			if len(alone) != 1 || alone[0].value != "one" || one.Header.Get(subjects.HeaderBatchCount) != "" {
				t.Errorf("got %q with %v", one.Data, one.Header)
			}
			acked(t, e, alone[0].ack, "-NAK")
			wantPopped(t, e, c.pop, "one")
		}
		wantMetric(t, e.Bridge, "pq_deliveries_total", 2*(5+3+4+2))
		wantMetric(t, e.Bridge, noResponders, 0)
		consistent(t, e)
	}, newSteppedClock().options)
}

// Whatever the sizes of items and messages, all items come in their order, and no message is larger than it may be.
func TestFramesOfAllSizes(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, limit := range []int{1 << 10, 5_000, 1 << 20} {
		e := testenv.New(t, testenv.Options{NATS: func(o *server.Options) { o.MaxPayload = int32(limit) }})
		most := min(limit, 128<<10)
		for round := range harness.Times(2, 4) {
			var list []subjects.Frame
			for range 60 {
				f := frame(0, "", strings.Repeat("x", random.IntN(most/8)))
				switch random.IntN(12) {
				case 0:
					f.Value = nil
				case 1: // about as much as has room, or more
					f.Value = bytes.Repeat([]byte("y"), most-16-random.IntN(400))
				}
				list = append(list, f)
			}
			var want []string
			for _, f := range list {
				push(t, e, "pq.jobs.push", nil, string(f.Value))
				want = append(want, string(f.Value))
			}
			options := ""
			if round%2 == 1 {
				options = `,"ack_wait":"1h"`
			}
			replies := ask(t, e.Conn, "pq.jobs.pop.min", fmt.Sprintf(`{"batch":%d,"frames":true%s}`, len(list)+1, options))
			var items []sentItem
			last, joint := most, 0
			for {
				m := next(t, replies)
				more := unpacked(t, "pq.jobs", m)
				items = append(items, more...)
				size := len(m.Data)
				if m.Header.Get(subjects.HeaderFrames) != "" {
					// Their own size, and that of the first of the next are more than fits. (Headers of a frame take up to 250 bytes.)
					first := 16 + 250 + len(more[0].value)
					if size > most || last+first < most-128 {
						t.Errorf("limit %d, round %d: a message of %d bytes after one of %d, the first item has %d", limit, round, size, last, first)
					}
					last = size
					joint++
				} else {
					last = most
				}
				if _, ends, _ := subjects.ParseBatchEnd(m.Header); ends {
					if m.Header.Get(subjects.HeaderErrorCode) != "" {
						t.Errorf("the end is %v", m.Header)
					}
					break
				}
			}
			got := []string{}
			for _, item := range items {
				got = append(got, item.value)
			}
			if !slices.Equal(got, want) || joint < 2 {
				t.Fatalf("limit %d, round %d: %d items in %d messages with frames arrived of %d", limit, round, len(got), joint, len(want))
			}
			if options != "" {
				acked(t, e, items[0].ack, `+ACK`)
				for i := 1; i < len(items); i += 5 { // a token takes up to 83 bytes
					acked(t, e, items[i].ack, also("+ACK", acksOf(items[i+1:min(i+5, len(items))])))
				}
			}
			if info := e.Request("pq.jobs.info", nil, nil); !strings.Contains(string(info.Data), `"ready":0,"leased":0`) {
				t.Errorf("left: %s", info.Data)
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
		if want := strings.Join([]string{"a", "b", largest, "", "c", largest, largest, "d"}, " "); valuesOf(list) != want {
			t.Errorf("%s: got %q", options, valuesOf(list))
		}
		if options != "" {
			for _, item := range list {
				acked(t, e, item.ack, "")
			}
		}
	}
	// If the last is that large, the end comes by itself.
	pushAll(t, e, "pq.jobs.push", "a", largest)
	_, sizes := popFramed(t, e, "pq.jobs.pop.min", 2, "", "")
	wantSizes(t, sizes, 1, 1)
}

// What NATS cannot carry, or not any more, ends the reply; it and what comes behind it stays.
func TestFramesThatCannotBeSent(t *testing.T) {
	e := start(t, testenv.Options{})
	stored := func(priority int64, headers map[string][]string, value string) {
		t.Helper()
		store(t, e, priority, fdbpq.Message{Value: []byte(value), Headers: headers})
	}
	stored(1, map[string][]string{"Pq-Batch-Count": {"1"}, "Pq-Frames": {"7"}, "pq-token": {"x"}, "Kept": {" a\nb "}}, "a")
	writeForeign(t, e.DB, "jobs", 2, "b")
	stored(3, nil, "")
	stored(4, map[string][]string{"bad name": {"x"}}, "d")
	stored(5, nil, "e")
	for _, options := range []string{`,"ack_wait":"1h"`, ""} {
		list, _ := popFramed(t, e, "pq.jobs.pop.min", 9, options, "500")
		if valuesOf(list) != "a b " || len(list[0].header["pq-token"]) > 0 || list[0].header.Get("Kept") != "a b" || list[1].header.Get(subjects.HeaderPushedAt) != "" {
			t.Errorf("got %q, %v", list, options)
		}
		if options == "" {
			break
		}
		for _, item := range list {
			acked(t, e, item.ack, "-NAK")
		}
		wantMetric(t, e.Bridge, `pq_given_back_total{reason="unsendable"}`, 2) // the leases of the others have ended
	}
	wantMetric(t, e.Bridge, `pq_given_back_total{reason="unsendable"}`, 4)
	popFramed(t, e, "pq.jobs.pop.min", 9, "", "500") // it is the first now
	list, _ := popFramed(t, e, "pq.jobs.pop.max", 9, "", "500")
	if valuesOf(list) != "e" {
		t.Errorf("from the other end: %q", valuesOf(list))
	}
	wantMetric(t, e.Bridge, "pq_lost_items_total", 0)
}
