package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/testenv/harness"

	"github.com/pqbridge/pqbridge/testenv"
)

func TestMain(m *testing.M) { harness.Main(m) }

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
