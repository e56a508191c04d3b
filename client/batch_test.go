package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/testenv"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// values returns the values of items that a call returned with the error, joined by spaces.
func values(t *testing.T, want error) func([]*client.Item, error) string {
	return func(items []*client.Item, err error) string {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("got error %v, want %v", err, want)
		}

		return joinValues(items)
	}
}

// joinValues returns the values of items, joined by spaces.
func joinValues(items []*client.Item) string {
	var texts []string
	for _, item := range items {
		texts = append(texts, string(item.Value))
	}

	return strings.Join(texts, " ")
}

// leasedValues is values for leases.
func leasedValues(t *testing.T, want error) func([]*client.Delivery, error) string {
	return func(deliveries []*client.Delivery, err error) string {
		t.Helper()
		var items []*client.Item
		for _, d := range deliveries {
			items = append(items, &d.Item)
		}

		return values(t, want)(items, err)
	}
}

// wantText fails the test unless got is the text that is wanted.
func wantText(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// A batch has the items that as many single calls would have got, from either end, as many as there
// are and fit. Without any, the call returns ErrEmpty. Leases of a batch end like any others.
func TestBatches(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := newClient(e.Conn)
	q, mail, ctx := c.PriorityQueue("jobs"), c.FIFOQueue("mail"), t.Context()

	for i := range 9 {
		v := fmt.Sprint(i)
		pushOne(t, q, 1, v)
		succeeds(t)(mail.Push(ctx, 0, []byte(v)))
	}

	wantText(t, "pop min", values(t, nil)(q.PopBatch(ctx, 2)), "0 1")
	wantText(t, "pop max", values(t, nil)(q.PopMaxBatch(ctx, 2)), "8 7")
	wantText(t, "one", values(t, nil)(q.PopBatch(ctx, 1)), "2")

	// Each value has one byte.
	wantText(t, "few bytes", values(t, nil)(q.PopBatch(ctx, 1000, client.MaxBytes(2))), "3 4")

	deliveries, err := q.LeaseBatch(ctx, 5, client.AckWait(time.Hour))
	wantText(t, "fewer items than asked for", leasedValues(t, nil)(deliveries, err), "5 6")
	for _, d := range deliveries {
		if d.Deliveries != 1 || time.Until(d.Until) < 59*time.Minute {
			t.Errorf("leased %+v", d)
		}
	}

	wantText(t, "empty", values(t, client.ErrEmpty)(q.PopBatch(ctx, 5)), "")
	wantText(t, "empty", leasedValues(t, client.ErrEmpty)(q.LeaseMaxBatch(ctx, 5)), "")
	wantText(t, "empty, one", values(t, client.ErrEmpty)(q.PopBatch(ctx, 1)), "")

	ok(t, deliveries[0].Ack(ctx))
	ok(t, deliveries[1].Nak(ctx, 0))
	wantText(t, "given back", leasedValues(t, nil)(q.LeaseMaxBatch(ctx, 2)), "6")

	wantText(t, "FIFO pop", values(t, nil)(mail.PopBatch(ctx, 4)), "0 1 2 3")
	wantText(t, "FIFO lease", leasedValues(t, nil)(mail.LeaseBatch(ctx, 4)), "4 5 6 7")
}

// If the reply to a batch breaks off or says that something failed, the call returns the items that
// came, and an error that says whether more may be lost.
func TestBatchOutcomes(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		header := func(count string, e *subjects.Error) nats.Header {
			h := nats.Header{}
			if e != nil {
				h = e.Headers()
			}

			if count != "" {
				h.Set(subjects.HeaderBatchCount, count)
			}

			return h
		}

		refused := &subjects.Error{Code: subjects.CodeUnavailable, Text: "away"}
		unknown := &subjects.Error{Code: subjects.CodeUnavailable, Text: "who knows", Unknown: true}
		large := &subjects.Error{Code: subjects.CodeTooLarge, Text: "too large"}

		// answer is what the bridge answers a call for three items.
		type answer struct {
			items int
			end   nats.Header // of the message that ends the reply; nil if there is none
		}

		var next atomic.Pointer[answer]
		nc := fakeBridge(t, "pq.>", func(nc *nats.Conn, m *nats.Msg) {
			a := next.Load()
			for i := range a.items {
				// If this fails, the test misses an item.
				_ = nc.PublishMsg(&nats.Msg{
					Subject: m.Reply,
					Reply:   "pq.jobs.ack.token",
					Data:    fmt.Append(nil, i),
				})
			}

			if a.end != nil {
				_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: a.end})
			}
		})

		for _, c := range []struct {
			what  string
			items int
			end   nats.Header
			want  string // the items of the call, and below its error; nil for success
			err   error
			not   error // an error that it must not be; nil for any
		}{
			{"all, without the end", 3, nil, "0 1 2", nil, nil},
			{"nothing at all", 0, nil, "", client.ErrUnknownOutcome, nil},
			{"without the end", 2, nil, "0 1", client.ErrUnknownOutcome, nil},
			{"one is missing", 1, header("2", nil), "0", client.ErrUnknownOutcome, nil},
			{"a bad count", 1, header("x", nil), "0", client.ErrBadReply, nil},
			{
				"empty", 0, header("0", &subjects.Error{Code: subjects.CodeNotFound}), "",
				client.ErrEmpty, nil,
			},
			{
				"refused", 0, header("0", refused), "", client.ErrUnavailable,
				client.ErrUnknownOutcome,
			},
			{
				"refused as a whole", 0, header("", refused), "", client.ErrUnavailable,
				client.ErrUnknownOutcome,
			},
			{
				"unknown", 0, header("", unknown), "", client.ErrUnknownOutcome,
				client.ErrUnavailable,
			},
			{
				"refused later", 2, header("2", refused), "0 1", client.ErrUnavailable,
				client.ErrUnknownOutcome,
			},
			{"the first is too large", 0, header("0", large), "", client.ErrTooLarge, nil},
			{"no room for more", 2, header("2", large), "0 1", nil, nil},
			{"more arrived than were sent", 2, header("1", nil), "0 1", client.ErrBadReply, nil},
			{
				"ended by another bridge", 2, header("0", unknown), "0 1", client.ErrUnknownOutcome,
				client.ErrBadReply,
			},
		} {
			next.Store(&answer{c.items, c.end})
			timeout := client.DefaultTimeout

			if c.end == nil && c.err != nil {
				timeout = 2 * time.Second // the items must arrive before
			}

			q := client.New(nc, client.WithTimeout(timeout)).PriorityQueue("jobs")
			popped, err := q.PopBatch(t.Context(), 3)
			wantText(t, c.what, values(t, c.err)(popped, err), c.want)

			if c.not != nil && errors.Is(err, c.not) {
				t.Errorf("%s: %v", c.what, err)
			}
			if c.end == nil && c.err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", c.what, err)
			}

			leases, err := q.LeaseBatch(t.Context(), 3)
			wantText(t, c.what+", leased", leasedValues(t, c.err)(leases, err), c.want)
		}
	})
}

// A batch of a hundred items comes in three messages at most, each item with its own ID, priority,
// time, headers and lease. No item shares memory with another.
func TestBatchesInFrames(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		e := testenv.New(t, testenv.Options{})
		nc := e.Connect()
		c, ctx := client.New(nc), t.Context()
		q := c.PriorityQueue("jobs")
		const n = 100
		var pushes []client.PushItem

		for i := range n {
			pushes = append(pushes, client.PushItem{
				Priority: int64(i - 5),
				Message: client.Message{
					Value:   fmt.Appendf(nil, "value %d", i),
					Headers: nats.Header{"Own": {fmt.Sprint(i), "x"}},
				},
			})
		}

		acks, err := q.PushBatch(ctx, pushes)
		ok(t, err)

		// wantOwn compares each item, and then overwrites all of it, which must not show in others.
		wantOwn := func(what string, items []*client.Item) {
			t.Helper()
			for i, item := range items {
				if item.ID != acks[i].ID || item.Priority != int64(i-5) ||
					string(item.Value) != fmt.Sprint("value ", i) ||
					time.Since(item.PushedAt).Abs() > time.Minute || len(item.Headers) != 1 ||
					!slices.Equal(item.Headers["Own"], []string{fmt.Sprint(i), "x"}) {
					t.Fatalf("%s: item %d is %+v", what, i, item)
				}

				spoil := item.Value[:cap(item.Value)]
				for j := range spoil {
					spoil[j] = '!'
				}

				item.Headers["Own"][0], item.Headers["More"] = "!", nil
			}
		}

		before := nc.Stats().InMsgs
		deliveries, err := q.LeaseBatch(ctx, n, client.AckWait(time.Hour))
		if err != nil || len(deliveries) != n {
			t.Fatalf("leased %d items, %v", len(deliveries), err)
		}

		if messages := nc.Stats().InMsgs - before; messages > 3 {
			t.Errorf("%d items came in %d messages", n, messages)
		}

		var leased []*client.Item
		for _, d := range deliveries {
			leased = append(leased, &d.Item)
			left := time.Until(d.Until)
			if d.Deliveries != 1 || left < 59*time.Minute || left > time.Hour {
				t.Errorf("leased %+v", d.LeaseInfo)
			}
		}
		wantOwn("leased", leased)
		if !strings.HasPrefix(deliveries[3].AckSubject(), "pq.jobs.ack.") {
			t.Errorf("acknowledgements go to %s", deliveries[3].AckSubject())
		}

		// The second half is acknowledged, and the first comes back.
		if errs := c.AckAll(ctx, deliveries[n/2:]...); errs != nil {
			t.Errorf("acknowledged together: %v", errs)
		}

		for _, d := range deliveries[:n/2] {
			ok(t, d.Nak(ctx, 0))
		}

		before = nc.Stats().InMsgs
		items, err := q.PopBatch(ctx, n, client.Expires(50*time.Millisecond))
		if err != nil || len(items) != n/2 {
			t.Fatalf("popped %d items, %v", len(items), err)
		}
		wantOwn("popped", items)

		if messages := nc.Stats().InMsgs - before; messages > 3 {
			t.Errorf("%d items came in %d messages", len(items), messages)
		}
	})
}

// framesOf returns the payload of a message with frames: an item for each token, which is leased
// unless its token is empty. The values are 0, 1 and so on.
func framesOf(t testing.TB, tokens ...string) (payload []byte) {
	t.Helper()
	for i, token := range tokens {
		h := map[string][]string{subjects.HeaderID: {fmt.Sprint("id-", i)}, "Own": {"x"}}
		if token != "" {
			h[subjects.HeaderToken] = []string{token}
		}

		payload = subjects.AppendFrame(payload, subjects.Frame{
			Priority: int64(i),
			Headers:  must(subjects.AppendHeaders(nil, h)),
			Value:    fmt.Append(nil, i),
		})
	}

	return payload
}

// frameReply is what a bridge replies to a pop of several items.
type frameReply struct {
	announced string // frames, by a header
	sent      string // items, by the header that ends the reply
	payload   []byte
}

// popFrames has PopBatch and LeaseBatch ask for two items, and returns what they make of the reply.
func popFrames(t *testing.T, r frameReply) (popped, leased string, popErr, leaseErr error) {
	t.Helper()
	nc := fakeBridge(t, "pq.>", func(_ *nats.Conn, m *nats.Msg) {
		header := nats.Header{
			subjects.HeaderFrames:     {r.announced},
			subjects.HeaderBatchCount: {r.sent},
		}
		// If this fails, the test misses the reply.
		_ = m.RespondMsg(&nats.Msg{Header: header, Data: r.payload})
	})
	q := newClient(nc).PriorityQueue("jobs")

	items, popErr := q.PopBatch(t.Context(), 2)
	deliveries, leaseErr := q.LeaseBatch(t.Context(), 2)
	return values(t, popErr)(items, popErr), leasedValues(t, leaseErr)(deliveries, leaseErr),
		popErr, leaseErr
}

// frameWith returns a frame with this block of headers.
func frameWith(headers string) []byte {
	return subjects.AppendFrame(nil, subjects.Frame{
		Headers: []byte(headers),
		Value:   []byte("0"),
	})
}

// Frames that cannot be read, or are not as many as they should be, return no items. Some may be
// lost.
func TestUnreadableFrames(t *testing.T) {
	good := framesOf(t, "a", "b")
	for name, reply := range map[string]frameReply{
		"one is missing":      {"3", "3", good},
		"one too many":        {"1", "1", good},
		"more than asked for": {"3", "3", framesOf(t, "a", "b", "c")},
		"none announced":      {"0", "0", good},
		"a negative count":    {"-2", "2", good},
		"a huge count":        {"99999999999999999999", "2", good},
		"cut":                 {"2", "2", good[:len(good)-1]},
		"something behind":    {"2", "2", append(slices.Clip(good), 0)},
		"a header, no colon":  {"1", "1", frameWith("NATS/1.0\r\nno colon\r\n\r\n")},
	} {
		popped, leased, popErr, leaseErr := popFrames(t, reply)

		wantText(t, name+", popped", popped, "")
		wantText(t, name+", leased", leased, "")
		failsWith(t, name+", pop", client.ErrUnknownOutcome)(nil, popErr)
		failsWith(t, name+", lease", client.ErrUnknownOutcome)(nil, leaseErr)
	}
}

// If the end of the reply names another number of items than have arrived, the call returns those
// that have, with an error.
func TestWrongNumberOfItems(t *testing.T) {
	good := framesOf(t, "a", "b")
	for name, test := range map[string]struct {
		sent string
		want error
	}{
		"more sent than arrived":  {"3", client.ErrUnknownOutcome},
		"more arrived than sent":  {"1", client.ErrBadReply},
		"an end without a number": {"x", client.ErrBadReply},
	} {
		popped, leased, popErr, leaseErr := popFrames(t, frameReply{"2", test.sent, good})

		wantText(t, name+", popped", popped, "0 1")
		wantText(t, name+", leased", leased, "0 1")
		failsWith(t, name+", pop", test.want)(nil, popErr)
		failsWith(t, name+", lease", test.want)(nil, leaseErr)
	}
}

// A leased item without a token could not be acknowledged: the lease fails, after the items before
// it. A pop needs no token.
func TestLeaseWithoutToken(t *testing.T) {
	const emptyToken = "NATS/1.0\r\nPq-Token: \r\n\r\n"
	for name, test := range map[string]struct {
		reply          frameReply
		popped, leased string
	}{
		"of the second":  {frameReply{"2", "2", framesOf(t, "a", "")}, "0 1", "0"},
		"no headers":     {frameReply{"1", "1", frameWith("")}, "0", ""},
		"an empty token": {frameReply{"1", "1", frameWith(emptyToken)}, "0", ""},
	} {
		popped, leased, popErr, leaseErr := popFrames(t, test.reply)

		wantText(t, name+", popped", popped, test.popped)
		wantText(t, name+", leased", leased, test.leased)
		failsWith(t, name+", pop", nil)(nil, popErr)
		failsWith(t, name+", lease", client.ErrUnknownOutcome)(nil, leaseErr)
	}
}

// FuzzBatchReply: whatever answers a batch, it returns at most as many items as it asked for, or an
// error.
func FuzzBatchReply(f *testing.F) {
	good := framesOf(f, "a", "b")
	f.Add(uint16(2), uint16(2), uint8(2), good)
	f.Add(uint16(1), uint16(1), uint8(3), good[:len(good)/2])
	f.Add(uint16(0), uint16(7), uint8(0), []byte{})
	f.Add(uint16(2), uint16(2), uint8(2), subjects.AppendFrame(subjects.AppendFrame(nil,
		subjects.Frame{Headers: []byte("NATS/1.0 503\r\n\r\n")}), subjects.Frame{}))
	var reply atomic.Pointer[nats.Msg]

	nc := fakeBridge(f, "pq.>", func(_ *nats.Conn, m *nats.Msg) {
		// If this fails, the test misses the reply.
		_ = m.RespondMsg(&nats.Msg{Header: reply.Load().Header, Data: reply.Load().Data})
	})

	q := newClient(nc).PriorityQueue("jobs")
	f.Fuzz(func(t *testing.T, count, sent uint16, asked uint8, payload []byte) {
		n := int(asked)%5 + 2
		reply.Store(&nats.Msg{Header: nats.Header{
			subjects.HeaderFrames:     {fmt.Sprint(count)},
			subjects.HeaderBatchCount: {fmt.Sprint(sent)},
		}, Data: payload})

		items, err := q.PopBatch(t.Context(), n)
		if len(items) > n || len(items) > int(count) || err == nil && len(items) != int(sent) ||
			err != nil && !errors.Is(err, client.ErrBadReply) &&
				!errors.Is(err, client.ErrUnknownOutcome) {
			t.Fatalf("%d items, %v", len(items), err)
		}

		deliveries, err := q.LeaseBatch(t.Context(), n)
		if len(deliveries) > len(items) || err == nil && len(deliveries) != len(items) {
			t.Fatalf("%d leases of %d items, %v", len(deliveries), len(items), err)
		}
	})
}
