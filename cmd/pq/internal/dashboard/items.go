package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
	"github.com/pqbridge/pqbridge/subjects"
)

// maxFilter is the longest filter in bytes; bridges take less.
const maxFilter = 4 << 10

// filterOf returns the items that a query asks for. It is kept with a search, so it must not keep
// the form that it is a part of.
func filterOf(query url.Values) itemsFilter {
	text := func(name string) string { return strings.Clone(query.Get(name)) }
	return itemsFilter{
		State: subjects.State(text("state")), End: text("end"),
		Match: text("match"), Header: text("header"),
	}
}

// optionsOf returns the request for the items of a filter. Hidden values cannot be searched: a
// search would find them out.
func (b *Dashboard) optionsOf(f itemsFilter) (o client.ItemsOptions, err error) {
	isHidden := f.Match != "" || f.Header != "" && !strings.HasPrefix(f.Header, deadPrefix)
	if b.HideValues && isHidden {
		return o, fmt.Errorf("values and headers are hidden here: "+
			"only headers that begin with %s can be searched for", deadPrefix)
	}

	if n := len(f.State) + len(f.End) + len(f.Match) + len(f.Header); n > maxFilter {
		return o, fmt.Errorf("%d bytes to search for: want at most %d", n, maxFilter)
	}

	o = client.ItemsOptions{State: f.State, Max: f.End == "max", Match: f.Match}
	if f.Header != "" {
		name, value, err := target.Header(f.Header)
		if err != nil {
			return o, err
		}
		o.Headers = map[string]string{name: value}
	}

	return o, nil
}

// newItems returns a list of items that has none yet.
func (b *Dashboard) newItems(r *http.Request, q queueRef, f itemsFilter) *itemsView {
	info, _ := b.monitor.ask(r.Context(), q) // the list itself says what is wrong
	known := b.monitor.one(q)
	v := &itemsView{
		Queue: q, Filter: f, Can: b.gateway.may(r.Context(), q),
		Counts: known.counts, DeadQueue: known.DeadQueue,
	}
	if info != nil {
		v.Finished, v.KeepsNone = &info.Finished, info.Settings.Keep == 0
	}
	return v
}

func (b *Dashboard) showItems(w http.ResponseWriter, r *http.Request, code int, v *itemsView) {
	isDead := func(row itemRow) bool { return row.Dead != nil }
	nav := navOf(v.Queue)
	v.IsDead = slices.ContainsFunc(v.Rows, isDead) ||
		len(v.Rows) == 0 && nav == "dead" && !v.IsDone()
	if v.IsDone() && v.Err == nil {
		v.Durations = b.durationsOf(r.Context(), v.Queue)
	}
	s := b.newShell(r, v.Queue.Name, nav)
	if v.Search != nil && v.Search.Running && s.Refresh > 0 {
		s.Refresh = soonTime
	}
	b.show(w, code, "items", s, v)
}

func (b *Dashboard) getItems(w http.ResponseWriter, r *http.Request, q queueRef) {
	query := r.URL.Query()
	if cause := query.Get("cause"); cause != "" {
		found, err := b.findCause(r.Context(), q, cause)
		b.openSearch(w, r, q, itemsFilter{}, found, err)
		return
	}

	if query.Has("slowest") {
		found, err := b.findSlowest(r.Context(), q)
		b.openSearch(w, r, q, slowest, found, err)
		return
	}

	v := b.newItems(r, q, filterOf(query))
	if id := query.Get("search"); id == "" {
		b.addItems(r.Context(), v, query)
	} else if f, err := b.searches.find(id, q); err == nil {
		b.addMatches(r.Context(), v, f, query)
	} else {
		b.fail(w, r, http.StatusNotFound, "No search", err.Error())
		return
	}
	b.showItems(w, r, codeOf(v.Err), v)
}

// addItems adds the items from a place on.
func (b *Dashboard) addItems(ctx context.Context, v *itemsView, query url.Values) {
	o, err := b.optionsOf(v.Filter)
	if err != nil {
		v.Filter.Error = err.Error()
		return
	}

	o.After, o.Limit, o.ValueBytes = query.Get("after"), pageRows, b.valueBytes(rowBytes)
	page, err := b.gateway.items(ctx, v.Queue, o)
	if err != nil {
		v.Err = err
		return
	}

	v.Rows = b.rowsOf(v.Queue, page.Items, false)
	if o.After != "" {
		v.Pager.First = linkTo(v.Queue.Items(""), query, "after", "")
	}

	if page.Next != nil {
		v.Pager.Next = linkTo(v.Queue.Items(""), query, "after", *page.Next)
	}
}

// addMatches adds a part of the matches of a search. Some may be gone.
func (b *Dashboard) addMatches(ctx context.Context, v *itemsView, f *search, query url.Values) {
	v.Search, v.Filter = f.view(), f.filter

	found := f.matches()
	from := clampFrom(query, len(found))
	ids := found[from:min(from+pageRows, len(found))]
	v.Pager = pagerOf(v.Queue.Items(""), query, from, len(ids), len(found))
	rows, err := b.rowsByID(ctx, v.Queue, ids, rowBytes)
	v.Rows, v.Err = slices.DeleteFunc(rows, isGone), err
}

func (b *Dashboard) postSearch(w http.ResponseWriter, r *http.Request, q queueRef) {
	filter := filterOf(r.PostForm)
	options, err := b.optionsOf(filter)
	var found *search
	if err == nil {
		counts := b.monitor.one(q).counts
		found, err = b.searches.start(q, filter, options, counts.All())
	}
	b.openSearch(w, r, q, filter, found, err)
}

// openSearch leads to what a search finds, or says why there is none.
func (b *Dashboard) openSearch(
	w http.ResponseWriter, r *http.Request, q queueRef, f itemsFilter, found *search, err error,
) {
	if err != nil {
		f.Error = err.Error()
		b.showItems(w, r, http.StatusBadRequest, b.newItems(r, q, f))
		return
	}
	http.Redirect(w, r, q.Items("")+"?search="+found.id, http.StatusSeeOther)
}

func (b *Dashboard) postStop(w http.ResponseWriter, r *http.Request, q queueRef) {
	id := r.PathValue("id")
	if f, err := b.searches.find(id, q); err == nil {
		f.cancel(errStopped)
	}
	http.Redirect(w, r, q.Items("")+"?search="+url.QueryEscape(id), http.StatusSeeOther)
}
