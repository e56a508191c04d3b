package dashboard

import (
	"context"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// newestJobs are the finished jobs whose durations a page sums up.
	newestJobs = 1000
	// durationsTime is how long it does so before it asks again.
	durationsTime = 10 * time.Second
)

// durations say how long the newest finished jobs of a queue took.
type durations struct {
	// Jobs is how many jobs that is: up to newestJobs, without any whose begin is not known.
	Jobs                 int64
	Median, P95, Longest time.Duration
}

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

// IsDone reports whether it lists finished jobs.
func (v *itemsView) IsDone() bool { return v.Filter.State == subjects.StateDone }

// IsDone reports whether it is a finished job.
func (r itemRow) IsDone() bool { return r.State == subjects.StateDone }

// IsLeased reports whether it lists leased items, which nothing can move.
func (v *itemsView) IsLeased() bool { return v.Filter.State == subjects.StateLeased }

// IsLeased reports whether it is leased.
func (r itemRow) IsLeased() bool { return r.State == subjects.StateLeased }

// Took is how long the last lease of a finished job was, nil if that is not known.
func (r itemRow) Took() *time.Duration { return target.Took(&r.StoredItem) }
