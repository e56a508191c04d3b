package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// rowBytes are shown of the values in a table, itemBytes on the page of an item.
const (
	rowBytes  = 160
	itemBytes = subjects.MaxValueBytes
)

// filterOf returns the items that a query asks for.
func filterOf(query url.Values) itemsFilter {
	return itemsFilter{
		State: subjects.State(query.Get("state")), End: query.Get("end"),
		Match: query.Get("match"), Header: query.Get("header"),
	}
}

// options returns the request for these items.
func (f itemsFilter) options() (o client.ItemsOptions, err error) {
	o = client.ItemsOptions{State: f.State, Max: f.End == "max", Match: f.Match}
	if f.Header == "" {
		return o, nil
	}
	name, value, ok := strings.Cut(f.Header, ":")
	if !ok || strings.TrimSpace(name) == "" {
		return o, fmt.Errorf("a header is %.80q: want Name: value", f.Header)
	}
	o.Headers = map[string]string{strings.TrimSpace(name): strings.TrimSpace(value)}
	return o, nil
}

// checkFilter returns what is wrong with a filter, besides what bridges find. Whoever can search in
// values that are hidden can find them out.
func (d *Dashboard) checkFilter(f itemsFilter) error {
	_, err := f.options()
	if err == nil && d.HideValues && (f.Match != "" || f.Header != "" && !strings.HasPrefix(f.Header, deadPrefix)) {
		err = fmt.Errorf("values and headers are hidden here: only headers that begin with %s can be searched for", deadPrefix)
	}
	return err
}

// deadPrefix begins the names of the headers that say how an item became a dead letter.
const deadPrefix = "Pq-Dead-"

// rowOf returns an item as the pages show it.
func (d *Dashboard) rowOf(q queueRef, item client.StoredItem) itemRow {
	row := itemRow{Queue: q, StoredItem: item}
	if info, err := subjects.ParseItemHeaders(item.Headers); err == nil {
		row.Dead = info.DeadLetter
	}
	if d.HideValues {
		row.Value, row.Headers = nil, nil
	}
	return row
}

func (d *Dashboard) rowsOf(q queueRef, items []client.StoredItem) []itemRow {
	rows := make([]itemRow, len(items))
	for i := range items {
		rows[i] = d.rowOf(q, items[i])
	}
	return rows
}

// valueBytes is how many bytes of each value to ask for, of which n would be shown.
func (d *Dashboard) valueBytes(n int) int {
	if d.HideValues {
		return client.NoValues
	}
	return n
}

func (d *Dashboard) getItems(w http.ResponseWriter, r *http.Request) {
	q, ok := d.queueOf(w, r)
	if !ok {
		return
	}
	query := r.URL.Query()
	v := &itemsView{Queue: q, Filter: filterOf(query), Can: d.gateway.may(r.Context(), q)}
	d.live.freshen(r.Context(), &q)
	v.Counts = d.live.one(q).counts

	if id := query.Get("search"); id != "" {
		f := d.searchOf(id, q)
		if f == nil {
			d.fail(w, r, http.StatusNotFound, "No search", "This search is no longer kept: search again.")
			return
		}
		d.addMatches(r.Context(), v, f, query)
	} else {
		d.addItems(r.Context(), v, query)
	}
	d.show(w, r, http.StatusOK, "items", "items", d.newShell(r, q.Name, "queues"), v)
}

// addItems adds the items from a place on.
func (d *Dashboard) addItems(ctx context.Context, v *itemsView, query url.Values) {
	if err := d.checkFilter(v.Filter); err != nil {
		v.Filter.Error = err.Error()
		return
	}
	o, _ := v.Filter.options() // which checkFilter has checked
	o.After, o.Limit, o.ValueBytes = query.Get("after"), pageRows, d.valueBytes(rowBytes)
	page, err := ask(ctx, d.gateway, v.Queue, subjects.Items, func(ctx context.Context, q queue) (client.ItemsPage, error) { return q.Items(ctx, o) })
	switch {
	case errors.Is(err, client.ErrBadRequest):
		v.Filter.Error = err.Error()
		return
	case err != nil:
		v.Error = err.Error()
		return
	}

	v.Rows = d.rowsOf(v.Queue, page.Items)
	v.IsDead = isDead(v.Queue, v.Rows)
	link := func(after string) string {
		next := copyQuery(query)
		if next.Del("after"); after != "" {
			next.Set("after", after)
		}
		return v.Queue.Path() + "/items?" + next.Encode()
	}
	if o.After != "" {
		v.Pager.First = link("")
	}
	if page.Next != nil {
		v.Pager.Next = link(*page.Next)
	}
}

// addMatches adds a part of what a search has found.
func (d *Dashboard) addMatches(ctx context.Context, v *itemsView, f *search, query url.Values) {
	v.Search, v.Filter = f.view(), f.filter

	_, found := f.matches(0, 1)
	from := clampFrom(query, found)
	ids, _ := f.matches(from, pageRows)
	v.Pager = pagerOf(v.Queue.Path()+"/items", query, from, len(ids), found)
	rows, err := d.rowsByID(ctx, v.Queue, ids)
	if err != nil {
		v.Error = err.Error()
	}
	v.Rows, v.IsDead = rows, isDead(v.Queue, rows)
}

// rowsByID returns those items that are still there.
func (d *Dashboard) rowsByID(ctx context.Context, q queueRef, ids []string) (rows []itemRow, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	items, err := ask(ctx, d.gateway, q, subjects.Get, func(ctx context.Context, handle queue) ([]client.StoredItem, error) {
		return handle.GetItems(ctx, ids, d.valueBytes(rowBytes))
	})
	for _, item := range items {
		if item.Code != subjects.CodeNotFound {
			rows = append(rows, d.rowOf(q, item))
		}
	}
	return rows, err
}

// isDead reports whether items are dead letters. Of a queue without any, its name says so.
func isDead(q queueRef, rows []itemRow) bool {
	for i := range rows {
		if rows[i].Dead != nil {
			return true
		}
	}
	return len(rows) == 0 && strings.HasSuffix(q.Name, "-dead")
}

// searchOf returns a search of a queue, nil if it is not kept.
func (d *Dashboard) searchOf(id string, q queueRef) *search {
	f := d.searches.find(id)
	if f == nil {
		f = d.dead.find(id)
	}
	if f == nil || f.queue != q {
		return nil
	}
	return f
}

func (d *Dashboard) postSearch(w http.ResponseWriter, r *http.Request) {
	q := queueRef{r.PostForm.Get("kind"), r.PostForm.Get("name")}
	if err := d.gateway.check(q); err != nil {
		d.fail(w, r, http.StatusNotFound, "No queue", err.Error())
		return
	}

	filter := filterOf(r.PostForm)
	n := d.live.one(q).counts
	total := n.Ready + n.Leased + n.Delayed
	err := d.checkFilter(filter)
	var found *search
	if err == nil {
		found, err = d.searches.start(q, filter, total)
	}
	if err != nil {
		filter.Error = err.Error()
		v := &itemsView{Queue: q, Filter: filter, Can: d.gateway.may(r.Context(), q), Counts: n}
		d.show(w, r, http.StatusBadRequest, "items", "items", d.newShell(r, q.Name, "queues"), v)
		return
	}
	redirect(w, r, q.Path()+"/items?search="+found.id)
}

// redirect leads the browser to another page.
func redirect(w http.ResponseWriter, r *http.Request, to string) {
	if isHTMX(r) {
		w.Header().Set("HX-Redirect", to)
		return
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

func (d *Dashboard) postStop(w http.ResponseWriter, r *http.Request) {
	f := d.searches.find(r.PathValue("id"))
	if f == nil {
		d.fail(w, r, http.StatusNotFound, "No search", "This search is no longer kept: search again.")
		return
	}
	f.end()
	if !isHTMX(r) {
		redirect(w, r, f.queue.Path()+"/items?search="+f.id)
		return
	}

	v := &itemsView{Queue: f.queue, Can: d.gateway.may(r.Context(), f.queue), Counts: d.live.one(f.queue).counts}
	d.addMatches(r.Context(), v, f, url.Values{"search": {f.id}})
	d.show(w, r, http.StatusOK, "items", "items", d.newShell(r, f.queue.Name, "queues"), v)
}
