package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

func pointer[T any](v T) *T { return &v }

// text is settings as JSON.
func text(s client.Settings, err error) string {
	if err != nil {
		return err.Error()
	}
	return string(s.Encode())
}

// Settings are read and changed, and bad ones are refused.
func TestSettings(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := client.New(e.Conn)
	for _, q := range []interface {
		Settings(context.Context) (client.Settings, error)
		Configure(context.Context, client.Settings) (client.Settings, error)
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
			AckWait: pointer(time.Minute), Backoff: []time.Duration{time.Second}, MaxDeliver: pointer(3), DeadLetter: pointer("failed"),
		}))(`{"ack_wait":"1m0s","backoff":["1s"],"max_deliver":3,"dead_letter":"failed"}`)
		check(q.Configure(t.Context(), client.Settings{AckWait: pointer(time.Duration(0)), Backoff: []time.Duration{}}))(`{"max_deliver":3,"dead_letter":"failed"}`)
		check(q.Configure(t.Context(), client.Settings{TTL: pointer(time.Hour)}))(`{"max_deliver":3,"dead_letter":"failed","ttl":"1h0m0s"}`)
		check(q.Configure(t.Context(), client.Settings{TTL: pointer(time.Duration(0))}))(`{"max_deliver":3,"dead_letter":"failed"}`)
		for words, bad := range map[string]client.Settings{
			"ack_wait":    {AckWait: pointer(time.Millisecond)},
			"dead_letter": {DeadLetter: pointer("jobs")},
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
	if _, err := jobs.Configure(t.Context(), client.Settings{Backoff: []time.Duration{time.Hour}, MaxDeliver: pointer(3)}); err != nil {
		t.Fatal(err)
	}
	do := func(settle func(d *client.Delivery) error) {
		t.Helper()
		d, err := jobs.LeaseMin(t.Context())
		if err == nil {
			err = settle(d)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Term(t.Context(), ""); !errors.Is(err, client.ErrLeaseLost) {
			t.Errorf("term of a settled item: %v", err)
		}
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
		if _, err := jobs.Push(t.Context(), 1, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	do(func(d *client.Delivery) error { return d.Term(t.Context(), "no such user") })
	dead("a", `jobs "no such user" 1 ""`)
	do(func(d *client.Delivery) error { return d.Nak(t.Context(), 0, client.Reason("once")) })
	do(func(d *client.Delivery) error { return d.Snooze(t.Context(), 0) })
	do(func(d *client.Delivery) error { return d.Nak(t.Context(), 0, client.Reason(`"twice"`)) })
	do(func(d *client.Delivery) error { return d.Nak(t.Context(), client.Backoff) })
	dead("b", `jobs "max_deliver" 3 "\"twice\""`)
	do(func(d *client.Delivery) error { return d.Nak(t.Context(), client.Backoff) })
	if _, err := jobs.LeaseMin(t.Context()); !errors.Is(err, client.ErrEmpty) {
		t.Errorf("during a backoff: %v", err)
	}
}
