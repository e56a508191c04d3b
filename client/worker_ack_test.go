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

// sharing is what came of 40 jobs that a worker did, six at a time, and whose acknowledgements had
// to share requests.
type sharing struct {
	done   []string       // with the number of the delivery, sorted
	most   int            // jobs done at a time
	shared []subjects.Ack // the requests that acknowledged several
	warned []string
}

const (
	sharers    = 6 // loops of the worker
	sharedJobs = 40
)

// shareAcks has a worker do the jobs. The requests of the first two are held back until the jobs of
// the other four loops wait. answer may answer the first shared request in place of the bridge.
func shareAcks(t *testing.T, answer func(*workshop, *nats.Msg) *nats.Msg) sharing {
	t.Helper()
	s := newWorkshop(t)
	for i := range sharedJobs {
		s.push(fmt.Sprint("job ", i))
	}

	var mu sync.Mutex
	var result sharing
	othersWait := make(chan struct{})
	q := s.relayed(func(m *nats.Msg) *nats.Msg {
		if !strings.HasPrefix(m.Subject, "far.jobs.ack.") {
			return nil
		}
		ack, err := subjects.ParseAck(m.Data)
		if err != nil || len(ack.Also) == 0 {
			<-othersWait
			return nil
		}

		mu.Lock()
		result.shared = append(result.shared, ack)
		first := len(result.shared) == 1
		mu.Unlock()
		if first {
			return answer(s, m)
		}
		return nil
	})

	var r record
	var begun sync.WaitGroup
	begun.Add(sharers)
	var count, now atomic.Int32
	said := make(warnings, 100)
	worker := must(q.NewWorker(func(_ context.Context, job *client.Job) error {
		r.add(job)
		n := int(now.Add(1))
		defer now.Add(-1)
		mu.Lock()
		result.most = max(result.most, n)
		mu.Unlock()

		if count.Add(1) <= sharers {
			begun.Done()
			begun.Wait()
		}
		return nil
	}, client.WorkerOptions{
		Concurrency: sharers,
		AckWait:     time.Minute,
		Logger:      slog.New(said),
	}))

	stop := s.start(worker)
	waitFor(t, "jobs that wait for the next request", func() bool {
		return worker.Waiting() >= sharers-2
	})
	close(othersWait)
	s.waitUntilEmpty()
	stop()

	result.done = slices.Sorted(slices.Values(r.all()))
	for close(said); len(said) > 0; {
		result.warned = append(result.warned, <-said)
	}
	return result
}

// wantOnce fails the test unless each job was done, in its first delivery only.
func (r sharing) wantOnce(t *testing.T) {
	t.Helper()
	var want []string
	for i := range sharedJobs {
		want = append(want, fmt.Sprintf("job %d 1", i))
	}
	slices.Sort(want)
	if !slices.Equal(r.done, want) {
		t.Errorf("done, with their deliveries: %q, want %q", r.done, want)
	}
}

func fromBridge(*workshop, *nats.Msg) *nats.Msg { return nil }

// All jobs that end while two requests are under way share the next one.
func TestWaitingJobsShareTheNextRequest(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		r := shareAcks(t, fromBridge)

		if n := len(r.shared[0].Also) + 1; n != sharers-2 {
			t.Errorf("%d jobs share the first request, want the %d that waited", n, sharers-2)
		}
	})
}

// A shared request leases as many jobs as it acknowledges.
func TestSharedRequestLeasesAsMany(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		r := shareAcks(t, fromBridge)

		for _, ack := range r.shared {
			if n := len(ack.Also) + 1; ack.Next.Batch != n {
				t.Errorf("a request acknowledges %d jobs, and leases %d", n, ack.Next.Batch)
			}
		}
	})
}

// A worker whose jobs share requests does no more of them at a time than Concurrency says.
func TestSharedRequestsKeepConcurrency(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		r := shareAcks(t, fromBridge)

		if r.most > sharers {
			t.Errorf("%d jobs were done at a time, want at most %d", r.most, sharers)
		}
	})
}

// Each job is done once, whatever the bridge replies to a shared request, and whether that counted
// or not: the jobs are then acknowledged one by one.
func TestSharedRequestFails(t *testing.T) {
	unknown := subjects.Error{Code: subjects.CodeUnavailable, Unknown: true}
	overloaded := subjects.Error{Code: subjects.CodeOverloaded}
	replyWith := func(reply *nats.Msg) func(*workshop, *nats.Msg) *nats.Msg {
		return func(*workshop, *nats.Msg) *nats.Msg { return reply }
	}

	for name, answer := range map[string]func(*workshop, *nats.Msg) *nats.Msg{
		"refused":               replyWith(errorReply(subjects.CodeBadRequest)),
		"unavailable":           replyWith(errorReply(subjects.CodeUnavailable)),
		"unknown, not done":     replyWith(&nats.Msg{Header: unknown.Headers()}),
		"unknown, done":         acknowledgedOnly(unknown),
		"done, leasing refused": acknowledgedOnly(overloaded), // max_leased was lowered
	} {
		subtest(t, name, func(t *testing.T) { shareAcks(t, answer).wantOnce(t) })
	}
}

// A lost lease in a shared request is logged, and the other jobs are acknowledged.
func TestSharedRequestWithALostLease(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		r := shareAcks(t, func(s *workshop, m *nats.Msg) *nats.Msg {
			s.e.Request("pq"+strings.TrimPrefix(m.Subject, "far"), nil, nil) // acknowledges one
			return nil
		})

		r.wantOnce(t)
		want := []string{
			"a job was settled too late: its lease was over and somebody else got it",
		}
		if !slices.Equal(r.warned, want) {
			t.Errorf("logged %q, want %q", r.warned, want)
		}
	})
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
