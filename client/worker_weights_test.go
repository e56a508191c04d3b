package client_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// While all queues have jobs, each has its share of them, in its own order.
func TestWeights(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		mail := client.New(s.e.Conn).FIFOQueue("mail")
		const jobs = 100

		for i := range jobs {
			item := client.PushItem{Message: client.Message{Value: fmt.Append(nil, i)}}
			succeeds(t)(s.jobs.PushBatch(t.Context(), []client.PushItem{item}))
			succeeds(t)(mail.PushBatch(t.Context(), []client.PushItem{item}))
		}

		var order []string
		next := map[string]int{}

		w := must(client.NewWorker(func(_ context.Context, job *client.Job) error {
			if want := fmt.Sprint(next[job.Queue]); string(job.Value) != want ||
				job.Deliveries != 1 {
				t.Errorf("job %s of %s, delivery %d: want %s",
					job.Value, job.Queue, job.Deliveries, want)
			}

			next[job.Queue]++
			order = append(order, job.Queue)
			return nil
		}, quiet(client.WorkerOptions{}), s.jobs.Weight(3), mail.Weight(1)))

		stop := s.start(w)
		s.waitUntilEmpty()
		testenv.Eventually(t, func() error {
			info, err := mail.Info(t.Context())
			if err != nil || info.Ready+info.Leased+info.Delayed > 0 {
				return fmt.Errorf("%+v, %v", info, err)
			}

			return nil
		})

		stop()

		mails := 0
		for n, queue := range order {
			if queue == "mail" {
				mails++
			}
			if want := (n + 1) / 4; n < jobs && (mails < want-1 || mails > want+1) {
				t.Fatalf("of the first %d jobs, %d were mails: want about %d", n+1, mails, want)
			}
		}
		if len(order) != 2*jobs {
			t.Errorf("%d jobs, want %d", len(order), 2*jobs)
		}
	})
}

// With Concurrency, the shares are the same, and all that can be done is done at the same time.
func TestWeightsConcurrency(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		other := client.New(s.e.Conn).PriorityQueue("other")
		begun, finish := make(chan string, 100), make(chan struct{})

		w := must(client.NewWorker(func(_ context.Context, job *client.Job) error {
			begun <- job.Queue
			<-finish
			return nil
		}, quiet(client.WorkerOptions{Concurrency: 4}), s.jobs.Weight(1), other.Weight(1)))

		stop := s.start(w)
		waitForPops(t, s.e, 2) // one request for each queue

		s.push("a", "b", "c", "d", "e", "f")
		for range 4 {
			<-begun // by all who were free
		}

		waitForPops(t, s.e, 1)
		succeeds(t)(other.PushBatch(t.Context(), make([]client.PushItem, 10)))
		waitForPops(t, s.e, 0)

		waitFor(t, "the job that nobody is free for goes back", func() bool {
			info, err := other.Info(t.Context())
			return err == nil && info.Ready == 10
		})

		succeeds(t)(other.Push(t.Context(), -1, []byte("urgent")))

		finish <- struct{}{}
		if got := <-begun; got != "other" && got != "jobs" {
			t.Errorf("a job of %s", got)
		}

		close(finish)
		s.waitUntilEmpty()
		waitFor(t, "the rest", func() bool {
			n, err := other.Len(t.Context())
			return n == 0 && err == nil
		})

		stop()
	})
}

// A job that has to wait for somebody goes back to its place: a more urgent one comes before it,
// and its delivery does not count.
func TestWeightsKeepOrder(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		other := client.New(s.e.Conn).PriorityQueue("other")
		begun, finish := make(chan string), make(chan struct{})

		w := must(client.NewWorker(func(_ context.Context, job *client.Job) error {
			begun <- fmt.Sprint(string(job.Value), " ", job.Deliveries)
			<-finish
			return nil
		}, quiet(client.WorkerOptions{}), s.jobs.Weight(1), other.Weight(1)))

		stop := s.start(w)
		waitForPops(t, s.e, 2)
		s.push("a")
		got := []string{<-begun}
		waitForPops(t, s.e, 1)

		succeeds(t)(other.Push(t.Context(), 5, []byte("b")))
		waitForPops(t, s.e, 0)
		waitFor(t, "b back", func() bool {
			n, err := other.Len(t.Context())
			return n == 1 && err == nil
		})

		succeeds(t)(other.Push(t.Context(), 1, []byte("urgent")))
		for range 2 {
			finish <- struct{}{}
			got = append(got, <-begun)
		}

		close(finish)
		stop()
		if want := []string{"a 1", "urgent 1", "b 1"}; !slices.Equal(got, want) {
			t.Errorf("done %q, want %q", got, want)
		}
	})
}

// A queue without jobs costs a request that finds that out, and one that waits.
func TestWeightsEmptyQueue(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		for i := range 50 {
			s.push(fmt.Sprint(i))
		}

		heard := s.overhear()
		other := client.New(s.e.Conn).PriorityQueue("other")
		o := quiet(client.WorkerOptions{AckWait: time.Minute})
		w := must(client.NewWorker(doNothing, o, s.jobs.Weight(1), other.Weight(1000)))
		stop := s.start(w)
		s.waitUntilEmpty()
		waitForPops(t, s.e, 2)

		count := map[string]int{}

		for {
			n, _, err := heard.Pending()
			ok(t, err)
			if n == 0 {
				break
			}

			m := must(heard.NextMsg(testenv.Patience))
			if verb := strings.Split(m.Subject, ".")[2]; verb == "pop" || verb == "ack" {
				count[m.Subject[:strings.LastIndex(m.Subject, ".")]]++
			}
		}

		stop()
		if count["pq.other.pop"] != 2 || count["pq.jobs.pop"] > 3 || count["pq.jobs.ack"] != 50 {
			t.Errorf("requests: %v", count)
		}
	})
}

// A worker whose jobs share acknowledgements does each job of several queues, and keeps none that
// it has leased for nobody.
func TestWeightsShareRequests(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		const jobs = 500
		s := newWorkshop(t)
		mail := client.New(s.e.Conn).FIFOQueue("mail")
		for _, q := range []*client.Queue{s.jobs, mail} {
			succeeds(t)(q.PushBatch(t.Context(), make([]client.PushItem, jobs)))
		}
		var done atomic.Int64
		w := must(client.NewWorker(func(context.Context, *client.Job) error {
			done.Add(1)
			return nil
		}, client.WorkerOptions{Concurrency: 16}, s.jobs.Weight(1), mail.Weight(1)))

		s.start(w)

		waitFor(t, "the end of all jobs", func() bool { return done.Load() == 2*jobs })
		s.waitUntilEmpty()
	})
}
