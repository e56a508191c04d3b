package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

// typed returns a form as it was filled in.
func typed(r *http.Request, names ...string) form {
	f := form{Fields: map[string]field{}}
	for _, name := range names {
		f.Fields[name] = field{Value: r.PostForm.Get(name)}
	}
	return f
}

// fail notes an error beside a field.
func (f *form) fail(name string, err error) {
	was := f.Fields[name]
	f.Fields[name] = field{was.Value, err.Error()}
}

// failWith notes the error of a bridge beside the field that it is about.
func (f *form) failWith(err error) {
	text := err.Error()
	if !errors.Is(err, client.ErrBadRequest) {
		f.Error = text
		return
	}

	for name := range f.Fields {
		about := cmp.Or(pushHeaders[name], name)
		if strings.Contains(text, about+": ") || strings.Contains(text, "header "+about+" ") {
			f.fail(name, err)
			return
		}
	}

	if _, ok := f.Fields["headers"]; ok && strings.Contains(text, "header") {
		f.fail("headers", err)
		return
	}

	f.Error = text
}

func (f *form) failed() bool {
	for _, one := range f.Fields {
		if one.Error != "" {
			return true
		}
	}
	return f.Error != ""
}

// pushHeaders are the headers that fields of the form for a push stand for.
var pushHeaders = map[string]string{
	"priority": subjects.HeaderPriority, "delay": subjects.HeaderDelay, "ttl": subjects.HeaderTTL,
	"group": subjects.HeaderGroup, "msg_id": subjects.HeaderMsgID, "unique": subjects.HeaderUnique,
}

func (b *board) push(w http.ResponseWriter, r *http.Request, q queueRef) {
	f := typed(r, "value", "priority", "delay", "ttl", "headers", "group", "msg_id", "unique")
	m, priority := messageOf(&f, q)
	code := http.StatusBadRequest
	if !f.failed() {
		verb := subjects.Push
		if q.FIFO() {
			verb = subjects.Enqueue
		}
		push := func(q target.Queue, ctx context.Context) (client.PushAck, error) {
			return q.Push(ctx, priority, m)
		}
		ack, err := ask(r.Context(), b.gateway, q, verb, push)
		b.log(r, "push", q, "id", ack.ID, "bytes", len(m.Value), "error", err)
		code = codeOf(err)
		switch {
		case errors.Is(err, client.ErrTooLarge):
			f.fail("value", err)
		case err != nil:
			f.failWith(err)
		case ack.Duplicate:
			f.Done = "a duplicate: already pushed as " + ack.ID
		default:
			f.Done = "pushed " + ack.ID
		}
	}

	v := b.queueView(r, q)
	v.Push, v.Can.Push = f, v.Can.Push || f.failed() // nothing that was typed is lost
	b.showQueue(w, r, code, v)
}

// unixLines returns a text that was typed with the ends of lines that the rest of the world has.
func unixLines(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

// headers returns the headers of a form, of which each line is one.
func (f *form) headers() map[string][]string {
	headers := map[string][]string{}
	for line := range strings.Lines(f.Fields["headers"].Value) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			f.fail("headers", fmt.Errorf("a line is %.80q: want Name: value", line))
			return headers
		}
		name = strings.TrimSpace(name)
		headers[name] = append(headers[name], strings.TrimSpace(value))
	}

	if err := subjects.CheckHeaders(headers); err != nil {
		f.fail("headers", err)
	}

	return headers
}

// messageOf returns the message that a form describes.
func messageOf(f *form, q queueRef) (m client.Message, priority int64) {
	m = client.Message{Value: []byte(unixLines(f.Fields["value"].Value)), Headers: f.headers()}
	for name, header := range pushHeaders {
		value := strings.TrimSpace(f.Fields[name].Value)
		switch {
		case value == "" || name == "priority" && q.FIFO():
		case name == "priority":
			var err error
			if priority, err = subjects.ParsePriority(value); err != nil {
				f.fail(name, err)
			}
		default:
			m.Headers[header] = []string{value}
		}
	}

	return m, priority
}

// beforePrefix begins the names of the hidden inputs that say what each setting was when the form
// was rendered.
const beforePrefix = "before."

// configure changes the settings that were edited in a form. Others may have changed the rest since
// it was rendered.
func (b *board) configure(w http.ResponseWriter, r *http.Request, q queueRef) {
	var change subjects.Change
	f := form{Fields: map[string]field{}}
	info, err := b.gateway.info(r.Context(), q)
	if err != nil {
		f.Error = err.Error()
	}

	var source []settingRow
	for _, row := range settingsOf(q, info).Rows {
		hidden := beforePrefix + row.Name
		if !r.PostForm.Has(row.Name) {
			continue
		}
		if !r.PostForm.Has(hidden) { // a page of an earlier version
			http.Error(w, "This form is out of date: reload the page.", http.StatusBadRequest)
			return
		}

		value := strings.TrimSpace(r.PostForm.Get(row.Name))
		before := strings.TrimSpace(r.PostForm.Get(hidden))
		if value == before && err == nil { // not edited
			value, before = row.Value, row.Value
		}
		f.Fields[row.Name], f.Fields[hidden] = field{Value: value}, field{Value: before}

		switch {
		case strings.HasPrefix(row.Name, sourcePrefix):
			source = append(source, row)
		case value != before:
			if err := change.Set(row.Name, value); err != nil {
				f.fail(row.Name, err)
			}
		}
	}

	f.source(&change, source)

	code := http.StatusBadRequest
	switch {
	case f.failed():
	case string(change.Encode()) == "{}":
		code, f = http.StatusOK, form{Done: "nothing to change"}
	default:
		err := b.change(r, q, "config", &change)
		if code = codeOf(err); err != nil {
			f.failWith(err)
		} else {
			f = form{Done: "changed"}
		}
	}

	v := b.queueView(r, q)
	v.Settings.form, v.Can.Config = f, v.Can.Config || f.failed()
	b.showQueue(w, r, code, v)
}

// change changes settings.
func (b *board) change(r *http.Request, q queueRef, action string, c *subjects.Change) error {
	configure := func(q target.Queue, ctx context.Context) (client.Settings, error) {
		return q.ChangeSettings(ctx, c)
	}
	_, err := ask(r.Context(), b.gateway, q, subjects.Config, configure)
	b.log(r, action, q, "change", string(c.Encode()), "error", err)
	return err
}

func (b *board) pause(w http.ResponseWriter, r *http.Request, q queueRef) {
	f := typed(r, "for")
	until := target.Forever
	if text := strings.TrimSpace(f.Fields["for"].Value); text != "" {
		during, err := subjects.ParseDelay(text)
		if err == nil && during <= 0 {
			err = fmt.Errorf("%s: want a duration above zero, such as 10m", text)
		}
		if err != nil {
			f.fail("for", err)
		}
		until = time.Now().Add(during).UTC()
	}

	paused := settings.Settings{PauseUntil: until}
	b.setPause(w, r, q, f, "pause", &subjects.Change{Settings: paused})
}

func (b *board) resume(w http.ResponseWriter, r *http.Request, q queueRef) {
	b.setPause(w, r, q, form{}, "resume", &subjects.Change{Reset: []string{"pause_until"}})
}

// setPause changes whether the queue is paused or, if the form names one, a group.
func (b *board) setPause(
	w http.ResponseWriter, r *http.Request, q queueRef, f form, action string, c *subjects.Change,
) {
	if r.PostForm.Has("group") {
		f = typed(r, "group")
		group := strings.TrimSpace(f.Fields["group"].Value)
		c = &subjects.Change{Groups: map[string]bool{group: action == "pause"}}
	}

	code := http.StatusBadRequest
	if !f.failed() {
		err := b.change(r, q, action, c)
		if code = codeOf(err); err != nil {
			f.Error = err.Error()
		} else {
			f = form{}
		}
	}
	v := b.queueView(r, q)
	v.Pause, v.Can.Config = f, v.Can.Config || f.failed()
	b.showQueue(w, r, code, v)
}
