package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"
)

// Bounds of what a browser may ask for.
const (
	maxHeaderBytes = 32 << 10
	maxBody        = 4 << 20  // a value of 1 MiB, encoded as a form
	maxOpenBody    = 4 << 10  // before somebody has logged in
	smallForm      = 16 << 10 // bytes of each form that there always is room for
	maxForms       = 6 << 20  // bytes beyond these that are held of all forms
	maxConnections = 320
	maxRequests    = 64               // that run at a time
	requestTime    = 30 * time.Second // that one may take
	refusalTime    = 10 * time.Second // in which a browser must read why a form was refused
)

// Paths that the guard knows.
const (
	loginPath  = "/login"
	staticPath = "/static/"
	healthPath = "/healthz"
	readyPath  = "/readyz"
)

// policy lets a page load what this server serves, and nothing else. Values of items are only ever
// text; should that have a hole, the policy keeps scripts in them from running.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// headers are those of all answers; the handlers of assets and files replace some.
var headers = http.Header{
	"Content-Security-Policy":      {policy},
	"X-Content-Type-Options":       {"nosniff"},
	"X-Frame-Options":              {"DENY"},
	"Referrer-Policy":              {"same-origin"},
	"Cross-Origin-Opener-Policy":   {"same-origin"}, // for HTTPS, and this machine
	"Cross-Origin-Resource-Policy": {"same-origin"},
	"Cache-Control":                {"no-store"},
}

// guard decides who may ask for something. It stands in front of all handlers.
type guard struct {
	hosts   []string // that a Host header may name besides addresses, with or without a port
	origins *http.CrossOriginProtection
	logins  *logins
	slots   chan struct{}       // an element for each request that runs
	forms   *semaphore.Weighted // bytes that are held of forms beyond smallForm
}

func newGuard(o *Options, port int) *guard {
	return &guard{
		hosts: o.Hosts, origins: http.NewCrossOriginProtection(), logins: newLogins(o, port),
		slots: make(chan struct{}, maxRequests), forms: semaphore.NewWeighted(maxForms),
	}
}

// wrap returns a handler that calls next for requests that are allowed.
func (g *guard) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		maps.Copy(w.Header(), headers)
		isProbe := r.URL.Path == healthPath || r.URL.Path == readyPath
		if isProbe && r.Method == http.MethodGet { // probes know no names
			next.ServeHTTP(w, r)
			return
		}
		if !g.isHost(r.Host) {
			text := "This dashboard is not served as " + shorten(r.Host) +
				". Start pq dashboard with --host to allow that name."
			http.Error(w, text, http.StatusMisdirectedRequest)
			return
		}
		if g.origins.Check(r) != nil {
			http.Error(w, "Another site sent this request.", http.StatusForbidden)
			return
		}
		c, err := g.logins.caller(r)
		if err != nil && !isOpen(r) {
			g.askToLogIn(w, r, err)
			return
		}
		g.serve(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)), next)
	})
}

// serve calls next with the form of the request, once there is room for both.
func (g *guard) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	release, err := g.readForm(r)
	defer release()
	if err != nil {
		refuseForm(w, err)
		return
	}

	// Requests open to strangers take no slots: they could keep all of them.
	if !isOpen(r) {
		select {
		case g.slots <- struct{}{}:
			defer func() { <-g.slots }()
		default:
			refuseForm(w, errBusy)
			return
		}
	}

	// A browser that reads slowly does not keep the slot. The server has deadlines, so this
	// succeeds.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(2 * requestTime))
	next.ServeHTTP(w, r)
}

// isHost reports whether a Host header names this server. Otherwise a name of another site may
// resolve to this address, which lets the scripts of that site read these pages.
func (g *guard) isHost(host string) bool {
	// An address is no name: nobody else decides where it leads. Ports say nothing, because proxies
	// and containers have their own.
	name := (&url.URL{Host: host}).Hostname()
	isAllowed := func(allowed string) bool {
		return strings.EqualFold(allowed, host) || strings.EqualFold(allowed, name)
	}
	_, err := netip.ParseAddr(name)
	return err == nil || isAllowed("localhost") || slices.ContainsFunc(g.hosts, isAllowed)
}

// isOpen reports whether a request needs no login.
func isOpen(r *http.Request) bool {
	return r.URL.Path == loginPath || strings.HasPrefix(r.URL.Path, staticPath)
}

// askToLogIn answers a request of somebody who has not logged in. The page with a form stays as it
// is, so that nothing typed is lost: its user logs in from another tab.
func (g *guard) askToLogIn(w http.ResponseWriter, r *http.Request, err error) {
	switch isForm := r.Method == http.MethodPost; {
	case g.logins.hasForm() && !isForm:
		next := url.QueryEscape(r.URL.RequestURI())
		http.Redirect(w, r, loginPath+"?next="+next, http.StatusSeeOther)
		return
	case g.logins.hasForm():
		err = fmt.Errorf("%w, in another tab, and try again", err)
	}

	http.Error(w, err.Error(), http.StatusUnauthorized)
}

var (
	errBusy = errors.New("the dashboard has too many requests to answer: try again")
	errSize = errors.New("the form is too large")
	errForm = errors.New("want a form, as this dashboard sends it")
)

// body counts the bytes of a form that have come, until release is called.
type body struct {
	io.ReadCloser
	forms      *semaphore.Weighted
	read, held int64
}

// Read implements io.Reader. It fails with errBusy if there is no room for what has come.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	more := max(b.read-smallForm, 0) - b.held
	if !b.forms.TryAcquire(more) {
		return 0, errBusy
	}
	b.held += more
	return n, err
}

func (b *body) release() { b.forms.Release(b.held) }

// readForm reads the form of a POST, and no other body. Its bytes count against maxForms from when
// they come until release is called: a browser that sends slowly, or nothing, keeps no room from
// others. net/http reads no more than the header says, and net/url no more than 10,000 fields.
func (g *guard) readForm(r *http.Request) (release func(), err error) {
	release = func() {}
	if r.Method != http.MethodPost {
		r.Body = http.NoBody // a handler that asks for a field would read what there is
		return release, nil
	}

	limit := int64(maxBody)
	if isOpen(r) {
		limit = maxOpenBody
	}

	size := r.ContentLength
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case size < 0, size > 0 && kind != "application/x-www-form-urlencoded":
		return release, errForm
	case size > limit:
		return release, errSize
	}

	counted := &body{ReadCloser: r.Body, forms: g.forms}
	r.Body = counted
	return counted.release, r.ParseForm()
}

// refuseForm answers a request whose form was not read, or that there is no room for.
func refuseForm(w http.ResponseWriter, err error) {
	code := http.StatusForbidden
	switch {
	case errors.Is(err, errBusy):
		w.Header().Set("Retry-After", "1")
		code = http.StatusServiceUnavailable
	case errors.Is(err, errSize):
		code = http.StatusRequestEntityTooLarge
	}
	http.Error(w, err.Error(), code)
}
