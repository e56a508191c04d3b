package main

import (
	"testing"

	"github.com/pqbridge/pqbridge/client"
)

// A Work can be tested alone, because it is only a function.
func TestSend(t *testing.T) {
	outbox = t.TempDir()
	job := &client.Job{Item: client.Item{Message: client.Message{Value: []byte(": hello")}}}
	if err := send(t.Context(), job); err == nil {
		t.Error("a letter without an address was sent")
	}
}
