package dashboard

import (
	"context"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
)

const (
	// newestJobs are the finished jobs whose durations a page sums up.
	newestJobs = 1000
	// durationsTime is how long it does so before it asks again.
	durationsTime = 10 * time.Second
)

// durationsOf returns the durations of a queue, nil if they are not known.
func (b *Dashboard) durationsOf(ctx context.Context, q queueRef) *durations {
	d, _ := b.durations.get(ctx, q, func() (*durations, error) {
		var all []time.Duration
		left := int64(newestJobs)
		for page, err := range b.gateway.scan(ctx, q, client.ItemsOptions{State: client.Done}) {
			if err != nil {
				return nil, err
			}
			for i := range page.Items {
				if took := target.Took(&page.Items[i]); took != nil {
					all = append(all, *took)
				}
			}
			if left -= page.Scanned; left <= 0 {
				break
			}
		}
		return sumUp(all[:min(len(all), newestJobs)]), nil
	})
	return d // the list itself says what is wrong
}

// sumUp sums up durations, and sorts them.
func sumUp(all []time.Duration) *durations {
	slices.Sort(all)
	n := len(all)
	if n == 0 {
		return &durations{}
	}
	return &durations{
		Jobs: int64(n), Median: all[(n-1)/2], P95: all[(n*95+99)/100-1], Longest: all[n-1],
	}
}

// findSlowest returns a search for the slowest of the newest finished jobs, the slowest first.
func (b *Dashboard) findSlowest(ctx context.Context, q queueRef) (found *search, err error) {
	err = b.searches.during(func() error {
		pages := b.gateway.scan(ctx, q, client.ItemsOptions{State: client.Done})
		list, err := target.Slowest(pages, dropTexts)
		if err != nil {
			return err
		}

		ids := make([]string, len(list))
		for i := range list {
			ids[i] = target.Ref(&list[i])
		}
		found = b.searches.addFound(q, slowest, ids)
		return nil
	})
	return found, err
}

// slowest is the filter of the search of findSlowest.
var slowest = itemsFilter{State: client.Done, Slowest: true}

// dropTexts drops what can be large of the items of a page.
func dropTexts(page client.ItemsPage) {
	for i := range page.Items {
		page.Items[i].Headers, page.Items[i].Holder, page.Items[i].Reason = nil, "", ""
	}
}
