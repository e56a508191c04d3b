package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPushAndWork(t *testing.T) {
	env := testenv.New(t, testenv.Options{})
	for _, want := range []string{"3 pushed, 0 were there before\n", "0 pushed, 3 were there before\n"} {
		var out strings.Builder
		if err := push(t.Context(), env.Conn, &out); err != nil || out.String() != want {
			t.Fatalf("printed %q, %v; want %q", &out, err, want)
		}
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	printed, out := io.Pipe()
	worked := make(chan error, 1)
	go func() {
		worked <- work(ctx, env.Conn, out)
		_ = out.Close() // that of a pipe does not fail
	}()
	lines := bufio.NewScanner(printed)
	for _, want := range []string{
		"put out the fire (delivery 1)", "call back (delivery 1)", "call back (delivery 2)", "write the report (delivery 1)",
	} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("printed %q, want %q", lines.Text(), want)
		}
	}
	jobs := client.New(env.Conn).PriorityQueue("jobs")
	testenv.Eventually(t, func() error { // until the last one is acknowledged
		info, err := jobs.Info(t.Context())
		if err == nil && info.Ready+info.Leased+info.Delayed > 0 {
			err = errors.New("the queue is not empty")
		}
		return err
	})
	// Now it waits. A job that is pushed meanwhile is done, and Ctrl-C ends it.
	if _, err := jobs.Push(t.Context(), 0, []byte("one more")); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != "one more (delivery 1)" {
		t.Fatalf("printed %q", lines.Text())
	}
	stop()
	if err := <-worked; err != nil {
		t.Error(err)
	}
}

func TestDigest(t *testing.T) {
	env := testenv.New(t, testenv.Options{})
	if err := push(t.Context(), env.Conn, io.Discard); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := digest(t.Context(), env.Conn, &out); err != nil || out.String() != "put out the fire, call back, write the report\n" {
		t.Errorf("printed %q, %v", &out, err)
	}
	if err := digest(t.Context(), env.Conn, io.Discard); !errors.Is(err, errEmpty) {
		t.Errorf("the second digest: %v, want that the queue is empty", err)
	}
}

// The bridge answers a request that it refuses; that is not tried again.
func TestRefusal(t *testing.T) {
	env := testenv.New(t, testenv.Options{})
	_, err := fetch(t.Context(), env.Conn, 1, "", `{"ack_wait":"1 minute"}`)
	if !errors.Is(err, refusal{code: "400"}) || !strings.Contains(err.Error(), "ack_wait") || temporary(err) {
		t.Errorf("the error is %v, temporary %t", err, temporary(err))
	}
}
