package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// headItems are shown of what is served next, and asked for each headTime.
	headItems = 5
	headTime  = 2 * time.Second
)

func (b *board) getQueue(w http.ResponseWriter, r *http.Request, q queueRef) {
	b.showQueue(w, r, http.StatusOK, b.queueView(r, q), "totals")
}

// showQueue shows the page of a queue, or a form of it.
func (b *board) showQueue(w http.ResponseWriter, r *http.Request, code int, v *queueView, fragment string) {
	s := b.newShell(r, v.Name, "queues")
	s.Events = eventsOf("queue", url.Values{"kind": {v.Kind}, "name": {v.Name}})
	b.show(w, r, code, "queue", fragment, s, v)
}

// queueView returns the whole page of a queue.
func (b *board) queueView(r *http.Request, q queueRef) *queueView {
	v, points := b.liveQueue(r.Context(), q)
	v.CountsChart, v.RatesChart = charts(points, true)
	v.Settings = settingsOf(q, v.Info)
	return v
}

// liveQueue returns what changes by itself, and the history of the queue.
func (b *board) liveQueue(ctx context.Context, q queueRef) (*queueView, []point) {
	b.live.watch()
	err := b.live.ask(ctx, q)
	known := b.live.one(q)
	v := &queueView{queueRow: known.queueRow, Info: known.info, Denied: deniedBy(err), Can: b.gateway.may(ctx, q)}
	v.Schedules = b.schedules(ctx, q)
	v.Exists = len(v.Schedules) > 0 || v.All() > 0 || v.Info == nil && err != nil ||
		v.Info != nil && len(subjects.SettingTexts(&v.Info.Settings))+len(v.Info.Consumers) > 0
	v.Head = b.rowsOf(q, b.head(ctx, q))
	return v, known.points
}

// head returns the items that are served next.
func (b *board) head(ctx context.Context, q queueRef) []client.StoredItem {
	return b.heads.get(q, func(before []client.StoredItem) ([]client.StoredItem, time.Duration) {
		page, err := b.gateway.items(ctx, q, client.ItemsOptions{Limit: headItems, ValueBytes: b.valueBytes(rowBytes)})
		switch {
		case ctx.Err() != nil:
			return before, 0
		case err != nil:
			return nil, headTime
		}
		return page.Items, headTime - tick/4
	})
}

// schedules returns those of a queue, nil if the user may not list them.
func (b *board) schedules(ctx context.Context, q queueRef) []*client.ScheduleRecord {
	return b.planned.get(q, func(before []*client.ScheduleRecord) ([]*client.ScheduleRecord, time.Duration) {
		list, err := b.gateway.schedules(ctx, q)
		if ctx.Err() != nil {
			return before, 0
		} else if err != nil {
			return nil, headTime
		}
		return list, headTime - tick/4
	})
}

// groupRow is a group of a queue.
type groupRow struct {
	Group string
	subjects.GroupCount
}

// Groups are the groups with the most items, the largest first.
func (v *queueView) Groups() (rows []groupRow) {
	for name, n := range v.Info.Groups {
		rows = append(rows, groupRow{Group: name, GroupCount: n})
	}
	slices.SortFunc(rows, func(a, b groupRow) int {
		return cmp.Or(cmp.Compare(b.Ready, a.Ready), cmp.Compare(b.Leased, a.Leased), cmp.Compare(a.Group, b.Group))
	})
	return rows[:min(len(rows), 10)]
}

// settingsOf returns the editor of settings. info is nil if they are not known.
func settingsOf(q queueRef, info *client.QueueInfo) (f settingsForm) {
	now := map[string]string{}
	if info != nil {
		for _, text := range subjects.SettingTexts(&info.Settings) {
			name, value, _ := strings.Cut(text, "=")
			now[name] = value
		}
	}
	for row := range settings.All() {
		s := settingRow{Setting: row, Value: now[row.Name]}
		switch {
		case row.Default != nil:
			s.Without = fmt.Sprint(row.Default)
		case row.Name == "dead_letter":
			s.Without = new(settings.Settings).DeadLetterQueue(q.Name)
		}
		f.Rows = append(f.Rows, s)
	}
	return f
}
