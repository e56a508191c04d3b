package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// Actions, as addresses name them.
const (
	actionPush    = "push"
	actionConfig  = "config"
	actionPause   = "pause"
	actionResume  = "resume"
	actionPurge   = "purge"
	actionRemove  = "remove"
	actionMove    = "move"
	actionRedrive = "redrive"
	actionRelease = "release"
)

// itemVerbs are the verbs of actions on items.
var itemVerbs = map[string]subjects.Verb{
	actionRemove: subjects.Remove, actionMove: subjects.Move, actionRedrive: subjects.Redrive, actionRelease: subjects.Release,
}

const (
	// sampleItems are shown before an action on many.
	sampleItems = 5
	// failureIDs are named for each reason why items failed.
	failureIDs = 5
)

func (d *Dashboard) postAction(w http.ResponseWriter, r *http.Request) {
	q, ok := d.queueOf(w, r)
	if !ok {
		return
	}
	action := r.PathValue("action")
	switch action {
	case actionPush:
		d.push(w, r, q)
	case actionConfig:
		d.configure(w, r, q)
	case actionPause:
		d.pause(w, r, q)
	case actionResume:
		d.resume(w, r, q)
	case actionPurge:
		d.purge(w, r, q)
	default:
		if verb, ok := itemVerbs[action]; ok && !(verb == subjects.Move && q.FIFO()) {
			d.actOnItems(w, r, q, action)
			return
		}
		d.notFound(w, r)
	}
}

// log notes an action: who did what, with how many. err among the rest may be nil.
func (d *Dashboard) log(r *http.Request, action string, q queueRef, rest ...any) {
	c := callerOf(r)
	args := []any{
		"action", action, "queue", q.Kind + "." + q.Name, "user", c.name, "from", r.RemoteAddr,
		"session", c.session[:min(len(c.session), 6)], // enough to tell two browsers apart, and to log in with nothing
	}
	for i := 0; i+1 < len(rest); i += 2 {
		if rest[i+1] != nil && rest[i+1] != "" {
			args = append(args, rest[i], rest[i+1])
		}
	}
	d.Log.Info("action", args...)
}

// confirm shows what an action would do, or why it cannot.
func (d *Dashboard) confirm(w http.ResponseWriter, r *http.Request, code int, v *confirmView) {
	d.show(w, r, code, "confirm", "confirm", d.newShell(r, v.Queue.Name, "queues"), v)
}

// done shows what an action has done.
func (d *Dashboard) done(w http.ResponseWriter, r *http.Request, code int, v *doneView) {
	d.show(w, r, code, "done", "done", d.newShell(r, v.Queue.Name, "queues"), v)
}

func (d *Dashboard) purge(w http.ResponseWriter, r *http.Request, q queueRef) {
	v := &confirmView{Action: actionPurge, Queue: q, State: subjects.State(r.PostForm.Get("state")), NameWanted: true, Name: r.PostForm.Get("name")}
	dry := r.PostForm.Get("dry") != ""
	if !dry && v.Name == q.Name {
		n, err := ask(r.Context(), d.gateway, q, subjects.Purge, func(ctx context.Context, q queue) (int64, error) { return q.Purge(ctx, v.State) })
		d.log(r, actionPurge, q, "state", string(v.State), "done", n, "error", err)
		if err != nil {
			d.done(w, r, codeOf(err), &doneView{Action: actionPurge, Queue: q, Error: err.Error(), BackTo: q.Path()})
			return
		}
		d.done(w, r, http.StatusOK, &doneView{Action: actionPurge, Queue: q, Done: n, Count: n, BackTo: q.Path()})
		return
	}

	code := http.StatusOK
	if !dry {
		code, v.Error = http.StatusBadRequest, fmt.Sprintf("want the name of the queue: %s", q.Name)
	}
	info, err := ask(r.Context(), d.gateway, q, subjects.Info, func(ctx context.Context, q queue) (*client.QueueInfo, error) { return q.Info(ctx) })
	if err != nil {
		d.failWith(w, r, err)
		return
	}
	counts := map[subjects.State]int64{
		"": info.Ready + info.Delayed + info.Leased, subjects.StateReady: info.Ready,
		subjects.StateDelayed: info.Delayed, subjects.StateLeased: info.Leased,
	}
	n, ok := counts[v.State]
	if !ok {
		d.fail(w, r, http.StatusBadRequest, "No state", "Want ready, delayed or leased.")
		return
	}
	v.Count = n
	d.confirm(w, r, code, v)
}

// selection is the items that a form is about.
type selection struct {
	ids    []string
	search *search // nil if the form names them
}

var (
	errNothing  = errors.New("no items are selected")
	errNoSearch = errors.New("this search is no longer kept: search again")
)

func (d *Dashboard) selectionOf(r *http.Request, q queueRef) (s selection, err error) {
	if id := r.PostForm.Get("search"); id != "" {
		if s.search = d.searchOf(id, q); s.search == nil {
			return s, errNoSearch
		}
		s.ids, _ = s.search.matches(0, 0)
		return s, nil
	}
	for _, id := range r.PostForm["ids"] { // a reply of the bridge names an id that is none
		if !slices.Contains(s.ids, id) {
			s.ids = append(s.ids, id)
		}
	}
	if len(s.ids) == 0 {
		return s, errNothing
	}
	return s, nil
}

func (d *Dashboard) actOnItems(w http.ResponseWriter, r *http.Request, q queueRef, action string) {
	chosen, err := d.selectionOf(r, q)
	if err != nil {
		d.fail(w, r, http.StatusBadRequest, "Nothing to do", err.Error())
		return
	}

	v := &confirmView{
		Action: action, Queue: q, Count: int64(len(chosen.ids)), Priority: r.PostForm.Get("priority"), Search: r.PostForm.Get("search"),
	}
	var priority int64
	if action == actionMove && (v.Priority != "" || r.PostForm.Get("dry") == "") {
		if priority, err = subjects.ParsePriority(strings.TrimSpace(v.Priority)); err != nil {
			v.Error = err.Error()
		}
	}
	if r.PostForm.Get("dry") == "" && v.Error == "" {
		d.act(w, r, q, action, chosen, priority)
		return
	}

	if chosen.search == nil {
		v.IDs = chosen.ids
	} else {
		found := chosen.search.view()
		v.More = found.Running || found.Full
	}
	v.Sample, err = d.rowsByID(r.Context(), q, chosen.ids[:min(len(chosen.ids), sampleItems)])
	if errors.Is(err, client.ErrBadRequest) { // after any other error, the action itself may work
		v.Error = err.Error()
	}
	code := http.StatusOK
	if v.Error != "" {
		code = http.StatusBadRequest
	}
	d.confirm(w, r, code, v)
}

// act does something to items, up to 1,000 in one request.
func (d *Dashboard) act(w http.ResponseWriter, r *http.Request, q queueRef, action string, chosen selection, priority int64) {
	v := &doneView{Action: action, Queue: q, Count: int64(len(chosen.ids)), BackTo: q.Items("")}
	if chosen.search != nil {
		v.BackTo = q.Path() + "/items?search=" + chosen.search.id
	}

	code := http.StatusOK
	for ids := range slices.Chunk(chosen.ids, subjects.MaxItems) {
		results, err := ask(r.Context(), d.gateway, q, itemVerbs[action], func(ctx context.Context, handle queue) ([]client.ItemResult, error) {
			switch action {
			case actionRemove:
				return handle.RemoveItems(ctx, ids)
			case actionRedrive:
				return handle.RedriveItems(ctx, ids)
			case actionRelease:
				return handle.ReleaseItems(ctx, ids)
			default:
				return d.gateway.client.PriorityQueue(q.Name).MoveItems(ctx, ids, priority)
			}
		})
		if err != nil {
			code, v.Error = codeOf(err), err.Error()
			break
		}
		v.add(q, results)
	}
	slices.SortFunc(v.Failures, func(a, b failureCount) int { return cmp.Compare(b.Count, a.Count) })
	d.live.askQueue(r.Context(), q, false) // the next page shows the new counts
	d.log(r, action, q, "items", v.Count, "done", v.Done, "search", searchText(chosen.search), "error", v.Error)
	d.done(w, r, code, v)
}

// searchText says in the log which search was acted on.
func searchText(f *search) string {
	if f == nil {
		return ""
	}
	return strings.TrimSpace(f.filter.Match + " " + f.filter.Header)
}

// add counts what became of items.
func (v *doneView) add(q queueRef, results []client.ItemResult) {
	for _, result := range results {
		if result.Code != 0 {
			i := slices.IndexFunc(v.Failures, func(f failureCount) bool { return f.Text == result.Text })
			if i < 0 {
				i = len(v.Failures)
				v.Failures = append(v.Failures, failureCount{Text: result.Text})
			}
			f := &v.Failures[i]
			if f.Count++; len(f.IDs) < failureIDs {
				f.IDs = append(f.IDs, result.ID)
			}
			continue
		}

		v.Done++
		home := q
		if result.Home != "" {
			home = queueRef{q.Kind, result.Home}
			i := slices.IndexFunc(v.Homes, func(h homeCount) bool { return h.Queue == home })
			if i < 0 {
				i = len(v.Homes)
				v.Homes = append(v.Homes, homeCount{Queue: home})
			}
			v.Homes[i].Count++
		}
		if v.Count == 1 {
			v.NewID, v.Home = result.NewID, home
		}
	}
}
