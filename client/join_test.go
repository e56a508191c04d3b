package client_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// item is an item of a batch with a priority and a value.
func item(priority int64, value string, options ...client.PushOption) client.PushItem {
	m := client.Message{Value: []byte(value)}
	return client.PushItem{Priority: priority, Message: m.With(options...)}
}

// next is the next job of a queue, leased. It waits for it.
func next(t *testing.T, q *client.Queue) *client.Delivery {
	t.Helper()
	return must(q.Lease(t.Context(), client.Expires(30*time.Second)))
}

// A joiner runs after its members, and says what became of them.
func TestAll(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		joiner, members, err := s.jobs.All(t.Context(), item(0, "report"),
			item(5, "a"), item(5, "b"))
		ok(t, err)
		for range members {
			d := next(t, s.jobs)
			if *d.Joiner != joiner.JoinerRef() {
				t.Errorf("joiner %v, want %v", *d.Joiner, joiner.JoinerRef())
			}
			ok(t, d.Ack(t.Context()))
		}

		d := next(t, s.jobs)
		if d.ID != joiner.ID || *d.Joined != (client.Joined{Done: 2}) {
			t.Errorf("%s, %+v; want %s after two members that are done", d.ID, d.Joined, joiner.ID)
		}
	})
}

// A joiner that is open waits for members that come later, and is refused further ones once it has
// run.
func TestOpenJoin(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		open := must(s.jobs.OpenJoin(t.Context(), time.Hour, 0, item(0, "report").Message))
		must(s.jobs.Push(t.Context(), 5, []byte("late"), client.Joiner(open.JoinerRef)))
		ok(t, next(t, s.jobs).Ack(t.Context()))
		failsWith(t, "before it is closed", client.ErrEmpty)(s.jobs.Pop(t.Context()))

		ok(t, open.Close(t.Context()))

		report := next(t, s.jobs)
		if *report.Joined != (client.Joined{Done: 1, Gone: 1}) {
			t.Errorf("%+v; want the member done and the guard gone", report.Joined)
		}
		failsWith(t, "too late", client.ErrJoined)(
			s.jobs.Push(t.Context(), 5, nil, client.Joiner(open.JoinerRef)))
		ok(t, open.Close(t.Context())) // again
	})
}

// To close a join after the time for which it is open is no error.
func TestCloseTooLate(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		open := must(s.jobs.OpenJoin(t.Context(), time.Second, 0, item(0, "report").Message))
		next(t, s.jobs)

		ok(t, open.Close(t.Context()))
	})
}

// The results of members are found by the name of their joiner, as it has it itself, beside headers
// that they were pushed with.
func TestResultsOfMembers(t *testing.T) {
	s := newWorkshop(t)
	s.configure(client.Settings{Next: []string{"jobs"}})
	must(s.jobs.Push(t.Context(), 1, []byte("fan")))
	found := make(chan client.ItemsPage, 1)

	s.start(must(s.jobs.NewWorker(func(ctx context.Context, job *client.Job) error {
		switch string(job.Value) {
		case "fan":
			ref := must(job.ThenJoin("jobs", 1, []byte("report")))
			return job.Then("jobs", 1, []byte("part"), client.Joiner(ref),
				client.Header("Part", "7"), client.Keep(time.Hour))
		case "part":
			job.SetResult(make([]byte, 3000), "")
		case "report":
			found <- must(s.jobs.Items(ctx, client.ItemsOptions{
				State:      client.Done,
				ValueBytes: 65536,
				Headers:    map[string]string{"Pq-Joiner": job.JoinerRef().String()},
			}))
		}
		return nil
	}, client.WorkerOptions{})))
	s.waitUntilEmpty()

	list := (<-found).Items
	if len(list) != 1 || len(list[0].Result) != 3000 || list[0].ResultCut ||
		list[0].Headers["Part"][0] != "7" {
		t.Errorf("%+v; want the part with all of its result", list)
	}
}

// An open joiner whose program dies does not wait for it for ever.
func TestOpenJoinOfADeadProgram(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		begun := time.Now()
		must(s.jobs.OpenJoin(t.Context(), 3*time.Second, 0, item(0, "report").Message))

		report := next(t, s.jobs)

		if waited := time.Since(begun); string(report.Value) != "report" || waited > 4*time.Second {
			t.Errorf("%q after %v, want the joiner after three seconds", report.Value, waited)
		}
	})
}

// Jobs of a Worker push joiners with members beside each other's results and successors, in shared
// requests, and each member has its own joiner.
func TestWorkerThenJoin(t *testing.T) {
	s := newWorkshop(t)
	s.configure(client.Settings{Next: []string{"jobs"}})
	var reports, wrong atomic.Int64
	const fans = 50
	for range fans {
		must(s.jobs.Push(t.Context(), 9, []byte("fan"), client.Keep(time.Hour)))
	}

	s.start(must(s.jobs.NewWorker(func(_ context.Context, job *client.Job) error {
		job.SetResult(job.Value, "")
		switch string(job.Value) {
		case "fan":
			ok(t, job.Then("jobs", 1, []byte("beside")))
			ref := must(job.ThenJoin("jobs", 1, []byte("report")))
			for range 3 {
				ok(t, job.Then("jobs", 1, []byte("part"), client.Joiner(ref)))
			}
		case "report":
			reports.Add(1)
			if *job.Joined != (client.Joined{Done: 3}) {
				wrong.Add(1)
			}
		}
		return nil
	}, client.WorkerOptions{Concurrency: 8})))
	s.waitUntilEmpty()

	if reports.Load() != fans || wrong.Load() != 0 {
		t.Errorf("%d reports, of which %d with other members; want %d",
			reports.Load(), wrong.Load(), fans)
	}
}

// A joiner that waits does not move.
func TestMoveOfAJoiner(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		joiner, _, err := s.jobs.All(t.Context(), item(0, "report"), item(5, "a"))
		ok(t, err)
		failsWith(t, "move", client.ErrJoins)(s.jobs.Move(t.Context(), joiner.ID, 3))
	})
}
