package client_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// A worker's jobs push to the next queue when they are done, each once, whichever way requests are
// shared, beside their results. What the next job has are its headers.
func TestWorkerThen(t *testing.T) {
	for name, o := range map[string]client.WorkerOptions{
		"one":         {},
		"concurrency": {Concurrency: 8},
	} {
		subtest(t, name, func(t *testing.T) {
			s := newWorkshop(t)
			s.configure(client.Settings{Next: []string{"mail"}})
			want := s.pushSome(s.jobs, 200)

			s.start(must(s.jobs.NewWorker(func(ctx context.Context, job *client.Job) error {
				for i := range 5 {
					ok(t, job.Then("mail", 7, fmt.Append(job.Value, " ", i), client.Group("g")))
				}
				return long(ctx, job)
			}, o)))
			s.waitUntilEmpty()

			s.wantResults(s.jobs, want)
			mail := client.New(s.e.Conn).PriorityQueue("mail")
			seen := map[string]bool{}
			for range 5 * 200 {
				item := must(mail.Pop(t.Context()))
				seen[string(item.Value)] = true
				if item.Priority != 7 || item.Group != "g" {
					t.Fatalf("%+v", item)
				}
			}
			if len(seen) != 5*200 {
				t.Errorf("%d items, want %d", len(seen), 5*200)
			}
			failsWith(t, "no more", client.ErrEmpty)(mail.Pop(t.Context()))
		})
	}
}

// A job that fails pushes nothing, and one whose successor is refused fails with that reason.
func TestWorkerThenFails(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		s.configure(client.Settings{MaxDeliver: 1, Next: []string{"mail"}})
		refused, failed := pushKept(t, s.jobs, "other"), pushKept(t, s.jobs, "mail")

		s.start(must(s.jobs.NewWorker(func(_ context.Context, job *client.Job) error {
			ok(t, job.Then(string(job.Value), 0, nil))
			if string(job.Value) == "mail" {
				return fmt.Errorf("failed")
			}
			return nil
		}, quiet(client.WorkerOptions{}))))
		s.waitUntilEmpty()

		for id, text := range map[string]string{
			refused: "the result, or one of 1 items to push, was refused: ", failed: "failed",
		} {
			r := must(s.jobs.Result(t.Context(), id))
			if r.State != client.Dead || !strings.HasPrefix(r.DeadLetter.Error, text) {
				t.Errorf("%+v; want %q", r.DeadLetter, text)
			}
		}
		if n := must(client.New(s.e.Conn).PriorityQueue("mail").Len(t.Context())); n != 0 {
			t.Errorf("%d items were pushed", n)
		}
	})
}

// Ack, Next and AckAll send what their deliveries push; a lost lease among them pushes nothing, and
// what cannot be sent is refused at once.
func TestDeliveryThen(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		c := client.New(s.e.Conn)
		s.configure(client.Settings{Next: []string{"mail"}})
		s.push("a", "b", "c", "d", "e")
		var held []*client.Delivery
		for range 4 {
			d := leaseOne(t, s.jobs)
			for i := range 100 {
				ok(t, d.Then("mail", 0, fmt.Append(d.Value, i), client.Delay(time.Hour)))
			}
			held = append(held, d)
		}
		lost := held[0]
		ok(t, lost.Nak(t.Context(), 0))

		errs := c.AckAll(t.Context(), held[:3]...)
		next, err := held[3].Next(t.Context())
		ok(t, err)
		next.SetResult([]byte("result"), "")
		ok(t, next.Then("mail", 0, nil, client.Delay(time.Hour)))
		ok(t, next.Ack(t.Context()))

		if errs == nil || errs[0] == nil || errs[1] != nil || errs[2] != nil {
			t.Errorf("errors %v: want that of a lost lease alone", errs)
		}
		info := must(c.PriorityQueue("mail").Info(t.Context()))
		if info.Delayed != 301 {
			t.Errorf("%d items were pushed, want 301", info.Delayed)
		}

		bad := failsWith(t, "what cannot be sent", client.ErrBadRequest)
		bad(nil, next.Then("mail", 0, nil, client.MsgID(" x")))
		for range 255 {
			ok(t, next.Then("mail", 0, nil))
		}
		bad(nil, next.Then("mail", 0, nil))
	})
}
