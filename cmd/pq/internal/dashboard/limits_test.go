package dashboard

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/testenv"
)

// Requests that are too large, too many fields and too many at a time are refused.
func TestLimits(t *testing.T) {
	r := newRig(t, nil)
	b := r.browser()
	b.get("/queue/pq/jobs")

	large := func(method, path, body, header string, want int) {
		t.Helper()
		q, err := http.NewRequest(method, b.base+path, strings.NewReader(body))
		must(t, err)
		q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		q.Header.Set("X-Long", header)
		a, err := b.Do(q)
		if err != nil { // the server did not wait for the end
			return
		}
		must(t, a.Body.Close())

		if a.StatusCode != want {
			t.Errorf("%s %s: status %d", method, path, a.StatusCode)
		}
	}

	const form = "value="
	large(http.MethodPost, "/queue/pq/jobs/push", form+strings.Repeat("x", maxBody), "",
		http.StatusRequestEntityTooLarge)
	large(http.MethodGet, "/", "", strings.Repeat("x", maxHeaderBytes+10_000),
		http.StatusRequestHeaderFieldsTooLarge)

	if n := r.info().Ready; n != 0 {
		t.Errorf("%d items were pushed", n)
	}
	b.do(http.MethodPost, "/queue/pq/jobs/remove", strings.Repeat("a&", 10_001)).wants(t,
		http.StatusForbidden, "query parameters")

	for range maxRequests {
		r.board.guard.slots <- struct{}{}
	}
	b.get("/").wants(t, http.StatusServiceUnavailable)

	for range maxRequests {
		<-r.board.guard.slots
	}
	b.get("/").wants(t, http.StatusOK)
}

// Who has not logged in keeps nobody out by sending slowly, and sends little.
func TestSlowForms(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Token = secret })
	address := strings.TrimPrefix(r.board.URL(), "http://")

	for range maxRequests + 1 {
		c, err := net.Dial("tcp", address)
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = fmt.Fprintf(c, "POST /login HTTP/1.1\r\nHost: %s\r\nContent-Type: "+
			"application/x-www-form-urlencoded\r\nContent-Length: 100\r\nExpect: "+
			"100-continue\r\n\r\n", address)
		must(t, err)

		_, err = io.ReadFull(c, make([]byte, 12)) // the server reads the form now
		must(t, err)
	}

	b := r.browser()
	b.get("/login").wants(t, http.StatusOK)
	b.do(http.MethodPost, "/static/push", strings.Repeat("x", maxOpenBody+1)).wants(t,
		http.StatusRequestEntityTooLarge)
}

// dial opens a connection, writes to it, and returns the status of the answer.
func (r *rig) dial(format string, args ...any) (c net.Conn, status string) {
	r.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.board.URL(), "http://"))
	must(r.t, err)

	r.t.Cleanup(func() { _ = c.Close() })
	must(r.t, c.SetDeadline(time.Now().Add(testenv.Patience)))
	_, err = fmt.Fprintf(c, format, args...)
	must(r.t, err)

	answer := make([]byte, len("HTTP/1.1 200"))
	_, err = io.ReadFull(c, answer)
	must(r.t, err)

	return c, string(answer[len(answer)-3:])
}

// formHead begins a request with a form whose body comes later, or never.
const formHead = "POST /queue/pq/jobs/push HTTP/1.1\r\nHost: localhost\r\nContent-Type: " +
	"application/x-www-form-urlencoded\r\nExpect: 100-continue\r\n"

// Forms that say that they are large, and send nothing, keep nobody from sending one.
func TestSlowLargeForms(t *testing.T) {
	r := newRig(t, nil)
	b := r.browser()

	for range 3 {
		// The server reads the form.
		if _, status := r.dial("%sContent-Length: %d\r\n\r\n", formHead, maxBody); status != "100" {
			t.Fatalf("status %s", status)
		}
	}

	large := b.post("/queue/pq/jobs/push", "value", strings.Repeat("x", 900_000))

	large.wants(t, http.StatusOK, "pushed")
}

// The bytes of forms are bounded, small forms always have room, and nothing else is read of a
// request.
func TestMemoryOfForms(t *testing.T) {
	r := newRig(t, nil)
	b := r.browser()
	if _, status := r.dial("%sTransfer-Encoding: chunked\r\n\r\n", formHead); status != "403" {
		t.Errorf("a form of any length has status %s", status)
	}

	sender, status := r.dial("%sContent-Length: %d\r\n\r\n", formHead, maxBody)
	if status != "100" {
		t.Errorf("status %s", status)
	}

	_, err := sender.Write(make([]byte, maxBody-1))
	must(t, err)
	const others = maxForms - (maxBody - 1 - smallForm)
	testenv.Eventually(t, func() error { // all that it has sent counts
		if forms := r.board.guard.forms; forms.TryAcquire(others + 1) {
			forms.Release(others + 1)
			return errors.New("not all has come")
		}
		return nil
	})
	if !r.board.guard.forms.TryAcquire(others) {
		t.Fatal("more is held than was sent")
	}
	b.post("/queue/pq/jobs/push", "value",
		strings.Repeat("x", 2*smallForm)).wants(t, http.StatusServiceUnavailable)
	b.post("/queue/pq/jobs/push", "value",
		strings.Repeat("x", smallForm/2)).wants(t, http.StatusOK, "pushed")

	must(t, sender.Close())
	r.board.guard.forms.Release(others)
	testenv.Eventually(t, func() error {
		if !r.board.guard.forms.TryAcquire(maxForms) {
			return errBusy
		}

		r.board.guard.forms.Release(maxForms)
		return nil
	})

	r = serve(t, r.Env, r.Env.Connect(), func(o *Options) { o.Token = secret })
	_, status = r.dial("GET /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: " +
		"multipart/form-data; boundary=x\r\nContent-Length: 99999999\r\nExpect: " +
		"100-continue\r\n\r\n")
	if status != "200" {
		t.Errorf("status %s", status)
	}
}

// Connections that do nothing keep nobody out, and there is a limited number of them.
func TestIdleConnections(t *testing.T) {
	r := newRig(t, nil)
	const get = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	first, _ := r.dial(get)

	for range maxConnections {
		r.dial(get)
	}
	if _, err := io.Copy(io.Discard, first); err != nil {
		t.Errorf("the oldest connection is still open: %v", err)
	}
	r.browser().get("/").wants(t, http.StatusOK)
}

// No number of wrong tokens or slow requests keeps anybody from logging in. The number of sessions
// is bounded.
func TestLoginLimits(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Token = secret })
	b := r.browser()

	for range 30 { // from the address of the proxy, as all requests
		b.post("/login", "token", "guess").wants(t, http.StatusUnauthorized)
	}

	for range maxRequests {
		r.board.guard.slots <- struct{}{}
	}
	b.get("/login").wants(t, http.StatusOK)
	b.post("/login", "token", secret).wants(t, http.StatusSeeOther)

	l := r.board.guard.logins
	for range maxSessions + 10 {
		must(t, l.logIn(httptest.NewRecorder(), &http.Request{}, secret))
	}
	if n := len(l.sessions); n == 0 || n > maxSessions {
		t.Errorf("%d sessions", n)
	}
}
