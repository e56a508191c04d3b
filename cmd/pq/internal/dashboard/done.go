package dashboard

import (
	"context"
	"net/http"
	"slices"
	"strings"
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

// openItem leads to the page of a job by its id.
func (b *Dashboard) openItem(w http.ResponseWriter, r *http.Request, q queueRef) {
	id := strings.TrimSpace(r.URL.Query().Get("id"))
	http.Redirect(w, r, q.Item(id), http.StatusSeeOther)
}

// IsDone reports whether it lists finished jobs.
func (v *itemsView) IsDone() bool { return v.Filter.State == subjects.StateDone }

// IsDone reports whether it is a finished job.
func (r itemRow) IsDone() bool { return r.State == subjects.StateDone }

// Took is how long the last lease of a finished job was, nil if that is not known.
func (r itemRow) Took() *time.Duration { return target.Took(&r.StoredItem) }
