// Package web serves what operators and autoscalers ask a bridge over HTTP: whether it lives and is
// ready, its metrics, and how many items its queues have.
//
// Nobody logs in here, so nothing is written to the store, and what clients can take of the service
// is limited: by time, by the bytes of their headers, and by how many connections and scrapes there are at a
// time. The package knows neither NATS nor the bridge, which tells it everything in a Config.
package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// Config is what a Server shows, and where. All functions are called from several goroutines.
type Config struct {
	// Addr is the host:port to listen on; empty serves nothing.
	Addr string
	// Timeout limits each time that a page reads the store, or checks whether the bridge is ready.
	Timeout time.Duration
	// Ready returns why the bridge is not ready; nothing if it is.
	Ready func(ctx context.Context) []error

	// Queues returns a page of the list of queues, and Info what there is to know of one queue, and
	// when that was. Both only read.
	Queues func(ctx context.Context, kind subjects.Kind, o subjects.ListOptions) (subjects.QueueList, error)
	Info   func(ctx context.Context, kind subjects.Kind, name string) (info *fdbpq.Info, at time.Time, err error)

	// Registry has the metrics to show. New adds those of the queues.
	Registry *prometheus.Registry
	// DB and Keyspace are where the queues are whose metrics are shown: the MetricQueues longest of
	// each kind, of those that Owns reports; none if it is negative.
	DB           kv.Database
	Keyspace     *fdbpq.Keyspace
	MetricQueues int
	Owns         func(kind subjects.Kind, name string) bool
	// Owners returns the bridges among which the queues are shared out. It must not be changed.
	Owners func() []string

	// Failure returns the code and the text of an error that is not the client's.
	Failure func(error) (code int, text string)
	// Warn logs, but no flood.
	Warn func(message string, args ...any)
}

const (
	// How long a client may take: to send a request, headers and body, to read the answer once it
	// is there, and between requests.
	requestTimeout = 5 * time.Second
	answerTimeout  = 20 * time.Second
	idleTimeout    = time.Minute

	// Limits on the memory that HTTP clients can take: connections, bytes of headers, beyond which they get 431, and
	// scrapes of /metrics at a time. Scrapes that were ended may still be at work, so there may be twice as many
	// before clients get 503.
	maxConnections = 64
	maxHeader      = 16 << 10
	maxScrapes     = 4
	scrapeTimeout  = 5 * time.Second
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
	connections sync.WaitGroup // one for each goroutine of http
}

// New adds the metrics of the queues to the registry and opens the listener. The error is that of
// the listener. Call Close if Start will not be called.
func New(c Config) (*Server, error) {
	s := &Server{config: c}
	if c.Addr != "" {
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

	s.http = newServer(s.routes(), s.config.Timeout)
	closeOldest := s.http.ConnState
	s.http.ConnState = func(conn net.Conn, state http.ConnState) {
		closeOldest(conn, state)
		switch state {
		case http.StateNew:
			s.connections.Add(1)
		case http.StateClosed, http.StateHijacked:
			s.connections.Done()
		}
	}

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

// newServer returns a server whose clients cannot keep a connection busy by being slow. Its handlers
// take as long as work at most, each time that they read the store.
func newServer(handler http.Handler, work time.Duration) *http.Server {
	var all connections
	return &http.Server{
		ConnState:         all.note,
		Handler:           handler,
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout + 2*work + answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
	}
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("GET /queues", s.getQueues)
	mux.HandleFunc("GET /queues/{kind}/{name}", s.getQueue)
	scrape := promhttp.HandlerFor(s.config.Registry, promhttp.HandlerOpts{
		ErrorLog:            promLog{s.config.Warn},
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: 2 * maxScrapes,
	})
	var underWay scrapes
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		own := &scrapeWriter{ResponseWriter: w}
		underWay.add(own)
		defer underWay.remove(own)
		scrape.ServeHTTP(own, r)
	})
	return mux
}

// promLog logs the errors that promhttp reports.
type promLog struct{ warn func(string, ...any) }

func (p promLog) Println(v ...any) {
	p.warn("metrics could not be collected", "error", fmt.Sprint(v...))
}

// readiness is the body of /readyz.
type readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons,omitempty"` // why not
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), s.config.Timeout)
	defer cancel()
	answer, status := readiness{Ready: true}, http.StatusOK

	for _, err := range s.config.Ready(ctx) {
		answer.Ready, status = false, http.StatusServiceUnavailable
		answer.Reasons = append(answer.Reasons, err.Error())
	}
	writeJSON(w, status, answer)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails only if the client is gone
}
