package dashboard

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
)

var errNoCause = errors.New("no dead letter of this queue has this cause now")

// countDead is the scan of the dead letters of all queues, by their causes.
func (b *Dashboard) countDead(ctx context.Context, show func(deadView)) (v deadView, err error) {
	list, err := b.monitor.freshList(ctx)
	if err != nil {
		return v, err
	}

	rows := slices.DeleteFunc(list.rows, func(row queueRow) bool {
		return !row.IsDead || row.All() == 0
	})
	slices.SortFunc(rows, byName)
	for i := range rows {
		_, _ = b.monitor.update(ctx, rows[i].queueRef) // the list may be older
		rows[i] = b.monitor.one(rows[i].queueRef).queueRow
		v.Total += rows[i].All()
	}

	v.Queues = len(rows)

	var causes target.Causes
	recent := target.Causes{After: time.Now().Add(-time.Hour)}
	note := func(q queueRef, items []client.StoredItem) bool {
		more := causes.Add(q.FIFO(), q.Name, items)
		recent.Add(q.FIFO(), q.Name, items)
		v.Counted, v.Causes, v.Recent = int64(causes.Letters), nil, nil // what was shown stays
		for _, cause := range causes.List() {
			v.Causes = append(v.Causes, deadCause{Cause: *cause})
		}
		for _, cause := range recent.List() {
			v.Recent = append(v.Recent, deadCause{Cause: *cause})
		}
		show(v)
		return more
	}

	v.Denied, err = b.gateway.scanAll(ctx, rows, client.ItemsOptions{}, note)
	v.Denied = cmp.Or(v.Denied, deniedBy(list.err))
	return v, err
}

func (b *Dashboard) getDead(w http.ResponseWriter, r *http.Request) {
	v, state := b.dead.look(r.Context())
	if v.IsRecent = r.URL.Query().Has("recent"); v.IsRecent {
		v.Causes = v.Recent
	}
	v.Causes = slices.Clone(v.Causes[:min(len(v.Causes), pageRows)]) // others show them too
	for i := range v.Causes {
		v.Causes[i].Can = b.gateway.may(r.Context(), v.Causes[i].In())
	}
	v.scanState = state
	b.showScan(w, b.newShell(r, "Dead letters", "dead"), "dead", state, &v)
}

// findCause returns a search that has found the dead letters of a queue with a cause.
func (b *Dashboard) findCause(ctx context.Context, q queueRef, cause string) (*search, error) {
	for {
		v, state := b.dead.look(ctx)
		for i := range v.Causes {
			if c := &v.Causes[i]; c.In() == q && c.Text == cause {
				return b.searches.addFound(q, itemsFilter{Cause: c.Text}, c.Refs), nil
			}
		}
		if !state.Running || ctx.Err() != nil {
			return nil, errNoCause
		}
	}
}
