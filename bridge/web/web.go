// Package web serves what operators and autoscalers ask a bridge over HTTP: whether it lives and is
// ready, its metrics, and how many items its queues have.
//
// Nobody logs in here, so nothing is written to the store, and what clients can take of the service
// is limited: by time, by the bytes of their headers, and by how many connections and scrapes there
// are at a time. The package knows neither NATS nor the bridge, which tells it everything in a
// Config.
package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pqbridge/pqbridge/bridge/web/connlimit"
)

const (
	// How long a client may take: to send a request, headers and body, to read the answer once it
	// is there, and between requests.
	requestTimeout = 5 * time.Second
	answerTimeout  = 20 * time.Second
	idleTimeout    = time.Minute
	// maxHeader is the most bytes of headers; clients that send more get 431.
	maxHeader = 16 << 10
	// maxConnections are open at a time, and maxScrapes of /metrics run.
	maxConnections, maxScrapes = 64, 8
)

// Server serves the pages of one bridge.
type Server struct {
	config   Config
	listener net.Listener // nil without HTTP
	http     *http.Server // nil until Start

	// scrapes ends with the server; Prometheus passes no context to its collectors.
	scrapes    context.Context
	endScrapes context.CancelFunc

	serving     sync.WaitGroup
	connections *connlimit.Limit
}

// New adds the metrics of the queues to the registry and opens the listener. The error is the
// listener's. Call Close if Start will not be called.
func New(c Config) (*Server, error) {
	s := &Server{config: c, connections: connlimit.New(maxConnections)}
	if c.Addr != "" { // here and not in Start, so that a bad address fails early
		listener, err := net.Listen("tcp", c.Addr)
		if err != nil {
			return nil, err
		}
		s.listener = listener
	}

	s.scrapes, s.endScrapes = context.WithCancel(context.Background())
	c.Registry.MustRegister(&queueCollector{config: &s.config, scrapes: s.scrapes})
	return s, nil
}

// Addr returns the address of the listener, "" without one.
func (s *Server) Addr() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Close closes the listener. A server that was started fails; use Stop to end it in order.
func (s *Server) Close() error {
	if s.listener == nil {
		return nil
	}
	if err := s.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("bridge: HTTP: %w", err)
	}
	return nil
}

// Start serves until Stop is called. If the server fails, it sends the reason to failed.
func (s *Server) Start(failed chan<- error) {
	if s.listener == nil {
		return
	}

	s.http = newServer(s.routes(), s.config.Timeout, s.connections)
	s.http.ErrorLog = log.New(warnings{"HTTP", s.config.Warn}, "", 0)
	s.serving.Go(func() {
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("bridge: HTTP: %w", err)
		}
	})
}

// Stop ends the server and returns when all its goroutines have ended. Responses being
// written are cut off.
func (s *Server) Stop() {
	s.endScrapes()
	if s.http == nil {
		return
	}

	_ = s.http.Close() // fails if the listener is closed already
	s.serving.Wait()   // so that no connection is added
	s.connections.Wait()
}

// newServer returns a server whose clients cannot keep a connection busy by being slow. Its
// handlers take as long as work at most, each time that they read the store.
func newServer(handler http.Handler, work time.Duration, all *connlimit.Limit) *http.Server {
	return &http.Server{
		ConnState:         all.Note,
		Handler:           handler,
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout + 2*work + answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
	}
}

// index is for people who open the address in a browser. Its links work behind a proxy too.
const index = `<!doctype html>
<html lang="en"><meta name="viewport" content="width=device-width"><title>pqbridge</title>
<h1>pqbridge</h1>
<p>This bridge serves priority queues over NATS. It has these pages for programs:</p>
<ul>
<li><a href="healthz">healthz</a>: whether it lives
<li><a href="readyz">readyz</a>: whether it can serve requests, and why not
<li><a href="metrics">metrics</a>: figures for Prometheus
<li><a href="queues">queues</a>: how many items the queues have
</ul>
<p>The pages for people are another program's: start <code>pq dashboard</code>.</p>
</html>
`

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, index)
	})

	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})

	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("GET /queues", s.config.page(s.config.list))
	mux.HandleFunc("GET /queues/{kind}/{name}", s.config.page(s.config.queue))

	// With a Timeout, promhttp writes to memory first: nobody takes a place by reading slowly.
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.config.Registry, promhttp.HandlerOpts{
		ErrorLog:            warnings{"metrics could not be collected", s.config.Warn},
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes,
		Timeout:             2 * s.config.Timeout,
	}))
	return mux
}

// warnings logs what a library reports, under one message.
type warnings struct {
	message string
	warn    func(string, ...any)
}

// Println implements promhttp.Logger.
func (w warnings) Println(v ...any) { w.warn(w.message, "error", fmt.Sprint(v...)) }

// Write implements io.Writer. It gets one report at a time.
func (w warnings) Write(report []byte) (int, error) {
	w.Println(strings.TrimSpace(string(report)))
	return len(report), nil
}

// readyz answers GET /readyz.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), s.config.Timeout)
	defer cancel()

	answer := struct {
		Ready   bool     `json:"ready"`
		Reasons []string `json:"reasons,omitempty"` // why not
	}{Ready: true}
	status := http.StatusOK
	for _, err := range s.config.Ready(ctx) {
		answer.Ready, status = false, http.StatusServiceUnavailable
		answer.Reasons = append(answer.Reasons, err.Error())
	}

	writeJSON(w, status, answer)
}
