package client_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// A job is done by the Work of its type, and a job of a type that nobody knows says so.
func TestMux(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		s.configure(client.Settings{MaxDeliver: 1})
		var mux client.Mux
		done := make(chan string, 10)
		mux.Handle("email", func(_ context.Context, job *client.Job) error {
			done <- "email " + string(job.Value)
			return nil
		})
		s.start(must(s.jobs.NewWorker(mux.Work, quiet(client.WorkerOptions{}))))

		dies := func(want string) {
			t.Helper()
			if got := leaseOne(t, s.dead, client.Expires(testenv.Patience)).DeadLetter.Error; got != want {
				t.Errorf("a dead letter of %q, want %q", got, want)
			}
		}
		does := func(want string) {
			t.Helper()
			if got := <-done; got != want {
				t.Errorf("done: %q, want %q", got, want)
			}
		}
		push := func(value string, options ...client.PushOption) {
			t.Helper()
			succeeds(t)(s.jobs.Push(t.Context(), 0, []byte(value), options...))
		}
		push("a", client.Type("email"))
		does("email a")
		push("b", client.Type("fax"))
		dies(`nobody handles jobs of type "fax"`)
		push("c")
		dies(`nobody handles jobs without the header Type`)

		mux.NotFound(func(_ context.Context, job *client.Job) error {
			done <- "other " + string(job.Value)
			return nil
		})
		push("d", client.Type("fax"))
		does("other d")
		mux.Handle("", func(_ context.Context, job *client.Job) error {
			done <- "plain " + string(job.Value)
			return nil
		})
		push("e")
		does("plain e")
	})
}

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

func TestErrorsOfWork(t *testing.T) {
	snooze, drop := client.Snooze(time.Second), client.Drop("why")
	if !client.IsSnooze(fmt.Errorf("wrapped: %w", snooze)) || client.IsSnooze(drop) || client.IsSnooze(nil) {
		t.Error("IsSnooze")
	}
	if !client.IsDrop(fmt.Errorf("wrapped: %w", drop)) || client.IsDrop(snooze) || client.IsDrop(nil) {
		t.Error("IsDrop")
	}
}
