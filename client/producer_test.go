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

// What one goroutine pushes is served in its order, and each future has the ack of its push. The
// caller may reuse the value, and close the producer twice.
func TestProducer(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := newClient(e.Conn)
	jobs, mail := c.PriorityQueue("jobs"), c.FIFOQueue("mail")
	p := must(jobs.NewProducer(client.ProducerOptions{MaxItems: 100}))
	m := must(mail.NewProducer(client.ProducerOptions{MaxBytes: 500}))
	var futures []*client.PushFuture
	value := []byte("00000") // used for all pushes

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
		item, popErr := jobs.Pop(t.Context())
		if err != nil || popErr != nil || item.ID != ack.ID || string(item.Value) != want ||
			item.Priority != 7 || ack.Priority != 7 || ack.Queue != "jobs" {
			t.Fatalf("push %d: %+v, %v; popped %+v, %v", i, ack, err, item, popErr)
		}

		if item, err := mail.Pop(t.Context()); err != nil || string(item.Value) != want {
			t.Fatalf("popped %+v, %v", item, err)
		}
	}

	ok(t, errors.Join(p.Flush(t.Context()), m.Flush(t.Context())))
	ok(t, errors.Join(p.Close(t.Context()), p.Close(t.Context()))) // the second does nothing
}

// PushAsync refuses what can never be pushed, an ended context and a closed producer, without a
// future.
func TestProducerRefuses(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := client.New(e.Conn)
	closed := must(c.FIFOQueue("mail").NewProducer(client.ProducerOptions{}))
	ok(t, closed.Close(t.Context()))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	open := must(c.FIFOQueue("mail").NewProducer(client.ProducerOptions{}))
	twoLines := client.Message{Headers: nats.Header{"a\nb": {""}}}
	large := client.Message{Value: make([]byte, 1<<20)}

	for name, test := range map[string]struct {
		p        *client.Producer
		ctx      context.Context
		priority int64
		m        client.Message
		is       error
	}{
		"priority": {open, t.Context(), 1, client.Message{}, client.ErrBadRequest},
		"header":   {open, t.Context(), 0, twoLines, client.ErrBadRequest},
		"size":     {open, t.Context(), 0, large, client.ErrTooLarge},
		"context":  {open, ended, 0, client.Message{}, context.Canceled},
		"closed":   {closed, t.Context(), 0, client.Message{}, client.ErrProducerClosed},
	} {
		f, err := test.p.PushAsync(test.ctx, test.priority, test.m)

		if f != nil || !errors.Is(err, test.is) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// At most MaxItems items and MaxBytes bytes are under way, and PushAsync waits for room until a
// push has ended. A larger item is pushed alone.
func TestProducerRoom(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		for name, o := range map[string]client.ProducerOptions{
			"items": {MaxItems: 2},
			"bytes": {MaxBytes: 250}, // has room for two items of 100 bytes
		} {
			e := testenv.New(t, testenv.Options{})
			arrived, pass := make(chan struct{}, 1), make(chan struct{})

			q := intercept(t, e, func(n int, forward func() *nats.Msg) *nats.Msg {
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
				futures = append(futures, pushAsync(t, waits, 1, m))
			}
			<-arrived

			// There is no room while the two are under way.
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			tooLate := failsWith(t, name, context.DeadlineExceeded)
			tooLate(waits.PushAsync(ctx, 1, m))
			tooLate(futures[0].Wait(ctx))
			tooLate(nil, waits.Flush(ctx))
			cancel()

			third := make(chan error, 1)

			go func() {
				_, err := waits.PushAsync(t.Context(), 1, m)
				third <- err
			}()

			close(pass)
			ok(t, errors.Join(<-third, waits.Flush(t.Context())))

			// An item that is larger than MaxBytes.
			pushAsync(t, waits, 1, client.Message{Value: make([]byte, 1000)})
			ok(t, waits.Close(t.Context()))

			if got := popAll(t, e); len(got) != 4 {
				t.Errorf("%s: %d items in the queue", name, len(got))
			}
		}
	})
}

// A push with an unknown outcome is tried again if it has a message id, and is pushed once. Without
// one its future returns ErrUnknownOutcome.
func TestProducerUnknown(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		for name, lose := range map[string]func(pass func() *nats.Msg){
			"reply lost":   func(pass func() *nats.Msg) { pass() },
			"request lost": func(func() *nats.Msg) {},
		} {
			e := testenv.New(t, testenv.Options{})
			arrived, ready := make(chan struct{}), make(chan struct{})

			q := intercept(t, e, func(n int, pass func() *nats.Msg) *nats.Msg {
				if n == 0 { // so that the others are one batch
					close(arrived)
					<-ready
				}

				if n != 1 {
					return pass()
				}

				lose(pass)
				return nil
			}, client.WithTimeout(time.Second))
			p := must(q.NewProducer(client.ProducerOptions{}))

			// Push 2 has no message id.
			var futures []*client.PushFuture
			for i, options := range [][]client.PushOption{
				{client.MsgID("0")}, {client.MsgID("1")}, nil, {client.MsgID("3")},
			} {
				f := pushAsync(t, p, 1, client.Message{Value: fmt.Append(nil, i)}, options...)
				futures = append(futures, f)

				if i == 0 {
					<-arrived
				}
			}

			close(ready)
			ok(t, p.Close(t.Context()))

			for i, f := range futures {
				if _, err := f.Wait(t.Context()); (err == nil) != (i != 2) ||
					err != nil && !errors.Is(err, client.ErrUnknownOutcome) {
					t.Errorf("%s: push %d: %v", name, i, err)
				}
			}

			want := []string{"0", "1", "2", "3"}
			if name == "request lost" {
				want = slices.Delete(want, 2, 3)
			}
			if got := popAll(t, e); !slices.Equal(got, want) {
				t.Errorf("%s: %q in the queue, want %q", name, got, want)
			}
		}
	})
}

// If an attempt may have counted, the outcome stays unknown, even if later ones were not run.
func TestProducerStaysUnknown(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		e := testenv.New(t, testenv.Options{})
		q := intercept(t, e, func(n int, pass func() *nats.Msg) *nats.Msg {
			if n == 0 {
				pass()
				return nil
			}
			return errorReply(subjects.CodeUnavailable)
		}, client.WithTimeout(500*time.Millisecond))
		p := must(q.NewProducer(client.ProducerOptions{RetryFor: 1500 * time.Millisecond}))

		_, err := pushAsync(t, p, 1, client.Message{}, client.MsgID("a")).Wait(t.Context())

		if !errors.Is(err, client.ErrUnknownOutcome) || !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("%v", err)
		}
	})
}

// Nor does it become known when the last attempt is not sent, because the connection is closed.
func TestProducerStaysUnknownWhenClosed(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		const timeout = time.Second
		e := testenv.New(t, testenv.Options{})
		silent := func(int, func() *nats.Msg) *nats.Msg { return nil }
		q := intercept(t, e, silent, client.WithTimeout(timeout))
		p := must(q.NewProducer(client.ProducerOptions{}))
		f := pushAsync(t, p, 1, client.Message{}, client.MsgID("a"))

		time.Sleep(timeout + time.Millisecond) // it waits to try again
		e.Conn.Close()

		if _, err := f.Wait(t.Context()); !errors.Is(err, client.ErrUnknownOutcome) ||
			!errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, client.ErrNotSent) {
			t.Errorf("not sent at last: %v", err)
		}
	})
}

// A push that was not run is retried for RetryFor, and then fails with the bridge's error. An item
// that can never be pushed fails alone.
func TestProducerRetries(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		e := testenv.New(t, testenv.Options{})
		var refusals atomic.Int64
		refusals.Store(3)

		codes := []subjects.Code{subjects.CodeUnavailable, subjects.CodeOverloaded}
		q := intercept(t, e, func(n int, pass func() *nats.Msg) *nats.Msg {
			if refusals.Add(-1) >= 0 {
				return errorReply(codes[n%2])
			}
			return pass()
		})

		p := must(q.NewProducer(client.ProducerOptions{}))
		var futures []*client.PushFuture
		var want []string

		isBad := func(i int) bool { return i%50 == 7 } // four of the items

		for i := range 200 {
			m := client.Message{Value: fmt.Appendf(nil, "%03d", i)}
			if isBad(i) {
				m.Headers = nats.Header{"Nats-Rollup": {"all"}}
			} else {
				want = append(want, string(m.Value))
			}

			futures = append(futures, pushAsync(t, p, 1, m))
		}

		ok(t, p.Flush(t.Context()))

		for i, f := range futures {
			_, err := f.Wait(t.Context())
			bad := isBad(i)
			if errors.Is(err, client.ErrBadRequest) != bad || !bad && err != nil {
				t.Errorf("push %d: %v", i, err)
			}
		}
		if got := popAll(t, e); !slices.Equal(got, want) {
			t.Errorf("in the queue: %q", got)
		}

		// The bridge refuses all from now on.
		refusals.Store(1 << 30)
		for _, retryFor := range []time.Duration{-1, 100 * time.Millisecond} { // -1 is no retry
			p := must(q.NewProducer(client.ProducerOptions{RetryFor: retryFor}))

			_, err := pushAsync(t, p, 1, client.Message{}).Wait(t.Context())

			if !errors.Is(err, client.ErrUnavailable) && !errors.Is(err, client.ErrOverloaded) ||
				errors.Is(err, client.ErrUnknownOutcome) {
				t.Errorf("RetryFor %v: %v", retryFor, err)
			}
		}
	})
}

// A full queue takes as many items as there is room for, and the others, in order, once there is.
func TestProducerFullQueue(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		const maxItems, pushes = 5, 8
		e, q := newQueue(t)
		succeeds(t)(q.Configure(t.Context(), client.Settings{MaxItems: maxItems}))
		p := must(q.NewProducer(client.ProducerOptions{}))

		for i := range pushes {
			succeeds(t)(p.PushAsync(t.Context(), 1, client.Message{Value: fmt.Append(nil, i)}))
		}
		testenv.Eventually(t, func() error {
			if n, err := q.Len(t.Context()); n != maxItems {
				return fmt.Errorf("%d items, %v", n, err)
			}
			return nil
		})

		items, err := q.PopBatch(t.Context(), maxItems) // without those that take their place
		for i, item := range items {
			if string(item.Value) != fmt.Sprint(i) {
				t.Errorf("item %d is %s", i, item.Value)
			}
		}
		if len(items) != maxItems || err != nil {
			t.Errorf("first %d items, %v", len(items), err)
		}

		ok(t, p.Close(t.Context()))
		if got := strings.Join(popAll(t, e), ""); got != "567" {
			t.Errorf("then %s", got)
		}
	})
}

// An item that is larger than its queue may be fails alone, at once, and the others are pushed.
func TestProducerItemLargerThanTheQueue(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		e, q := newQueue(t)
		succeeds(t)(q.Configure(t.Context(), client.Settings{MaxBytes: 100}))
		p := must(q.NewProducer(client.ProducerOptions{}))
		began := time.Now()
		var pushes []*client.PushFuture

		for _, value := range []string{"a", "b", strings.Repeat("x", 101), "c"} {
			pushes = append(pushes, pushAsync(t, p, 1, client.Message{Value: []byte(value)}))
		}

		ok(t, p.Close(t.Context()))

		for i, push := range pushes {
			_, err := push.Wait(t.Context())
			if want := i == 2; errors.Is(err, client.ErrTooLarge) != want || err == nil == want {
				t.Errorf("item %d: %v", i, err)
			}
		}
		if got := strings.Join(popAll(t, e), ""); got != "abc" {
			t.Errorf("in the queue: %s", got)
		}

		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// When a producer is closed without time, a push that was sent has an unknown outcome, and one that
// was not says so. A push over a closed connection fails, and its outcome is known.
func TestProducerEnds(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	arrived := make(chan struct{}, 10)

	silent := func(int, func() *nats.Msg) *nats.Msg {
		arrived <- struct{}{}
		return nil
	}

	q := intercept(t, e, silent, client.WithTimeout(testenv.Patience))
	p := must(q.NewProducer(client.ProducerOptions{}))
	sent := pushAsync(t, p, 1, client.Message{}, client.MsgID("a"))
	<-arrived
	waiting := pushAsync(t, p, 1, client.Message{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()

	failsWith(t, "Close", context.Canceled)(nil, p.Close(ended))
	failsWith(t, "the push that was sent", client.ErrUnknownOutcome)(sent.Wait(t.Context()))
	if _, err := waiting.Wait(ended); !errors.Is(err, client.ErrNotSent) ||
		errors.Is(err, client.ErrUnknownOutcome) {
		t.Errorf("the push that was not sent: %v", err)
	}

	nc := e.Connect()
	p = must(client.New(nc).PriorityQueue("jobs").NewProducer(client.ProducerOptions{}))
	nc.Close()

	f := pushAsync(t, p, 1, client.Message{})
	if _, err := f.Wait(t.Context()); !errors.Is(err, nats.ErrConnectionClosed) ||
		errors.Is(err, client.ErrUnknownOutcome) {
		t.Errorf("without a connection: %v", err)
	}
}

// While there is no bridge, a push is retried until there is one, or fails at once without retries.
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

// When many goroutines share a producer with little room, every push succeeds once.
func TestProducerConcurrently(t *testing.T) {
	const goroutines, pushes = 20, 50
	e := testenv.New(t, testenv.Options{})
	q := newClient(e.Conn).PriorityQueue("jobs")
	p := must(q.NewProducer(client.ProducerOptions{MaxItems: 10, MaxBytes: 200}))
	var all sync.WaitGroup

	for range goroutines {
		all.Go(func() {
			for range pushes {
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
	if got := popAll(t, e); len(got) != goroutines*pushes {
		t.Errorf("%d items", len(got))
	}
}
