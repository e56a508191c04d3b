package target

import (
	"context"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// Forever is until when a queue is paused that has to be resumed.
var Forever = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// List returns all queues of a kind. send makes each request.
func List(
	c *client.Client, fifo bool, send func(request func(context.Context) error) error,
) (all []subjects.QueueCounts, err error) {
	list := c.ListPriorityQueues
	if fifo {
		list = c.ListQueues
	}

	for after := new(string); after != nil; {
		var page client.QueueList
		err := send(func(ctx context.Context) (err error) {
			page, err = list(ctx, *after, 0)
			return err
		})
		if err != nil {
			return nil, err
		}
		all = append(all, page.Queues...)
		after = page.Next
	}

	return all, nil
}

// Pages calls do with the items of a queue that ask returns, page by page, until there are no more
// or do has enough. The items after the one that it returns were not looked at.
func Pages(
	o client.ItemsOptions, ask func(client.ItemsOptions) (client.ItemsPage, error),
	do func(*client.ItemsPage) (more bool, err error),
) (after string, err error) {
	for {
		page, err := ask(o)
		if err != nil {
			return o.After, err
		}
		more, err := do(&page)
		switch {
		case err != nil:
			return o.After, err
		case page.Next == nil:
			return "", nil
		}
		o.After = *page.Next
		if !more || page.Scanned <= 0 { // which no bridge says
			return o.After, nil
		}
	}
}

// ByIDs calls do with ids, as many at a time as the reply has room for in a message. do returns
// those that have to be asked for again.
func ByIDs(ids []string, maxPayload int64, do func([]string) (again []string, err error)) error {
	most := subjects.MaxItems
	for most > 1 && int64(subjects.MaxItemResults(most)) > maxPayload {
		most /= 2
	}

	for len(ids) > 0 {
		n := min(len(ids), most)
		again, err := do(ids[:n])
		if err != nil {
			return err
		}
		ids = append(again, ids[n:]...)
	}

	return nil
}

// WithoutRoom splits off the ids of the items for which the reply had no room beside the others.
func WithoutRoom(results []client.ItemResult) (list []client.ItemResult, again []string) {
	for i, r := range results {
		if i > 0 && r.Code == subjects.CodeTooLarge {
			again = append(again, r.ID)
		} else {
			list = append(list, r)
		}
	}
	return list, again
}
