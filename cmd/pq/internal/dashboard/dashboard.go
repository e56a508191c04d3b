// Package dashboard serves web pages that show what the queues are doing, and act on them. It talks
// to the bridges over NATS like any client, and may do what its NATS user may.
//
// Everybody who may open the pages acts as that user. By default only this machine can: another
// address to listen on needs a token, or a proxy that says who is there. Requests that the pages of
// other sites make a browser send are refused, see guard.
//
// Nothing is asked of the bridges while no page is open. All open pages share what was asked, see
// live. The memory and time that browsers can take are bounded by the constants of this package.
package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// MinToken is the least length of a token, in bytes.
const MinToken = 16

// Options say what to serve, and to whom.
type Options struct {
	// Listen is the address, such as 127.0.0.1:8423. Port 0 is any.
	Listen string
	// Token is what people log in with, "" if they need not.
	Token string
	// ProxyUser is the header in which a proxy says who is there, "" without a proxy. Nobody else
	// must be able to reach the address then.
	ProxyUser string
	// Hosts are names that browsers may know the dashboard by, besides localhost and addresses.
	Hosts []string
	// HideValues keeps values and headers of items from being shown.
	HideValues bool
	// Certificate is for HTTPS, nil for HTTP.
	Certificate *tls.Certificate

	// Conn is the connection to NATS, which stays open. Its error handler is replaced.
	Conn *nats.Conn
	// Grammar has the subjects of the bridges.
	Grammar subjects.Grammar
	// Timeout is how long a request to a bridge may take.
	Timeout time.Duration
	// Log gets a line for each action.
	Log *slog.Logger
}

// ErrOpen is returned by New for an address that others can reach, where nobody has to log in.
var ErrOpen = errors.New("whoever can reach this address could act as the NATS user")

// Dashboard is a server that listens.
type Dashboard struct {
	Options
	listener net.Listener
	guard    *guard
	pages    *renderer
	gateway  *gateway
	live     *live
	searches *searches
	dead     *deadScan
	streams  *streams
	tables   tables
	closing  chan struct{} // closed when streams have to end
}

// New listens. Call Run then, which closes the listener.
func New(o Options) (*Dashboard, error) {
	if o.Token != "" && o.ProxyUser != "" {
		return nil, errors.New("a token and a proxy exclude each other: leave out one")
	}
	if o.Token != "" && len(o.Token) < MinToken {
		return nil, fmt.Errorf("a token of %d bytes: want at least %d", len(o.Token), MinToken)
	}
	pages, err := newRenderer()
	if err != nil {
		return nil, err
	}

	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, err
	}
	addr := listener.Addr().(*net.TCPAddr)
	if !addr.IP.IsLoopback() && o.Token == "" && o.ProxyUser == "" {
		_ = listener.Close() // nothing was accepted
		return nil, ErrOpen
	}

	d := &Dashboard{
		Options: o, listener: listener, pages: pages,
		gateway: newGateway(&o), closing: make(chan struct{}),
		streams: &streams{bySession: map[string]int{}},
	}
	if d.live, err = newLive(d.gateway); err != nil {
		_ = listener.Close()
		return nil, err
	}
	d.searches, d.dead = newSearches(d.gateway), newDeadScan(d.gateway, d.live)
	d.guard = &guard{
		origins: http.NewCrossOriginProtection(), logins: newLogins(&o, fmt.Sprint(addr.Port)),
		slots: make(chan struct{}, maxRequests), key: []byte(rand.Text()),
	}
	for _, host := range o.Hosts {
		d.guard.hosts = append(d.guard.hosts, strings.ToLower(host))
	}
	return d, nil
}

// URL is where the pages are.
func (d *Dashboard) URL() string {
	scheme := "http"
	if d.Certificate != nil {
		scheme = "https"
	}
	return scheme + "://" + d.listener.Addr().String()
}

// stopTime is how long requests have to finish when the dashboard stops.
const stopTime = 5 * time.Second

// Run serves the pages until ctx ends, and returns nil then, or until that fails.
func (d *Dashboard) Run(ctx context.Context) error {
	working, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { d.live.run(working) })

	server := &http.Server{
		Handler: d.guard.wrap(d.routes()), MaxHeaderBytes: maxHeaderBytes,
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(d.Log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	work.Go(func() { failed <- d.serve(server) })

	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}

	// Streams and searches would go on; other requests are answered.
	close(d.closing)
	d.searches.end()
	d.dead.end()
	within, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	if server.Shutdown(within) != nil {
		_ = server.Close() // their requests took too long
	}
	stop()
	work.Wait()
	return err
}

func (d *Dashboard) serve(s *http.Server) (err error) {
	if d.Certificate != nil {
		s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*d.Certificate}, MinVersion: tls.VersionTLS12}
		err = s.ServeTLS(d.listener, "", "")
	} else {
		err = s.Serve(d.listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Paths that the guard knows.
const (
	eventsPath = "/events"
	loginPath  = "/login"
	staticPath = "/static/"
	healthPath = "/healthz"
	readyPath  = "/readyz"
)

func (d *Dashboard) routes() http.Handler {
	const queuePath = "/queue/{kind}/{name}"
	mux := http.NewServeMux()
	for pattern, handle := range map[string]http.HandlerFunc{
		"GET /{$}":                              d.getQueues,
		"GET /bridges":                          d.getBridges,
		"GET /dead":                             d.getDead,
		"GET " + queuePath:                      d.getQueue,
		"GET " + queuePath + "/items":           d.getItems,
		"GET " + queuePath + "/item/{id}":       d.getItem,
		"GET " + queuePath + "/item/{id}/value": d.getValue,
		"POST " + queuePath + "/{action}":       d.postAction,
		"POST /search":                          d.postSearch,
		"POST /search/{id}/stop":                d.postStop,
		"GET " + eventsPath:                     d.getEvents,
		"GET " + loginPath:                      d.getLogin,
		"POST " + loginPath:                     d.postLogin,
		"POST /logout":                          d.postLogout,
		"GET " + healthPath:                     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) },
		"GET " + readyPath:                      d.getReady,
		"/":                                     d.notFound,
	} {
		mux.HandleFunc(pattern, handle)
	}
	mux.Handle("GET "+staticPath, d.pages.static())
	return mux
}
