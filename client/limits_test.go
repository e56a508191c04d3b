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
	if _, err := jobs.Push(t.Context(), 1, []byte("a")); err != nil {
		t.Fatal(err)
	}
	s, err := jobs.Configure(t.Context(), client.Settings{PauseUntil: &until})
	if err != nil || s.PauseUntil == nil || !s.PauseUntil.Equal(until) {
		t.Fatalf("%s, %v: want %v", s.Encode(), err, until)
	}
	if _, err := jobs.PopMin(t.Context()); !errors.Is(err, client.ErrEmpty) || !strings.Contains(err.Error(), "paused until") {
		t.Errorf("a pop of a paused queue: %v", err)
	}
	if _, err := jobs.Configure(t.Context(), client.Settings{PauseUntil: new(time.Time)}); err != nil {
		t.Fatal(err)
	}
	if item, err := jobs.PopMin(t.Context()); err != nil || string(item.Value) != "a" {
		t.Errorf("after the pause: %v, %v", item, err)
	}
}
