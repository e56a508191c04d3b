package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// pushKept pushes a job that is kept, and returns its id.
func pushKept(t testing.TB, q *client.Queue, value string, options ...client.PushOption) string {
	t.Helper()
	options = append(options, client.Keep(time.Hour))
	ack, err := q.Push(t.Context(), 0, []byte(value), options...)
	ok(t, err)
	return ack.ID
}

// returned fails the test unless a job is done and has returned this value.
func returned(t testing.TB, q *client.Queue, id, want string) {
	t.Helper()
	r, err := q.Result(t.Context(), id)
	if err != nil || r.State != client.Done || string(r.Value) != want || r.ID != id {
		t.Errorf("job %s: %s %.40q, %v; want %.40q", id, r.State, r.Value, err, want)
	}
}

// However a job is pushed with Keep, its result is found once it is done. Without Keep, nothing is
// left of it.
func TestKeep(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		_, jobs := newQueue(t)
		kept := client.Message{Value: []byte("kept")}.With(client.Keep(time.Minute))
		batch := []client.PushItem{{Message: kept}, {}}
		producer := must(jobs.NewProducer(client.ProducerOptions{}))

		one := must(jobs.PushMsg(t.Context(), 0, kept))
		two := must(jobs.PushBatch(t.Context(), batch))
		many := must(jobs.PushMany(t.Context(), batch))
		async := must(pushAsync(t, producer, 0, kept).Wait(t.Context()))

		ok(t, producer.Close(t.Context()))
		for range 6 {
			d := leaseOne(t, jobs)
			d.SetResult([]byte(d.ID), "text/plain")
			ok(t, d.Ack(t.Context()))
		}

		for _, id := range []string{one.ID, two[0].ID, many[0].ID, async.ID} {
			returned(t, jobs, id, id)
		}
		for _, id := range []string{two[1].ID, many[1].ID} {
			failsWith(t, "without Keep", client.ErrNotFound)(jobs.Result(t.Context(), id))
		}
	})
}

// A result says in which state the job is, and then how it ended.
func TestResultStates(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		_, jobs := newQueue(t)
		began := time.Now().Truncate(time.Microsecond)
		id := pushKept(t, jobs, "a", client.MsgID("order-1"))
		state := func() client.JobResult {
			t.Helper()
			r, err := jobs.ResultByMsgID(t.Context(), "order-1")
			if err != nil || r.ID != id || !r.PushedAt.Equal(began) {
				t.Fatalf("%+v, %v; want id %s, pushed at %v", r, err, id, began)
			}
			return r
		}

		if r := state(); r.State != client.Ready || r.Deliveries != 0 || r.Err() != nil {
			t.Errorf("after the push: %+v", r)
		}

		time.Sleep(time.Second)
		d := leaseOne(t, jobs, client.Holder("ann"))
		if r := state(); r.State != client.Leased || r.Deliveries != 1 || r.Holder != "ann" {
			t.Errorf("leased: %+v", r)
		}

		ok(t, d.Nak(t.Context(), time.Minute))
		if r := state(); r.State != client.Delayed {
			t.Errorf("delayed: %+v", r)
		}

		time.Sleep(time.Minute)
		d = leaseOne(t, jobs, client.Holder("bob"))
		time.Sleep(time.Second)
		d.SetResult([]byte("42"), "text/plain")
		ok(t, d.Ack(t.Context()))
		r := state()
		if r.State != client.Done || string(r.Value) != "42" || r.ContentType != "text/plain" ||
			r.Deliveries != 2 || r.Holder != "bob" || r.FinishedAt.Sub(r.LeasedAt) != time.Second {
			t.Errorf("done: %+v", r)
		}
	})
}

// The result of a dead letter says why it failed, and is an error with that text.
func TestResultOfDeadLetter(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		_, jobs := newQueue(t)
		succeeds(t)(jobs.Configure(t.Context(), client.Settings{MaxDeliver: 1}))
		id := pushKept(t, jobs, "a")
		ok(t, leaseOne(t, jobs).Nak(t.Context(), 0, client.Reason("no ink")))

		r := must(jobs.Result(t.Context(), id, client.Wait(time.Hour)))

		var failed *client.JobFailed
		if r.State != client.Dead || !errors.As(r.Err(), &failed) || failed.ID != id ||
			failed.Reason != "max_deliver" || failed.DeadLetter.Error != "no ink" {
			t.Errorf("%+v: %v", r, r.Err())
		}
		if text := fmt.Sprint(r.Err()); !strings.Contains(text, id) ||
			!strings.Contains(text, "max_deliver (after 1 delivery): no ink") {
			t.Errorf("the error is %q", text)
		}
	})
}

// Next carries a result as Ack does. An acknowledgement that is repeated succeeds if the job was
// kept, and says that the lease is lost otherwise.
func TestResultWithNext(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		_, jobs := newQueue(t)
		first, second := pushKept(t, jobs, "a"), pushKept(t, jobs, "b")
		succeeds(t)(jobs.Push(t.Context(), 1, []byte("not kept")))

		a := leaseOne(t, jobs)
		a.SetResult([]byte("of a"), "")
		b := must(a.Next(t.Context()))
		b.SetResult(nil, "") // no bytes are a result too
		last := must(b.Next(t.Context()))
		last.SetResult([]byte("of the last"), "")
		ok(t, last.Ack(t.Context()))

		returned(t, jobs, first, "of a")
		returned(t, jobs, second, "")
		ok(t, a.Ack(t.Context()))
		failsWith(t, "Next again", client.ErrEmpty)(b.Next(t.Context()))
		failsWith(t, "Ack of what was not kept", client.ErrLeaseLost)(nil, last.Ack(t.Context()))
		failsWith(t, "Nak of what is done", client.ErrLeaseLost)(nil, a.Nak(t.Context(), 0))
	})
}

// AckAll sends the results of kept jobs and of others, in several requests if they are large. What
// is repeated succeeds if it was kept.
func TestAckAllWithResults(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		e, jobs := newQueue(t)
		const n, size = 100, 30_000 // more than three messages take
		var items []client.PushItem
		for i := range n {
			m := client.Message{Value: fmt.Append(nil, i)}
			if i%4 > 0 {
				m = m.With(client.Keep(time.Hour))
			}
			items = append(items, client.PushItem{Message: m})
		}
		acks := must(jobs.PushBatch(t.Context(), items))

		deliveries := must(jobs.LeaseBatch(t.Context(), n))
		result := func(i int) string { return strings.Repeat(fmt.Sprintf("%02d", i), size/2) }
		for i, d := range deliveries {
			if i%3 > 0 {
				d.SetResult([]byte(result(i)), "text/plain")
			}
		}
		var requests atomic.Int64
		listen(t, e.Connect(), "pq.jobs.ack.*", func(*nats.Msg) { requests.Add(1) })

		errs := newClient(e.Conn).AckAll(t.Context(), deliveries...)

		if errs != nil {
			t.Fatalf("AckAll: %v", errs)
		}
		waitFor(t, "requests", func() bool { return requests.Load() > 0 })
		if got := requests.Load(); got > 4 {
			t.Errorf("%d requests for %d results of %d bytes, want at most 4", got, n, size)
		}

		for i, ack := range acks {
			switch {
			case i%4 == 0:
				failsWith(t, "not kept", client.ErrNotFound)(jobs.Result(t.Context(), ack.ID))
			case i%3 == 0:
				returned(t, jobs, ack.ID, "")
			default:
				returned(t, jobs, ack.ID, result(i))
			}
		}

		again := newClient(e.Conn).AckAll(t.Context(), deliveries...)
		for i, err := range again {
			if lost := errors.Is(err, client.ErrLeaseLost); lost != (i%4 == 0) {
				t.Errorf("delivery %d again: %v", i, err)
			}
		}
	})
}

// A result that is too large is refused, alone, and the lease goes on.
func TestLargeResults(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		e, jobs := newQueue(t)
		for range 3 {
			pushKept(t, jobs, "a")
		}
		deliveries := must(jobs.LeaseBatch(t.Context(), 3))
		for i, size := range []int{10, 64<<10 + 1, 2 << 20} {
			deliveries[i].SetResult(make([]byte, size), "")
		}

		errs := newClient(e.Conn).AckAll(t.Context(), deliveries...)

		if len(errs) != 3 || errs[0] != nil || !errors.Is(errs[1], client.ErrBadRequest) ||
			!strings.Contains(errs[1].Error(), "65536") ||
			!errors.Is(errs[2], client.ErrTooLarge) {
			t.Fatalf("AckAll: %v", errs)
		}
		for _, d := range deliveries[1:] {
			succeeds(t)(d.Extend(t.Context()))
			d.SetResult([]byte("smaller"), "")
			ok(t, d.Ack(t.Context()))
			returned(t, jobs, d.ID, "smaller")
		}
	})
}

// A Result waits until the job is done, or its time is over, however long that is. It asks again
// while the bridge is away, even by a message id that is forgotten meanwhile.
func TestResultWaits(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		e, jobs := newQueue(t)
		id := pushKept(t, jobs, "a", client.MsgID("order-1"))

		began := time.Now()
		r, err := jobs.Result(t.Context(), id, client.Wait(70*time.Second))
		if err != nil || r.State != client.Ready || time.Since(began) < 70*time.Second {
			t.Errorf("after %v: %+v, %v", time.Since(began), r, err)
		}

		type reply struct {
			client.JobResult
			error
		}
		ended := make(chan reply, 1)
		go func() {
			r, err := jobs.ResultByMsgID(t.Context(), "order-1", client.Wait(time.Hour))
			ended <- reply{r, err}
		}()

		time.Sleep(3 * time.Minute) // the message id is forgotten
		e.Bridge.Stop()
		time.Sleep(time.Minute)
		e.StartBridge().WaitReady()
		d := leaseOne(t, jobs)
		d.SetResult([]byte("42"), "")
		ok(t, d.Ack(t.Context()))

		if r := <-ended; r.error != nil || r.ID != id || string(r.Value) != "42" {
			t.Errorf("%+v, %v", r.JobResult, r.error)
		}
	})
}

// A Result that waits asks again as soon as the connection is back, since its reply may be lost.
func TestResultOutlastsNATS(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		e, jobs := newQueue(t)
		id := pushKept(t, jobs, "a")
		ended := make(chan error, 1)
		go func() {
			r, err := jobs.Result(t.Context(), id, client.Wait(time.Hour))
			if err == nil && r.State != client.Done {
				err = fmt.Errorf("the state is %s", r.State)
			}
			ended <- err
		}()

		time.Sleep(time.Second)
		e.NATS.Restart()
		time.Sleep(time.Second)
		began := time.Now()
		ok(t, leaseOne(t, jobs).Ack(t.Context()))

		ok(t, <-ended)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %v after the job was done", took)
		}
	})
}

// A Result of nothing fails at once, even if it waits, and so does one without the permission.
func TestResultErrors(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		_, jobs := newQueue(t)
		gone := pushKept(t, jobs, "a")
		ok(t, jobs.Remove(t.Context(), gone))
		began := time.Now()

		for what, test := range map[string]struct {
			id   string
			want error
		}{
			"removed":   {gone, client.ErrNotFound},
			"malformed": {"no id", client.ErrBadRequest},
			"not UTF-8": {"\xff", client.ErrBadRequest},
		} {
			_, err := jobs.Result(t.Context(), test.id, client.Wait(time.Hour))
			failsWith(t, what, test.want)(nil, err)
		}

		_, err := jobs.ResultByMsgID(t.Context(), "unknown", client.Wait(time.Hour))
		failsWith(t, "an unknown message id", client.ErrNotFound)(nil, err)

		_, err = jobs.Result(t.Context(), pushKept(t, jobs, "b"), client.Wait(2*time.Hour))
		ok(t, err)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = jobs.Result(ctx, pushKept(t, jobs, "c"), client.Wait(time.Hour))
		failsWith(t, "a context that ends", context.DeadlineExceeded)(nil, err)
		if d := time.Since(began); d != 2*time.Hour+time.Minute {
			t.Errorf("the waits took %v", d)
		}
	})
}
