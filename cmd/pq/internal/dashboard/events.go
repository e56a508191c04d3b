package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	// streamsPerSession and maxStreams bound the streams of events. Tabs that are hidden have none.
	streamsPerSession = 32
	maxStreams        = 256
	// keepAlive is how often something is sent, so that proxies do not end a stream, and writeTime
	// how long a browser may take to receive it.
	keepAlive = 15 * time.Second
	writeTime = 10 * time.Second
)

// streams counts streams of events.
type streams struct {
	mu        sync.Mutex
	all       int
	bySession map[string]int
}

// add adds streams to those of a session, or with -1 removes one. It reports whether there may be as
// many.
func (s *streams) add(session string, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > 0 && (s.all >= maxStreams || s.bySession[session] >= streamsPerSession) {
		return false
	}
	s.all += n
	if s.bySession[session] += n; s.bySession[session] == 0 {
		delete(s.bySession, session)
	}
	return true
}

// stream sends the events of one page to one browser.
type stream struct {
	*board
	w        http.ResponseWriter
	r        *http.Request
	query    url.Values
	page     string
	queue    queueRef // of the page "queue"
	sent     sent
	lastSent time.Time // something
	lastAt   time.Time // of the points sent, zero before the first
}

func (b *board) getEvents(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	s := &stream{board: b, w: w, r: r, query: query, page: query.Get("page"), sent: sent{}}
	s.queue = queueRef{query.Get("kind"), query.Get("name")}
	if err := b.gateway.check(s.queue); s.page == "queue" && err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}

	session := callerOf(r).session
	if !b.streams.add(session, 1) {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "Too many pages are open.", http.StatusTooManyRequests)
		return
	}
	defer b.streams.add(session, -1)

	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // which nginx would do
	s.run()
}

// run sends what is new until the browser goes, or the session or the dashboard ends.
func (s *stream) run() {
	beat := time.NewTicker(keepAlive)
	defer beat.Stop()
	for {
		news := s.live.watch()
		if err := s.update(); err != nil {
			return
		}

		// Not more than one update each tick, whatever happens meanwhile.
		early := time.After(tick - tick/10)
		for waiting := true; waiting; {
			ready := news
			if early != nil {
				ready = nil
			}
			select {
			case <-early:
				early = nil
			case <-ready:
				waiting = false
			case <-beat.C:
				if !s.guard.logins.mayGoOn(callerOf(s.r)) || s.write(":\n\n") != nil {
					return
				}
			case <-s.r.Context().Done():
				return
			case <-s.closing:
				return
			}
		}
	}
}

// update sends what has changed on the page.
func (s *stream) update() error {
	shell := s.newShell(s.r, "", "")
	if liveParts[s.page] != nil {
		shell.Events = eventsPath
	}
	status, err := s.pages.execute("status", shell, nil)
	if err != nil {
		return err
	}

	var b bytes.Buffer
	parts, err := s.parts(shell, &b)
	if err != nil {
		s.Log.Error("cannot show an event", "page", s.page, "error", err)
		return err
	}
	if html := s.pages.changes(s.sent, append([]part{{ID: "status", HTML: status}}, parts...)); html != "" {
		writeEvent(&b, "patch", html)
	}
	if b.Len() == 0 && !s.lastSent.IsZero() {
		return nil
	}
	b.WriteString(":\n\n") // so that the browser knows soon that it is connected
	return s.write(b.String())
}

// parts returns what changes on the page besides the status. It writes the points of charts to b.
func (s *stream) parts(shell *shell, b *bytes.Buffer) (parts []part, err error) {
	switch s.page {
	case "queues": // twenty tabs mostly show the same
		parts = s.tables.get(s.r.URL.RawQuery, func([]part) ([]part, time.Duration) {
			parts, err = s.pages.parts(s.page, shell, s.queuesView(s.query))
			return parts, tick / 2
		})
		return parts, err
	case "queue":
		v, points := s.liveQueue(s.r.Context(), s.queue)
		s.writePoints(b, points)
		return s.pages.parts(s.page, shell, v)
	case "bridges":
		return s.pages.parts(s.page, shell, s.live.bridgesView())
	}
	return nil, nil
}

// writePoints writes the points that the charts do not have yet.
func (s *stream) writePoints(b *bytes.Buffer, points []point) {
	first := s.lastAt.IsZero()
	for len(points) > 0 && !points[0].at.After(s.lastAt) {
		points = points[1:]
	}
	if len(points) == 0 {
		return
	}

	s.lastAt = points[len(points)-1].at
	countsChart, ratesChart := charts(points, first)
	for _, chart := range []series{countsChart, ratesChart} {
		if data, err := json.Marshal(chart); err == nil { // it has only numbers and names
			writeEvent(b, "series", string(data))
		}
	}
}

func writeEvent(b *bytes.Buffer, event, data string) {
	fmt.Fprintf(b, "event: %s\n", event)
	for line := range strings.SplitSeq(strings.ReplaceAll(data, "\r", ""), "\n") {
		b.WriteString("data: " + line + "\n")
	}
	b.WriteString("\n")
}

func (s *stream) write(text string) error {
	control := http.NewResponseController(s.w)
	if err := control.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	s.lastSent = time.Now()
	return control.Flush()
}
