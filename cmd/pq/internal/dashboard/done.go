package dashboard

import (
	"context"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
)

const (
	// durationsTime is how long a page sums up the durations of finished jobs before it asks again.
	durationsTime = 10 * time.Second
	// slowRows are shown of the holders and types that are slowest, and of other short tables.
	slowRows = 10
)

// durationsOf returns the durations of a queue, nil if they are not known.
func (b *Dashboard) durationsOf(ctx context.Context, q queueRef) *durations {
	d, _ := b.durations.get(ctx, q, func() (*durations, error) {
		list, err := target.Newest(b.gateway.scan(ctx, q, client.ItemsOptions{State: client.Done}))
		if err != nil {
			return nil, err
		}
		d := durations{By: map[string][]target.Pace{}}
		all := target.PacesBy(list, func(*client.StoredItem) string { return "" })
		if len(all) > 0 {
			d.Pace = all[0]
		}
		for group, name := range target.Groups {
			if group != "type" || !b.HideValues {
				paces := target.PacesBy(list, name)
				d.By[group] = paces[:min(len(paces), slowRows)]
			}
		}
		return &d, nil
	})
	return d // the list itself says what is wrong
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
