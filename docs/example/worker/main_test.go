package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/pqbridge/pqbridge/testenv/harness"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

func TestMain(m *testing.M) { harness.Main(m) }

// The Work alone: it is only a function.
func TestSend(t *testing.T) {
	outbox = t.TempDir()
	job := &client.Job{Item: client.Item{Message: client.Message{Value: []byte(": hello")}}}
	if err := send(t.Context(), job); err == nil {
		t.Error("a letter without an address was sent")
	}
}

// The Work with a Worker, a queue and a bridge.
func TestWorker(t *testing.T) {
	outbox = t.TempDir()
	letters := client.New(testenv.New(t, testenv.Options{}).Conn).PriorityQueue("letters")
	ack, err := letters.Push(t.Context(), 5, []byte("ada: hello"))
	if err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	worker, err := letters.NewWorker(func(ctx context.Context, job *client.Job) error {
		defer stop() // after the first letter
		return send(ctx, job)
	}, client.WorkerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Run(ctx); err != nil { // until the letter is acknowledged
		t.Fatal(err)
	}

	text, err := os.ReadFile(filepath.Join(outbox, ack.ID))
	if err != nil || string(text) != "ada: hello" {
		t.Errorf("the outbox has %q, %v", text, err)
	}
}
