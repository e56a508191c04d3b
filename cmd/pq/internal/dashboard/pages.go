package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

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
	if err := d.gateway.check(q); err != nil {
		d.fail(w, r, http.StatusNotFound, "No queue", err.Error())
		return q, false
	}
	return q, true
}

// deniedBy returns why there will be no answer, "" if there only is none now.
func deniedBy(err error) string {
	var refused *refusedError
	if errors.As(err, &refused) {
		return refused.Error()
	}
	return ""
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
