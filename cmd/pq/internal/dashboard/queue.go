package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/discovery"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

const (
	// The page of a queue shows the headItems that are served next. It asks for them, and for its
	// schedules, at most once each detailTime.
	headItems  = 5
	detailTime = refreshTime - tick/4
	// maxDetails are kept.
	maxDetails = 128
)

func (b *Dashboard) getQueue(w http.ResponseWriter, r *http.Request, q queueRef) {
	v := b.queueView(r, q)
	b.showQueue(w, r, codeOf(v.Err), v)
}

func (b *Dashboard) showQueue(w http.ResponseWriter, r *http.Request, code int, v *queueView) {
	s := b.newShell(r, v.Name, navOf(v.queueRef))
	s.AsOf = v.asOf
	b.show(w, code, "queue", s, v)
}

// queueView returns the page of a queue.
func (b *Dashboard) queueView(r *http.Request, q queueRef) *queueView {
	ctx := r.Context()
	if r.Method == http.MethodPost { // figures are others now, and nobody waits for pages that ask
		b.monitor.asked.forget(q)
		b.details.forget(q)
	}

	info, err := b.monitor.ask(ctx, q)
	known := b.monitor.one(q)
	v := &queueView{
		queueRow: known.queueRow, Past: known.past, Info: info, asOf: known.asOf,
		Denied: deniedBy(err), Can: b.gateway.may(ctx, q),
	}
	v.Past.Denied = deniedBy(b.gateway.refusal(discovery.StatsSubject))
	if v.asOf.IsZero() {
		v.Err = err
	}

	if info != nil && info.Finished > 0 {
		v.Durations = b.durationsOf(ctx, q)
	}
	v.CountsChart, v.RatesChart = charts(known.points)
	v.Settings = settingsOf(q, v.Info)

	v.details, err = b.detailsOf(ctx, q, v.Info)
	v.DetailsUnknown = err != nil
	v.Schedules = slices.Clone(v.Schedules) // others show them too
	for i := range v.Schedules {
		v.Schedules[i].QueuePaused, v.Schedules[i].Can = v.Paused, v.Can
	}

	v.Exists = len(v.Schedules) > 0 || v.All() > 0 || v.Info == nil || v.Info.Finished > 0 ||
		len(subjects.SettingTexts(&v.Info.Settings))+len(v.Info.Consumers) > 0
	return v
}

// detailsOf returns the last details that are known, and an error if no bridge has said them now.
func (b *Dashboard) detailsOf(
	ctx context.Context, q queueRef, info *client.QueueInfo,
) (details, error) {
	first := client.ItemsOptions{
		State: subjects.StateReady, Limit: headItems, ValueBytes: b.valueBytes(rowBytes),
	}
	var paused []string
	if info != nil && len(info.Settings.PausedGroups) > 0 { // their items are passed over
		paused, first.Limit = info.Settings.PausedGroups, pageRows
	}
	isPaused := func(item client.StoredItem) bool {
		return slices.Contains(paused, cmp.Or(item.Headers[subjects.HeaderGroup]...))
	}

	return b.details.get(ctx, q, func() (d details, err error) {
		page, err := b.gateway.items(ctx, q, first)
		if err != nil && deniedBy(err) == "" {
			return d, err
		}
		items := slices.DeleteFunc(page.Items, isPaused)
		d.Head = b.rowsOf(q, items[:min(len(items), headItems)], false)

		var rows []scheduleRow
		err = b.gateway.schedules(ctx, q, "", func(page []*client.ScheduleRecord) bool {
			rows = appendSchedules(rows, q, page)
			return len(rows) < maxSchedules
		})
		if err != nil && deniedBy(err) == "" {
			return d, err
		}
		slices.SortFunc(rows, byNext)
		d.Schedules = slices.Clone(rows[:min(len(rows), pageRows)])
		d.SchedulesMore = len(rows) > pageRows
		return d, nil
	})
}

// settingsOf returns the editor of settings: those that are set by "", and the others by "other" or
// "source". info is nil if they are not known.
func settingsOf(q queueRef, info *client.QueueInfo) map[string][]settingRow {
	now := map[string]string{}
	if info != nil {
		for _, text := range subjects.SettingTexts(&info.Settings) {
			name, value, _ := strings.Cut(text, "=")
			now[name] = value
		}
	}

	groups := map[string][]settingRow{"": nil}
	add := func(group string, row settingRow) {
		if row.Value != "" {
			group = ""
		}
		groups[group] = append(groups[group], row)
	}

	for setting := range settings.All() {
		row := settingRow{Setting: setting, Value: now[setting.Name]}
		switch {
		case row.Name == "source":
			for _, row := range sourceRows(row.Value) {
				add("source", row)
			}
			continue
		case row.Default != nil:
			row.Without = fmt.Sprint(row.Default)
		case row.Name == "dead_letter":
			row.Without = new(settings.Settings).DeadLetterQueue(q.Name)
		}
		add("other", row)
	}

	return groups
}
