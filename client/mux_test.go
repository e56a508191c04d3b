package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

// A job is done by the Work of its type, and a job of a type that nobody knows says so.
func TestMux(t *testing.T) {
	var mux client.Mux
	does := func(want string) client.Work {
		return func(context.Context, *client.Job) error { return errors.New(want) }
	}

	check := func(jobType, want string) {
		t.Helper()
		job := &client.Job{Item: client.Item{Message: client.Message{}.With(client.Type(jobType))}}
		if jobType == "" {
			job.Headers = nil
		}
		if err := mux.Work(t.Context(), job); err == nil || err.Error() != want {
			t.Errorf("type %q: %v, want %s", jobType, err, want)
		}
	}

	mux.Handle("email", does("email"))
	check("email", "email")
	check("fax", `nobody handles jobs of type "fax"`)
	check("", "nobody handles jobs without the header Type")

	mux.NotFound(does("other"))
	check("fax", "other")
	check("", "other")

	mux.Handle("", does("plain"))
	check("", "plain")
}

// Handle panics without a Work, and for a type that has one already.
func TestMuxPanics(t *testing.T) {
	for name, handle := range map[string]func(*client.Mux){
		"nil":   func(m *client.Mux) { m.Handle("email", nil) },
		"twice": func(m *client.Mux) { m.Handle("email", doNothing); m.Handle("email", doNothing) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			handle(&client.Mux{})
		}()
	}
}

// IsSnooze and IsDrop know the errors of Snooze and Drop, even wrapped, and no others.
func TestErrorsOfWork(t *testing.T) {
	snooze, drop := client.Snooze(time.Second), client.Drop("why")
	if !client.IsSnooze(fmt.Errorf("wrapped: %w", snooze)) || client.IsSnooze(drop) ||
		client.IsSnooze(nil) {
		t.Error("IsSnooze")
	}
	if !client.IsDrop(fmt.Errorf("wrapped: %w", drop)) || client.IsDrop(snooze) ||
		client.IsDrop(nil) {
		t.Error("IsDrop")
	}
}
