package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// Whatever becomes of pops that share requests, each item is popped once, or lost to a call that says that its outcome is
// unknown. None of them waits longer than its context.
func TestSharedPopsAtRandom(t *testing.T) {
	seed := rand.Uint64()
	defer func() {
		if t.Failed() {
			t.Logf("seed %d, which decides what is done, not how goroutines take turns", seed)
		}
	}()
	const items, poppers = 2000, 40
	s := newWorkshop(t)
	var pushes []client.PushItem
	for i := range items {
		value := fmt.Sprint(i)
		if i%100 == 0 {
			value += strings.Repeat(" ", 200<<10) // larger than a message with several
		}
		pushes = append(pushes, client.PushItem{Priority: int64(i % 10), Message: client.Message{Value: []byte(value)}})
	}
	if _, err := s.jobs.PushMany(t.Context(), pushes); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	pick := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	var slow atomic.Int32
	q := s.relayed(func(m *nats.Msg) *nats.Msg {
		switch pick(20) {
		case 0:
			return refusal(subjects.CodeOverloaded)
		case 1: // as an earlier bridge
			if o, err := subjects.ParsePopOptions(m.Data); err != nil || o.Frames {
				return refusal(subjects.CodeBadRequest)
			}
		case 2, 3:
			slow.Add(1)
			pause(pick(20))
			slow.Add(-1)
		}
		return nil
	}, client.WithTimeout(testenv.Patience))
	q.SetSlowPops(5 * time.Millisecond)

	popped := make([]atomic.Int32, items)
	var unknown atomic.Int32
	var done sync.WaitGroup
	for n := range poppers {
		ends := []func(context.Context, ...client.PopOption) (*client.Item, error){q.PopMin, q.PopMax}
		random := rand.New(rand.NewPCG(seed, uint64(n+1)))
		done.Go(func() {
			for {
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if random.IntN(3) == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(8000))*time.Microsecond)
				}
				item, err := ends[random.IntN(4)/3](ctx)
				over := ctx.Err() != nil
				cancel()
				switch {
				case err == nil:
					var i int
					if _, err := fmt.Sscan(string(item.Value), &i); err != nil {
						t.Errorf("an item %.20q: %v", item.Value, err)
						return
					}
					popped[i].Add(1)
				case errors.Is(err, client.ErrEmpty):
					return
				case errors.Is(err, client.ErrUnknownOutcome):
					unknown.Add(1)
					fallthrough
				case errors.Is(err, context.DeadlineExceeded):
					if !over {
						t.Errorf("a pop returns before its context ends: %v", err)
					}
				case !errors.Is(err, client.ErrOverloaded):
					t.Error(err)
					return
				}
			}
		})
	}
	done.Wait()
	testenv.Eventually(t, func() error { // requests whose calls were given up have an answer, too
		if waiting, lines := q.WaitingPops(); waiting > 0 || lines > 0 || slow.Load() > 0 {
			return fmt.Errorf("%d pops wait in %d lines, and %d requests are slow", waiting, lines, slow.Load())
		}
		return nil
	})
	if n, err := s.jobs.Len(t.Context()); n != 0 || err != nil {
		t.Errorf("%d items are left, and %v", n, err)
	}
	var lost int32
	for i := range popped {
		switch n := popped[i].Load(); n {
		case 0:
			lost++
		case 1:
		default:
			t.Errorf("item %d was popped %d times", i, n)
		}
	}
	if lost > unknown.Load() {
		t.Errorf("%d items are lost, and the outcome of %d pops is unknown", lost, unknown.Load())
	}
	t.Logf("%d of %d items lost, %d pops of unknown outcome", lost, items, unknown.Load())
}

// pause waits for that many milliseconds, as a slow bridge does.
func pause(ms int) { <-time.After(time.Duration(ms) * time.Millisecond) }
