package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// A worker stores the results of the jobs that are kept, and does the others as well, with each way
// to share requests.
func TestWorkerResults(t *testing.T) {
	for name, o := range map[string]client.WorkerOptions{
		"one":         {},
		"concurrency": {Concurrency: 8},
	} {
		subtest(t, name, func(t *testing.T) {
			s := newWorkshop(t)
			want := s.pushSome(s.jobs, 200)

			s.start(must(s.jobs.NewWorker(long, o)))
			s.waitUntilEmpty()

			s.wantResults(s.jobs, want)
		})
	}

	subtest(t, "several queues", func(t *testing.T) {
		s := newWorkshop(t)
		mail := client.New(s.e.Conn).FIFOQueue("mail")
		want, wantMail := s.pushSome(s.jobs, 100), s.pushSome(mail, 100)

		o := client.WorkerOptions{Concurrency: 5}
		s.start(must(client.NewWorker(long, o, s.jobs.Weight(2), mail.Weight(1))))
		s.waitUntilEmpty()
		waitFor(t, "an empty queue", func() bool {
			info := must(mail.Info(t.Context()))
			return info.Ready+info.Leased == 0
		})

		s.wantResults(s.jobs, want)
		s.wantResults(mail, wantMail)
	})
}

// long returns 40,000 bytes, so that about 25 results fit into a request.
var long = client.Returns(func(_ context.Context, job *client.Job) ([]byte, error) {
	return []byte(longResult(string(job.Value))), nil
})

func longResult(value string) string { return strings.Repeat(value+" ", 40_000/(len(value)+1)) }

// pushSome pushes n jobs, and two of three are kept. It returns the results that they should have,
// by id, "" for a job that is not kept.
func (s *workshop) pushSome(q *client.Queue, n int) map[string]string {
	s.Helper()
	var items []client.PushItem
	for i := range n {
		m := client.Message{Value: fmt.Append(nil, i)}
		if i%3 > 0 {
			m = m.With(client.Keep(time.Hour))
		}
		items = append(items, client.PushItem{Message: m})
	}

	want := map[string]string{}
	for i, ack := range must(q.PushBatch(s.Context(), items)) {
		if want[ack.ID] = ""; i%3 > 0 {
			want[ack.ID] = longResult(fmt.Sprint(i))
		}
	}
	return want
}

func (s *workshop) wantResults(q *client.Queue, want map[string]string) {
	s.Helper()
	for id, value := range want {
		if value == "" {
			failsWith(s.T, "not kept", client.ErrNotFound)(q.Result(s.Context(), id))
		} else {
			returned(s, q, id, value)
		}
	}
}

// If the reply to an acknowledgement is lost, the worker repeats it, learns that the job is done
// and says nothing about a lease that is lost. Each job is done once.
func TestWorkerRepeatsResults(t *testing.T) {
	for _, concurrency := range []int{1, 6} {
		subtest(t, fmt.Sprint("concurrency ", concurrency), func(t *testing.T) {
			s := newWorkshop(t)
			want := s.pushSome(s.jobs, 60)
			var lost atomic.Int64
			jobs := s.relayed(func(m *nats.Msg) *nats.Msg {
				if !strings.Contains(m.Subject, ".ack.") || lost.Add(1)%3 > 0 {
					return nil
				}
				near := "pq" + strings.TrimPrefix(m.Subject, "far")
				s.e.Request(near, m.Header, m.Data)
				unknown := subjects.Error{Code: subjects.CodeUnavailable, Unknown: true}
				return &nats.Msg{Header: unknown.Headers()}
			})

			var begun atomic.Int64
			said := make(warnings, 1000)
			s.start(must(jobs.NewWorker(func(ctx context.Context, job *client.Job) error {
				begun.Add(1)
				return long(ctx, job)
			}, client.WorkerOptions{
				Concurrency: concurrency,
				AckWait:     time.Second, // for jobs that are leased by a reply that is lost
				Logger:      slog.New(said),
			})))
			s.waitUntilEmpty()

			s.wantResults(s.jobs, want)
			if n := begun.Load(); n < 60 {
				t.Errorf("%d jobs were begun, want 60", n)
			}
			for len(said) > 0 {
				if text := <-said; strings.Contains(text, "too late") {
					t.Errorf("the worker says %q", text)
				}
			}
		})
	}
}

// A job whose result is refused fails with that reason, as if its Work had returned it as an error,
// and the results of jobs that share its request are stored.
func TestWorkerLargeResults(t *testing.T) {
	for name, size := range map[string]int{"bound": 64<<10 + 1, "max_payload": 2 << 20} {
		subtest(t, name, func(t *testing.T) {
			s := newWorkshop(t)
			s.configure(client.Settings{MaxDeliver: 2})
			large := pushKept(t, s.jobs, "large")
			want := s.pushSome(s.jobs, 20)

			s.start(must(s.jobs.NewWorker(func(ctx context.Context, job *client.Job) error {
				if string(job.Value) == "large" {
					job.SetResult(make([]byte, size), "")
					return nil
				}
				return long(ctx, job)
			}, quiet(client.WorkerOptions{Concurrency: 5}))))
			s.waitUntilEmpty()

			s.wantResults(s.jobs, want)
			r := must(s.jobs.Result(t.Context(), large))
			text := fmt.Sprintf("the result of %d bytes was refused: ", size)
			if r.State != client.Dead || r.DeadLetter.Deliveries != 2 ||
				!strings.HasPrefix(r.DeadLetter.Error, text) {
				t.Errorf("%+v; want 2 deliveries and %q", r.DeadLetter, text)
			}
		})
	}
}

// A worker that has lost its lease sends no result: the one of the worker that got the job stays.
func TestWorkerResultOfLostLease(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		id := pushKept(t, s.jobs, "a")
		begun, finish := make(chan struct{}), make(chan struct{})
		stop := s.start(must(s.jobs.NewWorker(
			client.Returns(func(ctx context.Context, _ *client.Job) ([]byte, error) {
				close(begun)
				<-ctx.Done() // the lease is lost
				<-finish
				return []byte("late"), nil
			}), quiet(client.WorkerOptions{}))))
		<-begun
		ok(t, s.jobs.Release(t.Context(), id))
		d := leaseOne(t, s.jobs)
		d.SetResult([]byte("in time"), "")

		ok(t, d.Ack(t.Context()))
		close(finish)
		stop()

		returned(t, s.jobs, id, "in time")
	})
}

// What a job says of its progress is there while it is leased. Progress that is too large is
// refused, and the job goes on; progress of a job that somebody has removed ends its context.
func TestWorkerProgress(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		id := must(s.jobs.Push(t.Context(), 0, nil)).ID
		told, ended := make(chan bool), make(chan error)

		work := func(ctx context.Context, job *client.Job) error {
			ok(t, job.Progress(ctx, []byte("half")))
			tooLarge := job.Progress(ctx, make([]byte, 1025))
			failsWith(t, "too large", client.ErrBadRequest)(0, tooLarge)
			<-told
			told <- true

			<-told
			failsWith(t, "removed", client.ErrLeaseLost)(0, job.Progress(ctx, nil))
			ended <- context.Cause(ctx)
			return nil
		}
		s.start(must(s.jobs.NewWorker(work, client.WorkerOptions{})))

		told <- true
		<-told
		if got := must(s.jobs.Result(t.Context(), id)).Progress; string(got) != "half" {
			t.Errorf("the progress is %q: want half", got)
		}

		ok(t, s.jobs.Remove(t.Context(), id))
		told <- true
		if cause := <-ended; !errors.Is(cause, client.ErrLeaseLost) {
			t.Errorf("the context of the job ended with %v: want ErrLeaseLost", cause)
		}
	})
}
