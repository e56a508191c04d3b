package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/fdbpq/schedule"
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
	// Denied says why some queues cannot be asked. CanAdd offers to add a schedule.
	Denied string
	CanAdd bool
	surveyState
}

// scheduleRow is a schedule of a queue, whose items wait if QueuePaused.
type scheduleRow struct {
	Queue       queueRef
	QueuePaused bool
	Can         can
	*client.ScheduleRecord
}

// byNext orders schedules by when they fire next. Those that do not fire come last.
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

// scheduleTexts are the inputs of the form that are members of a schedule's JSON, as they are.
var scheduleTexts = strings.Fields("id cron every zone jitter if_missed overlap until")

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

// sorted returns the view as the page shows it.
func (v schedulesView) sorted() schedulesView {
	v.Rows, v.Count = slices.SortedFunc(slices.Values(v.Rows), byNext), len(v.Rows)
	return v
}

func (b *board) getSchedules(w http.ResponseWriter, r *http.Request) {
	v, state := b.schedules.look(r.Context())
	query := r.URL.Query()
	from := clampFrom(query, v.Count)
	v.Rows = slices.Clone(v.Rows[from:min(from+pageRows, v.Count)]) // others show them too
	v.CanAdd = b.gateway.may(r.Context(), anyQueue).Schedule
	for i := range v.Rows {
		row := &v.Rows[i]
		row.Can = b.gateway.may(r.Context(), row.Queue)
		row.QueuePaused = b.live.one(row.Queue).Paused
		v.CanAdd = v.CanAdd || row.Can.Schedule
	}
	v.Pager = pagerOf("/schedules", query, from, len(v.Rows), v.Count)
	v.surveyState = state
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
	v := &scheduleView{Queue: queueRef{query.Get("kind"), query.Get("queue")}}
	v.Fields = map[string]field{"queue": {Value: v.Queue.Name}}
	if id := query.Get("id"); id != "" {
		record, err := b.scheduleOf(r.Context(), v.Queue, id)
		switch {
		case err != nil:
			b.failWith(w, r, err)
			return
		case record == nil:
			const text = "There is no such schedule in this queue."
			b.fail(w, r, http.StatusNotFound, "No schedule", text)
			return
		}
		v.setRecord(record)
	}

	b.showSchedule(w, r, http.StatusOK, v)
}

func (b *board) showSchedule(w http.ResponseWriter, r *http.Request, code int, v *scheduleView) {
	q, title := cmp.Or(v.Queue, anyQueue), "New schedule"
	if v.Record != nil {
		title = v.Record.ID
	}
	v.Can = b.gateway.may(r.Context(), q)
	v.Can.Schedule = v.Can.Schedule || v.failed() // nothing that was typed is lost
	b.show(w, code, "schedule", b.newShell(r, title, "schedules"), v)
}

// setRecord fills the form with a schedule.
func (v *scheduleView) setRecord(record *client.ScheduleRecord) {
	v.Record, v.Binary = record, !isText(record.Value)
	var members map[string]any
	data, _ := json.Marshal(record.Schedule) // never returns an error
	_ = json.Unmarshal(data, &members)       // the same
	for _, name := range scheduleTexts {
		if text, ok := members[name].(string); ok {
			v.Fields[name] = field{Value: text}
		}
	}

	v.Fields["priority"] = field{Value: strconv.FormatInt(record.Priority, 10)}
	v.Fields["value"] = field{Value: string(record.Value)}

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

	act := func(q target.Queue, ctx context.Context) (any, error) {
		switch action {
		case "run":
			return q.RunSchedule(ctx, id)
		case "pause", "resume":
			return q.PauseSchedule(ctx, id, action == "pause")
		case "remove":
			return nil, q.Unschedule(ctx, id)
		}
		return nil, fmt.Errorf("%w: a schedule has no action %.20q", client.ErrBadRequest, action)
	}

	_, err := ask(r.Context(), b.gateway, q, verb, act)
	b.afterSchedule(w, r, q, id, action, err)
}

// afterSchedule logs what was done to a schedule, and shows all of them.
func (b *board) afterSchedule(
	w http.ResponseWriter, r *http.Request, q queueRef, id, action string, err error,
) {
	b.log(r, action+" schedule", q, "schedule", id, "error", err)
	if err != nil {
		b.failWith(w, r, err)
		return
	}
	b.schedules.expire()
	b.details.forget(q)
	back := localPath(cmp.Or(r.PostForm.Get("back"), "/schedules"))
	http.Redirect(w, r, back, http.StatusSeeOther)
}

// setSchedule sets the schedule that the form describes. What the form does not have stays.
func (b *board) setSchedule(w http.ResponseWriter, r *http.Request, q queueRef, id string) {
	v := &scheduleView{Queue: q}
	others := []string{"queue", "priority", "value", "headers", "group"}
	v.form = typed(r, append(others, scheduleTexts...)...)
	record, err := b.scheduleOf(r.Context(), q, id)
	switch isNew := r.PostForm.Has("new"); {
	case err != nil:
		v.fail("queue", err)
	case isNew && record != nil:
		v.fail("id", errors.New("the queue has this schedule already: edit that"))
	case record != nil:
		v.Record, v.Binary = record, !isText(record.Value)
	}

	s := v.schedule(r.PostForm)
	code := http.StatusBadRequest
	if !v.failed() {
		set := func(q target.Queue, ctx context.Context) (client.ScheduleRecord, error) {
			return q.SetSchedule(ctx, s)
		}
		_, err = ask(r.Context(), b.gateway, q, subjects.Schedule, set)
		if err == nil {
			b.afterSchedule(w, r, q, id, "set", nil)
			return
		}
		code = codeOf(err)
		v.failWith(err)
	}

	b.showSchedule(w, r, code, v)
}

// schedule returns the schedule that the form describes.
func (v *scheduleView) schedule(posted url.Values) client.Schedule {
	var was client.Schedule
	if v.Record != nil {
		was = v.Record.Schedule
	}

	members := map[string]string{}
	for _, name := range scheduleTexts {
		if text := strings.TrimSpace(v.Fields[name].Value); text != "" {
			members[name] = text
		}
	}

	data, _ := json.Marshal(members) // never returns an error
	s, err := schedule.Decode[client.Schedule](data)
	if err != nil {
		v.failWith(fmt.Errorf("%w: %w", client.ErrBadRequest, err))
	}

	s.Paused, s.Value, s.Headers = was.Paused, was.Value, was.Headers
	if priority := strings.TrimSpace(v.Fields["priority"].Value); priority != "" {
		if s.Priority, err = subjects.ParsePriority(priority); err != nil {
			v.fail("priority", err)
		}
	}

	// Values that are hidden, or are no text, are not in the form.
	if posted.Has("value") {
		s.Value = []byte(unixLines(v.Fields["value"].Value))
	}

	if posted.Has("headers") {
		s.Headers = v.headers()
		if group := strings.TrimSpace(v.Fields["group"].Value); group != "" {
			s.Headers[subjects.HeaderGroup] = []string{group}
		}
	}

	return s
}
