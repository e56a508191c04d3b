package dashboard

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// sessionTime is how long a login lasts, and maxSessions how many there are at most.
	sessionTime = 12 * time.Hour
	maxSessions = 1_000
	// maxUser is the longest name of a user, in bytes, that a proxy may give.
	maxUser = 256
)

// logins knows who has logged in: with the token, by a proxy, or nobody needs to.
type logins struct {
	token       string // "" without
	proxyHeader string // "" without; a proxy that says who logged in also says if TLS was used
	cookie      string // its name

	mu       sync.Mutex
	sessions map[string]time.Time // by the cookie: when the login ends
}

var (
	errNoUser   = errors.New("the proxy did not say who you are")
	errLoggedIn = errors.New("log in first")
	errToken    = errors.New("that is not the token")
)

func newLogins(o *Options, port int) *logins {
	return &logins{
		token: o.Token, proxyHeader: o.ProxyUser,
		cookie:   fmt.Sprint("pq-dashboard-", port), // browsers send cookies to all ports of a host
		sessions: map[string]time.Time{},
	}
}

// hasForm reports whether people log in here.
func (l *logins) hasForm() bool { return l.token != "" }

// caller returns who sent a request, also with an error.
func (l *logins) caller(r *http.Request) (c caller, err error) {
	if l.proxyHeader != "" {
		names := r.Header.Values(l.proxyHeader)
		if len(names) != 1 || strings.TrimSpace(names[0]) == "" || len(names[0]) > maxUser {
			return caller{}, errNoUser
		}
		c.name = strings.TrimSpace(names[0])
	}

	if l.token == "" {
		return c, nil
	}

	if cookie, err := r.Cookie(l.cookie); err == nil {
		c.session = cookie.Value
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if !time.Now().Before(l.sessions[c.session]) {
		return c, errLoggedIn
	}

	return c, nil
}

// logIn begins a session if the token is right.
func (l *logins) logIn(w http.ResponseWriter, r *http.Request, token string) error {
	// Attempts have no limit: behind a proxy all come from one address, and a stranger who uses up
	// a limit locks out who has the token. Its length stands against guessing.
	given, want := sha256.Sum256([]byte(strings.TrimSpace(token))), sha256.Sum256([]byte(l.token))
	if subtle.ConstantTimeCompare(given[:], want[:]) == 0 {
		return errToken
	}

	session := rand.Text()
	l.setCookie(w, r, session)

	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sessions) >= maxSessions {
		clear(l.sessions) // users that have the token can log in again
	}

	l.sessions[session] = time.Now().Add(sessionTime)
	return nil
}

// setCookie gives the browser the session. The browser also sends it when it follows a link from
// another site; the guard refuses anything else that comes from there. A proxy says whether the
// browser uses HTTPS. Forging that only locks out the forger.
func (l *logins) setCookie(w http.ResponseWriter, r *http.Request, session string) {
	http.SetCookie(w, &http.Cookie{
		Name: l.cookie, Value: session, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: r.Header.Get("X-Forwarded-Proto") == "https",
	})
}

// caller is who sent a request.
type caller struct {
	name    string // "" if nobody logs in
	session string // of the token, the value of the cookie
}

type callerKey struct{}

func callerOf(r *http.Request) caller {
	c, _ := r.Context().Value(callerKey{}).(caller)
	return c
}
