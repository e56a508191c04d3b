package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// The page of a queue shows the headItems that are served next. It asks for them, and for its
	// schedules, at most once each detailTime.
	headItems  = 5
	detailTime = refreshTime - tick/4
)

// details are what the page of a queue shows besides its info: the first items, and the schedules.
// They are nil if the user may not look at them, and the last ones that are known if a bridge did
// not say them now.
type details struct {
	head                          []client.StoredItem
	schedules                     []*client.ScheduleRecord
	headUnknown, schedulesUnknown bool
}

func (b *board) getQueue(w http.ResponseWriter, r *http.Request, q queueRef) {
	v := b.queueView(r, q)
	b.showQueue(w, r, codeOf(v.Err), v)
}

func (b *board) showQueue(w http.ResponseWriter, r *http.Request, code int, v *queueView) {
	s := b.newShell(r, v.Name, navOf(v.queueRef))
	s.AsOf = v.asOf
	b.show(w, code, "queue", s, v)
}

// queueView returns the page of a queue.
func (b *board) queueView(r *http.Request, q queueRef) *queueView {
	ctx := r.Context()
	if r.Method == http.MethodPost { // figures are others now, and nobody waits for pages that ask
		b.live.asked.forget(q)
		b.details.forget(q)
	}

	err := b.live.ask(ctx, q)
	known := b.live.one(q)
	v := &queueView{
		queueRow: known.queueRow, Info: known.info, asOf: known.asOf,
		Denied: deniedBy(err), Can: b.gateway.may(ctx, q),
	}
	if v.asOf.IsZero() {
		v.Err = err
	}

	v.CountsChart, v.RatesChart = charts(known.points)
	v.Settings = settingsOf(q, v.Info)

	more := b.detailsOf(ctx, known.queueRow)
	v.Head = b.rowsOf(q, more.head)
	v.HeadUnknown, v.SchedulesUnknown = more.headUnknown, more.schedulesUnknown
	for _, record := range more.schedules {
		v.Schedules = append(v.Schedules, scheduleRow{q, v.Paused, v.Can, record})
	}
	slices.SortFunc(v.Schedules, byNext)

	v.Exists = len(v.Schedules) > 0 || v.All() > 0 || v.Info == nil && err != nil ||
		v.Info != nil && len(subjects.SettingTexts(&v.Info.Settings))+len(v.Info.Consumers) > 0
	return v
}

func (b *board) detailsOf(ctx context.Context, row queueRow) details {
	q, paused := row.queueRef, row.PausedGroups
	return b.details.get(q, func(d details) (details, time.Duration) {
		first := client.ItemsOptions{
			State: subjects.StateReady, Limit: headItems, ValueBytes: b.valueBytes(rowBytes),
		}
		if len(paused) > 0 { // their items are passed over
			first.Limit = pageRows
		}

		page, err := b.gateway.items(ctx, q, first)
		if d.headUnknown = err != nil && deniedBy(err) == ""; !d.headUnknown {
			items := slices.DeleteFunc(page.Items, func(item client.StoredItem) bool {
				return slices.Contains(paused, cmp.Or(item.Headers[subjects.HeaderGroup]...))
			})
			d.head = items[:min(len(items), headItems)]
		}

		schedules, err := b.gateway.schedules(ctx, q)
		if d.schedulesUnknown = err != nil && deniedBy(err) == ""; !d.schedulesUnknown {
			d.schedules = schedules // what the user may not see, is left out
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return d, 0 // who asked is gone
		}
		return d, detailTime
	})
}

// groupRow is a group of a queue.
type groupRow struct {
	Group  string
	Paused bool
	subjects.GroupCount
}

// Groups are the groups with the most items, the largest first.
func (v *queueView) Groups() (rows []groupRow) {
	for name, n := range v.Info.Groups {
		paused := slices.Contains(v.Info.Settings.PausedGroups, name)
		rows = append(rows, groupRow{name, paused, n})
	}
	slices.SortFunc(rows, func(a, b groupRow) int {
		order := cmp.Or(cmp.Compare(b.Ready, a.Ready), cmp.Compare(b.Leased, a.Leased))
		return cmp.Or(order, cmp.Compare(a.Group, b.Group))
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
		if row.Name == "source" {
			f.Rows = append(f.Rows, sourceRows(now[row.Name])...)
			continue
		}
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
