package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/testenv"

	"github.com/pqbridge/pqbridge/client"
)

// Errors are negative acknowledgements, by the queue's backoff. The dead letter says why, and of a panic where, however long
// the text is.
func TestWorkerErrors(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		s.configure(client.Settings{MaxDeliver: 2, Backoff: []time.Duration{time.Millisecond}})
		long, snoozed := strings.Repeat("long ", 1<<20), false
		const file = "(worker_errors_test.go:"
		tests := map[string]struct {
			work   func() error
			runs   []string // deliveries
			reason string   // of the dead letter, "" for none
			texts  []string // in its error
		}{
			"fails":           {func() error { return errors.New("no paper") }, []string{"1", "2"}, "max_deliver", []string{"no paper"}},
			"fails at length": {func() error { return errors.New(long) }, []string{"1", "2"}, "max_deliver", []string{"long "}},
			"panics":          {func() error { panic(long) }, []string{"1", "2"}, "max_deliver", []string{"client_test.TestWorkerErrors.", file}},
			"crashes": {func() error { return crash(nil) }, []string{"1", "2"}, "max_deliver",
				[]string{"invalid memory address", "client_test.crash " + file}},
			"returns a nil pointer": {func() error {
				var none *fragile
				return none
			}, []string{"1", "2"}, "max_deliver", []string{"client_test.(*fragile).Error"}},
			"drops":           {func() error { return fmt.Errorf("what is this: %w", client.Drop("nonsense")) }, []string{"1"}, "nonsense", nil},
			"drops at length": {func() error { return client.Drop(long) }, []string{"1"}, "long ", nil},
			"snoozes": {func() error {
				if snoozed {
					return nil
				}
				snoozed = true
				return fmt.Errorf("not yet: %w", client.Snooze(time.Millisecond))
			}, []string{"1", "1"}, "", nil},
		}

		var want []string
		dead := 0
		for name, test := range tests {
			s.push(name)
			for _, delivery := range test.runs {
				want = append(want, name+" "+delivery)
			}
			if test.reason != "" {
				dead++
			}
		}
		var r record
		s.start(must(s.jobs.NewWorker(func(_ context.Context, job *client.Job) error {
			r.add(job)
			return tests[string(job.Value)].work()
		}, quiet(client.WorkerOptions{}))))
		s.empty()
		done := r.all()
		slices.Sort(done)
		if slices.Sort(want); !slices.Equal(done, want) {
			t.Errorf("done: %q, want %q", done, want)
		}

		for range dead {
			item, err := s.dead.PopMin(t.Context())
			if err != nil || item.DeadLetter == nil {
				t.Fatalf("%+v, %v", item, err)
			}
			test, d := tests[string(item.Value)], item.DeadLetter
			if d.Reason != test.reason && !(test.reason == "long " && strings.HasPrefix(d.Reason, "long ")) || strings.Contains(d.Error, "gopanic") {
				t.Errorf("%s: %+v, want reason %q", item.Value, d, test.reason)
			}
			for _, text := range test.texts {
				if !strings.Contains(d.Error, text) {
					t.Errorf("%s: %s, want %q", item.Value, d.Error, text)
				}
			}
		}
	})
}

// fragile is an error whose methods panic if it is nil.
type fragile struct{ text string }

func (f *fragile) Error() string { return f.text }

//go:noinline
func crash(job *client.Job) error { return errors.New(job.Queue) }
