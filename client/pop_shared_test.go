package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// popping is a queue whose first two pops are held until release is called.
type popping struct {
	*workshop
	q       *client.PriorityQueue
	held    chan struct{} // lets go of one
	release func()        // lets go of all

	mu      sync.Mutex
	batches []int                     // of the requests after them
	answer  func(batch int) *nats.Msg // to these, nil for that of the bridge
	results map[string]int            // how many pops had that value, or error
	done    sync.WaitGroup
}

const popsHeld = 2

// newPopping has that many pops under way, all but the first two of which wait.
func newPopping(t *testing.T, pops int, slow time.Duration, items ...string) *popping {
	p := &popping{workshop: newWorkshop(t), results: map[string]int{}, held: make(chan struct{})}
	p.release = sync.OnceFunc(func() { close(p.held) })
	t.Cleanup(p.release)
	requests := 0
	p.q = p.relayed(func(m *nats.Msg) *nats.Msg {
		p.mu.Lock()
		requests++
		first, answer := requests <= popsHeld, p.answer
		o, err := subjects.ParsePopOptions(m.Data)
		if !first {
			p.batches = append(p.batches, o.Batch)
		}
		p.mu.Unlock()
		switch {
		case err != nil:
			t.Error(err)
		case first:
			<-p.held
		case answer != nil:
			return answer(o.Batch)
		}
		return nil
	})
	p.q.SetSlowPops(slow)
	p.push(items...)
	for i := range pops {
		p.pop(t.Context())
		want := max(i+1-popsHeld, 0)
		testenv.Eventually(t, func() error { // one after the other, so that it is known which are the first
			p.mu.Lock()
			defer p.mu.Unlock()
			if waiting, _ := p.q.WaitingPops(); waiting != want && slow == time.Hour || requests < min(i+1, popsHeld) {
				return fmt.Errorf("%d pops wait and %d requests are under way", waiting, requests)
			}
			return nil
		})
	}
	return p
}

// pop pops, and notes the result.
func (p *popping) pop(ctx context.Context) {
	p.done.Go(func() {
		item, err := p.q.PopMin(ctx)
		result := ""
		for _, known := range []error{client.ErrEmpty, client.ErrUnknownOutcome, client.ErrOverloaded, context.Canceled} {
			if errors.Is(err, known) {
				result = known.Error()
				break
			}
		}
		if err == nil {
			result = string(item.Value)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.results[result]++
	})
}

// check waits for all pops and compares their results, with numbers of those that had the same, and the sizes of requests.
func (p *popping) check(batches []int, want ...string) {
	p.Helper()
	p.release()
	p.done.Wait()
	var got []string
	for result, n := range p.results {
		got = append(got, fmt.Sprint(n, " ", result))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		p.Errorf("the pops return\n%q, want\n%q", got, want)
	}
	if !slices.Equal(p.batches, batches) {
		p.Errorf("the requests ask for %v items, want %v", p.batches, batches)
	}
	testenv.Eventually(p, func() error {
		if waiting, lines := p.q.WaitingPops(); waiting > 0 || lines > 0 {
			return fmt.Errorf("%d pops wait in %d lines", waiting, lines)
		}
		return nil
	})
}

// Pops that are called while two requests are under way share the next one.
func TestPopsShareRequests(t *testing.T) {
	p := newPopping(t, 6, time.Hour, "a", "b", "c", "d", "e", "f", "g")
	p.check([]int{4}, "1 a", "1 b", "1 c", "1 d", "1 e", "1 f")
}

// If there are fewer items than pops, the others ask again, and find the queue empty.
func TestSharedPopsOfFewItems(t *testing.T) {
	p := newPopping(t, 7, time.Hour, "a", "b", "c", "d")
	p.check([]int{5, 3}, "1 a", "1 b", "1 c", "1 d", "3 "+client.ErrEmpty.Error())
	p = newPopping(t, 5, time.Hour)
	p.check([]int{3}, "5 "+client.ErrEmpty.Error())
}

// What a request fails with is for all that share it.
func TestSharedPopsFail(t *testing.T) {
	p := newPopping(t, 5, time.Hour, "a", "b", "c", "d")
	p.answer = func(int) *nats.Msg { return refusal(subjects.CodeOverloaded) }
	p.check([]int{3}, "1 a", "1 b", "3 "+client.ErrOverloaded.Error())
}

// A pop that is given up in the line has popped nothing. The item of one that is given up later goes to another.
func TestSharedPopsAreGivenUp(t *testing.T) {
	p := newPopping(t, 4, time.Hour, "a", "b", "c", "d", "e")
	early, giveUpEarly := context.WithCancel(t.Context())
	late, giveUpLate := context.WithCancel(t.Context())
	p.pop(early)
	p.pop(late)
	testenv.Eventually(t, func() error {
		if waiting, _ := p.q.WaitingPops(); waiting != 4 {
			return fmt.Errorf("%d pops wait, want 4", waiting)
		}
		return nil
	})
	giveUpEarly()
	testenv.Eventually(t, func() error {
		if waiting, _ := p.q.WaitingPops(); waiting != 3 {
			return fmt.Errorf("%d pops wait, want 3", waiting)
		}
		return nil
	})
	p.answer = func(int) *nats.Msg {
		p.pop(t.Context())
		testenv.Eventually(t, func() error {
			if waiting, _ := p.q.WaitingPops(); waiting != 1 {
				return fmt.Errorf("%d pops wait, want 1", waiting)
			}
			return nil
		})
		giveUpLate()
		testenv.Eventually(t, func() error {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.results[client.ErrUnknownOutcome.Error()] == 0 {
				return errors.New("the pop is not given up")
			}
			return nil
		})
		return nil
	}
	p.held <- struct{}{}
	testenv.Eventually(t, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(p.results) != 6 {
			return fmt.Errorf("only these results: %v", p.results)
		}
		return nil
	})
	p.check([]int{3}, "1 a", "1 b", "1 c", "1 d", "1 e", "1 "+context.Canceled.Error(), "1 "+client.ErrUnknownOutcome.Error())
}

// A request without an answer holds up others for a moment only.
func TestSharedPopsOfABridgeThatIsGone(t *testing.T) {
	p := newPopping(t, 2, time.Millisecond, "a", "b", "c")
	for range 3 {
		p.pop(t.Context())
	}
	testenv.Eventually(t, func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		n := 0
		for value, times := range p.results {
			if len(value) == 1 && strings.Contains("abc", value) {
				n += times
			}
		}
		if n != 3 {
			return fmt.Errorf("%d items have come beside the requests without an answer", n)
		}
		return nil
	})
	p.release()
	p.done.Wait()
}

// Pops that get nothing of a slow request ask again, though no other request is under way by then.
func TestSharedPopsOfASlowRequest(t *testing.T) {
	p := newPopping(t, 5, 50*time.Millisecond, "a", "b", "c")
	p.answer = func(int) *nats.Msg {
		testenv.Eventually(t, func() error {
			if busy := p.q.BusyPops(); busy > 0 {
				return fmt.Errorf("%d requests are not slow yet", busy)
			}
			return nil
		})
		return nil
	}
	p.release()
	p.done.Wait()
	p.check(p.batches, "1 a", "1 b", "1 c", "2 "+client.ErrEmpty.Error())
}

// A pop without a deadline waits as long as the client says, though another one of its request waits longer.
func TestSharedPopsOfDifferentPatience(t *testing.T) {
	e := testenv.New(t, testenv.Options{Stopped: true})
	e.NATS.Start()
	silent := e.Connect()
	_, err := silent.SubscribeSync("pq.>")
	if err == nil {
		err = silent.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	q := client.New(e.Connect(), client.WithTimeout(50*time.Millisecond)).PriorityQueue("jobs")
	q.SetSlowPops(time.Millisecond)
	patient, giveUp := context.WithTimeout(t.Context(), time.Hour)
	defer giveUp()
	var patients, others sync.WaitGroup
	for range 20 {
		patients.Go(func() { _, _ = q.PopMin(patient) })
		others.Go(func() {
			if _, err := q.PopMin(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "waited 50ms") {
				t.Errorf("a pop that nobody answers returns %v", err)
			}
		})
	}
	others.Wait()
	if patient.Err() != nil {
		t.Error("the pops waited as long as others of their requests")
	}
	giveUp()
	patients.Wait()
}

// What no request could do is refused at once, with the same error as without sharing.
func TestSharedPopsOfUnusableClients(t *testing.T) {
	p := newPopping(t, 2, time.Hour)
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := p.q.PopMin(ended); !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnknownOutcome) {
		t.Errorf("a pop whose context has ended returns %v", err)
	}
	p.check(nil, "2 "+client.ErrEmpty.Error())
	q := client.New(p.e.Conn, client.WithTimeout(-1)).PriorityQueue("jobs")
	var done sync.WaitGroup
	for range 100 {
		done.Go(func() {
			if _, err := q.PopMin(t.Context()); !errors.Is(err, client.ErrBadRequest) {
				t.Errorf("a pop with a timeout that makes no sense returns %v", err)
			}
		})
	}
	done.Wait()
}
