// Package target has what the commands of pq and its dashboard do with queues of either kind, in
// several requests: lists of queues, pages of items, causes of dead letters.
package target

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// Forever is until when a queue is paused that has to be resumed.
var Forever = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// Queue returns the queue of that kind and name.
func Queue(c *client.Client, fifo bool, name string) *client.Queue {
	if fifo {
		return c.FIFOQueue(name)
	}
	return c.PriorityQueue(name)
}

// List returns the queues of a kind, the first ones once there are most. send makes each request.
func List(
	c *client.Client, fifo bool, most int, send func(request func(context.Context) error) error,
) (all []subjects.QueueCounts, err error) {
	list := c.ListPriorityQueues
	if fifo {
		list = c.ListFIFOQueues
	}

	for after := new(string); after != nil && len(all) < most; {
		var page subjects.QueueList
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

// Pages yields the items of a queue page by page, as ask returns them. An error is the last.
func Pages(
	ctx context.Context, o client.ItemsOptions,
	ask func(context.Context, client.ItemsOptions) (client.ItemsPage, error),
) iter.Seq2[client.ItemsPage, error] {
	return func(yield func(client.ItemsPage, error) bool) {
		for {
			page, err := ask(ctx, o)
			isLast := err != nil || page.Next == nil || page.Scanned <= 0 // which no bridge says
			if !yield(page, err) || isLast {
				return
			}
			o.After = *page.Next
		}
	}
}

// ByIDs calls do with ids, as many at a time as the reply has room for in a message. do returns ids
// that have to be asked for again. A malformed id fails a whole request before anything is done. To
// find it, and not fail the others with it, ByIDs then makes smaller requests.
func ByIDs(ids []string, maxPayload int64, do func([]string) (again []string, err error)) error {
	most := subjects.MaxItems
	for most > 1 && int64(subjects.MaxItemResults(most)) > maxPayload {
		most /= 2
	}

	for size := most; len(ids) > 0; {
		n := min(len(ids), size)
		again, err := do(ids[:n])
		if n > 1 && errors.Is(err, client.ErrBadRequest) {
			size = n / 2
			continue
		}
		if err != nil {
			return err
		}
		size = min(2*n, most)
		ids = append(again, ids[n:]...)
	}

	return nil
}

// refSeparator is in no id.
const refSeparator = "@"

// Ref names an item of a page for a later request: the id of its job and, if that is another, its
// place.
func Ref(it *client.StoredItem) string {
	return strings.TrimSuffix(it.ID+refSeparator+it.Place, refSeparator)
}

// Named returns the ids in refs, or the places.
func Named(refs []string, byPlace bool) []string {
	names := make([]string, len(refs))
	for i, ref := range refs {
		id, place, _ := strings.Cut(ref, refSeparator)
		if names[i] = cmp.Or(id, place); byPlace {
			names[i] = cmp.Or(place, id)
		}
	}
	return names
}

// WithoutRoom splits off the names of the items for which the reply had no room beside the others.
func WithoutRoom(results []client.ItemResult) (list []client.ItemResult, again []string) {
	for i, r := range results {
		if i > 0 && r.Reason == subjects.ReasonRoom {
			again = append(again, cmp.Or(r.ID, r.Place))
		} else {
			list = append(list, r)
		}
	}
	return list, again
}

// Count returns how many items of a queue are in a state, or with "" in any but Done.
func Count(info *client.QueueInfo, state client.State) int64 {
	switch state {
	case client.Ready:
		return info.Ready
	case client.Leased:
		return info.Leased
	case client.Delayed:
		return info.Delayed
	case client.Done:
		return info.Finished
	}
	return info.Ready + info.Leased + info.Delayed
}

// Took returns how long the last lease of a finished job was, nil if that is not known.
func Took(it *client.StoredItem) *time.Duration {
	if it.Done == nil || it.LeasedAt == nil {
		return nil
	}
	took := it.FinishedAt.Sub(*it.LeasedAt)
	return &took
}

// maxSlowest is how many finished jobs Slowest looks at.
const maxSlowest = 10_000

// Slowest returns the newest of pages of finished jobs, up to 10,000, the one that took longest
// first. It leaves out jobs of which that is not known. looked is called with each page, and may
// drop what nobody needs of its items.
func Slowest(
	pages iter.Seq2[client.ItemsPage, error], looked func(client.ItemsPage),
) (list []client.StoredItem, err error) {
	scanned := int64(0)
	for page, err := range pages {
		if err != nil {
			return nil, err
		}
		looked(page)
		for i := range page.Items {
			if Took(&page.Items[i]) != nil {
				list = append(list, page.Items[i])
			}
		}
		if scanned += page.Scanned; scanned >= maxSlowest {
			break
		}
	}

	slices.SortStableFunc(list, func(a, b client.StoredItem) int {
		return cmp.Compare(*Took(&b), *Took(&a))
	})
	return list, nil
}
