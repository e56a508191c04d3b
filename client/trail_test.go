package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// refuseParents answers as a bridge from before the setting trail: it refuses a successor that
// names the lease of its parent. It counts what it has refused.
func refuseParents(refused *atomic.Int64) func(m *nats.Msg) *nats.Msg {
	return func(m *nats.Msg) *nats.Msg {
		frames, err := subjects.ParseFrames(m.Data)
		if m.Header.Get(subjects.HeaderFrames) == "" || err != nil {
			return nil
		}
		for _, f := range frames {
			if bytes.Contains(f.Headers, []byte(subjects.HeaderQueue)) &&
				bytes.Contains(f.Headers, []byte(subjects.HeaderToken)) {
				refused.Add(1)
				return errorReply(subjects.CodeBadRequest)
			}
		}
		return nil
	}
}

// Jobs that share an acknowledgement are each the parent of what they push themselves, and pushed
// it once. A bridge that knows no parents in frames refuses the request: then each job is
// acknowledged on its own.
func TestParents(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		for _, name := range []string{"bridge", "older bridge"} {
			s := newWorkshop(t)
			s.configure(client.Settings{Trail: 4, Next: []string{"mail"}})
			jobs, refused := s.jobs, new(atomic.Int64)
			if name == "older bridge" {
				jobs = s.relayed(refuseParents(refused))
			}
			s.push("a", "b", "c")
			leased := must(jobs.LeaseBatch(t.Context(), 3))
			for _, d := range leased[1:] {
				ok(t, d.Then("mail", 0, []byte(d.ID)))
				ref := must(d.ThenJoin("mail", 0, []byte(d.ID)))
				ok(t, d.Then("mail", 0, []byte(d.ID), client.Joiner(ref)))
			}

			if errs := client.New(s.e.Conn).AckAll(t.Context(), leased...); errs != nil {
				t.Errorf("%s: %v", name, errs)
			}

			if n := refused.Load(); n != int64(strings.Count(name, "older")) {
				t.Errorf("%s: refused %d requests", name, n)
			}
			s.wantParents(4, 6)
		}
	})
}

// wantParents pops what jobs have pushed to mail, so many items, of which so many are ready at
// first. Each has as its value the id of the job that it must name as its parent.
func (s *workshop) wantParents(ready, all int) {
	s.Helper()
	mail := client.New(s.e.Conn).PriorityQueue("mail")
	page := must(mail.Items(s.Context(), client.ItemsOptions{State: client.Ready, Limit: 1000}))
	for _, i := range page.Items {
		if p := i.Parent(); p == nil || p.ID != string(i.Value) || p.Queue != "jobs" {
			s.Errorf("the parent of a listed item is %v: want %s", p, i.Value)
		}
	}

	got := 0
	for item, err := range popped(s.Context(), mail) {
		ok(s, err)
		got++
		if p := item.Parent; p == nil || p.ID != string(item.Value) || p.Queue != "jobs" ||
			item.Headers.Get(subjects.HeaderParent) != p.String() {
			s.Errorf("the parent is %v: want %s", p, item.Value)
		}
	}
	if got != all || len(page.Items) != ready {
		s.Errorf("%d items, and %d are listed: want %d and %d", got, len(page.Items), all, ready)
	}
}

// popped pops items until there are no more.
func popped(ctx context.Context, q *client.Queue) func(func(*client.Item, error) bool) {
	return func(yield func(*client.Item, error) bool) {
		for {
			item, err := q.Pop(ctx)
			if errors.Is(err, client.ErrEmpty) || !yield(item, err) || err != nil {
				return
			}
		}
	}
}

// With a bridge that knows no parents in frames, a worker whose jobs share acknowledgements does
// each job once, and the items that they push have their parents.
func TestWorkerWithoutParentsInFrames(t *testing.T) {
	s, refused := newWorkshop(t), new(atomic.Int64)
	s.configure(client.Settings{Trail: 4, Next: []string{"mail"}})
	for range 200 {
		succeeds(t)(s.jobs.Push(t.Context(), 0, nil))
	}

	worker := must(s.relayed(refuseParents(refused)).NewWorker(
		func(_ context.Context, job *client.Job) error {
			return job.Then("mail", 0, []byte(job.ID))
		}, quiet(client.WorkerOptions{Concurrency: 16})))
	s.start(worker)
	s.waitUntilEmpty()

	s.wantParents(200, 200)
	if refused.Load() == 0 {
		t.Error("no acknowledgements were shared")
	}
}

// Get and, if asked, Items have the attempts of a job, across a redrive, and what it has pushed.
func TestAttempts(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		s.configure(client.Settings{
			Trail: 8, MaxDeliver: 2, Keep: time.Hour, Next: []string{"mail"},
		})
		s.push("job")
		lease := func() *client.Delivery {
			return must(s.jobs.Lease(t.Context(), client.Holder("wörker")))
		}
		d := lease()
		ok(t, d.Nak(t.Context(), 0, client.Reason("größer")))
		ok(t, lease().Nak(t.Context(), 0))
		if n := must(s.dead.Redrive(t.Context(), 0)); n != 1 {
			t.Fatalf("%d redriven", n)
		}
		d = lease()
		for range 70 {
			ok(t, d.Then("mail", 0, nil))
		}
		ok(t, d.Ack(t.Context()))

		item, state, err := s.jobs.Get(t.Context(), d.ID)
		ok(t, err)
		o := client.ItemsOptions{State: client.Done, Attempts: true}
		listed := must(s.jobs.Items(t.Context(), o)).Items[0]
		without := must(s.jobs.Items(t.Context(), client.ItemsOptions{State: client.Done})).Items[0]

		var got []string
		for _, a := range item.Attempts {
			got = append(got, fmt.Sprintf("%d %d %s %s%s", a.Life, a.Number, a.How, a.Holder,
				a.Reason))
			if a.From.IsZero() || a.To.IsZero() {
				t.Errorf("attempt %+v", a)
			}
		}
		want := []string{"1 1 nak wörkergrößer", "1 2 nak wörker", "2 1 done wörker"}
		if !slices.Equal(got, want) || state != client.Done {
			t.Errorf("%s with the attempts %q: want %q", state, got, want)
		}
		if !slices.Equal(listed.Attempts, item.Attempts) || without.Attempts != nil {
			t.Errorf("listed %v and, if not asked for, %v", listed.Attempts, without.Attempts)
		}
		if len(item.Successors) != 64 || item.MoreSuccessors != 6 ||
			!slices.Equal(listed.Successors, item.Successors) || listed.MoreSuccessors != 6 {
			t.Errorf("successors %d, %d more; listed %d, %d more", len(item.Successors),
				item.MoreSuccessors, len(listed.Successors), listed.MoreSuccessors)
		}
		first := must(client.New(s.e.Conn).PriorityQueue("mail").Peek(t.Context()))
		if next := item.Successors[0]; next.Queue != "mail" || next.ID != first.ID {
			t.Errorf("the first successor is %v: want %s", next, first.ID)
		}
	})
}

// Follow waits for the last job of a chain, and says of a chain that it cannot follow where it
// breaks.
func TestFollow(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		s.configure(client.Settings{Trail: 1, Keep: time.Hour, Next: []string{"jobs"}})

		// A job pushes the rest of its value, and the last one does what is left.
		s.start(must(s.jobs.NewWorker(func(ctx context.Context, job *client.Job) error {
			value := string(job.Value)
			n, _ := strconv.Atoi(value)
			time.Sleep(time.Second)
			switch first, rest, more := strings.Cut(value, ","); {
			case n > 1:
				return job.Then("jobs", 0, fmt.Append(nil, n-1))
			case first == "forgotten":
				return job.Then("jobs", 0, []byte(rest), client.Keep(time.Second))
			case more:
				return job.Then("jobs", 0, []byte(rest))
			case value == "two":
				ok(t, job.Then("jobs", 0, nil))
				return job.Then("jobs", 0, nil)
			case value == "dead":
				return client.Drop("no")
			}
			job.SetResult(job.Value, "")
			return nil
		}, quiet(client.WorkerOptions{Concurrency: 4}))))
		follow := func(value string, options ...client.ResultOption) (client.JobResult, error) {
			id := must(s.jobs.Push(t.Context(), 0, []byte(value), client.MsgID(value))).ID
			all := []client.ResultOption{client.Follow(), client.Wait(time.Hour)}
			return s.jobs.Result(t.Context(), id, append(all, options...)...)
		}

		for value, want := range map[string]string{
			"alone": "done alone", "a,b,end": "done end", "a,dead": "dead ", "100": "done 1",
		} {
			r, err := follow(value)
			if got := fmt.Sprintf("%s %s", r.State, r.Value); got != want || err != nil {
				t.Errorf("%s: %q, %v: want %q", value, got, err, want)
			}
		}
		r, err := s.jobs.ResultByMsgID(t.Context(), "a,b,end", client.Follow())
		if err != nil || string(r.Value) != "end" {
			t.Errorf("by message id: %q, %v", r.Value, err)
		}
		r, err = follow("a,b,c,late", client.Wait(2*time.Second+time.Second/2))
		if err != nil || r.State != client.Leased {
			t.Errorf("at the end of the wait: %s, %v", r.State, err)
		}

		failsWith(t, "several", client.ErrChain)(follow("a,two"))
		_, _ = follow("forgotten,end")
		time.Sleep(2 * time.Second)
		_, err = s.jobs.ResultByMsgID(t.Context(), "forgotten,end", client.Follow())
		if !errors.Is(err, client.ErrNotFound) ||
			!strings.Contains(err.Error(), "job 2 of the chain, ") {
			t.Errorf("a job that is gone: %v", err)
		}
	})
}
