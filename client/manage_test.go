package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/testenv"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

func TestInfo(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := newClient(e.Conn)
	jobs := c.PriorityQueue("jobs")
	for _, priority := range []int64{5, -1, 5} {
		succeeds(t)(jobs.Push(t.Context(), priority, nil))
	}
	succeeds(t)(jobs.LeaseMin(t.Context(), client.AckWait(time.Hour)))
	info, err := jobs.Info(t.Context())
	if err != nil || info.Queue != "jobs" || info.Ready != 2 || info.Leased != 1 ||
		len(info.Priorities) != 1 || info.Priorities[0].Count != 2 ||
		*info.OldestAge > time.Minute || time.Until(*info.NextDue) < time.Minute {
		t.Errorf("%+v, %v", info, err)
	}
	info, err = c.Queue("jobs").Info(t.Context())
	if err != nil || info.Queue != "jobs" || info.Ready != 0 || info.OldestAge != nil ||
		info.NextDue != nil || info.Priorities != nil {
		t.Errorf("empty: %+v, %v", info, err)
	}
	failsWith(t, "of a queue without a valid name", client.ErrBadRequest)(c.Queue("a b").Info(t.Context()))
}

// managed is what both kinds of queues have.
type managed interface {
	Get(context.Context, string) (*client.Item, client.State, error)
	Remove(context.Context, string) error
	Rank(context.Context, string) (int64, bool, error)
	Purge(context.Context, client.State) (int64, error)
	Redrive(context.Context, int) (int64, error)
}

func TestManage(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := newClient(e.Conn)
	jobs, mail := c.PriorityQueue("jobs"), c.Queue("mail")
	var ids [2][]string
	for range 3 {
		pushed, err := jobs.PushMsg(t.Context(), 5, client.Message{Value: []byte("a"), Headers: map[string][]string{"Name": {"value"}}})
		ok(t, err)
		queued, err := mail.EnqueueMsg(t.Context(), client.Message{Value: []byte("a"), Headers: map[string][]string{"Name": {"value"}}})
		ok(t, err)
		ids[0], ids[1] = append(ids[0], pushed.ID), append(ids[1], queued.ID)
	}
	succeeds(t)(jobs.LeaseMin(t.Context(), client.AckWait(time.Hour)))
	succeeds(t)(mail.Lease(t.Context(), client.AckWait(time.Hour)))
	for kind, q := range []managed{jobs, mail} {
		own := ids[kind]
		for n, want := range []client.State{client.Leased, client.Ready, client.Ready} {
			item, state, err := q.Get(t.Context(), own[n])
			if err != nil || state != want || item.ID != own[n] || string(item.Value) != "a" || len(item.Headers) != 1 {
				t.Errorf("%T: %+v is %s, %v: want %s", q, item, state, err, want)
			}
		}
		if n, atLeast, err := q.Rank(t.Context(), own[2]); n != 1 || atLeast || err != nil {
			t.Errorf("%T: rank %d, %v, %v", q, n, atLeast, err)
		}
		ok(t, q.Remove(t.Context(), own[1]))
		for _, err := range []error{q.Remove(t.Context(), own[1]), func() error { _, _, err := q.Get(t.Context(), own[1]); return err }()} {
			if !errors.Is(err, client.ErrNotFound) || errors.Is(err, client.ErrEmpty) || !strings.Contains(err.Error(), "no such item") {
				t.Errorf("%T: removed: %v", q, err)
			}
		}
		failsWith(t, fmt.Sprintf("%T: remove x", q), client.ErrBadRequest)(nil, q.Remove(t.Context(), "x"))
		if n, err := q.Purge(t.Context(), client.Leased); n != 1 || err != nil {
			t.Errorf("%T: purged %d, %v", q, n, err)
		}
		failsWith(t, fmt.Sprintf("%T: purge of a state that is none", q), client.ErrBadRequest)(q.Purge(t.Context(), "lost"))
		if n, err := q.Redrive(t.Context(), 0); n != 0 || err != nil {
			t.Errorf("%T: redriven %d, %v", q, n, err)
		}
	}
	if n, atLeast, err := jobs.RankMax(t.Context(), ids[0][2]); n != 0 || atLeast || err != nil {
		t.Errorf("rank %d, %v, %v from the other end", n, atLeast, err)
	}
	id, err := jobs.Move(t.Context(), ids[0][2], -1)
	if item, _, getErr := jobs.Get(t.Context(), id); err != nil || getErr != nil || item.Priority != -1 {
		t.Errorf("moved: %+v, %v, %v", item, err, getErr)
	}
	succeeds(t)(jobs.LeaseMin(t.Context(), client.AckWait(time.Hour)))
	if _, err := jobs.Move(t.Context(), id, 1); !errors.Is(err, client.ErrLeased) || errors.Is(err, client.ErrLeaseLost) {
		t.Errorf("moved while it is leased: %v", err)
	}
	if n, err := jobs.Purge(t.Context(), ""); n != 1 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
}

// Purge and Redrive go on until nothing is left, and say how many items are done, also with an error.
func TestPurgeGoesOn(t *testing.T) {
	var asked []string
	nc := fake(t, "pq.jobs.*", func(_ *nats.Conn, m *nats.Msg) {
		asked = append(asked, string(m.Data))
		reply := &nats.Msg{Data: []byte(`{"purged":3,"redriven":3,"more":true}`)}
		if len(asked) == 3 {
			reply = refusal(subjects.CodeOverloaded)
		} else if len(asked) == 5 {
			reply.Data = []byte(`{"redriven":2}`)
		}
		_ = m.RespondMsg(reply) // else the test has no reply
	})
	jobs := newClient(nc).PriorityQueue("jobs")
	if n, err := jobs.Purge(t.Context(), client.Ready); n != 6 || !errors.Is(err, client.ErrOverloaded) {
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

func TestList(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := newClient(e.Conn)
	for _, name := range []string{"b", "a", "c"} {
		succeeds(t)(c.PriorityQueue(name).Push(t.Context(), 1, nil))
	}
	succeeds(t)(c.Queue("mail").Enqueue(t.Context(), nil))
	page, err := c.ListPriorityQueues(t.Context(), "", 2)
	if err != nil || len(page.Queues) != 2 || page.Queues[0].Queue != "a" || page.Queues[1].Ready != 1 || page.Next == nil || *page.Next != "b" {
		t.Fatalf("%+v, %v", page, err)
	}
	page, err = c.ListPriorityQueues(t.Context(), *page.Next, 0)
	if err != nil || len(page.Queues) != 1 || page.Queues[0].Queue != "c" || page.Next != nil {
		t.Errorf("%+v, %v", page, err)
	}
	if page, err = c.ListQueues(t.Context(), "", 0); err != nil || len(page.Queues) != 1 || page.Queues[0].Queue != "mail" {
		t.Errorf("%+v, %v", page, err)
	}
	failsWith(t, "a list from a name that is none", client.ErrBadRequest)(c.ListQueues(t.Context(), "a b", 0))
}

// text is settings as JSON.
func text(s client.Settings, err error) string {
	if err != nil {
		return err.Error()
	}
	return string(subjects.EncodeSettings(&s))
}

// Settings are read and changed, and bad ones are refused.
func TestSettings(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := newClient(e.Conn)
	for _, q := range []interface {
		Settings(context.Context) (client.Settings, error)
		Configure(context.Context, client.Settings, ...string) (client.Settings, error)
	}{c.PriorityQueue("jobs"), c.Queue("jobs")} {
		check := func(s client.Settings, err error) func(want string) {
			return func(want string) {
				t.Helper()
				if got := text(s, err); got != want {
					t.Errorf("%T: %s, want %s", q, got, want)
				}
			}
		}
		check(q.Settings(t.Context()))(`{}`)
		check(q.Configure(t.Context(), client.Settings{
			AckWait: time.Minute, Backoff: []time.Duration{time.Second}, MaxDeliver: 3, DeadLetter: "failed",
		}))(`{"ack_wait":"1m0s","backoff":["1s"],"max_deliver":3,"dead_letter":"failed"}`)
		check(q.Configure(t.Context(), client.Settings{}, "ack_wait", "backoff"))(`{"max_deliver":3,"dead_letter":"failed"}`)
		failsWith(t, fmt.Sprintf("%T: reset what no bridge knows", q), client.ErrBadRequest)(q.Configure(t.Context(), client.Settings{}, "later"))
		for words, bad := range map[string]client.Settings{
			"ack_wait":    {AckWait: time.Millisecond},
			"dead_letter": {DeadLetter: "jobs"},
		} {
			if s, err := q.Configure(t.Context(), bad); !errors.Is(err, client.ErrBadRequest) || !strings.Contains(err.Error(), words) {
				t.Errorf("%T: %s, want %s", q, text(s, err), words)
			}
		}
		check(q.Settings(t.Context()))(`{"max_deliver":3,"dead_letter":"failed"}`)
	}
	failsWith(t, "settings of a queue without a valid name", client.ErrBadRequest)(c.Queue("a b").Settings(t.Context()))
}

// Term, Reason and Backoff, and what the dead letter says afterwards.
func TestDeadLetters(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := newClient(e.Conn)
	jobs := c.PriorityQueue("jobs")
	set := client.Settings{AckWait: time.Hour, Backoff: []time.Duration{time.Hour}, MaxDeliver: 2}
	succeeds(t)(jobs.Configure(t.Context(), set))
	for _, value := range []string{"a", "b", "c"} {
		pushed(t, jobs, 1, value)
	}
	ok(t, leaseOne(t, jobs).Term(t.Context(), "no such user"))
	ok(t, leaseOne(t, jobs).Nak(t.Context(), 0, client.Reason(`"once"`)))
	d := leaseOne(t, jobs)
	ok(t, d.Nak(t.Context(), client.Backoff))
	failsWith(t, "term of a settled item", client.ErrLeaseLost)(nil, d.Term(t.Context(), ""))
	ok(t, leaseOne(t, jobs).Nak(t.Context(), client.Backoff))
	failsWith(t, "during a backoff", client.ErrEmpty)(jobs.LeaseMin(t.Context()))
	for _, want := range []string{`a jobs "no such user" 1 ""`, `b jobs "max_deliver" 2 "\"once\""`} {
		item := must(c.PriorityQueue("jobs-dead").PopMin(t.Context()))
		d := item.DeadLetter
		got := fmt.Sprintf("%s %s %q %d %q", item.Value, d.Queue, d.Reason, d.Deliveries, d.Error)
		if got != want || time.Since(d.At) > time.Hour || len(item.Headers) > 0 {
			t.Errorf("%s at %v, headers %v, want %s", got, d.At, item.Headers, want)
		}
	}
}

// Results of several items have errors as requests for one have.
func TestItemResults(t *testing.T) {
	nc := fake(t, "pq.jobs.*", func(_ *nats.Conn, m *nats.Msg) {
		results := subjects.ItemResults{Queue: "jobs", Results: []subjects.ItemResult{{ID: "a", NewID: "c"}, {ID: "b"}, {ID: "d"}}}
		results.Results[1].Failure = subjects.Failure{Code: subjects.CodeNotFound, Text: "no such item"}
		results.Results[2].Failure = subjects.Failure{Code: subjects.CodeConflict, Text: "it is not"}
		if err := m.Respond(subjects.EncodeReply(&results)); err != nil {
			t.Error(err)
		}
	})
	jobs := newClient(nc).PriorityQueue("jobs")
	for verb, test := range map[string]struct {
		call     func() ([]client.ItemResult, error)
		conflict error
	}{
		"move":    {func() ([]client.ItemResult, error) { return jobs.MoveItems(t.Context(), []string{"a", "b", "d"}, 1) }, client.ErrLeased},
		"release": {func() ([]client.ItemResult, error) { return jobs.ReleaseItems(t.Context(), []string{"a", "b", "d"}) }, client.ErrLeaseLost},
	} {
		results, err := test.call()
		if err != nil || len(results) != 3 || results[0].Err() != nil || results[0].NewID != "c" {
			t.Fatalf("%s: %+v, %v", verb, results, err)
		}
		failsWith(t, verb, client.ErrNotFound)(nil, results[1].Err())
		failsWith(t, verb, test.conflict)(nil, results[2].Err())
	}
}
