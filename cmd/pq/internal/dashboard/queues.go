package dashboard

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// pageRows is how many rows a table has.
const pageRows = 100

func (b *Dashboard) getQueues(w http.ResponseWriter, r *http.Request) {
	s := b.newShell(r, "Queues", "queues")
	b.turns <- struct{}{} // rows of all queues take megabytes
	v := b.queuesView(r.URL.Query())
	<-b.turns

	if s.AsOf = v.asOf; s.AsOf.IsZero() && s.Status.State == stateConnected {
		s.Refresh = soonTime
	}
	b.show(w, http.StatusOK, "queues", s, v)
}

// queueColumns are the numbers that a table can be sorted by, besides the name. With pointers each
// comparison would copy two rows to the heap.
var queueColumns = map[string]func(queueRow) float64{
	"ready":   func(q queueRow) float64 { return float64(q.Ready) },
	"leased":  func(q queueRow) float64 { return float64(q.Leased) },
	"delayed": func(q queueRow) float64 { return float64(q.Delayed) },
	"dead":    func(q queueRow) float64 { return orLeast(q.Dead) },
	"oldest":  func(q queueRow) float64 { return orLeast(q.Oldest) },
	"in":      func(q queueRow) float64 { return orLeast(q.In) },
	"out":     func(q queueRow) float64 { return orLeast(q.Out) },
	"failed":  func(q queueRow) float64 { return orLeast(q.Failed) },
	"waiting": func(q queueRow) float64 { return orLeast(q.Waiting) },
}

// queuesView returns the part of the table of queues that a query asks for.
func (b *Dashboard) queuesView(query url.Values) *queuesView {
	list := b.monitor.all()
	rows := list.rows
	v := &queuesView{
		Filter: query.Get("filter"), Kind: query.Get("kind"),
		Sort: query.Get("sort"), Desc: query.Get("dir") == "desc",
		Sum: list.sum(), Denied: deniedBy(list.err), More: len(rows) >= maxQueues,
	}

	for i := range rows {
		if !rows[i].IsDead {
			v.Total++
		}
	}

	filter := strings.ToLower(v.Filter)
	rows = slices.DeleteFunc(rows, func(q queueRow) bool {
		// The row of its queue stands for a dead-letter queue, unless somebody looks for it.
		isHidden := q.IsDead && filter == "" || v.Kind != "" && q.Kind != v.Kind
		return isHidden || !strings.Contains(strings.ToLower(q.Name), filter)
	})

	v.Matching = len(rows)
	v.sort(rows)

	from := clampFrom(query, len(rows))
	v.Rows = slices.Clone(rows[from:min(from+pageRows, len(rows))])
	v.Pager = pagerOf("/", query, from, len(v.Rows), len(rows))
	b.monitor.show(v)
	return v
}

func (v *queuesView) sort(rows []queueRow) {
	number := queueColumns[v.Sort]
	if number == nil {
		v.Sort, number = "name", func(queueRow) float64 { return 0 }
	}

	slices.SortFunc(rows, func(a, b queueRow) int {
		switch { // dead-letter queues come last, in either direction
		case a.IsDead && !b.IsDead:
			return 1
		case b.IsDead && !a.IsDead:
			return -1
		}
		order := cmp.Or(cmp.Compare(number(a), number(b)), byName(a, b))
		if v.Desc {
			return -order
		}
		return order
	})
}

// clampFrom returns the first row that a query asks for, of n.
func clampFrom(query url.Values, n int) int {
	from, _ := strconv.Atoi(query.Get("from"))
	return max(min(from, n-1)/pageRows*pageRows, 0)
}

// pagerOf returns the links to the parts of a table that shows n rows from a place.
func pagerOf(path string, query url.Values, from, n, all int) (p pager) {
	link := func(to int) string { // the first part has no number
		return linkTo(path, query, "from", strings.TrimPrefix(strconv.Itoa(to), "0"))
	}

	if n > 0 {
		p.From, p.To = int64(from)+1, int64(from+n)
	}

	if from > 0 {
		p.First, p.Prev = link(0), link(from-pageRows)
	}

	if from+n < all {
		p.Next = link(from + n)
	}

	return p
}

// linkTo returns the address of a page with one value of its query replaced, or removed with "".
func linkTo(path string, query url.Values, name, value string) string {
	q := maps.Clone(query)
	if q.Del(name); value != "" {
		q.Set(name, value)
	}
	return path + "?" + q.Encode()
}
