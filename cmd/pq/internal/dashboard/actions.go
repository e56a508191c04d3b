package dashboard

import (
	"context"
	"errors"
	"fmt"
	"math"
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

// confirm shows what an action would do, or why it cannot.
func (b *Dashboard) confirm(w http.ResponseWriter, r *http.Request, v *actionView) {
	code := http.StatusOK
	if v.Error != "" {
		code = http.StatusBadRequest
	}
	b.show(w, code, "confirm", b.newShell(r, v.Queue.Name, navOf(v.Queue)), v)
}

// done shows what an action has done.
func (b *Dashboard) done(w http.ResponseWriter, r *http.Request, v *actionView, err error) {
	if err != nil {
		v.Error = err.Error()
	}
	b.monitor.asked.forget(v.Queue) // the next page shows the new counts
	b.dead.expire()
	b.busy.expire()
	b.log(r, v.Action, v.Queue, "items", v.Count, "done", v.Done, "of", v.found,
		"priority", v.Priority, "error", v.Error)
	b.show(w, codeOf(err), "done", b.newShell(r, v.Queue.Name, navOf(v.Queue)), v)
}

func (b *Dashboard) purge(w http.ResponseWriter, r *http.Request, q queueRef) {
	state := r.PostForm.Get("state")
	v := &actionView{
		Action: "purge", Queue: q, State: subjects.State(state), Name: r.PostForm.Get("name"),
		found: state,
	}
	dry := r.PostForm.Get("dry") != ""
	switch {
	case !dry && v.Name == q.Name:
		err := b.purgeItems(r.Context(), v)
		v.Count = v.Done
		b.done(w, r, v, err)
		return
	case !dry:
		v.Error = fmt.Sprintf("want the name of the queue: %s", q.Name)
	}

	info, err := b.gateway.info(r.Context(), q)
	if err != nil {
		b.failWith(w, r, err)
		return
	}
	v.Count = target.Count(info, v.State)
	b.confirm(w, r, v)
}

// purgeItems purges until nothing is left, and counts the items.
func (b *Dashboard) purgeItems(ctx context.Context, v *actionView) error {
	part := func(q *client.Queue, ctx context.Context) (more bool, err error) {
		n, more, err := q.PurgePart(ctx, v.State)
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

// chosen returns the target.Ref of the items that a form is about. found is the search that it
// names, or one for the cause of dead letters that it names; nil if it names items.
func (b *Dashboard) chosen(r *http.Request, q queueRef) (ids []string, found *search, err error) {
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

func (b *Dashboard) actOnItems(w http.ResponseWriter, r *http.Request, q queueRef) {
	v := &actionView{
		Action: r.PathValue("action"), Queue: q, Back: r.PostForm.Get("back"),
		State: subjects.State(r.PostForm.Get("state")),
	}
	do, ok := itemActions[v.Action]
	if !ok {
		b.notFound(w, r)
		return
	}

	ids, found, err := b.chosen(r, q)
	if err != nil {
		b.fail(w, r, http.StatusBadRequest, "Nothing to do", err.Error())
		return
	}

	if v.Count = int64(len(ids)); found != nil {
		v.Search, v.found = found.id, found.filter.Text()
	} else {
		v.IDs = ids
	}

	dry := r.PostForm.Get("dry") != ""
	switch v.Action {
	case "remove":
		do.do = func(
			q *client.Queue, ctx context.Context, ids []string,
		) ([]client.ItemResult, error) {
			return q.RemoveItemsIn(ctx, v.State, ids)
		}
	case "move":
		v.Priority = strings.TrimSpace(r.PostForm.Get("priority"))
		if dry && r.PostForm.Has("front") {
			v.Priority = b.front(r.Context(), q)
		}
		b.prepareMove(v, &do, dry)
	}

	if !dry && v.Error == "" {
		b.done(w, r, v, b.act(r.Context(), v, do, ids))
		return
	}

	rows, err := b.rowsByID(r.Context(), q, ids[:min(len(ids), sampleItems)], rowBytes)
	v.Sample = slices.DeleteFunc(rows, isGone)
	if errors.Is(err, client.ErrBadRequest) { // after any other error, the action itself may work
		v.Error = err.Error()
	}
	b.confirm(w, r, v)
}

// prepareMove reads the priority to move to, unless the dialog asks for it. The smallest one comes
// from the figures at hand, so that no move waits for it.
func (b *Dashboard) prepareMove(v *actionView, do *itemAction, dry bool) {
	if v.Least = b.monitor.one(v.Queue).least; v.Priority == "" && dry {
		return // the dialog asks for it
	}

	priority, err := subjects.ParsePriority(v.Priority)
	if err != nil {
		v.Error = err.Error()
	}
	move := (*client.Queue).MoveItemsAt
	if do.byPlace = v.Search == ""; !do.byPlace { // what a search found can be moved again
		move = (*client.Queue).MoveItems
	}
	do.do = func(q *client.Queue, ctx context.Context, ids []string) ([]client.ItemResult, error) {
		return move(q, ctx, ids, priority)
	}
}

// front returns the priority that is served before all that are ready, "" if that is not known.
func (b *Dashboard) front(ctx context.Context, q queueRef) string {
	_, _ = b.monitor.ask(ctx, q) // if it fails, what is known may do
	least := b.monitor.one(q).least
	if least == nil {
		return ""
	}
	return strconv.FormatInt(max(*least, math.MinInt64+1)-1, 10)
}

// act runs an action on items, and counts the results.
func (b *Dashboard) act(ctx context.Context, v *actionView, do itemAction, refs []string) error {
	v.Failures, v.Homes = map[string][]string{}, map[string]int64{}
	return target.ByIDs(refs, b.Conn.MaxPayload(), func(part []string) (again []string, err error) {
		names := target.Named(part, do.byPlace)
		request := func(q *client.Queue, ctx context.Context) ([]client.ItemResult, error) {
			return do.do(q, ctx, names)
		}
		results, err := ask(ctx, b.gateway, v.Queue, do.verb, request)
		for i := range min(len(results), len(part)) {
			results[i].ID = part[i]
			results[i].Text = strings.TrimSuffix(results[i].Text, ": "+names[i])
		}

		results, again = target.WithoutRoom(results)
		for _, result := range results {
			if result.Code != 0 {
				id := target.Named([]string{result.ID}, false)[0]
				v.Failures[result.Text] = append(v.Failures[result.Text], id)
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
