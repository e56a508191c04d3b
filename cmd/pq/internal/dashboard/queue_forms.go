package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/subjects"
)

// submit sends a form, unless it has a mistake, and notes the answer in it. It returns the page of
// the queue, which lacks the form, and its status.
func (b *Dashboard) submit(
	r *http.Request, q queueRef, f *form, send func() (done string, err error),
) (v *queueView, code int) {
	code = http.StatusBadRequest
	if len(f.Errors) == 0 {
		done, err := send()
		if code = codeOf(err); err != nil {
			f.fail(f.about(err), err)
		} else {
			f.Done = done
		}
	}
	return b.queueView(r, q), code
}

func (b *Dashboard) push(w http.ResponseWriter, r *http.Request, q queueRef) {
	f := form{Values: r.PostForm}
	m, priority := messageOf(&f, q)
	v, code := b.submit(r, q, &f, func() (string, error) {
		ack, err := ask(r.Context(), b.gateway, q, subjects.Push,
			func(q *client.Queue, ctx context.Context) (client.PushAck, error) {
				return q.PushMsg(ctx, priority, m)
			})
		b.log(r, "push", q, "id", ack.ID, "bytes", len(m.Value), "error", err)
		if ack.Duplicate {
			return "a duplicate: already pushed as " + ack.ID, err
		}
		return "pushed " + ack.ID, err
	})
	v.Push = f
	b.showQueue(w, r, code, v)
}

// messageOf returns the message that a form describes.
func messageOf(f *form, q queueRef) (m client.Message, priority int64) {
	m = client.Message{Value: []byte(unixLines(f.Get("value"))), Headers: f.headers()}
	for name, header := range pushHeaders {
		value := f.duration(name)
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

// configure changes the settings that were edited in a form.
func (b *Dashboard) configure(w http.ResponseWriter, r *http.Request, q queueRef) {
	var change subjects.Change
	f := form{Values: r.PostForm}
	if info, err := b.gateway.info(r.Context(), q); err != nil {
		f.fail("", err)
	} else {
		f.edit(&change, settingsOf(q, info))
	}

	v, code := b.submit(r, q, &f, func() (string, error) {
		if string(change.Encode()) == "{}" {
			f.Values = nil
			return "nothing to change", nil
		}
		return "changed", b.change(r, q, &f, "config", &change)
	})
	v.Config = f
	b.showQueue(w, r, code, v)
}

// edit adds the settings that were edited to a change. Others may have changed the rest since the
// form was rendered, so it takes their present values.
func (f *form) edit(change *subjects.Change, now map[string][]settingRow) {
	isSourceEdited := false
	for _, rows := range now {
		for _, row := range rows {
			before := beforePrefix + row.Name
			switch {
			case !f.Has(row.Name), f.text(row.Name) == f.text(before):
				f.Set(row.Name, row.Value)
				f.Set(before, row.Value)
			case strings.HasPrefix(row.Name, sourcePrefix):
				isSourceEdited = true
			default:
				if err := change.Set(row.Name, f.text(row.Name)); err != nil {
					f.fail(row.Name, err)
				}
			}
		}
	}

	if isSourceEdited {
		f.source(change)
	}
}

// change changes settings. Then the page shows them as they are, in place of what was typed.
func (b *Dashboard) change(
	r *http.Request, q queueRef, f *form, action string, c *subjects.Change,
) error {
	_, err := ask(r.Context(), b.gateway, q, subjects.Config,
		func(q *client.Queue, ctx context.Context) (client.Settings, error) {
			return q.ChangeSettings(ctx, c)
		})
	b.log(r, action, q, "change", string(c.Encode()), "error", err)
	if err == nil {
		f.Values = nil
	}
	return err
}

// pause pauses or resumes the queue or, if the form names one, a group.
func (b *Dashboard) pause(w http.ResponseWriter, r *http.Request, q queueRef) {
	var change subjects.Change
	f, action := form{Values: r.PostForm}, path.Base(r.URL.Path)
	switch during := f.duration("for"); {
	case f.Has("group"):
		change.Groups = map[string]bool{f.text("group"): action == "pause"}
	case action == "resume":
		change.Reset = []string{"pause_until"}
	case during == "":
		change.Settings.PauseUntil = target.Forever
	default:
		d, err := subjects.ParseDelay(during)
		if err == nil && d <= 0 {
			err = fmt.Errorf("%s: want a duration above zero, such as 10m", during)
		}
		if err != nil {
			f.fail("for", err)
		}
		change.Settings.PauseUntil = time.Now().Add(d).UTC()
	}

	v, code := b.submit(r, q, &f, func() (string, error) {
		return "", b.change(r, q, &f, action, &change)
	})
	v.Pause = f
	b.showQueue(w, r, code, v)
}
