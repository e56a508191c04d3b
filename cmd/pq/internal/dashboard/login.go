package dashboard

import (
	"net/http"
	"net/url"
	"strings"
)

func (b *Dashboard) getLogin(w http.ResponseWriter, r *http.Request) {
	b.showLogin(w, r, http.StatusOK, localPath(r.FormValue("next")), "")
}

// showLogin shows the form, or leads to the queues where nobody has to log in.
func (b *Dashboard) showLogin(w http.ResponseWriter, r *http.Request, code int, next, text string) {
	if !b.guard.logins.hasForm() {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	s := &shell{Title: "Log in", Nav: "login"} // which says nothing about where that leads
	b.show(w, code, "login", s, &form{
		Values: url.Values{"next": {next}}, Errors: map[string]string{"token": text},
	})
}

func (b *Dashboard) postLogin(w http.ResponseWriter, r *http.Request) {
	next := localPath(r.PostForm.Get("next"))
	err := b.guard.logins.logIn(w, r, r.PostForm.Get("token"))
	b.Log.Info("login", "from", r.RemoteAddr, "ok", err == nil)
	if err != nil {
		b.showLogin(w, r, http.StatusUnauthorized, next, err.Error())
		return
	}
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// localPath returns an address of this server, whatever a link to the login says.
func localPath(next string) string {
	u, err := url.Parse(next)
	isPath := strings.HasPrefix(next, "/") && !strings.HasPrefix(next, "//")
	if err != nil || u.Host != "" || u.Scheme != "" || !isPath || strings.Contains(next, `\`) {
		return "/"
	}
	return next
}

func (b *Dashboard) postLogout(w http.ResponseWriter, r *http.Request) {
	l := b.guard.logins
	l.mu.Lock()
	delete(l.sessions, callerOf(r).session)
	l.mu.Unlock()
	l.setCookie(w, r, "")
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
