package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

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
	c := client.New(e.Conn)
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
		if s, err := q.Configure(t.Context(), client.Settings{}, "later"); !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("%T: reset what no bridge knows: %s", q, text(s, err))
		}
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
	if s, err := c.Queue("a b").Settings(t.Context()); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("settings of a queue without a valid name: %s", text(s, err))
	}
}

// Term, Reason and Backoff, and what the dead letter says afterwards.
func TestDeadLetters(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := client.New(e.Conn)
	jobs := c.PriorityQueue("jobs")
	succeeds(t)(jobs.Configure(t.Context(), client.Settings{Backoff: []time.Duration{time.Hour}, MaxDeliver: 3}))
	do := func(settle func(d *client.Delivery) error) {
		t.Helper()
		d, err := jobs.LeaseMin(t.Context())
		if err == nil {
			err = settle(d)
		}
		ok(t, err)
		failsWith(t, "term of a settled item", client.ErrLeaseLost)(nil, d.Term(t.Context(), ""))
	}
	dead := func(value, want string) {
		t.Helper()
		item, err := c.PriorityQueue("jobs-dead").PopMin(t.Context())
		if err != nil || item.DeadLetter == nil || string(item.Value) != value || len(item.Headers) > 0 {
			t.Fatalf("%+v, %v", item, err)
		}
		d := item.DeadLetter
		if got := fmt.Sprintf("%s %q %d %q", d.Queue, d.Reason, d.Deliveries, d.Error); got != want || time.Since(d.At) > time.Minute {
			t.Errorf("%s at %v, want %s", got, d.At, want)
		}
	}
	for _, value := range []string{"a", "b", "c"} {
		succeeds(t)(jobs.Push(t.Context(), 1, []byte(value)))
	}
	do(func(d *client.Delivery) error { return d.Term(t.Context(), "no such user") })
	dead("a", `jobs "no such user" 1 ""`)
	do(func(d *client.Delivery) error { return d.Nak(t.Context(), 0, client.Reason("once")) })
	do(func(d *client.Delivery) error { return d.Snooze(t.Context(), 0) })
	do(func(d *client.Delivery) error { return d.Nak(t.Context(), 0, client.Reason(`"twice"`)) })
	do(func(d *client.Delivery) error { return d.Nak(t.Context(), client.Backoff) })
	dead("b", `jobs "max_deliver" 3 "\"twice\""`)
	do(func(d *client.Delivery) error { return d.Nak(t.Context(), client.Backoff) })
	failsWith(t, "during a backoff", client.ErrEmpty)(jobs.LeaseMin(t.Context()))
}
