package proof_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// useOthers has somebody do over and over what the load leaves out, on queues that nobody else
// uses, so that each answer is known. Each fault waits until all of it was done once more. In the
// end there must have been a request of every kind that there is.
func (b *bank) useOthers() {
	var ended atomic.Bool
	var rounds atomic.Int64
	var running sync.WaitGroup
	unseen := b.watch()

	for _, queue := range []string{"v-0", "fifo-v"} {
		o := &other{caller: b.newCaller(-1, newLine(b.t, b.toNATS.url())), queue: queue}
		// Longer than a bridge works on a request: a purge that is given up before may happen
		// later, in the next round.
		o.first = 5 * time.Second
		running.Go(func() {
			for !ended.Load() && !b.t.Failed() {
				o.round++
				o.doAll()
				rounds.Add(1)
			}
		})
	}

	for i := range b.faults {
		strike := b.faults[i].strike
		b.faults[i].strike = func() {
			enough := rounds.Load() + 4 // two of each queue, the first of which had begun
			testenv.Eventually(b.t, func() error {
				if n := enough - rounds.Load(); n > 0 && !b.t.Failed() {
					return fmt.Errorf("%d more rounds of the other requests", n)
				}
				return nil
			})
			strike()
		}
	}

	stop := b.stop
	b.stop = func() kv.Database {
		ended.Store(true)
		running.Wait()
		if names := unseen(); len(names) > 0 {
			b.t.Errorf("no requests %q", names)
		}
		b.t.Logf("%d rounds of the other requests", rounds.Load())
		return stop()
	}
}

// watch returns a function that returns the kinds of requests that there were none of since.
func (b *bank) watch() (unseen func() []string) {
	var mu sync.Mutex
	nc, grammar := b.env.Connect(), b.env.Grammar
	names := map[string]bool{}

	for _, e := range grammar.Endpoints() {
		names[e.Name] = true
		_, err := nc.Subscribe(e.Subject, func(m *nats.Msg) {
			is, err := grammar.Parse(m.Subject)
			if err != nil || is.Verb != e.Verb || is.HasPriority != e.HasPriority {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			delete(names, e.Name)
			_ = m.Sub.Unsubscribe() // fails only if it is done already
		})
		must(b.t, err)
	}

	return func() (list []string) {
		mu.Lock()
		defer mu.Unlock()
		for name := range names {
			list = append(list, name)
		}
		slices.Sort(list)
		return list
	}
}

// other does what the load leaves out.
type other struct {
	*caller
	queue string
	round int
}

// want makes a request until it is answered, and compares the answer.
func (o *other) want(what string, want any, ask func(context.Context) (any, error)) {
	o.insist(what+" of "+o.queue, func(ctx context.Context) error {
		got, err := ask(ctx)
		if got, want := fmt.Sprint(got), fmt.Sprint(want); err == nil && got != want {
			o.t.Errorf("round %d: %s of %s: %s, want %s", o.round, what, o.queue, got, want)
		}
		return err
	})
}

// doAll makes one request of each kind, most of which say what is in the queue, and leaves nothing.
func (o *other) doAll() {
	q := queueOf(o.client, o.queue)
	ids := make([]string, 3)

	for i := range ids {
		value, id := fmt.Sprint("v", i), fmt.Sprint(o.round, "-", i)
		o.want("push", true, func(ctx context.Context) (any, error) {
			if isFIFO(o.queue) {
				ack, err := q.Push(ctx, 0, []byte(value), client.MsgID(id))
				ids[i] = ack.ID
				return ack.ID != "", err
			}
			m := nats.NewMsg(fmt.Sprint("pq.", o.queue, ".push.", i))
			m.Data, m.Header = []byte(value), nats.Header{nats.MsgIdHdr: {id}}
			reply, err := o.line.nc.RequestMsgWithContext(ctx, m)
			if err != nil {
				return nil, err
			}
			if text := reply.Header.Get(subjects.HeaderError); text != "" {
				return nil, errors.New(text)
			}
			ack, err := subjects.ParseReply[subjects.Pushed](reply.Data)
			ids[i] = ack.ID
			return ack.ID != "", err
		})
	}

	o.look(q, ids)
	o.want("lease", true, func(ctx context.Context) (any, error) {
		_, err := q.Lease(ctx, client.AckWait(time.Hour))
		if errors.Is(err, client.ErrEmpty) { // leases whose answers were lost have all
			err = nil
		}
		return true, err
	})
	o.want("release", 0, func(ctx context.Context) (any, error) {
		if _, err := q.ReleaseItems(ctx, ids); err != nil {
			return nil, err
		}
		info, err := q.Info(ctx)
		if err != nil {
			return nil, err
		}
		return info.Leased, nil
	})
	o.look(q, ids)

	o.want("schedule", "tick", func(ctx context.Context) (any, error) {
		r, err := q.SetSchedule(ctx,
			client.Schedule{ID: "tick", Every: client.Interval(time.Hour), Value: []byte("v")})
		return r.ID, err
	})
	o.want("schedules", 1, func(ctx context.Context) (any, error) {
		all, err := q.Schedules(ctx)
		return len(all), err
	})
	o.want("unschedule", true, func(ctx context.Context) (any, error) {
		err := q.Unschedule(ctx, "tick")
		if errors.Is(err, client.ErrNotFound) { // an answer was lost
			err = nil
		}
		return true, err
	})
	o.want("purge", true, func(ctx context.Context) (any, error) {
		_, err := q.Purge(ctx, "")
		return true, err
	})
	o.want("redrive", 0, func(ctx context.Context) (any, error) { return q.Redrive(ctx, 0) })
	o.want("len", 0, func(ctx context.Context) (any, error) { return q.Len(ctx) })
}

// look makes all requests that change nothing. The queue has the items, all of them ready.
func (o *other) look(q *client.Queue, ids []string) {
	o.want("len", 3, func(ctx context.Context) (any, error) { return q.Len(ctx) })
	o.want("info", "3 0", func(ctx context.Context) (any, error) {
		info, err := q.Info(ctx)
		if err != nil {
			return nil, err
		}
		return fmt.Sprint(info.Ready, " ", info.Leased), nil
	})
	o.want("peek", "v0", func(ctx context.Context) (any, error) { return valueOf(q.Peek(ctx)) })
	if !isFIFO(o.queue) {
		o.want("peek.max", "v2",
			func(ctx context.Context) (any, error) { return valueOf(q.PeekMax(ctx)) })
	}
	o.want("get", "v1 ready", func(ctx context.Context) (any, error) {
		item, state, err := q.Get(ctx, ids[1])
		if err != nil {
			return nil, err
		}
		return fmt.Sprintf("%s %s", item.Value, state), nil
	})
	o.want("result", "ready", func(ctx context.Context) (any, error) {
		r, err := q.Result(ctx, ids[2])
		if err != nil {
			return nil, err
		}
		return r.State, nil
	})
	o.want("rank", 2, func(ctx context.Context) (any, error) {
		n, _, err := q.Rank(ctx, ids[2])
		return n, err
	})
	o.want("items", ids, func(ctx context.Context) (any, error) {
		page, err := q.Items(ctx, client.ItemsOptions{})
		var found []string
		for _, item := range page.Items {
			found = append(found, item.ID)
		}
		return found, err
	})
	o.want("list", true, func(ctx context.Context) (any, error) {
		list := o.client.ListPriorityQueues
		if isFIFO(o.queue) {
			list = o.client.ListFIFOQueues
		}
		page, err := list(ctx, "", 0)
		return slices.ContainsFunc(page.Queues, func(one subjects.QueueCounts) bool {
			return one.Queue == o.queue
		}), err
	})
}

// valueOf returns the value of an item.
func valueOf(item *client.Item, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return string(item.Value), nil
}
