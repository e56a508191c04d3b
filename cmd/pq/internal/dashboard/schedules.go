package dashboard

import (
	"cmp"
	"context"
	"net/http"
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

// byNext orders schedules by when they fire next. Schedules that do not fire come last.
func byNext(a, b scheduleRow) int {
	return cmp.Or(
		cmp.Or(a.Next, target.Forever).Compare(cmp.Or(b.Next, target.Forever)),
		strings.Compare(a.Queue.Name, b.Queue.Name), strings.Compare(a.ID, b.ID),
	)
}

// listSchedules is the scan of the schedules of all queues.
func (b *Dashboard) listSchedules(
	ctx context.Context, show func(schedulesView),
) (schedulesView, error) {
	list, err := b.monitor.freshList(ctx)
	if err != nil {
		return schedulesView{}, err
	}

	found := foundSchedules{show: show}
	found.view.Queues, found.view.Denied = int64(len(list.rows)), deniedBy(list.err)
	var asked errgroup.Group
	asked.SetLimit(askedAtOnce)
	for _, row := range list.rows {
		asked.Go(func() error {
			if found.isFull() {
				return nil
			}
			add := func(page []*client.ScheduleRecord) bool { return found.add(row.queueRef, page) }
			return found.noteAnswer(b.gateway.schedules(ctx, row.queueRef, "", add))
		})
	}

	err = asked.Wait()
	return found.view.sorted(), err
}

// foundSchedules has what the queues that are asked at the same time have answered so far.
type foundSchedules struct {
	show func(schedulesView)

	mu   sync.Mutex
	view schedulesView
}

// isFull reports whether there are more schedules than are kept.
func (f *foundSchedules) isFull() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.view.More
}

// add adds schedules of a queue, as far as there is room, and reports whether all fit.
func (f *foundSchedules) add(q queueRef, page []*client.ScheduleRecord) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	room := maxSchedules - len(f.view.Rows)
	f.view.More = f.view.More || len(page) > room
	f.view.Rows = appendSchedules(f.view.Rows, q, page[:min(len(page), room)])
	return !f.view.More
}

// noteAnswer counts a queue that was asked, with the error of that. It returns the error, unless
// it is that the user may not ask: the page says so.
func (f *foundSchedules) noteAnswer(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.view.Asked++; f.view.Asked%100 == 0 {
		f.show(f.view.sorted())
	}
	if denied := deniedBy(err); denied != "" {
		f.view.Denied = denied
		return nil
	}
	return err
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
