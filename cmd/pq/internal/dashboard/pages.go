package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// pageRows is how many rows a table has.
const pageRows = 100

// newShell returns what every page has.
func (d *Dashboard) newShell(r *http.Request, title, nav string) *shell {
	c := callerOf(r)
	return &shell{
		Title: title, Nav: nav, Now: time.Now(), CSRF: d.guard.csrf(c.session), User: c.name,
		Server: d.Conn.ConnectedUrlRedacted(), LogOut: d.guard.logins.hasForm() && d.guard.logins.isLoggedIn(c.session),
		HideValues: d.HideValues, Status: d.live.currentStatus(),
	}
}

// show writes a page, or only a fragment of it to a page that asks for that.
func (d *Dashboard) show(w http.ResponseWriter, r *http.Request, code int, page, fragment string, s *shell, view any) {
	var b bytes.Buffer
	var err error
	if isHTMX(r) {
		err = d.pages.fragment(&b, fragment, s, view)
	} else {
		err = d.pages.page(&b, page, s, view)
	}
	if err != nil {
		d.Log.Error("cannot show a page", "page", page, "error", err)
		http.Error(w, "This page cannot be shown: "+err.Error(), http.StatusInternalServerError)
		return
	}

	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Vary", "HX-Request")
	w.WriteHeader(code)
	_, _ = b.WriteTo(w) // fails if the browser is gone
}

func isHTMX(r *http.Request) bool { return r.Header.Get("HX-Request") == "true" }

// fail shows an error in place of a page.
func (d *Dashboard) fail(w http.ResponseWriter, r *http.Request, code int, title, text string) {
	d.show(w, r, code, "error", "error", d.newShell(r, title, ""), &errorView{Status: code, Title: title, Text: text, BackTo: "/", BackToName: "Queues"})
}

func (d *Dashboard) notFound(w http.ResponseWriter, r *http.Request) {
	d.fail(w, r, http.StatusNotFound, "Not found", "There is no such page.")
}

// failWith is fail for the error of a request to a bridge.
func (d *Dashboard) failWith(w http.ResponseWriter, r *http.Request, err error) {
	d.fail(w, r, codeOf(err), "That did not work", err.Error())
}

// codeOf returns the HTTP status for the error of a request to a bridge.
func codeOf(err error) int {
	var reply *client.Error
	switch {
	case errors.As(err, new(*refusedError)):
		return http.StatusForbidden
	case errors.As(err, &reply) && reply.Code >= 400 && reply.Code < 600:
		return int(reply.Code)
	case errors.Is(err, client.ErrNoBridge), errors.Is(err, client.ErrNotSent):
		return http.StatusServiceUnavailable
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	}
	return http.StatusBadGateway
}

// queueOf returns the queue that the address names. Without a valid one it has answered.
func (d *Dashboard) queueOf(w http.ResponseWriter, r *http.Request) (q queueRef, ok bool) {
	q = queueRef{r.PathValue("kind"), r.PathValue("name")}
	if q.Kind != "pq" && q.Kind != "q" {
		d.notFound(w, r)
		return q, false
	}
	if _, err := d.gateway.subject(q, subjects.Info); err != nil {
		d.fail(w, r, http.StatusBadRequest, "No queue", err.Error())
		return q, false
	}
	return q, true
}

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

// queuesView returns the part of the table of queues that a query asks for.
func (d *Dashboard) queuesView(query url.Values) *queuesView {
	v := &queuesView{Filter: shorten(query.Get("filter")), Kind: query.Get("kind"), Sort: query.Get("sort"), Desc: query.Get("dir") == "desc"}
	compare := queueColumns[v.Sort]
	if compare == nil {
		v.Sort, compare = "name", queueColumns["name"]
	}

	rows, err := d.live.all()
	v.Denied = deniedBy(err)
	v.Total = len(rows)
	v.Sum = sum(rows)
	v.Sum.Dead = new(int64)
	for _, q := range d.live.deadQueues() { // of queues that are gone, too
		*v.Sum.Dead += q.Ready + q.Leased + q.Delayed
	}
	v.Sum.Line, v.InLine, v.OutLine = d.live.sumLines()
	rows = slices.DeleteFunc(rows, func(q queueRow) bool {
		return v.Kind != "" && q.Kind != v.Kind || !strings.Contains(strings.ToLower(q.Name), strings.ToLower(v.Filter))
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
	v.Rows = rows[from:min(from+pageRows, len(rows))]
	v.Pager = pagerOf("/", query, from, len(v.Rows), len(rows))
	d.live.lines(v.Rows)
	return v
}

// deniedBy returns why there will be no answer, "" if there only is none now.
func deniedBy(err error) string {
	var refused *refusedError
	if errors.As(err, &refused) {
		return refused.Error()
	}
	return ""
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

func (d *Dashboard) getBridges(w http.ResponseWriter, r *http.Request) {
	d.live.freshen(r.Context(), nil)
	s := d.newShell(r, "Bridges", "bridges")
	s.Events = eventsPath + "?page=bridges"
	d.show(w, r, http.StatusOK, "bridges", "bridges", s, d.bridgesView())
}

func (d *Dashboard) bridgesView() *bridgesView { return &bridgesView{Rows: d.live.bridgeRows()} }

// getReady answers probes: whether NATS is there.
func (d *Dashboard) getReady(w http.ResponseWriter, _ *http.Request) {
	answer := struct {
		Ready   bool     `json:"ready"`
		Reasons []string `json:"reasons,omitempty"`
	}{Ready: d.Conn.IsConnected()}
	w.Header().Set("Content-Type", "application/json")
	if !answer.Ready {
		answer.Reasons = []string{"NATS is away"}
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(answer) // fails if whoever asks is gone
}

func (d *Dashboard) getLogin(w http.ResponseWriter, r *http.Request) {
	if !d.guard.logins.hasForm() {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	d.show(w, r, http.StatusOK, "login", "login", d.newShell(r, "Log in", ""), &loginView{Next: localPath(r.FormValue("next"))})
}

func (d *Dashboard) postLogin(w http.ResponseWriter, r *http.Request) {
	next := localPath(r.PostForm.Get("next"))
	if !d.guard.logins.hasForm() {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}

	err := d.guard.logins.logIn(w, r, r.PostForm.Get("token"))
	d.Log.Info("login", "from", r.RemoteAddr, "ok", err == nil)
	if err != nil {
		code := http.StatusUnauthorized
		if errors.Is(err, errAttempts) {
			code = http.StatusTooManyRequests
		}
		d.show(w, r, code, "login", "login", d.newShell(r, "Log in", ""), &loginView{Next: next, Error: err.Error()})
		return
	}
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// localPath returns an address of this server, whatever a link to the login says.
func localPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.Contains(next, `\`) {
		return "/"
	}
	return next
}

func (d *Dashboard) postLogout(w http.ResponseWriter, r *http.Request) {
	d.guard.logins.logOut(w, r, callerOf(r).session)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
