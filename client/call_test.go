package client_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// shout returns the value of a job in capitals, with its number of deliveries.
var shout = client.Returns(func(_ context.Context, job *client.Job) ([]byte, error) {
	return fmt.Append(nil, strings.ToUpper(string(job.Value)), " ", job.Deliveries), nil
})

// A Call returns what the Work returned, and its job is kept for an hour, or as the call says.
func TestCall(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		s.start(must(s.jobs.NewWorker(shout, client.WorkerOptions{})))

		r, err := s.jobs.Call(t.Context(), 5, []byte("a"))
		if err != nil || string(r.Value) != "A 1" || r.State != client.Done {
			t.Fatalf("%+v, %v", r, err)
		}
		short, err := s.jobs.Call(t.Context(), 5, []byte("b"), client.Keep(time.Minute))
		ok(t, err)

		time.Sleep(59 * time.Minute)
		returned(t, s.jobs, r.ID, "A 1")
		failsWith(t, "after its Keep", client.ErrNotFound)(s.jobs.Result(t.Context(), short.ID))
	})
}

// A Call whose job becomes a dead letter returns why, and one whose job is popped by somebody that
// no one knows what became of it. When its context ends, it returns the id of the job.
func TestCallFails(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		stop := s.start(must(s.jobs.NewWorker(func(context.Context, *client.Job) error {
			return client.Drop("no ink")
		}, quiet(client.WorkerOptions{}))))

		r, err := s.jobs.Call(t.Context(), 5, []byte("a"))
		var failed *client.JobFailed
		if !errors.As(err, &failed) || failed.Reason != "no ink" || failed.ID == "" ||
			r.ID != failed.ID || r.State != client.Dead {
			t.Errorf("a dropped job: %+v, %v", r, err)
		}
		stop()

		go func() { succeeds(t)(s.jobs.Pop(t.Context(), client.Expires(time.Minute))) }()
		failsWith(t, "popped", client.ErrNotFound)(s.jobs.Call(t.Context(), 5, []byte("b")))

		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		r, err = s.jobs.Call(ctx, 5, []byte("c"))
		failsWith(t, "nobody does it", context.DeadlineExceeded)(r, err)
		if d := leaseOne(t, s.jobs); d.ID != r.ID || !strings.Contains(err.Error(), r.ID) {
			t.Errorf("the call has id %q, the job %q: %v", r.ID, d.ID, err)
		}

		_, err = s.jobs.Call(t.Context(), 5, nil, client.Keep(0))
		failsWith(t, "a bad option", client.ErrBadRequest)(nil, err)
	})
}

// A Call whose context ends while NATS or the bridge is away returns in time, with the id of its
// job, and does not claim that the job was not sent. Nor does one whose connection is closed.
func TestCallNotDone(t *testing.T) {
	const wait = 3 * time.Second
	ways := maps.Clone(awayFor)
	ways["nobody"] = func(*testenv.Env) func() { return func() {} }
	ways["connection"] = func(e *testenv.Env) func() {
		e.Conn.Close()
		return func() {}
	}

	for who, takeAway := range ways {
		subtest(t, who, func(t *testing.T) {
			s := newWorkshop(t)
			want := context.DeadlineExceeded
			if who == "connection" {
				want = nats.ErrConnectionClosed
			}
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			began := time.Now()

			var r client.JobResult
			called := async(func() (_ string, err error) {
				r, err = s.jobs.Call(ctx, 5, []byte("a"))
				return "", err
			})
			testenv.Eventually(t, func() error {
				_, err := s.jobs.Peek(t.Context())
				return err
			})
			back := takeAway(s.e)
			err := (<-called).err

			if took := time.Since(began); took > wait+time.Second {
				t.Errorf("it took %v, want %v and a second", took, wait)
			}
			var notDone *client.NotDone
			if !errors.As(err, &notDone) || notDone.ID == "" || notDone.ID != r.ID ||
				!strings.Contains(err.Error(), r.ID) || !errors.Is(err, want) ||
				errors.Is(err, client.ErrNotSent) {
				t.Errorf("%+v, %v; want a NotDone with the id, and %v", r, err, want)
			}

			back()
			again := client.New(s.e.Connect()).PriorityQueue("jobs")
			testenv.Eventually(t, func() error {
				_, err := again.Len(t.Context())
				return err
			})
			synctest.Wait() // for the reply to the call, which is over
		})
	}
}

// A Call whose context ends before the push is acknowledged says whether there may be a job, and
// one whose context has ended pushes nothing.
func TestCallEndsBeforeItsPush(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		o := newOutage(t)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := o.jobs.Call(ended, 5, []byte("a"))
		failsWith(t, "a context that has ended", context.Canceled)(nil, err)
		if n := must(o.jobs.Len(t.Context())); n != 0 {
			t.Errorf("%d jobs were pushed, want 0", n)
		}

		silent := intercept(t, o.e, func(int, func() *nats.Msg) *nats.Msg { return nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = silent.Call(ctx, 5, []byte("b"))
		failsWith(t, "no answer", client.ErrUnknownOutcome)(nil, err)
		failsWith(t, "no answer", context.DeadlineExceeded)(nil, err)

		o.begin()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = o.jobs.Call(ctx, 5, []byte("c"))
		failsWith(t, "nothing was sent", client.ErrNotSent)(nil, err)
		failsWith(t, "nothing was sent", context.DeadlineExceeded)(nil, err)
		if errors.Is(err, client.ErrUnknownOutcome) {
			t.Errorf("nothing was sent, and the outcome is unknown: %v", err)
		}
		o.end(func() {})
	})
}

// A Call outlasts the bridge, the worker, and itself: one with the same message id waits for the
// same job.
func TestCallOutlastsCrashes(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		begun := make(chan struct{})
		dead := must(s.jobs.NewWorker(func(ctx context.Context, _ *client.Job) error {
			close(begun)
			<-ctx.Done()
			return ctx.Err()
		}, quiet(client.WorkerOptions{AckWait: 10 * time.Second})))
		stop := s.start(dead)
		call := func(ctx context.Context) <-chan string {
			ended := make(chan string, 1)
			go func() {
				r, err := s.jobs.Call(ctx, 5, []byte("a"), client.MsgID("order-1"))
				ended <- fmt.Sprintf("%s %v", r.Value, err)
			}()
			return ended
		}

		dies, die := context.WithCancel(t.Context())
		first := call(dies)
		<-begun
		die()
		<-first
		second := call(t.Context())
		s.e.Bridge.Stop()
		time.Sleep(time.Second)
		s.e.StartBridge().WaitReady()
		stop()
		s.start(must(s.jobs.NewWorker(shout, quiet(client.WorkerOptions{}))))

		got := <-second
		if !strings.HasPrefix(got, "A ") || !strings.HasSuffix(got, " <nil>") {
			t.Errorf("the call returned %q", got)
		}
		s.waitUntilEmpty()
		returned(t, s.jobs, must(s.jobs.ResultByMsgID(t.Context(), "order-1")).ID,
			strings.TrimSuffix(got, " <nil>"))
	})
}

// order and receipt are what a Function of the tests takes and returns.
type (
	order   struct{ Item string }
	receipt struct{ Text string }
)

var buy = client.Function[order, receipt]{Type: "buy"}

// A Function takes and returns values. A job whose value it cannot read becomes a dead letter at
// once, and a result that the caller cannot read is an error.
func TestFunction(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		var mux client.Mux
		mux.Handle(buy.Type, buy.Work(
			func(_ context.Context, job *client.Job, o order) (receipt, error) {
				if o.Item == "" {
					return receipt{}, client.Drop("nothing to buy")
				}
				return receipt{fmt.Sprint(o.Item, " for ", job.ID)}, nil
			}))
		s.start(must(s.jobs.NewWorker(mux.Work, quiet(client.WorkerOptions{}))))

		got, err := buy.Call(t.Context(), s.jobs, 5, order{"tea"}, client.MsgID("m"))
		r := must(s.jobs.ResultByMsgID(t.Context(), "m"))
		if err != nil || got.Text != "tea for "+r.ID || r.ContentType != "application/json" ||
			string(r.Value) != `{"Text":"`+got.Text+`"}` {
			t.Errorf("%+v, %v; %+v", got, err, r)
		}

		var failed *client.JobFailed
		_, err = buy.Call(t.Context(), s.jobs, 5, order{})
		if !errors.As(err, &failed) || failed.Reason != "nothing to buy" {
			t.Errorf("a job that is dropped: %v", err)
		}

		_, err = s.jobs.Call(t.Context(), 5, []byte("{"), client.Type("buy"))
		if !errors.As(err, &failed) || failed.DeadLetter.Deliveries != 1 ||
			!strings.HasPrefix(failed.Reason, "the value is not a client_test.order: ") {
			t.Errorf("a value that is no order: %v", err)
		}

		unread := client.Function[order, chan int]{Type: "buy"}
		if _, err = unread.Call(t.Context(), s.jobs, 5, order{"tea"}); err == nil ||
			!strings.Contains(err.Error(), " is not a chan int: json: ") {
			t.Errorf("a result that is no chan int: %v", err)
		}

		unsaid := client.Function[chan int, receipt]{}
		_, err = unsaid.Call(t.Context(), s.jobs, 5, nil)
		failsWith(t, "a value that cannot be encoded", client.ErrBadRequest)(nil, err)
	})
}
