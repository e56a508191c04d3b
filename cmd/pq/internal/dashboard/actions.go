package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/subjects"
)

// sampleItems are shown before an action on many.
const sampleItems = 5

// itemAction is an action on items, up to subjects.MaxItems at a time.
type itemAction struct {
	verb subjects.Verb
	do   func(q target.Queue, ctx context.Context, ids []string) (resultsOf, error)
}

// resultsOf are the results of an action, one for each id.
type resultsOf = []client.ItemResult

var itemActions = map[string]itemAction{
	"remove":  {subjects.Remove, target.Queue.RemoveItems},
	"redrive": {subjects.Redrive, target.Queue.RedriveItems},
	"release": {subjects.Release, target.Queue.ReleaseItems},
	"move":    {verb: subjects.Move}, // to a priority
}

// confirm shows what an action would do, or why it cannot.
func (b *board) confirm(w http.ResponseWriter, r *http.Request, v *confirmView) {
	code := http.StatusOK
	if v.Error != "" {
		code = http.StatusBadRequest
	}
	b.show(w, code, "confirm", b.newShell(r, v.Queue.Name, navOf(v.Queue)), v)
}

// done shows what an action has done.
func (b *board) done(w http.ResponseWriter, r *http.Request, v *doneView, err error) {
	if err != nil {
		v.Error = err.Error()
	}
	b.live.asked.forget(v.Queue) // the next page shows the new counts
	b.dead.expire()
	b.busy.expire()
	b.log(r, v.Action, v.Queue, "items", v.Count, "done", v.Done, "of", v.found,
		"priority", v.Priority, "error", v.Error)
	b.show(w, codeOf(err), "done", b.newShell(r, v.Queue.Name, navOf(v.Queue)), v)
}

func (b *board) purge(w http.ResponseWriter, r *http.Request, q queueRef) {
	v := &confirmView{
		actionView: actionView{Action: "purge", Queue: q},
		State:      subjects.State(r.PostForm.Get("state")), Name: r.PostForm.Get("name"),
	}

	dry := r.PostForm.Get("dry") != ""
	if !dry && v.Name == q.Name {
		done := &doneView{actionView: v.actionView, found: string(v.State)}
		err := b.purgeItems(r.Context(), done, v.State)
		done.Count = done.Done
		b.done(w, r, done, err)
		return
	}

	if !dry {
		v.Error = fmt.Sprintf("want the name of the queue: %s", q.Name)
	}

	info, err := b.gateway.info(r.Context(), q)
	if err != nil {
		b.failWith(w, r, err)
		return
	}

	v.Count = map[subjects.State]int64{
		"": info.Ready + info.Delayed + info.Leased, subjects.StateReady: info.Ready,
		subjects.StateDelayed: info.Delayed, subjects.StateLeased: info.Leased,
	}[v.State]
	b.confirm(w, r, v)
}

// purgeItems purges until nothing is left, and counts the items.
func (b *board) purgeItems(ctx context.Context, v *doneView, state client.State) error {
	part := func(q target.Queue, ctx context.Context) (more bool, err error) {
		n, more, err := q.PurgePart(ctx, state)
		v.Done += n
		return more, err
	}
	for {
		more, err := ask(ctx, b.gateway, v.Queue, subjects.Purge, part)
		if err != nil || !more {
			return err
		}
	}
}

var errNothing = errors.New("no items are selected")

// chosen returns the items that a form is about. found is the search that it names, or one for the
// cause of dead letters that it names; nil if it names items.
func (b *board) chosen(r *http.Request, q queueRef) (ids []string, found *search, err error) {
	cause, id := r.PostForm.Get("cause"), r.PostForm.Get("search")
	switch {
	case cause != "":
		found, err = b.findCause(r.Context(), q, cause)
	case id != "":
		found, err = b.searches.find(id, q)
	case !r.PostForm.Has("ids"):
		err = errNothing
	}

	if err != nil || found == nil {
		return r.PostForm["ids"], nil, err
	}

	// A search may have found more since the dialog said how many there are.
	ids = found.matches()
	if n, err := strconv.Atoi(r.PostForm.Get("count")); err == nil {
		ids = ids[:min(max(n, 0), len(ids))]
	}

	return ids, found, nil
}

func (b *board) actOnItems(w http.ResponseWriter, r *http.Request, q queueRef) {
	action := r.PathValue("action")
	do, ok := itemActions[action]
	if !ok {
		b.notFound(w, r)
		return
	}

	ids, found, err := b.chosen(r, q)
	if err != nil {
		b.fail(w, r, http.StatusBadRequest, "Nothing to do", err.Error())
		return
	}

	dry := r.PostForm.Get("dry") != ""
	v := &confirmView{actionView: actionView{
		Action: action, Queue: q, Count: int64(len(ids)), Back: r.PostForm.Get("back"),
	}}

	if found != nil {
		v.Search = found.id
	}

	if action == "move" {
		v.Priority = strings.TrimSpace(r.PostForm.Get("priority"))
		b.prepareMove(v, &do, dry)
	}

	if !dry && v.Error == "" {
		done := &doneView{actionView: v.actionView}
		if found != nil {
			done.found = found.filter.Text()
		}
		b.done(w, r, done, b.act(r.Context(), done, do, ids))
		return
	}

	if found == nil {
		v.IDs = ids
	}

	rows, err := b.rowsByID(r.Context(), q, ids[:min(len(ids), sampleItems)], rowBytes)
	v.Sample = slices.DeleteFunc(rows, isGone)
	if errors.Is(err, client.ErrBadRequest) { // after any other error, the action itself may work
		v.Error = err.Error()
	}

	b.confirm(w, r, v)
}

// prepareMove takes the smallest priority from what is known, which is no reason to keep a move
// waiting, and reads the one to move to unless it is asked for.
func (b *board) prepareMove(v *confirmView, do *itemAction, dry bool) {
	if info := b.live.one(v.Queue).info; info != nil && len(info.Priorities) > 0 {
		v.Least = &info.Priorities[0].Priority
	}
	if v.Priority == "" && dry {
		return
	}

	priority, err := subjects.ParsePriority(v.Priority)
	if err != nil {
		v.Error = err.Error()
	}
	do.do = func(q target.Queue, ctx context.Context, ids []string) (resultsOf, error) {
		return q.MoveItems(ctx, ids, priority)
	}
}

// act runs an action on items, and counts the results.
func (b *board) act(ctx context.Context, v *doneView, do itemAction, ids []string) error {
	v.Failures, v.Homes = map[string][]string{}, map[string]int64{}
	return target.ByIDs(ids, b.Conn.MaxPayload(), func(part []string) (again []string, err error) {
		request := func(q target.Queue, ctx context.Context) (resultsOf, error) {
			return do.do(q, ctx, part)
		}
		results, err := ask(ctx, b.gateway, v.Queue, do.verb, request)

		results, again = target.WithoutRoom(results)
		for _, result := range results {
			if result.Code != 0 {
				why := strings.TrimSuffix(result.Text, ": "+result.ID)
				v.Failures[why] = append(v.Failures[why], result.ID)
				continue
			}
			v.Done++
			if result.Home != "" {
				v.Homes[result.Home]++
			}
		}
		return again, err
	})
}
