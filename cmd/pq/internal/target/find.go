package target

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/pqbridge/pqbridge/client"
)

// Place is a queue that a job was found in, and what the queue has of the job.
type Place struct {
	FIFO  bool
	Queue string
	Item  client.StoredItem
}

// searchers is how many queues Find asks at a time: a bridge answers 10,000 in seconds.
const searchers = 64

// Find looks for a job in queues, and stops at the first that has it, as an item or as a finished
// job. A dead letter is in a queue of its own, which has to be among them. get asks a queue for the
// one item. Find returns nil if none has it. Errors of single queues count only then: the first is
// returned.
func Find(
	within context.Context, queues []Place,
	get func(context.Context, Place) ([]client.StoredItem, error),
) (*Place, error) {
	ctx, stop := context.WithCancel(within)
	defer stop()
	var (
		mu      sync.Mutex
		found   *Place
		failure error
		group   errgroup.Group
	)

	group.SetLimit(searchers)
	for _, at := range queues {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			list, err := get(ctx, at)
			switch {
			case err == nil && len(list) != 1:
				err = client.ErrBadReply
			case err == nil:
				err = client.ItemResult{Failure: list[0].Failure}.Err()
			}

			mu.Lock()
			defer mu.Unlock()
			switch {
			case found != nil: // the others were told to stop
			case err == nil:
				at.Item = list[0]
				found = &at
				stop()
			case errors.Is(err, client.ErrBadRequest): // every queue would say so
				failure = err
				stop()
			case !errors.Is(err, client.ErrNotFound) && failure == nil:
				failure = err
			}
			return nil
		})
	}

	_ = group.Wait() // its functions return nil
	if found != nil {
		return found, nil
	}
	return nil, cmp.Or(failure, within.Err()) // without time, it has not asked all
}
