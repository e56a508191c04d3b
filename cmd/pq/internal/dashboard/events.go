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

// open reports whether a session may have another stream. If so, call close.
func (s *streams) open(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxStreams || s.bySession[session] >= streamsPerSession {
		return false
	}
	s.all++
	s.bySession[session]++
	return true
}

func (s *streams) close(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.bySession[session]--; s.bySession[session] == 0 {
		delete(s.bySession, session)
	}
}

// stream sends the events of one page to one browser.
type stream struct {
	*Dashboard
	w        http.ResponseWriter
	r        *http.Request
	query    url.Values
	page     string
	queue    queueRef // of the page "queue"
	watching *watch
	sent     sent
	lastSent time.Time // something
	lastAt   time.Time // of the points sent
	charted  bool
}

func (d *Dashboard) getEvents(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	s := &stream{Dashboard: d, w: w, r: r, query: query, page: query.Get("page"), watching: &watch{}, sent: sent{}}
	if s.page == "queue" {
		s.queue = queueRef{query.Get("kind"), query.Get("name")}
		if err := d.gateway.check(s.queue); err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		s.watching.queue = &s.queue
	}

	session := callerOf(r).session
	if !d.streams.open(session) {
		w.Header().Set("Retry-After", "10")
		http.Error(w, "Too many pages are open.", http.StatusTooManyRequests)
		return
	}
	defer d.streams.close(session)
	defer d.live.watch(s.watching)()

	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // which nginx would do
	s.run()
}

// run sends what is new until the browser goes, or the session or the dashboard ends.
func (s *stream) run() {
	beat := time.NewTicker(keepAlive)
	defer beat.Stop()
	for {
		news := s.live.news()
		if err := s.update(); err != nil {
			return
		}

		// Not more than one update each tick, whatever happens meanwhile.
		pause := time.NewTimer(tick - tick/10)
		select {
		case <-pause.C:
		case <-s.r.Context().Done():
		case <-s.closing:
		}
		pause.Stop()
		for waiting := true; waiting; {
			select {
			case <-news:
				waiting = false
			case <-beat.C:
				if time.Since(s.lastSent) >= keepAlive/2 && s.write(":\n\n") != nil {
					return
				}
				if !s.guard.logins.mayGoOn(callerOf(s.r)) {
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
	html, err := s.Dashboard.pages.live(s.sent, s.page, shell, s.view())
	if err != nil {
		s.Log.Error("cannot show an event", "page", s.page, "error", err)
		return err
	}

	var b bytes.Buffer
	if html != "" {
		writeEvent(&b, "patch", html)
	}
	if s.page == "queue" {
		s.addSeries(&b)
	}
	if b.Len() == 0 && !s.lastSent.IsZero() {
		return nil
	}
	b.WriteString(":\n\n") // so that the browser knows soon that it is connected
	return s.write(b.String())
}

// view returns what the page shows now, nil for a page of which only the status changes.
func (s *stream) view() any {
	switch s.page {
	case "queues":
		v := s.queuesView(s.query)
		view := make([]queueRef, len(v.Rows))
		for i := range v.Rows {
			view[i] = v.Rows[i].queueRef
		}
		s.live.setView(s.watching, view)
		return v
	case "queue":
		return s.liveQueue(s.r.Context(), s.queue)
	case "bridges":
		return s.bridgesView()
	}
	return nil
}

// addSeries adds the points that the charts do not have yet.
func (s *stream) addSeries(b *bytes.Buffer) {
	points := s.live.points(s.queue, s.lastAt)
	if len(points) == 0 && s.charted {
		return
	}
	if len(points) > 0 {
		s.lastAt = points[len(points)-1].at
	}
	countsChart, ratesChart := charts(points, !s.charted)
	s.charted = true
	for _, chart := range []series{countsChart, ratesChart} {
		data, err := json.Marshal(chart)
		if err == nil { // it has only numbers and names
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
