package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// What one goroutine pushes is served in its order, and acknowledged once it is durable.
func TestProducer(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := newClient(e.Conn)
	jobs, mail := c.PriorityQueue("jobs"), c.Queue("mail")
	p := must(jobs.NewProducer(client.ProducerOptions{MaxItems: 100}))
	m := must(mail.NewProducer(client.ProducerOptions{MaxBytes: 500}))
	var futures []*client.PushFuture
	value := []byte("00000")
	for i := range 1000 {
		copy(value, fmt.Sprintf("%05d", i))
		f := pushAsync(t, p, 7, client.Message{Value: value})
		futures = append(futures, f)
		succeeds(t)(m.PushAsync(t.Context(), 0, client.Message{Value: value}))
	}
	ok(t, errors.Join(p.Flush(t.Context()), m.Close(t.Context())))
	for i, f := range futures {
		want := fmt.Sprintf("%05d", i)
		ack, err := f.Wait(context.Background())
		item, popErr := jobs.PopMin(t.Context())
		if err != nil || popErr != nil || item.ID != ack.ID || string(item.Value) != want || item.Priority != 7 ||
			ack.Priority != 7 || ack.Queue != "jobs" {
			t.Fatalf("push %d: %+v, %v; popped %+v, %v", i, ack, err, item, popErr)
		}
		if item, err := mail.Dequeue(t.Context()); err != nil || string(item.Value) != want {
			t.Fatalf("dequeued %+v, %v", item, err)
		}
	}
	ok(t, errors.Join(p.Flush(t.Context()), m.Flush(t.Context()), p.Close(t.Context()), p.Close(t.Context())))
}

// What PushAsync refuses has no future.
func TestProducerRefuses(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := client.New(e.Conn)
	closed := must(c.Queue("mail").NewProducer(client.ProducerOptions{}))
	ok(t, closed.Close(t.Context()))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	open := must(c.Queue("mail").NewProducer(client.ProducerOptions{}))
	for name, test := range map[string]struct {
		p        *client.Producer
		ctx      context.Context
		priority int64
		m        client.Message
		is       error
	}{
		"priority": {open, t.Context(), 1, client.Message{}, client.ErrBadRequest},
		"header":   {open, t.Context(), 0, client.Message{Headers: nats.Header{"a\nb": {""}}}, client.ErrBadRequest},
		"size":     {open, t.Context(), 0, client.Message{Value: make([]byte, 1<<20)}, client.ErrTooLarge},
		"context":  {open, ended, 0, client.Message{}, context.Canceled},
		"closed":   {closed, t.Context(), 0, client.Message{}, client.ErrProducerClosed},
	} {
		if f, err := test.p.PushAsync(test.ctx, test.priority, test.m); f != nil || !errors.Is(err, test.is) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// At most MaxItems items and MaxBytes bytes are under way, but for a larger item alone; there is room
// again when a push has ended.
func TestProducerRoom(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		for name, o := range map[string]client.ProducerOptions{"items": {MaxItems: 2}, "bytes": {MaxBytes: 250}} {
			e := testenv.New(t, testenv.Options{})
			arrived, pass := make(chan struct{}, 1), make(chan struct{})
			q := between(t, e, func(n int, forward func() *nats.Msg) *nats.Msg {
				if n == 0 {
					arrived <- struct{}{}
					<-pass
				}
				return forward()
			})
			waits := must(q.NewProducer(o))
			m := client.Message{Value: make([]byte, 100)}
			var futures []*client.PushFuture
			for range 2 {
				f := pushAsync(t, waits, 1, m)
				futures = append(futures, f)
			}
			<-arrived
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			failsWith(t, name+": a third one", context.DeadlineExceeded)(waits.PushAsync(ctx, 1, m))
			failsWith(t, name+": waited for the first", context.DeadlineExceeded)(futures[0].Wait(ctx))
			failsWith(t, name+": flushed", context.DeadlineExceeded)(nil, waits.Flush(ctx))
			cancel()
			third := make(chan error, 1)
			go func() {
				_, err := waits.PushAsync(t.Context(), 1, m)
				third <- err
			}()
			close(pass)
			ok(t, errors.Join(<-third, waits.Flush(t.Context())))
			pushAsync(t, waits, 1, client.Message{Value: make([]byte, 1000)})
			ok(t, waits.Close(t.Context()))
			if got := contents(t, e); len(got) != 4 {
				t.Errorf("%s: %d items in the queue", name, len(got))
			}
		}
	})
}

// An unknown outcome is settled by a second attempt if the item has a message id, and else told.
func TestProducerUnknown(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		for name, lose := range map[string]func(pass func() *nats.Msg){
			"reply lost": func(pass func() *nats.Msg) { pass() },
			"lost":       func(func() *nats.Msg) {},
		} {
			e := testenv.New(t, testenv.Options{})
			arrived, ready := make(chan struct{}), make(chan struct{})
			p := must(between(t, e, func(n int, pass func() *nats.Msg) *nats.Msg {
				if n == 0 { // so that the others are one batch
					close(arrived)
					<-ready
				}
				if n != 1 {
					return pass()
				}
				lose(pass)
				return nil
			}, client.WithTimeout(time.Second)).NewProducer(client.ProducerOptions{}))
			var futures []*client.PushFuture
			for i, options := range [][]client.PushOption{{client.MsgID("0")}, {client.MsgID("1")}, nil, {client.MsgID("3")}} {
				f := pushAsync(t, p, 1, client.Message{Value: fmt.Append(nil, i)}, options...)
				futures = append(futures, f)
				if i == 0 {
					<-arrived
				}
			}
			close(ready)
			ok(t, p.Close(t.Context()))
			for i, f := range futures {
				if _, err := f.Wait(t.Context()); (err == nil) != (i != 2) || err != nil && !errors.Is(err, client.ErrUnknownOutcome) {
					t.Errorf("%s: push %d: %v", name, i, err)
				}
			}
			want := []string{"0", "1", "2", "3"}
			if name == "lost" {
				want = slices.Delete(want, 2, 3)
			}
			if got := contents(t, e); !slices.Equal(got, want) {
				t.Errorf("%s: %q in the queue, want %q", name, got, want)
			}
		}
	})
}

// If an attempt may have counted, the outcome stays unknown, whatever later ones say.
func TestProducerStaysUnknown(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		e := testenv.New(t, testenv.Options{})
		p := must(between(t, e, func(n int, pass func() *nats.Msg) *nats.Msg {
			if n == 0 {
				pass()
				return nil
			}
			return refusal(subjects.CodeUnavailable)
		}, client.WithTimeout(500*time.Millisecond)).NewProducer(client.ProducerOptions{RetryFor: 1500 * time.Millisecond}))
		f := pushAsync(t, p, 1, client.Message{}, client.MsgID("a"))
		if _, err := f.Wait(t.Context()); !errors.Is(err, client.ErrUnknownOutcome) || !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("%v", err)
		}
	})
}

// What was not run is tried again, for RetryFor, and what will never work fails alone.
func TestProducerRetries(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		e := testenv.New(t, testenv.Options{})
		var refusals atomic.Int64
		refusals.Store(3)
		q := between(t, e, func(n int, pass func() *nats.Msg) *nats.Msg {
			if refusals.Add(-1) >= 0 {
				return refusal([]subjects.Code{subjects.CodeUnavailable, subjects.CodeOverloaded}[n%2])
			}
			return pass()
		})
		p := must(q.NewProducer(client.ProducerOptions{}))
		var futures []*client.PushFuture
		var want []string
		for i := range 200 {
			m := client.Message{Value: fmt.Appendf(nil, "%03d", i)}
			if i%50 == 7 {
				m.Headers = nats.Header{"Nats-Rollup": {"all"}}
			} else {
				want = append(want, string(m.Value))
			}
			f := pushAsync(t, p, 1, m)
			futures = append(futures, f)
		}
		ok(t, p.Flush(t.Context()))
		for i, f := range futures {
			if _, err := f.Wait(t.Context()); errors.Is(err, client.ErrBadRequest) != (i%50 == 7) || err != nil && i%50 != 7 {
				t.Errorf("push %d: %v", i, err)
			}
		}
		if got := contents(t, e); !slices.Equal(got, want) {
			t.Errorf("in the queue: %q", got)
		}
		refusals.Store(1 << 30)
		for name, p := range map[string]*client.Producer{
			"never":    must(q.NewProducer(client.ProducerOptions{RetryFor: -1})),
			"a moment": must(q.NewProducer(client.ProducerOptions{RetryFor: 100 * time.Millisecond})),
		} {
			f := pushAsync(t, p, 1, client.Message{})
			if _, err := f.Wait(t.Context()); !errors.Is(err, client.ErrUnavailable) && !errors.Is(err, client.ErrOverloaded) || errors.Is(err, client.ErrUnknownOutcome) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// A full queue takes as many as there is room for, and the others once there is.
func TestProducerFullQueue(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		e, q := newQueue(t)
		succeeds(t)(q.Configure(t.Context(), client.Settings{MaxItems: 5}))
		p := must(q.NewProducer(client.ProducerOptions{}))
		for i := range 8 {
			succeeds(t)(p.PushAsync(t.Context(), 1, client.Message{Value: fmt.Append(nil, i)}))
		}
		testenv.Eventually(t, func() error {
			if n, err := q.Len(t.Context()); n != 5 {
				return fmt.Errorf("%d items, %v", n, err)
			}
			return nil
		})
		items, err := q.PopMinBatch(t.Context(), 5) // and not those that take their place
		for i, item := range items {
			if string(item.Value) != fmt.Sprint(i) {
				t.Errorf("item %d is %s", i, item.Value)
			}
		}
		if len(items) != 5 || err != nil {
			t.Errorf("first %d items, %v", len(items), err)
		}
		ok(t, p.Close(t.Context()))
		if got := strings.Join(contents(t, e), ""); got != "567" {
			t.Errorf("then %s", got)
		}
	})
}

// However a producer ends, every future has an outcome, and the right one.
func TestProducerEnds(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	arrived := make(chan struct{}, 10)
	silent := func(int, func() *nats.Msg) *nats.Msg {
		arrived <- struct{}{}
		return nil
	}
	q := between(t, e, silent, client.WithTimeout(testenv.Patience))
	p := must(q.NewProducer(client.ProducerOptions{}))
	sent := pushAsync(t, p, 1, client.Message{}, client.MsgID("a"))
	<-arrived
	waiting := pushAsync(t, p, 1, client.Message{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	failsWith(t, "Close", context.Canceled)(nil, p.Close(ended))
	failsWith(t, "the one that was sent", client.ErrUnknownOutcome)(sent.Wait(t.Context()))
	if _, err := waiting.Wait(ended); !errors.Is(err, client.ErrNotSent) || errors.Is(err, client.ErrUnknownOutcome) {
		t.Errorf("the one that was not: %v", err)
	}
	nc := e.Connect()
	p = must(client.New(nc).PriorityQueue("jobs").NewProducer(client.ProducerOptions{}))
	nc.Close()
	f := pushAsync(t, p, 1, client.Message{})
	if _, err := f.Wait(t.Context()); !errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, client.ErrUnknownOutcome) {
		t.Errorf("without a connection: %v", err)
	}
}

// No bridge is a passing fault.
func TestProducerNoBridge(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		e := testenv.New(t, testenv.Options{Stopped: true})
		e.NATS.Start()
		e.Conn = e.Connect()
		q := client.New(e.Conn).PriorityQueue("jobs")
		at := must(q.NewProducer(client.ProducerOptions{RetryFor: -1}))
		f := pushAsync(t, at, 1, client.Message{})
		failsWith(t, "at once", client.ErrNoBridge)(f.Wait(t.Context()))
		f = pushAsync(t, must(q.NewProducer(client.ProducerOptions{})), 1, client.Message{})
		e.Bridge = e.StartBridge()
		succeeds(t)(f.Wait(t.Context()))
	})
}

// Many goroutines share a producer.
func TestProducerConcurrently(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	p := must(newClient(e.Conn).PriorityQueue("jobs").NewProducer(client.ProducerOptions{MaxItems: 10, MaxBytes: 200}))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 50 {
				f, err := p.PushAsync(t.Context(), 1, client.Message{Value: []byte("x")})
				if err == nil {
					_, err = f.Wait(t.Context())
				}
				if err = errors.Join(err, p.Flush(t.Context())); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	ok(t, p.Close(t.Context()))
	if got := contents(t, e); len(got) != 1000 {
		t.Errorf("%d items", len(got))
	}
}
