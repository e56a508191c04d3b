package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/schedule"
)

var (
	// scheduleTexts are the inputs of the form that are members of a schedule's JSON, as they are.
	scheduleTexts = strings.Fields("id cron every zone jitter if_missed overlap until")
	// scheduleInputs are all inputs of the form that can be edited.
	scheduleInputs = append(strings.Fields("priority value headers group"), scheduleTexts...)
)

var (
	errScheduleThere = errors.New("the queue has this schedule already: edit that")
	errScheduleGone  = errors.New("somebody has removed this schedule since you opened the form, " +
		"and it stays removed: to have it again, add it as a new one")
)

// scheduleOf returns a schedule, nil if there is none.
func (b *Dashboard) scheduleOf(
	ctx context.Context, q queueRef, id string,
) (found *client.ScheduleRecord, err error) {
	_, last := utf8.DecodeLastRuneInString(id)
	before := id[:len(id)-last] // no page of many megabytes comes before it
	err = b.gateway.schedules(ctx, q, before, func(page []*client.ScheduleRecord) (more bool) {
		for _, record := range page {
			if record.ID == id {
				found = record
			}
		}
		return found == nil
	})
	return found, err
}

func (b *Dashboard) getSchedule(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	v := &scheduleView{Queue: refOf(query.Get("kind"), query.Get("queue"))}
	v.Values = url.Values{"queue": {v.Queue.Name}}
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
		v.Record, v.Before = record, b.textsOf(record)
		for name, text := range v.Before {
			v.Set(name, text)
		}
	}

	b.showSchedule(w, r, http.StatusOK, v)
}

func (b *Dashboard) showSchedule(
	w http.ResponseWriter, r *http.Request, code int, v *scheduleView,
) {
	q, title := cmp.Or(v.Queue, anyQueue), "New schedule"
	if v.Before != nil {
		title = v.Before["id"]
	}
	v.Can = b.gateway.may(r.Context(), q)
	b.show(w, code, "schedule", b.newShell(r, title, "schedules"), v)
}

// textsOf returns a schedule as the visible inputs of the form have it.
func (b *Dashboard) textsOf(record *client.ScheduleRecord) map[string]string {
	texts := map[string]string{"priority": strconv.FormatInt(record.Priority, 10)}
	var members map[string]any
	data, _ := json.Marshal(record.Schedule) // never returns an error
	_ = json.Unmarshal(data, &members)       // the same
	for _, name := range scheduleTexts {
		texts[name], _ = members[name].(string)
	}

	// The lists to choose from have these as "".
	texts["if_missed"] = strings.TrimPrefix(texts["if_missed"], schedule.Once)
	texts["overlap"] = strings.TrimPrefix(texts["overlap"], schedule.Allow)

	if b.HideValues {
		return texts
	}

	if isText(record.Value) {
		texts["value"] = string(record.Value)
	}

	var lines strings.Builder // takes all that is written
	isGroup := map[string]bool{subjects.HeaderGroup: true}
	_ = http.Header(record.Headers).WriteSubset(&lines, isGroup)
	texts["headers"] = unixLines(lines.String())
	texts["group"] = cmp.Or(record.Headers[subjects.HeaderGroup]...)
	return texts
}

// postSchedule sets a schedule, or acts on an existing one.
func (b *Dashboard) postSchedule(w http.ResponseWriter, r *http.Request) {
	q := refOf(r.PostForm.Get("kind"), strings.TrimSpace(r.PostForm.Get("queue")))
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

	act := func(q *client.Queue, ctx context.Context) (any, error) {
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

// afterSchedule logs an action on a schedule, and shows all of them.
func (b *Dashboard) afterSchedule(
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

// setSchedule sets the schedule that the form describes. Inputs that were not edited stay as they
// are, and changes by others are not overwritten unseen.
func (b *Dashboard) setSchedule(w http.ResponseWriter, r *http.Request, q queueRef, id string) {
	v := &scheduleView{Queue: q, form: form{Values: r.PostForm}}
	isNew := r.PostForm.Has("new")
	if !isNew {
		v.Before = map[string]string{}
	}
	for _, name := range scheduleInputs {
		if !isNew && v.Has(beforePrefix+name) {
			v.Before[name] = v.Get(beforePrefix + name)
		}
	}

	code := http.StatusBadRequest
	record, err := b.scheduleOf(r.Context(), q, id)
	switch {
	case err != nil:
		code = codeOf(err)
		v.fail(v.about(err), err)
	case isNew && record != nil:
		v.fail("id", errScheduleThere)
	case !isNew && record == nil:
		code = http.StatusConflict
		v.fail("", errScheduleGone)
	case !isNew:
		if v.merge(record, b.textsOf(record)); len(v.Errors) > 0 {
			code = http.StatusConflict
		}
	}

	s := v.schedule()
	if len(v.Errors) == 0 {
		_, err = ask(r.Context(), b.gateway, q, subjects.Schedule,
			func(q *client.Queue, ctx context.Context) (client.ScheduleRecord, error) {
				return q.SetSchedule(ctx, s)
			})
		if err == nil {
			b.afterSchedule(w, r, q, id, "set", nil)
			return
		}
		code = codeOf(err)
		v.fail(v.about(err), err)
	}

	b.showSchedule(w, r, code, v)
}

// merge brings the form up to date with the present schedule, whose inputs are texts. Inputs that
// were not edited take its values. An edit of an input that somebody else has changed is an error,
// once: then the form is as new.
func (v *scheduleView) merge(record *client.ScheduleRecord, texts map[string]string) {
	for _, name := range scheduleInputs {
		before, typed := v.Before[name], v.Get(name)
		now, isShown := texts[name]
		switch {
		case !v.Has(name), plainLines(typed) == plainLines(before):
			v.Set(name, now)
		case !isShown:
			v.fail("", fmt.Errorf("%s: it is not shown any more, and was not changed", name))
		case plainLines(now) != plainLines(before) && plainLines(now) != plainLines(typed):
			v.fail(name, fmt.Errorf("somebody has changed this to %.80q "+
				"since you opened the form: save again to replace that", now))
		}
	}
	v.Record, v.Before = record, texts
}

// plainLines returns a text with one end of lines: browsers replace any by their own.
func plainLines(text string) string { return strings.ReplaceAll(unixLines(text), "\r", "\n") }

// isEdited reports whether an input is not as it was, once they were merged.
func (v *scheduleView) isEdited(name string) bool { return v.Get(name) != v.Before[name] }

// schedule returns the schedule that the form describes.
func (v *scheduleView) schedule() client.Schedule {
	var was client.Schedule
	if v.Record != nil {
		was = v.Record.Schedule
	}

	members := map[string]string{}
	for _, name := range scheduleTexts {
		if text := v.duration(name); text != "" {
			members[name] = text
		}
	}

	data, _ := json.Marshal(members) // never returns an error
	s, err := schedule.Decode[client.Schedule](data)
	if err != nil {
		v.fail(v.about(fmt.Errorf("%w: %w", client.ErrBadRequest, err)), err)
	}

	s.Paused, s.Value = was.Paused, was.Value
	if priority := v.text("priority"); priority != "" {
		if s.Priority, err = subjects.ParsePriority(priority); err != nil {
			v.fail("priority", err)
		}
	}

	if text := v.Get("value"); v.isEdited("value") {
		if !bytes.ContainsRune(was.Value, '\r') {
			text = unixLines(text)
		}
		s.Value = []byte(text)
	}

	s.Headers = was.Headers
	if v.isEdited("headers") || v.isEdited("group") || s.Headers == nil {
		s.Headers = v.headers()
		if group := v.text("group"); group != "" {
			s.Headers[subjects.HeaderGroup] = []string{group}
		}
	}

	return s
}
