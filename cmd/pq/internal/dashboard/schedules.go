package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
)

const (
	// maxSchedules are kept of all queues. askedAtOnce queues are asked at a time.
	maxSchedules = 10_000
	askedAtOnce  = 8
)

// Page "schedules".
type schedulesView struct {
	Count int
	Rows  []scheduleRow // at most 100 of Count, those that fire next first
	Pager pager
	// More says that there are more than are kept, of queues that were not asked.
	More bool
	// Asked of Queues queues have said their schedules, so far while it is Running.
	Asked, Queues int64
	// Denied says why some queues cannot be asked. CanAdd offers to add a schedule.
	Denied string
	CanAdd bool
	scanState
}

// scheduleRow is a schedule of a queue, whose items wait if QueuePaused. It has no value and
// headers.
type scheduleRow struct {
	Queue       queueRef
	QueuePaused bool
	Can         can
	*client.ScheduleRecord
}

// byNext orders schedules by when they fire next. Schedules that do not fire come last.
func byNext(a, b scheduleRow) int {
	return cmp.Or(
		cmp.Or(a.Next, target.Forever).Compare(cmp.Or(b.Next, target.Forever)),
		strings.Compare(a.Queue.Name, b.Queue.Name), strings.Compare(a.ID, b.ID),
	)
}

// Path is the address of its page.
func (r scheduleRow) Path() string {
	query := url.Values{"kind": {r.Queue.Kind}, "queue": {r.Queue.Name}, "id": {r.ID}}
	return "/schedule?" + query.Encode()
}

// listSchedules is the scan of the schedules of all queues.
func (b *Dashboard) listSchedules(
	ctx context.Context, show func(schedulesView),
) (v schedulesView, err error) {
	if err := b.monitor.awaitList(ctx); err != nil {
		return v, err
	}

	queues, _, err := b.monitor.all()
	v.Queues, v.Denied = int64(len(queues)), deniedBy(err)

	var mu sync.Mutex
	var asked errgroup.Group
	asked.SetLimit(askedAtOnce)
	for _, q := range queues {
		asked.Go(func() error {
			note := func(page []*client.ScheduleRecord) (more bool) {
				mu.Lock()
				defer mu.Unlock()
				room := maxSchedules - len(v.Rows)
				v.More = v.More || len(page) > room
				v.Rows = appendSchedules(v.Rows, q.queueRef, page[:min(len(page), room)])
				return !v.More
			}
			if !note(nil) {
				return nil
			}

			err := b.gateway.schedules(ctx, q.queueRef, "", note)
			mu.Lock()
			defer mu.Unlock()
			if v.Asked++; v.Asked%100 == 0 {
				show(v.sorted())
			}
			if denied := deniedBy(err); denied != "" {
				v.Denied = denied
				return nil
			}
			return err
		})
	}

	err = asked.Wait()
	return v.sorted(), err
}

// appendSchedules adds schedules without what their items have, which can be 4 MiB for each queue.
func appendSchedules(
	rows []scheduleRow, q queueRef, page []*client.ScheduleRecord,
) []scheduleRow {
	for _, record := range page {
		record.Value, record.Headers = nil, nil
		record.Cron, record.Zone = shorten(record.Cron), shorten(record.Zone)
		rows = append(rows, scheduleRow{Queue: q, ScheduleRecord: record})
	}
	return rows
}

// sorted returns the view as the page shows it.
func (v schedulesView) sorted() schedulesView {
	v.Rows, v.Count = slices.SortedFunc(slices.Values(v.Rows), byNext), len(v.Rows)
	return v
}

func (b *Dashboard) getSchedules(w http.ResponseWriter, r *http.Request) {
	v, state := b.schedules.look(r.Context())
	query := r.URL.Query()
	from := clampFrom(query, v.Count)
	v.Rows = slices.Clone(v.Rows[from:min(from+pageRows, v.Count)]) // others show them too
	v.CanAdd = b.gateway.may(r.Context(), anyQueue).Schedule
	for i := range v.Rows {
		row := &v.Rows[i]
		row.Can = b.gateway.may(r.Context(), row.Queue)
		row.QueuePaused = b.monitor.one(row.Queue).Paused
		v.CanAdd = v.CanAdd || row.Can.Schedule
	}
	v.Pager = pagerOf("/schedules", query, from, len(v.Rows), v.Count)
	v.scanState = state
	b.showScan(w, b.newShell(r, "Schedules", "schedules"), "schedules", state, &v)
}
