package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/testenv"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// relayed returns queue jobs as a client sees it whose requests and replies go through the test. on
// may answer an acknowledgement in place of the bridge, and is called by one goroutine for each.
func (s *workshop) relayed(on func(m *nats.Msg) *nats.Msg, options ...client.Option) *client.Queue {
	s.Helper()
	s.e.Relay("far", on)
	options = append(options, client.WithGrammar(must(subjects.New("far", "q"))))
	return client.New(s.e.Conn, options...).PriorityQueue("jobs")
}

// acknowledgedOnly has the bridge acknowledge what a shared request names, lease nothing, and
// answers it with an error.
func acknowledgedOnly(told subjects.Error) func(*workshop, *nats.Msg) *nats.Msg {
	return func(s *workshop, m *nats.Msg) *nats.Msg {
		a, err := subjects.ParseAck(m.Data)
		a.Kind, a.Next = subjects.AckDone, subjects.PopOptions{}
		reply := s.e.Request("pq"+strings.TrimPrefix(m.Subject, "far"), nil, a.Encode())

		if failure := subjects.ErrorFromHeaders(reply.Header); err != nil || failure != nil {
			s.Errorf("%v, %v", err, failure)
		}

		return &nats.Msg{Header: told.Headers()}
	}
}

// Jobs that end while two others are acknowledged share the next request, which leases as many. If
// it is refused, or nobody knows whether it counts, each is acknowledged by itself.
func TestWorkerSharesRequests(t *testing.T) {
	const workers, jobs = 6, 40
	unknown := subjects.Error{Code: subjects.CodeUnavailable, Unknown: true}
	answer := func(reply *nats.Msg) func(*workshop, *nats.Msg) *nats.Msg {
		return func(*workshop, *nats.Msg) *nats.Msg { return reply }
	}

	for _, test := range []struct {
		name   string
		refuse func(s *workshop, m *nats.Msg) *nats.Msg // of the first shared request
		late   bool                                     // a job is done too late
	}{
		{name: "taken", refuse: answer(nil)},
		{name: "refused", refuse: answer(errorReply(subjects.CodeBadRequest))},
		{name: "unavailable", refuse: answer(errorReply(subjects.CodeUnavailable))},
		{name: "unknown, not done", refuse: answer(&nats.Msg{Header: unknown.Headers()})},
		{name: "unknown, done", refuse: acknowledgedOnly(unknown)},
		{
			name:   "max_leased was lowered",
			refuse: acknowledgedOnly(subjects.Error{Code: subjects.CodeOverloaded}),
		},
		{
			name: "a lost lease",
			late: true,
			refuse: func(s *workshop, m *nats.Msg) *nats.Msg {
				s.e.Request("pq"+strings.TrimPrefix(m.Subject, "far"), nil, nil)
				return nil
			},
		},
	} {
		subtest(t, test.name, func(t *testing.T) {
			s := newWorkshop(t)
			for i := range jobs {
				s.push(fmt.Sprint("job ", i))
			}

			var worker *client.Worker
			var shared atomic.Int32
			enough := make(chan struct{}) // jobs wait for the next request

			q := s.relayed(func(m *nats.Msg) *nats.Msg {
				if !strings.HasPrefix(m.Subject, "far.jobs.ack.") {
					return nil
				}

				if a, err := subjects.ParseAck(m.Data); err != nil || len(a.Also) == 0 {
					<-enough
					return nil
				} else if n := len(a.Also) + 1; a.Next.Batch != n || n > workers-1 {
					t.Errorf("%d jobs are acknowledged, and %d are to be leased", n, a.Next.Batch)
				} else if shared.Add(1) == 1 {
					if n != workers-2 {
						t.Errorf("%d jobs share the first request, want %d", n, workers-2)
					}
					return test.refuse(s, m)
				}

				return nil
			})

			var r record
			var begun sync.WaitGroup
			begun.Add(workers)
			var count, now atomic.Int32
			said := make(warnings, 100)

			worker = must(q.NewWorker(func(_ context.Context, job *client.Job) error {
				r.add(job)
				if n := now.Add(1); n > workers {
					t.Errorf("%d jobs are done at a time", n)
				}

				defer now.Add(-1)
				if count.Add(1) <= workers {
					begun.Done()
					begun.Wait()
				}

				return nil
			}, client.WorkerOptions{
				Concurrency: workers,
				AckWait:     time.Minute,
				Logger:      slog.New(said),
			}))

			stop := s.start(worker)
			waitFor(t, "jobs that wait for the next request", func() bool {
				return worker.Waiting() >= workers-2
			})

			close(enough)
			s.waitUntilEmpty()
			stop()

			got := r.all()
			slices.Sort(got)
			if len(got) != jobs || len(slices.Compact(got)) != jobs {
				t.Errorf("%d jobs were done, want %d: %q", len(got), jobs, got)
			}

			for _, job := range got {
				if !strings.HasSuffix(job, " 1") {
					t.Errorf("not the first delivery: %s", job)
				}
			}
			if shared.Load() == 0 {
				t.Error("no request was shared")
			}

			late := 0
			for close(said); len(said) > 0; {
				if strings.Contains(<-said, "too late") {
					late++
				}
			}
			if want := map[bool]int{true: 1}[test.late]; late != want {
				t.Errorf("%d jobs were done too late, want %d", late, want)
			}
		})
	}
}

// Two requests that nobody answers do not hold up all others until they are given up.
func TestWorkerGoesOnWithoutAnswers(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		const jobs = 40

		for i := range jobs {
			s.push(fmt.Sprint(i))
		}

		end := make(chan struct{})
		var unanswered, done atomic.Int32

		q := s.relayed(func(m *nats.Msg) *nats.Msg {
			if strings.HasPrefix(m.Subject, "far.jobs.ack.") && unanswered.Add(1) <= 2 {
				<-end
			}
			return nil
		}, client.WithTimeout(time.Hour))

		worker := must(q.NewWorker(func(context.Context, *client.Job) error {
			done.Add(1)
			return nil
		}, quiet(client.WorkerOptions{Concurrency: 6, AckWait: time.Hour})))

		worker.SetSlow(100 * time.Millisecond)
		stop := s.start(worker)
		waitFor(t, "the end of all jobs", func() bool { return done.Load() >= jobs })

		close(end)
		stop()
	})
}

// A worker that gets a job when the lease may be over begins it only once the lease is extended,
// and not at all if somebody else has the job.
func TestWorkerExtendsBeforeAnOldJob(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		const ackWait, standstill = time.Second, 6 * time.Second
		for _, taken := range []bool{false, true} {
			s := newWorkshop(t)
			s.push("a")
			events := make(chan string, 10)
			other := make(chan *nats.Msg, 1) // the lease of somebody else
			var asked atomic.Int64

			q := s.relayed(func(m *nats.Msg) *nats.Msg {
				if strings.HasPrefix(string(m.Data), "+WPI") {
					events <- "extended"
				}
				o, err := subjects.ParsePopOptions(m.Data)
				if err != nil || o.Expires == 0 || asked.Add(1) > 1 {
					return nil
				}

				// The worker reads a heartbeat and the job late, and at the same time.
				lease := []byte(`{"ack_wait":"1s"}`)
				job := s.e.Request("pq.jobs.pop.min", nil, lease)
				time.Sleep(standstill)
				if taken {
					other <- s.e.Request("pq.jobs.pop.min", nil, []byte(`{"ack_wait":"1h"}`))
				}
				beat := nats.Header{subjects.HeaderHeartbeat: {"1"}}
				ok(t, s.e.Conn.PublishMsg(&nats.Msg{Subject: m.Reply, Header: beat}))
				ok(t, s.e.Conn.Flush())
				job.Reply = "far" + strings.TrimPrefix(job.Reply, "pq")
				return job
			})

			w := must(q.NewWorker(func(context.Context, *client.Job) error {
				events <- "begun"
				return nil
			}, quiet(client.WorkerOptions{AckWait: ackWait})))
			s.start(w)

			next := func() string {
				select {
				case event := <-events:
					return event
				case <-time.After(testenv.Patience):
					return "nothing"
				}
			}
			if first := next(); first != "extended" {
				t.Errorf("taken %v: %s first", taken, first)
			}
			if taken {
				synctest.Wait()
				if len(events) > 0 {
					t.Errorf("%s although somebody else has the job", next())
				}
				s.e.Request((<-other).Reply, nil, []byte("-NAK"))
			}
			if second := next(); second != "begun" {
				t.Errorf("taken %v: then %s", taken, second)
			}
			s.waitUntilEmpty()
		}
	})
}
