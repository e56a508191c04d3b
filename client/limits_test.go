package client_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// A paused queue is empty, and the error says why.
func TestPause(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	jobs := client.New(e.Conn).PriorityQueue("jobs")
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	succeeds(t)(jobs.Push(t.Context(), 1, []byte("a")))
	s, err := jobs.Configure(t.Context(), client.Settings{PauseUntil: until})
	if err != nil || !s.PauseUntil.Equal(until) {
		t.Fatalf("%s, want %v", text(s, err), until)
	}
	if _, err := jobs.PopMin(t.Context()); !errors.Is(err, client.ErrEmpty) || !strings.Contains(err.Error(), "paused until") {
		t.Errorf("a pop of a paused queue: %v", err)
	}
	succeeds(t)(jobs.Configure(t.Context(), client.Settings{}, "pause_until"))
	if item, err := jobs.PopMin(t.Context()); err != nil || string(item.Value) != "a" {
		t.Errorf("after the pause: %v, %v", item, err)
	}
}

// A full queue refuses pushes, and leases beyond max_leased are refused or wait.
func TestMaxItemsAndMaxLeased(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	jobs := client.New(e.Conn).Queue("jobs")
	s, err := jobs.Configure(t.Context(), client.Settings{MaxItems: 2, MaxLeased: 1})
	if got := text(s, err); got != `{"max_leased":1,"max_items":2}` {
		t.Fatal(got)
	}
	for range 2 {
		succeeds(t)(jobs.Enqueue(t.Context(), []byte("a")))
	}
	if _, err := jobs.Enqueue(t.Context(), []byte("b")); !errors.Is(err, client.ErrOverloaded) || !strings.Contains(err.Error(), "max_items is 2") {
		t.Errorf("a push into a full queue: %v", err)
	}
	held, err := jobs.Lease(t.Context())
	ok(t, err)
	failsWith(t, "a lease too many", client.ErrOverloaded)(jobs.Lease(t.Context()))
	failsWith(t, "a lease too many that waits", client.ErrEmpty)(jobs.Lease(t.Context(), client.Expires(10*time.Millisecond)))
	ok(t, held.Ack(t.Context()))
	succeeds(t)(jobs.Lease(t.Context()))
}

// A push into a full queue has the oldest item discarded, if that is set.
func TestDiscardOld(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	jobs := client.New(e.Conn).Queue("jobs")
	s, err := jobs.Configure(t.Context(), client.Settings{MaxBytes: 2, Discard: "old"})
	if got := text(s, err); got != `{"max_bytes":2,"discard":"old"}` {
		t.Fatal(got)
	}
	for _, value := range []string{"a", "b", "c"} {
		succeeds(t)(jobs.Enqueue(t.Context(), []byte(value)))
	}
	if item, err := jobs.Dequeue(t.Context()); err != nil || string(item.Value) != "b" {
		t.Errorf("got %v, %v", item, err)
	}
	if _, err := jobs.Enqueue(t.Context(), []byte("too long")); !errors.Is(err, client.ErrOverloaded) || !strings.Contains(err.Error(), "max_bytes is 2") {
		t.Errorf("a push of more than the limit: %v", err)
	}
}
