package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

func (d *Dashboard) getQueue(w http.ResponseWriter, r *http.Request) {
	q, ok := d.queueOf(w, r)
	if !ok {
		return
	}
	d.live.freshen(r.Context(), &q)
	d.showQueue(w, r, http.StatusOK, d.queueView(r, q), "totals")
}

// showQueue shows the page of a queue, or a form of it.
func (d *Dashboard) showQueue(w http.ResponseWriter, r *http.Request, code int, v *queueView, fragment string) {
	s := d.newShell(r, v.Name, "queues")
	s.Events = eventsPath + "?" + withPage(map[string][]string{"kind": {v.Kind}, "name": {v.Name}}, "queue")
	d.show(w, r, code, "queue", fragment, s, v)
}

// queueView returns the whole page of a queue.
func (d *Dashboard) queueView(r *http.Request, q queueRef) *queueView {
	v := d.liveQueue(r.Context(), q)
	v.CountsChart, v.RatesChart = charts(d.live.points(q, time.Time{}), true)
	v.Settings = settingsOf(q, v.Can, d.live.one(q).info)
	return v
}

// liveQueue returns what changes by itself.
func (d *Dashboard) liveQueue(ctx context.Context, q queueRef) *queueView {
	k := d.live.one(q)
	v := &queueView{queueRow: k.queueRow, Denied: deniedBy(k.infoErr), Can: d.gateway.may(ctx, q)}
	if k.head != nil {
		v.Head = d.rowsOf(q, k.head)
	}
	if k.info == nil {
		v.Exists = k.infoErr != nil || v.Ready+v.Leased+v.Delayed > 0
		return v
	}

	rows := []queueRow{v.queueRow}
	d.live.lines(rows)
	v.queueRow = rows[0]
	v.NextDue, v.PrioritiesMore = k.info.NextDue, k.info.PrioritiesMore
	v.Exists = v.Ready+v.Leased+v.Delayed > 0 || len(subjects.SettingTexts(&k.info.Settings)) > 0
	var most int64
	for _, p := range k.info.Priorities {
		most = max(most, p.Count)
	}
	for _, p := range k.info.Priorities {
		v.Priorities = append(v.Priorities, priorityBar{p.Priority, p.Count, float64(p.Count) / float64(max(most, 1))})
	}
	v.Groups, v.GroupsMore, v.AtLimit = groupsOf(k.info), k.info.GroupsMore || len(k.info.Groups) > maxGroupBars, k.info.GroupsAtLimit
	return v
}

// maxGroupBars is how many groups a page shows.
const maxGroupBars = 10

// groupsOf returns the groups with the most items.
func groupsOf(info *client.QueueInfo) (bars []groupBar) {
	size := func(b groupBar) int64 { return b.Ready + b.Leased }
	for name, n := range info.Groups {
		bars = append(bars, groupBar{Group: name, GroupCount: n})
	}
	slices.SortFunc(bars, func(a, b groupBar) int {
		return cmp.Or(cmp.Compare(size(b), size(a)), cmp.Compare(a.Group, b.Group))
	})

	for i := range bars {
		bars[i].Part = float64(size(bars[i])) / float64(max(size(bars[0]), 1))
	}
	return bars[:min(len(bars), maxGroupBars)]
}

// settingsOf returns the editor of settings. info is nil if they are not known.
func settingsOf(q queueRef, c can, info *client.QueueInfo) settingsForm {
	f := settingsForm{}
	now := map[string]string{}
	if info != nil {
		for _, text := range subjects.SettingTexts(&info.Settings) {
			name, value, _ := strings.Cut(text, "=")
			now[name] = value
		}
	}
	for row := range settings.All() {
		s := settingRow{Name: row.Name, About: row.About, Value: now[row.Name], Choices: row.Choices}
		switch value := row.Default.(type) {
		case nil:
			if row.Name == "dead_letter" {
				s.Default = deadQueue(q, &settings.Settings{}).Name
			}
		default:
			s.Default = fmt.Sprint(value)
		}
		f.Rows = append(f.Rows, s)
	}
	return f
}
