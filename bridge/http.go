package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// How long a client may take: to send a request, headers and body, to read the answer once it
	// is there, and between requests.
	requestTimeout = 5 * time.Second
	answerTimeout  = 20 * time.Second
	idleTimeout    = time.Minute

	// Limits on the memory that HTTP clients can take: bytes of headers, and concurrent
	// scrapes of /metrics. Beyond them, they get 431 and 503. Since a few clients that do not
	// read could keep others from scraping, they have less time.
	maxHeader     = 16 << 10
	maxScrapes    = 4
	scrapeTimeout = 5 * time.Second
)

// web is the HTTP server of a bridge, nil without one.
type web struct {
	server      *http.Server
	endScrapes  context.CancelFunc
	serving     sync.WaitGroup
	connections sync.WaitGroup // one for each goroutine of the server
}

// startHTTP serves on the listener, if there is one, until the result is closed. If the
// server fails, it sends the reason to failed.
func (b *Bridge) startHTTP(failed chan<- error) *web {
	if b.listener == nil {
		return nil
	}
	w := &web{endScrapes: b.endScrapes}
	w.server = newServer(b.routes(), b.options.HTTPTimeout)
	w.server.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			w.connections.Add(1)
		case http.StateClosed, http.StateHijacked:
			w.connections.Done()
		}
	}
	w.serving.Go(func() {
		if err := w.server.Serve(b.listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("bridge: HTTP: %w", err)
		}
	})
	return w
}

// newServer returns a server whose clients cannot keep a connection busy by being slow. Its handlers
// take as long as work at most, each time that they read the store.
func newServer(handler http.Handler, work time.Duration) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: requestTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      requestTimeout + 2*work + answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
	}
}

// close ends the server and returns when all its goroutines have ended. Responses being
// written are cut off.
func (w *web) close() {
	if w == nil {
		return
	}
	w.endScrapes()
	_ = w.server.Close() // fails if the listener is closed already
	w.serving.Wait()     // so that no connection is added
	w.connections.Wait()
}

func (b *Bridge) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", b.readyz)
	mux.HandleFunc("GET /queues", b.getQueues)
	mux.HandleFunc("GET /queues/{kind}/{name}", b.getQueue)
	scrape := promhttp.HandlerFor(b.metrics.registry, promhttp.HandlerOpts{
		ErrorLog:            promLog{b},
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes,
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		scrape.ServeHTTP(&scrapeWriter{ResponseWriter: w}, r)
	})
	return mux
}

// scrapeWriter limits the time to read an answer to scrapeTimeout, from when there is one.
type scrapeWriter struct {
	http.ResponseWriter
	begun bool
}

func (w *scrapeWriter) Write(p []byte) (int, error) {
	if !w.begun {
		w.begun = true
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(scrapeTimeout)) // else that of the server holds
	}
	return w.ResponseWriter.Write(p)
}

// promLog logs the errors that promhttp reports.
type promLog struct{ b *Bridge }

func (p promLog) Println(v ...any) {
	p.b.quiet.store.warn("metrics could not be collected", "error", fmt.Sprint(v...))
}

// readiness is the body of /readyz.
type readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons,omitempty"` // why not
}

// readyz checks NATS and the store, both at once.
func (b *Bridge) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), b.options.HTTPTimeout)
	defer cancel()
	store := make(chan error, 1)
	go func() { store <- b.storeReady(ctx) }()
	answer := readiness{Ready: true}
	for _, err := range []error{b.natsReady(ctx), <-store, b.servingReady()} {
		if err != nil {
			answer.Ready = false
			answer.Reasons = append(answer.Reasons, err.Error())
		}
	}
	status := http.StatusOK
	if b.stopping.Load() {
		answer.Ready = false
		answer.Reasons = append(answer.Reasons, "shutting down")
	}
	if !answer.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, answer)
}

// natsReady makes a round trip to the server.
func (b *Bridge) natsReady(ctx context.Context) error {
	if !b.online.Load() {
		return errors.New("nats: not connected")
	}
	if err := b.nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("nats: no answer: %w", err)
	}
	return b.denials.err()
}

func (b *Bridge) storeReady(ctx context.Context) error {
	if err := b.dispatcher.StoreReady(ctx); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails only if the client is gone
}
