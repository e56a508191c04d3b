package client_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// A worker does jobs in their order, even later ones, and acknowledges each. It leases one at a
// time, so a more urgent job comes next even if it is pushed at the last moment. A worker runs only
// once.
func TestWorker(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		s.push("a", "b", "c")
		var r record

		w := must(s.jobs.NewWorker(func(_ context.Context, job *client.Job) error {
			r.add(job)
			if info, err := s.jobs.Info(t.Context()); err != nil || info.Leased != 1 ||
				job.Queue != "jobs" || job.ID == "" {
				t.Errorf("job %+v: %d jobs are leased, %v", job, info.Leased, err)
			}

			if string(job.Value) == "b" {
				_, err := s.jobs.Push(t.Context(), -1, []byte("urgent"))
				return err
			}

			return nil
		}, client.WorkerOptions{}))

		stop := s.start(w)
		s.waitUntilEmpty()
		s.push("d")
		s.waitUntilEmpty()
		stop()

		// Each with its number of deliveries.
		got, want := r.all(), []string{"a 1", "b 1", "urgent 1", "c 1", "d 1"}
		if !slices.Equal(got, want) {
			t.Errorf("done: %q, want %q", got, want)
		}

		if err := w.Run(t.Context()); err == nil {
			t.Error("a worker ran twice")
		}
	})
}

// A worker with work to do makes one request for each job, which acknowledges the last and leases
// the next. A worker without work waits in a pop.
func TestWorkerRequests(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		s.push("a", "b", "c")
		heard := s.overhear()
		o := client.WorkerOptions{AckWait: 10 * time.Second}
		stop := s.start(must(s.jobs.NewWorker(doNothing, o)))

		var got []string

		for len(got) < 5 {
			m, err := heard.NextMsg(testenv.Patience)
			ok(t, err)
			verb, data := strings.Split(m.Subject, ".")[2], string(m.Data)
			got = append(got, fmt.Sprintf("%s, next %t, waits %t",
				verb, strings.HasPrefix(data, "+NXT"), strings.Contains(data, "expires")))
		}

		stop()
		pop, next := "pop, next false, waits true", "ack, next true, waits false"
		if want := []string{pop, next, next, next, pop}; !slices.Equal(got, want) {
			t.Errorf("requests %q, want %q", got, want)
		}
	})
}

// While other workers have as many jobs as the queue allows, a worker waits, and logs nothing.
func TestWorkerMaxLeased(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		s.configure(client.Settings{MaxLeased: 2})
		s.push("a", "b", "c", "d", "e", "f")
		complaints := make(warnings, 100)
		o := client.WorkerOptions{Concurrency: 6, Logger: slog.New(complaints)}
		s.start(must(s.jobs.NewWorker(doNothing, o)))

		// Jobs of the second worker last until finish is closed.
		begun, finish := make(chan struct{}), make(chan struct{})

		s.start(must(s.jobs.NewWorker(func(context.Context, *client.Job) error {
			select {
			case begun <- struct{}{}:
			case <-finish:
			}

			<-finish
			return nil
		}, client.WorkerOptions{Concurrency: 3, Logger: slog.New(complaints)})))

		for waits := true; waits; { // push until it has a job, as the first may be faster
			select {
			case <-begun:
				waits = false
			default:
				s.push("g", "h", "i", "j", "k", "l")
			}
		}

		close(finish)
		s.waitUntilEmpty()
		if len(complaints) > 0 {
			t.Errorf("a worker said %q", <-complaints)
		}
	})
}

// The first Middleware is outermost, and the Work innermost.
func TestWorkerMiddleware(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		s.push("a")
		var order []string

		named := func(name string) func(client.Work) client.Work {
			return func(work client.Work) client.Work {
				return func(ctx context.Context, job *client.Job) error {
					order = append(order, name)
					return work(ctx, job)
				}
			}
		}

		wraps := []func(client.Work) client.Work{named("outer"), named("inner")}
		stop := s.start(must(s.jobs.NewWorker(func(context.Context, *client.Job) error {
			order = append(order, "work")
			return nil
		}, client.WorkerOptions{Middleware: wraps})))

		s.waitUntilEmpty()
		stop()
		if want := []string{"outer", "inner", "work"}; !slices.Equal(order, want) {
			t.Errorf("called %q, want %q", order, want)
		}
	})
}

// A job knows how many tries it has and whether this is the last, by the settings as they are when
// it is leased, with or without an AckWait of the worker.
func TestLastTry(t *testing.T) {
	for name, o := range map[string]client.WorkerOptions{
		"AckWait of the worker":   {AckWait: time.Minute},
		"AckWait of the settings": {},
	} {
		subtest(t, name, func(t *testing.T) {
			s := newWorkshop(t)
			tries := make(chan client.Job)

			s.start(must(s.jobs.NewWorker(func(_ context.Context, job *client.Job) error {
				tries <- *job
				return errors.New("not yet")
			}, quiet(o))))

			wantLast := func(maxDeliver int64, last bool) {
				t.Helper()
				job := <-tries
				if job.MaxDeliver != maxDeliver || job.LastTry() != last {
					t.Errorf("delivery %d of %d, last %t: want %d, %t",
						job.Deliveries, job.MaxDeliver, job.LastTry(), maxDeliver, last)
				}
			}

			s.configure(client.Settings{MaxDeliver: 2})
			s.push("a")
			wantLast(2, false)
			wantLast(2, true)

			s.configure(client.Settings{MaxDeliver: 1})
			s.push("b")
			wantLast(1, true)
		})
	}
}

// A worker needs no permission but to pop and to acknowledge.
func TestWorkerPermissions(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		may := &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{"pq.*.pop.*", "pq.*.ack.*"}},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
		}
		e := testenv.New(t, testenv.Options{NATS: func(o *server.Options) {
			o.Users = []*server.User{
				{Username: "all", Password: "all"},
				{Username: "worker", Password: "worker", Permissions: may},
			}
			o.NoAuthUser = "all"
		}})

		s := &workshop{T: t, e: e, jobs: client.New(e.Conn).PriorityQueue("jobs")}
		s.push("a", "b")
		ignore := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
		nc := e.Connect(nats.UserInfo("worker", "worker"), ignore)
		c := client.New(nc, client.WithTimeout(100*time.Millisecond))
		s.start(must(c.PriorityQueue("jobs").NewWorker(doNothing, quiet(client.WorkerOptions{}))))
		s.waitUntilEmpty()
	})
}

// Options that can never work are refused with what would be right, several problems at once.
func TestWorkerBadOptions(t *testing.T) {
	c := client.New(nil)
	jobs, mail := c.PriorityQueue("jobs").Weight(1), c.FIFOQueue("mail").Weight(1)
	one, bad := []client.WeightedQueue{jobs}, c.FIFOQueue("a b").Weight(2)
	of := func(queues ...client.WeightedQueue) []client.WeightedQueue { return queues }
	middleware := func(wraps ...func(client.Work) client.Work) client.WorkerOptions {
		return client.WorkerOptions{Middleware: wraps}
	}
	same := func(work client.Work) client.Work { return work }
	none := func(client.Work) client.Work { return nil }

	for _, test := range []struct {
		o      client.WorkerOptions
		queues []client.WeightedQueue
		want   string
	}{
		{client.WorkerOptions{Concurrency: -1}, one, "Concurrency is -1: want 1 to 100000, or 0"},
		{client.WorkerOptions{Concurrency: 100_001}, one, "100001: want 1 to 100000, or 0"},
		{
			client.WorkerOptions{AckWait: time.Millisecond},
			one,
			"AckWait is 1ms: want 100ms to 12h0m0s",
		},
		{client.WorkerOptions{AckWait: 24 * time.Hour}, of(mail), "AckWait is 24h0m0s"},
		{
			client.WorkerOptions{JobTimeout: -time.Second},
			one,
			"JobTimeout is -1s: want more than 0",
		},
		{
			client.WorkerOptions{RetryDelay: 100_000 * time.Hour},
			one,
			"RetryDelay is 100000h0m0s: want up to 87600h0m0s, 0 for 1s, or less than 0",
		},
		{middleware(same, nil), one, "Middleware[1] is nil: want a function"},
		{middleware(none, same), one, "Middleware[0] returned nil: want a function"},
		{client.WorkerOptions{}, nil, "no queue: want one or more"},
		{client.WorkerOptions{}, of(client.WeightedQueue{}), "a WeightedQueue without a queue"},
		{
			client.WorkerOptions{},
			of(c.PriorityQueue("a").Weight(0), c.FIFOQueue("b").Weight(1001)),
			"the weight of a is 0: want 1 to 1000; the weight of b is 1001",
		},
		{client.WorkerOptions{}, of(jobs, jobs), "the queue jobs is there twice"},
		{client.WorkerOptions{Max: true}, of(jobs, mail), "Max with the FIFO queue"},
		{client.WorkerOptions{}, of(jobs, bad), "bad queue name"},
	} {
		w, err := client.NewWorker(doNothing, test.o, test.queues...)

		if w != nil || !errors.Is(err, client.ErrBadRequest) ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("want %q, got %v", test.want, err)
		}
	}

	_, err := c.FIFOQueue("mail").NewWorker(nil, client.WorkerOptions{Max: true, Concurrency: -1})
	want := "a priority queue; the Work is nil: want a function; Concurrency is -1: want 1 to"
	if !errors.Is(err, client.ErrBadRequest) || !strings.Contains(err.Error(), want) {
		t.Errorf("want %q, got %v", want, err)
	}
}

// A job may take longer than its lease: nobody else gets it while it runs, even after a Shutdown
// that did not wait, which ends its context.
func TestWorkerExtends(t *testing.T) {
	for name, o := range map[string]client.WorkerOptions{
		"options":  {AckWait: time.Minute},
		"settings": {},
	} {
		subtest(t, name, func(t *testing.T) {
			s := newWorkshop(t)
			s.configure(client.Settings{AckWait: time.Minute})
			s.push("a")
			begun, finish := make(chan context.Context), make(chan struct{})

			w := must(s.jobs.NewWorker(func(ctx context.Context, _ *client.Job) error {
				begun <- ctx
				<-finish
				return nil
			}, quiet(o)))

			done, _ := run(w)
			ctx := <-begun

			for _, stopped := range []bool{false, true} {
				if stopped {
					kill(w)
				}

				_, err := s.jobs.Lease(t.Context(), client.Expires(5*time.Minute)) // five leases
				failsWith(t, "a lease by another", client.ErrEmpty)(nil, err)
				if (ctx.Err() != nil) != stopped {
					t.Errorf("stopped: %t, and the context ended: %v", stopped, context.Cause(ctx))
				}
			}

			close(finish)
			ok(t, <-done)
			s.waitUntilEmpty()
		})
	}
}

// If the lease cannot be extended, the context ends before anybody else can have the job. If the
// Work succeeds nevertheless, the job is done, as long as nobody else has it.
func TestWorkerCannotExtend(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		s.push("a")
		begun, cause := make(chan struct{}), make(chan error)

		s.start(must(s.jobs.NewWorker(func(ctx context.Context, job *client.Job) error {
			if job.Deliveries > 1 {
				t.Errorf("delivery %d", job.Deliveries)
			}

			close(begun)
			<-ctx.Done()
			cause <- context.Cause(ctx)

			return nil
		}, quiet(client.WorkerOptions{AckWait: 300 * time.Millisecond}))))

		// No bridge extends the lease, and the next one takes the acknowledgement.
		<-begun
		ok(t, s.e.Bridge.Stop())
		failsWith(t, "the cause", client.ErrLeaseLost)(nil, <-cause)
		s.e.StartBridge().WaitReady()
		s.waitUntilEmpty()
	})
}

// An attempt to extend a lease that begins when the lease is over has a second for its reply: most
// likely nobody else has the job. An attempt that failed is logged once a minute, however often.
func TestWorkerExtendsLate(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		const ackWait, slowReply = 30 * time.Second, 900 * time.Millisecond
		s := newWorkshop(t)
		s.push("a")
		begun := make(chan time.Time, 1)
		late := make(chan struct{})
		q := s.relayed(func(m *nats.Msg) *nats.Msg {
			if string(m.Data) != "+WPI" {
				return nil
			}
			select {
			case <-late:
				time.Sleep(slowReply)
				return nil
			default:
				return errorReply(subjects.CodeUnavailable)
			}
		})

		said := make(warnings, 100)
		s.start(must(q.NewWorker(func(ctx context.Context, _ *client.Job) error {
			begun <- time.Now()
			select {
			case <-ctx.Done():
				t.Errorf("the context ended: %v", context.Cause(ctx))
			case <-time.After(2 * ackWait):
			}
			return nil
		}, client.WorkerOptions{AckWait: ackWait, Logger: slog.New(said)})))

		began := <-begun
		time.Sleep(time.Until(began.Add(ackWait - time.Millisecond)))
		close(late)
		s.waitUntilEmpty()

		if len(said) != 1 || <-said != "cannot extend a lease, trying again" {
			t.Errorf("the worker logged %d lines, want one about its attempts", len(said)+1)
		}
	})
}

// The context of a job ends when somebody removes the job, and the worker does the others.
func TestWorkerLosesLease(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		s.push("a", "b")
		lost := make(chan error, 1)

		s.start(must(s.jobs.NewWorker(func(ctx context.Context, job *client.Job) error {
			if string(job.Value) == "a" {
				if err := s.jobs.Remove(t.Context(), job.ID); err != nil {
					t.Error(err)
				}

				<-ctx.Done()
				lost <- context.Cause(ctx)
			}
			return ctx.Err()
		}, quiet(client.WorkerOptions{AckWait: 100 * time.Millisecond}))))

		failsWith(t, "the cause", client.ErrLeaseLost)(nil, <-lost)
		s.waitUntilEmpty()
	})
}

// The page of items shows the worker that holds a job: by the name that it was given, or by its
// host, process and connection. A name with control characters is refused.
func TestWorkerHolder(t *testing.T) {
	for _, name := range []string{"", "the night shift"} {
		subtest(t, name, func(t *testing.T) {
			s := newWorkshop(t)
			s.push("a")
			want := cmp.Or(name, client.DefaultHolder(s.e.Conn))
			seen := make(chan string, 1)

			s.start(must(s.jobs.NewWorker(func(ctx context.Context, _ *client.Job) error {
				page, err := s.jobs.Items(ctx, client.ItemsOptions{State: "leased"})
				if err == nil && len(page.Items) == 1 {
					seen <- page.Items[0].Holder
				}

				return err
			}, quiet(client.WorkerOptions{Holder: name}))))

			if got := <-seen; got != want ||
				name == "" && !strings.Contains(got, "pid "+strconv.Itoa(os.Getpid())) {
				t.Errorf("held by %q, want %q", got, want)
			}

			s.waitUntilEmpty()
		})
	}

	bad := client.WorkerOptions{Holder: "a\nb"}
	if _, err := client.New(nil).FIFOQueue("q").NewWorker(doNothing, bad); err == nil {
		t.Error("a holder with a control character was taken")
	}
}
