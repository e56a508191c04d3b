package dashboard

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// pageRows is how many rows a table has.
const pageRows = 100

func (d *Dashboard) getQueues(w http.ResponseWriter, r *http.Request) {
	d.live.freshen(r.Context(), nil)
	s := d.newShell(r, "Queues", "queues")
	s.Events = eventsPath + "?" + withPage(r.URL.Query(), "queues")
	d.show(w, r, http.StatusOK, "queues", "queues", s, d.queuesView(r.URL.Query()))
}

// withPage returns the query of the events of a page.
func withPage(query url.Values, page string) string {
	query.Set("page", page)
	return query.Encode()
}

// queueColumns compare rows by the columns that a table can be sorted by.
var queueColumns = map[string]func(a, b *queueRow) int{
	"name":    func(a, b *queueRow) int { return 0 },
	"ready":   func(a, b *queueRow) int { return cmp.Compare(a.Ready, b.Ready) },
	"leased":  func(a, b *queueRow) int { return cmp.Compare(a.Leased, b.Leased) },
	"delayed": func(a, b *queueRow) int { return cmp.Compare(a.Delayed, b.Delayed) },
	"dead":    func(a, b *queueRow) int { return compareKnown(a.Dead, b.Dead) },
	"oldest":  func(a, b *queueRow) int { return compareKnown(a.Oldest, b.Oldest) },
	"in":      func(a, b *queueRow) int { return compareKnown(a.In, b.In) },
	"out":     func(a, b *queueRow) int { return compareKnown(a.Out, b.Out) },
}

// compareKnown compares numbers, of which those that are not known are the least.
func compareKnown[T cmp.Ordered](a, b *T) int {
	switch {
	case a == nil || b == nil:
		return cmp.Compare(btoi(a != nil), btoi(b != nil))
	default:
		return cmp.Compare(*a, *b)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// tables keeps what was made of the figures for the pages, until there are new ones: twenty tabs mostly
// show the same.
type tables struct {
	mu     sync.Mutex
	news   <-chan struct{}
	queues map[string]*queuesView // by their queries
}

// maxTables are kept.
const maxTables = 64

// queuesView returns the part of the table of queues that a query asks for. It must not be changed.
func (d *Dashboard) queuesView(query url.Values) *queuesView {
	var key strings.Builder
	for _, name := range []string{"filter", "kind", "sort", "dir", "from"} {
		key.WriteString(shorten(query.Get(name)) + "\x00")
	}

	t := &d.tables
	t.mu.Lock()
	defer t.mu.Unlock()
	if news := d.live.news(); t.queues == nil || t.news != news || len(t.queues) >= maxTables {
		t.news, t.queues = news, map[string]*queuesView{}
	}
	v := t.queues[key.String()]
	if v == nil {
		v = d.makeQueuesView(query)
		t.queues[key.String()] = v
	}
	return v
}

func (d *Dashboard) makeQueuesView(query url.Values) *queuesView {
	v := &queuesView{Filter: shorten(query.Get("filter")), Kind: query.Get("kind"), Sort: query.Get("sort"), Desc: query.Get("dir") == "desc"}
	compare := queueColumns[v.Sort]
	if compare == nil {
		v.Sort, compare = "name", queueColumns["name"]
	}

	rows, err := d.live.all()
	v.Denied = deniedBy(err)
	v.Total, v.Sum = len(rows), sum(rows)
	v.Sum.Dead = new(int64)
	for _, q := range d.live.deadQueues() { // of queues that are gone, too
		*v.Sum.Dead += q.items()
	}
	v.Sum.Line, v.InLine, v.OutLine = d.live.sumLines()

	filter := strings.ToLower(v.Filter)
	rows = slices.DeleteFunc(rows, func(q queueRow) bool {
		return v.Kind != "" && q.Kind != v.Kind || filter != "" && !strings.Contains(strings.ToLower(q.Name), filter)
	})
	v.Matching = len(rows)
	slices.SortFunc(rows, func(a, b queueRow) int {
		order := cmp.Or(compare(&a, &b), strings.Compare(a.Name, b.Name), strings.Compare(a.Kind, b.Kind))
		if v.Desc {
			return -order
		}
		return order
	})

	from := clampFrom(query, len(rows))
	v.Rows = slices.Clone(rows[from:min(from+pageRows, len(rows))])
	v.Pager = pagerOf("/", query, from, len(v.Rows), len(rows))
	d.live.lines(v.Rows)
	return v
}

// clampFrom returns the first row that a query asks for, of n.
func clampFrom(query url.Values, n int) int {
	from, _ := strconv.Atoi(query.Get("from"))
	if from >= n {
		from = n - 1
	}
	return max(from/pageRows*pageRows, 0)
}

// pagerOf returns the links to the parts of a table of which n rows from a place are shown.
func pagerOf(path string, query url.Values, from, n, all int) (p pager) {
	link := func(to int) string {
		q := copyQuery(query)
		q.Del("page")
		if q.Del("from"); to > 0 {
			q.Set("from", strconv.Itoa(to))
		}
		return path + "?" + q.Encode()
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

// copyQuery copies a query.
func copyQuery(query url.Values) url.Values {
	q := url.Values{}
	for name, values := range query {
		q[name] = slices.Clone(values)
	}
	return q
}

// sum adds up queues.
func sum(rows []queueRow) (all counts) {
	var in, out float64
	for i := range rows {
		q := &rows[i]
		all.Ready, all.Leased, all.Delayed = all.Ready+q.Ready, all.Leased+q.Leased, all.Delayed+q.Delayed
		if q.In != nil {
			in, out = in+*q.In, out+*q.Out
			all.In, all.Out = &in, &out
		}
		if q.Oldest != nil && (all.Oldest == nil || *q.Oldest > *all.Oldest) {
			all.Oldest = q.Oldest
		}
	}
	return all
}
