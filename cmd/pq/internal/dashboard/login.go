package dashboard

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	ratelimit "golang.org/x/time/rate"
)

const (
	// sessionTime is how long a login lasts, and maxSessions how many there are: then the oldest
	// ends.
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
	secure      bool   // this server has TLS

	attempts *ratelimit.Limiter

	mu       sync.Mutex
	sessions map[string]time.Time // by the cookie: when the login ends
}

var (
	errNoUser   = errors.New("the proxy did not say who you are")
	errLoggedIn = errors.New("log in first")
	errAttempts = errors.New("too many attempts: try again in a few seconds")
	errToken    = errors.New("that is not the token")
)

func newLogins(o *Options, port string) *logins {
	return &logins{
		token: o.Token, proxyHeader: o.ProxyUser, secure: o.Certificate != nil,
		cookie: "pq-dashboard-" + port, // browsers send cookies to all ports of a host
		// Nobody types faster, and nobody guesses a token that slowly.
		attempts: ratelimit.NewLimiter(1, 10),
		sessions: map[string]time.Time{},
	}
}

// hasForm reports whether people log in here.
func (l *logins) hasForm() bool { return l.token != "" }

// caller returns who sent a request. It gives a browser without a session one, which has not logged
// in.
func (l *logins) caller(w http.ResponseWriter, r *http.Request) (c caller, err error) {
	if l.proxyHeader != "" {
		names := r.Header.Values(l.proxyHeader)
		if len(names) != 1 || strings.TrimSpace(names[0]) == "" || len(names[0]) > maxUser {
			return caller{}, errNoUser
		}
		c.name = strings.TrimSpace(names[0])
	}

	if cookie, err := r.Cookie(l.cookie); err == nil && len(cookie.Value) == len(rand.Text()) {
		c.session = cookie.Value
	}
	if c.session == "" {
		c.session = rand.Text()
		l.setCookie(w, r, c.session)
	}

	if l.token != "" && !l.isLoggedIn(c.session) {
		return c, errLoggedIn
	}
	return c, nil
}

func (l *logins) hasCookie(r *http.Request) bool {
	_, err := r.Cookie(l.cookie)
	return err == nil
}

func (l *logins) isLoggedIn(session string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.sessions[session])
}

// logIn begins a session if the token is right. It has a new cookie: one from before the login may
// be known to others.
func (l *logins) logIn(w http.ResponseWriter, r *http.Request, token string) error {
	if !l.attempts.Allow() {
		return errAttempts
	}
	given, want := sha256.Sum256([]byte(strings.TrimSpace(token))), sha256.Sum256([]byte(l.token))
	if subtle.ConstantTimeCompare(given[:], want[:]) == 0 {
		return errToken
	}

	session := rand.Text()
	l.setCookie(w, r, session)

	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sessions) >= maxSessions {
		l.endOldest()
	}
	l.sessions[session] = time.Now().Add(sessionTime)
	return nil
}

// endOldest ends the session that was begun first. l.mu is held.
func (l *logins) endOldest() {
	oldest := ""
	for session, end := range l.sessions {
		if oldest == "" || end.Before(l.sessions[oldest]) {
			oldest = session
		}
	}
	delete(l.sessions, oldest)
}

func (l *logins) logOut(w http.ResponseWriter, r *http.Request, session string) {
	l.mu.Lock()
	delete(l.sessions, session)
	l.mu.Unlock()
	l.setCookie(w, r, rand.Text())
}

func (l *logins) setCookie(w http.ResponseWriter, r *http.Request, session string) {
	http.SetCookie(w, &http.Cookie{
		Name: l.cookie, Value: session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: l.secure || r.Header.Get("X-Forwarded-Proto") == "https", // who forges it, locks out himself
	})
}

// mayGoOn reports whether a stream of events may go on: the login is not over.
func (l *logins) mayGoOn(c caller) bool { return l.token == "" || l.isLoggedIn(c.session) }
