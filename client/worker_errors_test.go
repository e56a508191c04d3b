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

// Errors are negative acknowledgements, by the queue's backoff. The dead letter says why, and of a
// panic where, however long the text is.
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
			"fails": {
				work:   func() error { return errors.New("no paper") },
				runs:   []string{"1", "2"},
				reason: "max_deliver",
				texts:  []string{"no paper"},
			},
			"fails at length": {
				work:   func() error { return errors.New(long) },
				runs:   []string{"1", "2"},
				reason: "max_deliver",
				texts:  []string{"long "},
			},
			"panics": {
				work:   func() error { panic(long) },
				runs:   []string{"1", "2"},
				reason: "max_deliver",
				texts:  []string{"client_test.TestWorkerErrors.", file},
			},
			"crashes": {
				work:   func() error { return crash(nil) },
				runs:   []string{"1", "2"},
				reason: "max_deliver",
				texts:  []string{"invalid memory address", "client_test.crash " + file},
			},
			"returns a nil pointer": {
				work:   func() error { var none *fragile; return none },
				runs:   []string{"1", "2"},
				reason: "max_deliver",
				texts:  []string{"client_test.(*fragile).Error"},
			},
			"drops": {
				work: func() error {
					return fmt.Errorf("what is this: %w", client.Drop("nonsense"))
				},
				runs:   []string{"1"},
				reason: "nonsense",
			},
			"drops at length": {
				work:   func() error { return client.Drop(long) },
				runs:   []string{"1"},
				reason: "long ",
			},
			"snoozes": {
				work: func() error {
					if snoozed {
						return nil
					}
					snoozed = true
					return fmt.Errorf("not yet: %w", client.Snooze(time.Millisecond))
				},
				runs: []string{"1", "1"},
			},
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

		s.waitUntilEmpty()

		done := r.all()
		slices.Sort(done)
		if slices.Sort(want); !slices.Equal(done, want) {
			t.Errorf("done: %q, want %q", done, want)
		}

		for range dead {
			item, err := s.dead.Pop(t.Context())
			if err != nil || item.DeadLetter == nil {
				t.Fatalf("%+v, %v", item, err)
			}

			test, d := tests[string(item.Value)], item.DeadLetter
			isReason := d.Reason == test.reason ||
				test.reason == "long " && strings.HasPrefix(d.Reason, "long ")
			if !isReason || strings.Contains(d.Error, "gopanic") {
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
