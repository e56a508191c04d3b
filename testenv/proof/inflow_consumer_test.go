package proof_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

// origins records which item each message of a stream, and each time of a schedule, became.
type origins struct {
	mu    sync.Mutex
	items map[string]string // ids, by what the headers say about where the item comes from
	// Ids of items whose acknowledgement was confirmed, and how many were before.
	settled map[string]int
}

func newOrigins() *origins {
	return &origins{
		items:   map[string]string{},
		settled: map[string]int{},
	}
}

// originOf is where the headers of an item say that it comes from: a stream and a sequence, or a
// schedule and a time.
func originOf(headers map[string][]string) string {
	for _, names := range [][]string{{"Pq-Source"}, {"Pq-Schedule", "Pq-Scheduled-At"}} {
		var values []string
		for _, name := range names {
			values = append(values, headers[name]...)
		}

		if len(values) == len(names) {
			return strings.Join(values, " ")
		}
	}
	return fmt.Sprint("unknown: ", headers)
}

// confirmed returns how many acknowledgements were confirmed so far.
func (o *origins) confirmed() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.settled)
}

// saw records that an item is there. It must not be if it was among the first confirmed
// acknowledgements.
func (o *origins) saw(headers map[string][]string, id string, confirmed int) error {
	origin := originOf(headers)
	o.mu.Lock()
	defer o.mu.Unlock()

	if before, ok := o.items[origin]; ok && before != id {
		return fmt.Errorf("%s is two items: %s and %s", origin, before, id)
	}

	o.items[origin] = id
	if n, ok := o.settled[id]; ok && n < confirmed {
		return fmt.Errorf("%s, item %s, is there after its acknowledgement", origin, id)
	}

	return nil
}

// settle records that the acknowledgement of an item was confirmed.
func (o *origins) settle(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()

	if _, ok := o.settled[id]; !ok {
		o.settled[id] = len(o.settled)
	}
}

// inflowLease is short, so that many leases end before their acknowledgements.
const inflowLease = 300 * time.Millisecond

// consume leases items, at times waiting for them, and acknowledges most.
func (f *inflow) consume(c *burster, queue *client.Queue, random *rand.Rand) {
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()

	for {
		select {
		case <-f.closing:
			return
		case <-pause.C:
		}

		confirmed := f.confirmed()
		_ = c.request(answerTime/2, func(ctx context.Context) error { // much is broken
			_, _ = queue.Len(ctx) // at which what is due there fires
			options := []client.LeaseOption{client.AckWait(inflowLease)}

			if random.IntN(2) == 0 {
				options = append(options,
					client.Expires(time.Duration(1+random.IntN(100))*time.Millisecond))
			}

			list, err := queue.LeaseBatch(ctx, 1+random.IntN(10), options...)
			for _, d := range list {
				if err := f.saw(d.Headers, d.ID, confirmed); err != nil {
					f.t.Errorf("queue %s: %v", queue.Name(), err)
				}
			}

			if list = list[:len(list)-random.IntN(1+len(list)/2)]; len(list) == 0 {
				return err
			}

			for _, d := range list {
				d.SetResult([]byte(originOf(d.Headers)), "text/plain")
			}
			errs := c.client.AckAll(ctx, list...)
			for i, d := range list {
				if errs == nil || errs[i] == nil {
					f.settle(d.ID)
				}
			}

			return err
		})
	}
}

// returned waits until no item of a queue is leased.
func (f *inflow) returned(queue *client.Queue) {
	f.clients[0].insist("waiting for leases", func(ctx context.Context) error {
		info, err := queue.Info(ctx)
		if err == nil && info.Leased > 0 {
			err = fmt.Errorf("%d items of queue %s are leased", info.Leased, queue.Name())
		}

		return err
	})
}
