package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// maxBusy is how many leased items a scan looks at. The page shows pageRows of them.
const maxBusy = 50_000

// listBusy is the scan of leased items, in all queues.
func (b *Dashboard) listBusy(ctx context.Context, show func(busyView)) (v busyView, err error) {
	list, err := b.monitor.freshList(ctx)
	if err != nil {
		return v, err
	}

	rows := slices.DeleteFunc(list.rows, func(row queueRow) bool { return row.Leased == 0 })
	for i := range rows {
		v.Total += rows[i].Leased
	}

	leased := client.ItemsOptions{State: subjects.StateLeased}
	note := func(q queueRef, items []client.StoredItem) bool {
		v.add(q, items)
		show(v)
		return v.Counted < maxBusy
	}

	v.Denied, err = b.gateway.scanAll(ctx, rows, leased, note)
	v.Denied = cmp.Or(v.Denied, deniedBy(list.err))
	if err == nil && v.Denied == "" && v.Counted < maxBusy {
		v.Total = v.Counted // the list of queues is older
	}
	v.Total = max(v.Total, v.Counted)
	return v, err
}

// add takes in leased items of a queue. The page may show the rows of before.
func (v *busyView) add(q queueRef, items []client.StoredItem) {
	v.Counted += int64(len(items))
	v.Rows = slices.Clone(v.Rows)
	for _, item := range items {
		item.ID, item.Headers = shorten(item.ID), nil // what answers may not be a bridge
		v.Rows = append(v.Rows, itemRow{Queue: q, StoredItem: item})
	}

	slices.SortFunc(v.Rows, func(a, b itemRow) int {
		return cmp.Or(
			since(a).Compare(since(b)),
			strings.Compare(a.Queue.Name, b.Queue.Name),
			strings.Compare(a.ID, b.ID),
		)
	})

	v.Rows = v.Rows[:min(len(v.Rows), pageRows)]
}

// since is when an item was leased. Items that do not say it come first.
func since(row itemRow) time.Time {
	return *cmp.Or(row.LeasedAt, &time.Time{})
}

func (b *Dashboard) getBusy(w http.ResponseWriter, r *http.Request) {
	v, state := b.busy.look(r.Context())
	v.Rows = slices.Clone(v.Rows) // others show them too
	for i := range v.Rows {
		v.Rows[i].Can = b.gateway.may(r.Context(), v.Rows[i].Queue)
	}
	v.scanState, v.Waiting = state, b.monitor.waiting()
	b.showScan(w, b.newShell(r, "Busy", "busy"), "busy", state, &v)
}
