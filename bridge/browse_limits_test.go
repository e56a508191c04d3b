package bridge_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// The error of a bad request about items names the field and its bound, and nothing is changed.
func TestBadItemRequests(t *testing.T) {
	e := start(t, testenv.Options{})
	id := push(t, e, "pq.jobs.push", nil, "a").ID

	for _, test := range []struct{ verb, payload, words string }{
		{"items", `[]`, "state, end, after, limit, value_bytes, match, headers"},
		{"items", `{"end":"front"}`, `end: "front": want "min" or "max"`},
		{"items", `{"limit":1001}`, "limit: 1001: want an integer from 1 to 1000"},
		{"get", `{"ids":[]}`, "no ids"},
		{
			"get", idsOf(`,"value_bytes":65537`, id),
			"value_bytes: 65537: want an integer from 0 to 65536",
		},
		{"remove", idsOf(`,"id":"x"`, id), "id and ids: want one of them"},
		{"release", idsOf("", id, "x"), "ids: element 1: invalid item id"},
		{"redrive", idsOf(`,"max":5`, id), "max"},
		{"move", idsOf("", id), "no priority"},
		{"rank", idsOf("", id), "unknown member"},
	} {
		err := refused(t, e, 400, "pq.jobs."+test.verb, nil, []byte(test.payload))
		if !strings.Contains(err.Text, test.words) {
			t.Errorf("%s %.60s: %s: want %q", test.verb, test.payload, err.Text, test.words)
		}
	}
	err := refused(t, e, 400, "q.jobs.items", nil, []byte(`{"end":"max"}`))
	if !strings.Contains(err.Text, `end: "max"`) {
		t.Error(err)
	}
	refused(t, e, 400, "pq.jobs.items", nats.Header{"Pq-Priority": {"1"}}, nil)

	publish(t, e, "pq.jobs.items", "", "")
	wantMetric(t, e.Bridge, "pq_unanswered_total", 1)
	wantLen(t, e, "pq", "jobs", 1)
}

// A reply fits into a message: a page ends before an item that does not fit, and an item that does
// not fit alone is cut.
func TestItemsFit(t *testing.T) {
	const most = 16 << 10
	e := start(t, testenv.Options{NATS: func(o *server.Options) { o.MaxPayload = most }})

	var ids []string
	for i := range 40 {
		ids = append(ids, store(t, e, 0, fdbpq.Message{
			Value:   bytes.Repeat([]byte{'x'}, 100*i),
			Headers: map[string][]string{"N": {fmt.Sprint(i)}},
		}).String())
	}

	large := store(t, e, 1, fdbpq.Message{
		Value:   bytes.Repeat([]byte{'y'}, most),
		Headers: map[string][]string{"H": {strings.Repeat("h", most)}},
	}).String()

	var got []string
	for o, pages := (subjects.ItemsOptions{ValueBytes: 65536}), 0; ; pages++ {
		reply := ok(t, e, "pq.jobs.items", nil, string(o.Encode()))
		p, err := subjects.ParseReply[subjects.ItemsPage](reply.Data)
		must(t, err)

		for _, item := range p.Items {
			got = append(got, item.ID)
			cut := item.ID == large
			if item.ValueCut != cut || item.HeadersCut != cut ||
				len(item.Value) < item.Size && (!cut || len(item.Value) < most/2) {
				t.Errorf("item of %d bytes: %d bytes, cut %v and %v", item.Size, len(item.Value),
					item.ValueCut, item.HeadersCut)
			}
		}
		if len(p.Items) == 0 && p.Next != nil {
			t.Fatal("a page without items")
		}

		if p.Next == nil {
			break
		}

		o.After = *p.Next
	}
	if want := append(slices.Clone(ids), large); !slices.Equal(got, want) {
		t.Errorf("got %d items, want %d in order", len(got), len(want))
	}

	all := append(slices.Clone(ids[39:]), append(slices.Clone(ids[:20]), large)...)
	p := parsed[subjects.ItemsPage](t, e, "pq.jobs.get", idsOf(`,"value_bytes":65536`, all...))

	for i, item := range p.Items {
		full := item.Code == 413 && strings.Contains(item.Text, "get it alone")
		if item.ID != all[i] || !full && (item.Code != 0 || len(item.Value) != item.Size) {
			t.Errorf("get: %d: %d bytes of %d, %+v", i, len(item.Value), item.Size, item.Failure)
		}
	}
	same(t, "items got", len(p.Items), len(all))
	same(t, "the last of them", p.Items[len(all)-1].Code, 413)

	p = parsed[subjects.ItemsPage](t, e, "pq.jobs.get", idsOf("", large))
	same(t, "a large one alone is cut", p.Items[0].HeadersCut, true)

	for _, verb := range []string{"get", "remove", "move", "release", "redrive"} {
		more := ""
		if verb == "move" {
			more = `,"priority":1`
		}
		err := refused(t, e, 413, "pq.jobs."+verb, nil, []byte(idsOf(more, ids...)))
		if !strings.Contains(err.Text, "send fewer ids at once") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	wantLen(t, e, "pq", "jobs", 41)
}

// An item with a long reason does not end a walk, however small messages are.
func TestLongReasonInSmallMessages(t *testing.T) {
	e := start(t, testenv.Options{NATS: func(o *server.Options) { o.MaxPayload = 2048 }})
	push(t, e, "pq.jobs.push.1", nil, "a")
	push(t, e, "pq.jobs.push.2", nil, "b")
	item := leaseOne(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "a")
	// Two bytes each in JSON.
	acknowledge(t, e, item, `-NAK {"delay":"1h","reason":"`+strings.Repeat(`\"`, 1000)+`"}`)

	all := page(t, e, "pq.jobs", "")
	same(t, "items", values(all), "a delayed true, b")
	same(t, "reason", all.Items[0].Reason, "")
}

// A browse sweeps the queue first, if there is time. While the store takes no writes, items come as
// they are stored.
func TestItemsWithoutWrites(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		var stuck atomic.Bool
		free := make(chan struct{})

		store := hooked{begin: func(context.Context) error {
			if stuck.Load() {
				<-free
			}
			return nil
		}}

		clock := newSteppedClock()
		e := testenv.New(t, testenv.Options{Wrap: store.wrap, Bridge: clock.options})

		delayed := func(value string) string {
			id := push(t, e, "pq.jobs.push", nats.Header{"Pq-Delay": {"1h"}}, value).ID
			clock.step(2 * time.Hour)
			return id
		}

		first := delayed("first")
		same(t, "items", values(page(t, e, "pq.jobs", "")), "first")

		delayed("second")
		wantAnswer(t, e, "pq.jobs.rank", itemOf(first, `,"end":"max"`),
			`{"rank":1,"at_least":false}`)
		id := delayed("late")
		stuck.Store(true)
		defer close(free)

		same(t, "items", values(page(t, e, "pq.jobs", "")), "first, second, late delayed true")
		same(t, "items got", strings.Contains(
			string(ok(t, e, "pq.jobs.get", nil, idsOf("", id)).Data), `"delayed"`), true)
	})
}

// Whatever is in an item, it can be browsed.
func TestHostileItems(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		kb64 := strings.Repeat("\x01\x02", 32<<10) // six bytes each in JSON
		for _, m := range []fdbpq.Message{
			{Value: []byte("<script>\xff\xfe\u202e</script>"), Headers: map[string][]string{
				"\xff<b>":     {"\xc3\x28", "\r\nPq-Id: x"},
				"Pq-Id":       {"forged"},
				"Nats-Rollup": {"all"},
			}},
			{
				Value:   bytes.Repeat([]byte{0xff}, 1<<20),
				Headers: map[string][]string{"A": {kb64}, "B": {kb64}, "C": {kb64}},
			},
			{Headers: map[string][]string{"": {""}, "Empty": {}}},
			{Value: []byte("needle")},
		} {
			store(t, e, 0, m)
		}

		first := page(t, e, "pq.jobs", `{"limit":1}`).Items[0]
		if string(first.Value) != "<script>\xff\xfe\u202e</script>" ||
			first.Headers["Pq-Id"] != nil || first.Headers["Nats-Rollup"] != nil ||
			len(first.Headers) != 1 || first.Headers["\ufffd<b>"][0] != "\ufffd(" {
			t.Errorf("%+v", first)
		}

		reply := ok(t, e, "pq.jobs.items", nil, `{"value_bytes":65536}`)
		all, err := subjects.ParseReply[subjects.ItemsPage](reply.Data)
		must(t, err)

		for all.Next != nil {
			more := page(t, e, "pq.jobs",
				fmt.Sprintf(`{"after":%q,"value_bytes":65536}`, *all.Next))
			all.Items, all.Next = append(all.Items, more.Items...), more.Next
		}
		if len(all.Items) != 4 || !utf8.Valid(reply.Data) || !all.Items[1].HeadersCut ||
			len(all.Items[1].Value) != 65536 || all.Items[1].Size != 1<<20 {
			t.Errorf("%d items", len(all.Items))
		}

		found := page(t, e, "pq.jobs", `{"match":"needle"}`)
		for len(found.Items) == 0 && found.Next != nil { // pages also end in time
			found = page(t, e, "pq.jobs", fmt.Sprintf(`{"match":"needle","after":%q}`, *found.Next))
		}
		same(t, "found", values(found), "needle")
		same(t, "found by bytes", len(page(t, e, "pq.jobs", `{"match":"\u202e</"}`).Items), 1)
		same(t, "all of their headers",
			len(page(t, e, "pq.jobs", `{"headers":{"A":"`+"x"+`"}}`).Items), 0)
	})
}

// Damaged items do not stop a walk, and have an error each.
func TestDamagedItems(t *testing.T) {
	e := start(t, testenv.Options{})
	const n = 20

	for range n {
		store(t, e, 0, fdbpq.Message{Headers: map[string][]string{"X-Tenant": {"acme"}}})
	}
	must(t, kv.Update(t.Context(), e.DB, func(tx kv.Transaction) error {
		begin, end := tuple.NewSubspace(tuple.Tuple{"pq", "jobs", "m"}).Range()
		pairs, err := tx.GetRange(kv.Range{Begin: begin, End: end}, kv.RangeOptions{}).Get()

		for i := range pairs {
			tx.Set(pairs[i].Key, []byte{0xff, byte(i)})
		}

		return err
	}))

	store(t, e, 0, fdbpq.Message{Value: []byte("good")})
	items := page(t, e, "pq.jobs", "").Items
	same(t, "items", len(items), n+1)

	for i, item := range items {
		if i < n && (item.Code != 500 || item.Text == "") ||
			i == n && string(item.Value) != "good" {
			t.Errorf("item %d: %+v", i, item)
		}
	}
	same(t, "found", values(page(t, e, "pq.jobs", `{"match":"good"}`)), "good")
}

// A get of several ids reads no more than a request for items.
func TestGetOfLargeItems(t *testing.T) {
	e := start(t, testenv.Options{})

	var ids []string
	for range 12 {
		ids = append(ids, store(t, e, 0, fdbpq.Message{Value: make([]byte, 1<<20)}).String())
	}

	p := parsed[subjects.ItemsPage](t, e, "pq.jobs.get", idsOf(`,"value_bytes":0`, ids...))

	for i, item := range p.Items {
		if item.ID != ids[i] || i < 8 && (item.Code != 0 || item.Size != 1<<20) ||
			i >= 8 && item.Code != 413 {
			t.Errorf("%d: %+v", i, item)
		}
	}
	same(t, "items", len(p.Items), len(ids))
}

// A request looks at 10,000 items at most, and the next one goes on where it stopped. Lists, and
// requests for the queue, are answered in between.
func TestSearchOfMany(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		const n = 12_000
		batcher := fdbpq.NewBatcher(e.DB, e.Keyspace)
		q := jobsOf(t, e)

		for i := range n / 1000 {
			ops := slices.Repeat([]fdbpq.Op{{
				Kind:     fdbpq.OpPush,
				Queue:    q,
				Priority: int64(i),
				Message:  fdbpq.Message{Value: []byte("hay")},
			}}, 1000)

			if i == n/1000-1 {
				ops[999].Message.Value = []byte("needle")
			}

			_, err := batcher.Apply(t.Context(), ops)
			must(t, err)
		}

		var looked []int64
		var found string
		for after := ""; ; {
			search := ask(t, e.Conn, "pq.jobs.items",
				fmt.Sprintf(`{"match":"needle","after":%q}`, after))
			ok(t, e, "pq.list", nil, "")
			wantData(t, ok(t, e, "pq.jobs.pop.min", nil, ""), "hay")

			p, err := subjects.ParseReply[subjects.ItemsPage](next(t, search).Data)
			must(t, err)
			looked, found = append(looked, p.Scanned), found+values(p)

			if p.Next == nil {
				break
			}

			after = *p.Next
		}
		// Pages also end in time.
		if len(looked) < 2 || slices.Max(looked) > 10_000 || found != "needle" {
			t.Errorf("looked at %v and found %q", looked, found)
		}
	})
}

// Browses wait for each other, but neither for lists nor lists for them. Beyond a number they are
// refused.
func TestBrowsesWait(t *testing.T) {
	var hold atomic.Bool
	held, free := make(chan struct{}), make(chan struct{})

	store := hooked{read: func(context.Context) error {
		// The sweeper also reads.
		browses := bytes.Contains(debug.Stack(), []byte("fdbpq.(*Browse)"))
		if browses && hold.CompareAndSwap(true, false) {
			close(held)
			<-free
		}

		return nil
	}}

	e := start(t, testenv.Options{Wrap: store.wrap})
	push(t, e, "pq.jobs.push", nil, "a")
	hold.Store(true)
	all := askMany(t, e, 70, "pq.jobs.items", "")
	<-held
	wantAnswer(t, e, "pq.list", "",
		`{"queues":[{"queue":"jobs","ready":1,"leased":0,"delayed":0}],"next":null}`)
	close(free)

	if codes := countAnswers(t, all, 70); codes[429] != 6 || codes[0] != 64 {
		t.Errorf("codes %v: want 6 times 429", codes)
	}
}

// An item that has no room in the transaction of a request for several is refused, and the rest is
// done.
func TestMoveOfLargeItems(t *testing.T) {
	e := start(t, testenv.Options{})

	var ids []string
	for range 12 {
		ids = append(ids, store(t, e, 0, fdbpq.Message{Value: make([]byte, 1<<20)}).String())
	}

	refused := 0
	for i, r := range results(t, e, "pq.jobs.move", idsOf(`,"priority":1`, ids...)) {
		switch {
		case i > 0 && r.Code == 413 && strings.Contains(r.Text, "again"):
			refused++
		case r.Code != 0 || r.Place == "":
			t.Errorf("%+v", r)
		}
	}
	if refused == 0 || refused > 9 {
		t.Errorf("%d of %d had no room", refused, len(ids))
	}
	wantLen(t, e, "pq", "jobs", len(ids))
}
