package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// maxSchedules are kept of all queues, of which askedAtOnce are asked at a time.
	maxSchedules = 10_000
	askedAtOnce  = 8
)

// Page "schedules".
type schedulesView struct {
	Count int
	Rows  []scheduleRow // at most 100 of Count, those that fire next first
	Pager pager
	// Asked of Queues queues have said their schedules, so far while it is Running.
	Asked, Queues int64
	Running       bool
	// Denied says why some queues cannot be asked.
	Denied, Error string
}

// scheduleRow is a schedule of a queue.
type scheduleRow struct {
	Queue queueRef
	Can   can
	*client.ScheduleRecord
}

// Path is the address of its page.
func (r scheduleRow) Path() string { return schedulePath(r.Queue, r.ID) }

func schedulePath(q queueRef, id string) string {
	return "/schedule?" + url.Values{"kind": {q.Kind}, "queue": {q.Name}, "id": {id}}.Encode()
}

// Page "schedule": the form that sets one.
type scheduleView struct {
	Queue queueRef
	Can   can
	// Record is the schedule that there is, nil for a new one.
	Record *client.ScheduleRecord
	// Binary says that the value is no text, which the form keeps as it is.
	Binary bool
	form
}

// scheduleFields are the inputs of the form, by what errors call them.
var scheduleFields = map[string]string{
	"queue": "queue", "id": "id", "cron": "cron", "every": "every", "zone": "zone",
	"priority": "priority", "value": "value", "headers": "headers", "group": subjects.HeaderGroup,
	"jitter": "jitter", "if_missed": "if_missed", "overlap": "overlap", "until": "until",
}

// listSchedules is the survey of the schedules of all queues.
func (b *board) listSchedules(
	ctx context.Context, show func(schedulesView),
) (v schedulesView, err error) {
	if err := b.live.awaitList(ctx); err != nil {
		return v, err
	}
	queues, _, _ := b.live.all()
	v.Queues = int64(len(queues))

	var mu sync.Mutex
	var asked errgroup.Group
	asked.SetLimit(askedAtOnce)
	for _, q := range queues {
		asked.Go(func() error {
			list, err := b.gateway.schedules(ctx, q.queueRef)
			mu.Lock()
			defer mu.Unlock()
			v.Asked++
			for _, record := range list[:min(len(list), maxSchedules-len(v.Rows))] {
				v.Rows = append(v.Rows, scheduleRow{Queue: q.queueRef, ScheduleRecord: record})
			}
			if v.Asked%100 == 0 {
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

// sorted returns the view as the page shows it: what fires next first, and what does not fire last.
func (v schedulesView) sorted() schedulesView {
	v.Rows, v.Count = slices.Clone(v.Rows), len(v.Rows)
	slices.SortFunc(v.Rows, func(a, b scheduleRow) int {
		switch {
		case a.Next.IsZero() && !b.Next.IsZero():
			return 1
		case b.Next.IsZero() && !a.Next.IsZero():
			return -1
		}
		return cmp.Or(
			a.Next.Compare(b.Next),
			strings.Compare(a.Queue.Name, b.Queue.Name),
			strings.Compare(a.ID, b.ID),
		)
	})
	return v
}

func (b *board) getSchedules(w http.ResponseWriter, r *http.Request) {
	b.live.freshen(r.Context())
	v, state := b.schedules.look(r.Context())
	query := r.URL.Query()
	from := clampFrom(query, v.Count)
	v.Rows = slices.Clone(v.Rows[from:min(from+pageRows, v.Count)]) // others show them too
	for i := range v.Rows {
		v.Rows[i].Can = b.gateway.may(r.Context(), v.Rows[i].Queue)
	}
	v.Pager = pagerOf("/schedules", query, from, len(v.Rows), v.Count)
	if v.Running = state.running; state.err != nil {
		v.Error = state.err.Error()
	}
	b.showSurvey(w, b.newShell(r, "Schedules", "schedules"), "schedules", state, &v)
}

// scheduleOf returns a schedule, nil if there is none.
func (b *board) scheduleOf(
	ctx context.Context, q queueRef, id string,
) (*client.ScheduleRecord, error) {
	list, err := b.gateway.schedules(ctx, q)
	i := slices.IndexFunc(list, func(record *client.ScheduleRecord) bool { return record.ID == id })
	if err != nil || i < 0 {
		return nil, err
	}
	return list[i], nil
}

func (b *board) getSchedule(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	v := &scheduleView{Queue: queueRef{cmp.Or(query.Get("kind"), "pq"), query.Get("queue")}}
	v.Fields = map[string]field{"queue": {Value: v.Queue.Name}}
	if id := query.Get("id"); id != "" {
		record, err := b.scheduleOf(r.Context(), v.Queue, id)
		switch {
		case err != nil:
			b.failWith(w, r, err)
			return
		case record == nil:
			b.fail(w, r, http.StatusNotFound, "No schedule", "There is no such schedule in this queue.")
			return
		}
		v.setRecord(record)
	}
	b.showSchedule(w, r, http.StatusOK, v)
}

func (b *board) showSchedule(w http.ResponseWriter, r *http.Request, code int, v *scheduleView) {
	v.Can = can{Schedule: true, Unschedule: true} // in a queue that is not known yet
	title := "New schedule"
	if v.Record != nil {
		v.Can, title = b.gateway.may(r.Context(), v.Queue), v.Record.ID
	}
	b.show(w, code, "schedule", b.newShell(r, title, "schedules"), v)
}

// setRecord fills the form with a schedule.
func (v *scheduleView) setRecord(record *client.ScheduleRecord) {
	v.Record, v.Binary = record, !isText(record.Value)
	v.Fields = map[string]field{
		"queue": {Value: v.Queue.Name}, "id": {Value: record.ID},
		"cron": {Value: record.Cron}, "zone": {Value: record.Zone},
		"priority": {Value: fmt.Sprint(record.Priority)}, "value": {Value: string(record.Value)},
		"if_missed": {Value: record.IfMissed}, "overlap": {Value: record.Overlap},
	}
	for name, d := range map[string]client.Interval{"every": record.Every, "jitter": record.Jitter} {
		if d != 0 {
			v.Fields[name] = field{Value: time.Duration(d).String()}
		}
	}
	if !record.Until.IsZero() {
		v.Fields["until"] = field{Value: record.Until.Format(time.RFC3339)}
	}

	var lines strings.Builder
	for name, values := range record.Headers {
		for _, value := range values {
			if name == subjects.HeaderGroup {
				v.Fields["group"] = field{Value: value}
			} else {
				fmt.Fprintf(&lines, "%s: %s\n", name, value)
			}
		}
	}
	v.Fields["headers"] = field{Value: lines.String()}
}

// postSchedule sets a schedule, or does something with the one that there is.
func (b *board) postSchedule(w http.ResponseWriter, r *http.Request) {
	q := queueRef{r.PostForm.Get("kind"), strings.TrimSpace(r.PostForm.Get("queue"))}
	id := strings.TrimSpace(r.PostForm.Get("id"))
	action := r.PostForm.Get("action")
	if action == "set" {
		b.setSchedule(w, r, q, id)
		return
	}

	verb := subjects.Schedule
	if action == "remove" {
		verb = subjects.Unschedule
	}
	_, err := ask(r.Context(), b.gateway, q, verb, func(ctx context.Context, q target.Queue) (any, error) {
		switch action {
		case "run":
			return q.RunSchedule(ctx, id)
		case "pause", "resume":
			return q.PauseSchedule(ctx, id, action == "pause")
		case "remove":
			return nil, q.Unschedule(ctx, id)
		}
		return nil, fmt.Errorf("%w: a schedule has no action %.20q", client.ErrBadRequest, action)
	})
	b.afterSchedule(w, r, q, id, action, err)
}

// afterSchedule logs what was done to a schedule, and shows all of them.
func (b *board) afterSchedule(w http.ResponseWriter, r *http.Request, q queueRef, id, action string, err error) {
	b.log(r, action+" schedule", q, "schedule", id, "error", err)
	if err != nil {
		b.failWith(w, r, err)
		return
	}
	b.schedules.expire()
	b.details.forget(q)
	http.Redirect(w, r, localPath(cmp.Or(r.PostForm.Get("back"), "/schedules")), http.StatusSeeOther)
}

// setSchedule sets the schedule that the form describes. What the form does not have stays.
func (b *board) setSchedule(w http.ResponseWriter, r *http.Request, q queueRef, id string) {
	v := &scheduleView{Queue: q}
	v.form = typed(r, slices.Collect(maps.Keys(scheduleFields))...)
	isNew := r.PostForm.Has("new")
	record, err := b.scheduleOf(r.Context(), q, id)
	switch {
	case err != nil:
		v.fail("queue", err)
	case isNew && record != nil:
		v.fail("id", errors.New("the queue has this schedule already: edit that, or choose another name"))
	case !isNew:
		v.Record = record
	}

	var s client.Schedule
	if v.Record != nil {
		s, v.Binary = v.Record.Schedule, !isText(v.Record.Value)
	}
	v.schedule(&s, r.PostForm)
	code := http.StatusBadRequest
	if !v.failed() {
		_, err = ask(r.Context(), b.gateway, q, subjects.Schedule,
			func(ctx context.Context, q target.Queue) (client.ScheduleRecord, error) {
				return q.SetSchedule(ctx, s)
			})
		if err == nil {
			b.afterSchedule(w, r, q, id, "set", nil)
			return
		}
		code = codeOf(err)
		v.failWith(err, scheduleFields)
	}
	b.showSchedule(w, r, code, v)
}

// schedule changes a schedule to what the form says.
func (f *form) schedule(s *client.Schedule, posted url.Values) {
	text := func(name string) string { return strings.TrimSpace(f.Fields[name].Value) }
	s.ID, s.Cron, s.Zone = text("id"), text("cron"), text("zone")
	s.IfMissed, s.Overlap = text("if_missed"), text("overlap")
	for name, d := range map[string]*client.Interval{"every": &s.Every, "jitter": &s.Jitter} {
		if *d = 0; text(name) != "" {
			if d.UnmarshalText([]byte(text(name))) != nil {
				f.fail(name, fmt.Errorf("want %s", d.Want()))
			}
		}
	}

	s.Until, s.Priority = time.Time{}, 0
	var err error
	if until := text("until"); until != "" {
		if s.Until, err = time.Parse(time.RFC3339, until); err != nil {
			f.fail("until", errors.New("want a time such as 2030-01-02T15:04:05Z"))
		}
	}
	if priority := text("priority"); priority != "" {
		if s.Priority, err = subjects.ParsePriority(priority); err != nil {
			f.fail("priority", err)
		}
	}

	// Values that are hidden, or are no text, are not in the form.
	if posted.Has("value") {
		s.Value = []byte(unixLines(f.Fields["value"].Value))
	}
	if posted.Has("headers") {
		s.Headers = f.headers()
		if group := text("group"); group != "" {
			s.Headers[subjects.HeaderGroup] = []string{group}
		}
	}
}
