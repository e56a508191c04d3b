package client_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/testenv"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// Info counts the items in each state, and says nothing of what an empty queue does not have.
func TestInfo(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := newClient(e.Conn)
	jobs := c.PriorityQueue("jobs")

	for _, priority := range []int64{5, -1, 5} {
		succeeds(t)(jobs.Push(t.Context(), priority, nil))
	}

	succeeds(t)(jobs.Lease(t.Context(), client.AckWait(time.Hour)))

	info, err := jobs.Info(t.Context())
	if err != nil || info.Queue != "jobs" || info.Ready != 2 || info.Leased != 1 ||
		len(info.Priorities) != 1 || info.Priorities[0].Count != 2 ||
		*info.OldestAge > time.Minute || time.Until(*info.NextDue) < time.Minute {
		t.Errorf("%+v, %v", info, err)
	}

	info, err = c.FIFOQueue("jobs").Info(t.Context())
	if err != nil || info.Queue != "jobs" || info.Ready != 0 || info.OldestAge != nil ||
		info.NextDue != nil || info.Priorities != nil {
		t.Errorf("empty: %+v, %v", info, err)
	}

	_, err = c.FIFOQueue("a b").Info(t.Context())
	failsWith(t, "a queue without a valid name", client.ErrBadRequest)(nil, err)
}

// Items of either kind of queue are read, ranked, moved, removed and purged by id or state.
func TestManage(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := newClient(e.Conn)
	jobs, mail := c.PriorityQueue("jobs"), c.FIFOQueue("mail")
	m := client.Message{Value: []byte("a"), Headers: nats.Header{"Name": {"value"}}}
	var ids [2][]string
	for range 3 {
		ids[0] = append(ids[0], must(jobs.PushMsg(t.Context(), 5, m)).ID)
		ids[1] = append(ids[1], must(mail.PushMsg(t.Context(), 0, m)).ID)
	}

	succeeds(t)(jobs.Lease(t.Context(), client.AckWait(time.Hour)))
	succeeds(t)(mail.Lease(t.Context(), client.AckWait(time.Hour)))

	for kind, q := range []*client.Queue{jobs, mail} {
		own := ids[kind]
		for n, want := range []client.State{client.Leased, client.Ready, client.Ready} {
			item, state, err := q.Get(t.Context(), own[n])
			if err != nil || state != want || item.ID != own[n] || string(item.Value) != "a" ||
				len(item.Headers) != 1 {
				t.Errorf("%s: %+v is %s, %v: want %s", q.Name(), item, state, err, want)
			}
		}
		if n, atLeast, err := q.Rank(t.Context(), own[2]); n != 1 || atLeast || err != nil {
			t.Errorf("%s: rank %d, %v, %v", q.Name(), n, atLeast, err)
		}

		ok(t, q.Remove(t.Context(), own[1]))
		_, _, getErr := q.Get(t.Context(), own[1])
		for _, err := range []error{q.Remove(t.Context(), own[1]), getErr} {
			if !errors.Is(err, client.ErrNotFound) || errors.Is(err, client.ErrEmpty) ||
				!strings.Contains(err.Error(), "no such item") {
				t.Errorf("%s: removed: %v", q.Name(), err)
			}
		}

		failsWith(t, q.Name()+": remove x", client.ErrBadRequest)(nil, q.Remove(t.Context(), "x"))
		if n, err := q.Purge(t.Context(), client.Leased); n != 1 || err != nil {
			t.Errorf("%s: purged %d, %v", q.Name(), n, err)
		}

		_, err := q.Purge(t.Context(), "lost")
		failsWith(t, q.Name()+": purge of no state", client.ErrBadRequest)(nil, err)
		if n, err := q.Redrive(t.Context(), 0); n != 0 || err != nil {
			t.Errorf("%s: redriven %d, %v", q.Name(), n, err)
		}
	}
	if n, atLeast, err := jobs.RankMax(t.Context(), ids[0][2]); n != 0 || atLeast || err != nil {
		t.Errorf("rank %d, %v, %v from the other end", n, atLeast, err)
	}

	place, err := jobs.Move(t.Context(), ids[0][2], -1)
	if item, _, getErr := jobs.Get(t.Context(), ids[0][2]); err != nil || getErr != nil ||
		item.Priority != -1 || item.Place != place {
		t.Errorf("moved: %+v, %v, %v", item, err, getErr)
	}

	succeeds(t)(jobs.Lease(t.Context(), client.AckWait(time.Hour)))
	if _, err := jobs.MoveAt(t.Context(), place, 1); !errors.Is(err, client.ErrLeased) ||
		errors.Is(err, client.ErrLeaseLost) {
		t.Errorf("moved while it is leased: %v", err)
	}

	if n, err := jobs.Purge(t.Context(), ""); n != 1 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
}

// Texts that JSON would replace are refused, because they would search for, or name, something
// else.
func TestTextsInUTF8(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	jobs := newClient(e.Conn).PriorityQueue("jobs")
	const bad = "M\xfcller"

	for _, o := range []client.ItemsOptions{
		{Match: bad},
		{Headers: map[string]string{"Name": bad}},
		{Headers: map[string]string{bad: "x"}},
	} {
		failsWith(t, "a search", client.ErrBadRequest)(jobs.Items(t.Context(), o))
	}

	for _, s := range []client.Schedule{
		{ID: bad, Cron: "@daily"},
		{ID: "a", Cron: "@daily", Headers: map[string][]string{"Pq-Group": {bad}}},
		{ID: "a", Cron: "@daily", Headers: map[string][]string{bad: {"x"}}},
	} {
		failsWith(t, "a schedule", client.ErrBadRequest)(jobs.SetSchedule(t.Context(), s))
	}

	failsWith(t, "its pause", client.ErrBadRequest)(jobs.PauseSchedule(t.Context(), bad, true))
	failsWith(t, "its end", client.ErrBadRequest)(0, jobs.Unschedule(t.Context(), bad))

	paused := client.Settings{PausedGroups: []string{bad}}
	failsWith(t, "paused groups", client.ErrBadRequest)(jobs.Configure(t.Context(), paused))
	change := &subjects.Change{Groups: map[string]bool{bad: true}}
	failsWith(t, "a paused group", client.ErrBadRequest)(jobs.ChangeSettings(t.Context(), change))
	failsWith(t, "a holder", client.ErrBadRequest)(jobs.Lease(t.Context(), client.Holder(bad)))
}

// Schedules are listed page by page, whatever characters their ids have.
func TestPagesOfSchedules(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	jobs := newClient(e.Conn).PriorityQueue("jobs")
	ids := []string{"M:1", "Müller", "a:b"}

	for _, id := range ids {
		succeeds(t)(jobs.SetSchedule(t.Context(), client.Schedule{ID: id, Cron: "@daily"}))
	}

	for i, id := range ids[:2] {
		page, err := jobs.SchedulesPage(t.Context(), id)

		if err != nil || len(page.Schedules) != 2-i || page.Schedules[0].ID != ids[i+1] {
			t.Errorf("after %s: %+v, %v", id, page, err)
		}
	}
}

// Purge and Redrive go on until nothing is left, and say how many items are done, also with an
// error.
func TestPurgeGoesOn(t *testing.T) {
	var asked []string
	nc := fakeBridge(t, "pq.jobs.*", func(_ *nats.Conn, m *nats.Msg) {
		asked = append(asked, string(m.Data))
		reply := &nats.Msg{Data: []byte(`{"purged":3,"redriven":3,"more":true}`)}

		if len(asked) == 3 {
			reply = errorReply(subjects.CodeOverloaded)
		} else if len(asked) == 5 {
			reply.Data = []byte(`{"redriven":2}`)
		}

		_ = m.RespondMsg(reply) // if this fails, the test misses the reply
	})

	jobs := newClient(nc).PriorityQueue("jobs")
	if n, err := jobs.Purge(t.Context(), client.Ready); n != 6 ||
		!errors.Is(err, client.ErrOverloaded) {
		t.Errorf("purged %d, %v", n, err)
	}

	if n, err := jobs.Redrive(t.Context(), 5); n != 5 || err != nil {
		t.Errorf("redriven %d, %v", n, err)
	}

	const state = `{"state":"ready"}`
	if want := []string{state, state, state, `{"max":5}`, `{"max":2}`}; !slices.Equal(asked, want) {
		t.Errorf("asked %q", asked)
	}
}

// Queues of one kind are listed by name, page by page.
func TestList(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := newClient(e.Conn)

	for _, name := range []string{"b", "a", "c"} {
		succeeds(t)(c.PriorityQueue(name).Push(t.Context(), 1, nil))
	}

	succeeds(t)(c.FIFOQueue("mail").Push(t.Context(), 0, nil))

	page, err := c.ListPriorityQueues(t.Context(), "", 2)
	if err != nil || len(page.Queues) != 2 || page.Queues[0].Queue != "a" ||
		page.Queues[1].Ready != 1 || page.Next == nil || *page.Next != "b" {
		t.Fatalf("%+v, %v", page, err)
	}

	page, err = c.ListPriorityQueues(t.Context(), *page.Next, 0)
	if err != nil || len(page.Queues) != 1 || page.Queues[0].Queue != "c" || page.Next != nil {
		t.Errorf("%+v, %v", page, err)
	}

	page, err = c.ListFIFOQueues(t.Context(), "", 0)
	if err != nil || len(page.Queues) != 1 || page.Queues[0].Queue != "mail" {
		t.Errorf("%+v, %v", page, err)
	}

	_, err = c.ListFIFOQueues(t.Context(), "a b", 0)
	failsWith(t, "a list after an invalid name", client.ErrBadRequest)(nil, err)
}

// settingsText is settings as JSON.
func settingsText(s client.Settings, err error) string {
	if err != nil {
		return err.Error()
	}
	return string(subjects.EncodeSettings(&s))
}

// Settings are read and changed, and bad ones are refused.
func TestSettings(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := newClient(e.Conn)

	for kind, q := range []*client.Queue{c.PriorityQueue("jobs"), c.FIFOQueue("jobs")} {
		check := func(s client.Settings, err error) func(want string) {
			return func(want string) {
				t.Helper()
				if got := settingsText(s, err); got != want {
					t.Errorf("kind %d: %s, want %s", kind, got, want)
				}
			}
		}

		check(q.Settings(t.Context()))(`{}`)
		check(q.Configure(t.Context(), client.Settings{
			AckWait:    time.Minute,
			Backoff:    []time.Duration{time.Second},
			MaxDeliver: 3,
			DeadLetter: "failed",
		}))(`{"ack_wait":"1m0s","backoff":["1s"],"max_deliver":3,"dead_letter":"failed"}`)

		check(q.Configure(t.Context(), client.Settings{}, "ack_wait", "backoff"))(
			`{"max_deliver":3,"dead_letter":"failed"}`)
		_, err := q.Configure(t.Context(), client.Settings{}, "later")
		failsWith(t, "a reset of an unknown setting", client.ErrBadRequest)(nil, err)

		for words, bad := range map[string]client.Settings{
			"ack_wait":    {AckWait: time.Millisecond},
			"dead_letter": {DeadLetter: "jobs"},
		} {
			if s, err := q.Configure(t.Context(), bad); !errors.Is(err, client.ErrBadRequest) ||
				!strings.Contains(err.Error(), words) {
				t.Errorf("kind %d: %s, want %s", kind, settingsText(s, err), words)
			}
		}

		check(q.Settings(t.Context()))(`{"max_deliver":3,"dead_letter":"failed"}`)
	}

	_, err := c.FIFOQueue("a b").Settings(t.Context())
	failsWith(t, "settings of a queue without a valid name", client.ErrBadRequest)(nil, err)
}

// A dead letter says why the item became one: the reason of Term, or of the last failure.
func TestDeadLetters(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := newClient(e.Conn)
	jobs := c.PriorityQueue("jobs")
	set := client.Settings{AckWait: time.Hour, Backoff: []time.Duration{time.Hour}, MaxDeliver: 2}
	succeeds(t)(jobs.Configure(t.Context(), set))

	for _, value := range []string{"a", "b", "c"} {
		pushOne(t, jobs, 1, value)
	}

	ok(t, leaseOne(t, jobs).Term(t.Context(), "no such user"))
	ok(t, leaseOne(t, jobs).Nak(t.Context(), 0, client.Reason(`"once"`)))
	d := leaseOne(t, jobs)
	ok(t, d.Nak(t.Context(), client.Backoff))
	failsWith(t, "term of a settled item", client.ErrLeaseLost)(nil, d.Term(t.Context(), ""))
	ok(t, leaseOne(t, jobs).Nak(t.Context(), client.Backoff))
	failsWith(t, "during a backoff", client.ErrEmpty)(jobs.Lease(t.Context()))

	for _, want := range []string{
		`a jobs "no such user" 1 ""`,
		`b jobs "max_deliver" 2 "\"once\""`,
	} {
		item := must(c.PriorityQueue("jobs-dead").Pop(t.Context()))

		d := item.DeadLetter
		got := fmt.Sprintf("%s %s %q %d %q", item.Value, d.Queue, d.Reason, d.Deliveries, d.Error)
		if got != want || time.Since(d.At) > time.Hour || len(item.Headers) > 0 {
			t.Errorf("%s at %v, headers %v, want %s", got, d.At, item.Headers, want)
		}
	}
}

// Results of several items have errors as requests for one have.
func TestItemResults(t *testing.T) {
	nc := fakeBridge(t, "pq.jobs.move", func(_ *nats.Conn, m *nats.Msg) {
		ok(t, m.Respond([]byte(`{"queue":"jobs","results":[
			{"id":"a","place":"c"},
			{"id":"b","code":404,"error_reason":"missing","error":"no such item"},
			{"id":"d","code":409,"error_reason":"leased","error":"it is leased"},
			{"id":"e","code":409,"error_reason":"lost","error":"it is lost"}
		]}`)))
	})

	jobs := newClient(nc).PriorityQueue("jobs")

	results, err := jobs.MoveItems(t.Context(), []string{"a", "b", "d", "e"}, 1)

	if err != nil || len(results) != 4 || results[0].Err() != nil || results[0].Place != "c" {
		t.Fatalf("move: %+v, %v", results, err)
	}

	failsWith(t, "no item", client.ErrNotFound)(nil, results[1].Err())
	failsWith(t, "a leased item", client.ErrLeased)(nil, results[2].Err())
	failsWith(t, "a lost lease", client.ErrLeaseLost)(nil, results[3].Err())
}

// A request that changes something says who makes it: the process, unless the client has a name.
// One that only reads does not.
func TestChangesSayWhoMakesThem(t *testing.T) {
	e := testenv.New(t, testenv.Options{Stopped: true})
	e.NATS.Start()
	nc := e.Connect(nats.Name("tool"))
	requests, err := nc.SubscribeSync("pq.jobs.*")
	must(t, err)

	respond := func(want ...string) {
		t.Helper()
		m, err := requests.NextMsg(testenv.Patience)
		must(t, err)
		if got := m.Header[subjects.HeaderClient]; !slices.Equal(got, want) {
			t.Errorf("%s says %q, want %q", m.Subject, got, want)
		}
		must(t, m.Respond([]byte(`{"purged":1,"queue":"jobs"}`)))
	}

	for _, m := range []struct {
		options []client.Option
		want    string
	}{
		{nil, client.DefaultHolder(nc)},
		{[]client.Option{client.WithName("nightly clean-up")}, "nightly clean-up"},
		{
			[]client.Option{client.WithName("a\r\nPq-Group: x" + strings.Repeat("y", 200))},
			"a  Pq-Group: x" + strings.Repeat("y", 114),
		},
	} {
		options := append(m.options, client.WithTimeout(testenv.Patience))
		jobs := client.New(nc, options...).PriorityQueue("jobs")
		var running sync.WaitGroup
		running.Go(func() {
			_, _, purged := jobs.PurgePart(t.Context(), "")
			_, length := jobs.Len(t.Context())
			if err := cmp.Or(purged, length); err != nil {
				t.Error(err)
			}
		})

		respond(m.want)
		respond()
		running.Wait()
	}
}
