// Package dashboard serves web pages that show what the queues are doing, and act on them. It talks
// to the bridges over NATS like any client, and may do what its NATS user may.
//
// Everybody who can open the pages acts as that user. By default only this machine can: to listen
// on another address needs a token, or a proxy that says who is there. The guard refuses requests
// that pages of other sites make a browser send.
//
// Pages that somebody looks at ask for themselves every two seconds. They share what was asked of
// the bridges, see live, and while nobody looks nothing is asked. What goes through many queues,
// such as the page of the dead letters, is a survey, which pages share too. The memory and time
// that browsers can take are bounded by the constants of this package.
package dashboard

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/bridge/web/connlimit"
)

// Dashboard is a server that listens.
type Dashboard struct {
	*board
	listener net.Listener
}

// New returns a Dashboard that listens on its address. Run serves the pages, and closes the
// listener. Errors about the options wrap ErrOptions.
func New(o Options) (*Dashboard, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
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

	b := &board{
		Options: o, pages: pages, gateway: newGateway(&o),
		guard: newGuard(&o, addr.Port),
	}

	if b.live, err = newLive(b.gateway); err != nil {
		_ = listener.Close()
		return nil, err
	}

	b.searches = newSearches(b.gateway)
	b.dead.searches, b.dead.gather = b.searches, b.countDead
	b.busy.searches, b.busy.gather = b.searches, b.listBusy
	b.schedules.searches, b.schedules.gather = b.searches, b.listSchedules
	return &Dashboard{b, listener}, nil
}

// URL returns the address of the pages, as seen from this machine.
func (d *Dashboard) URL() string {
	addr := *d.listener.Addr().(*net.TCPAddr)
	if addr.IP.IsUnspecified() {
		addr.IP = net.IPv4(127, 0, 0, 1)
	}
	return "http://" + addr.String()
}

// stopTime is how long requests have to finish when the dashboard stops.
const stopTime = 5 * time.Second

// Run serves the pages until ctx ends, and then returns nil. It returns earlier if serving fails.
func (d *Dashboard) Run(ctx context.Context) error {
	working, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { d.live.run(working) })

	server := &http.Server{
		Handler: d.guard.wrap(d.routes()), MaxHeaderBytes: maxHeaderBytes,
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 20 * time.Second,
		IdleTimeout: 2 * time.Minute,
		ConnState:   connlimit.New(maxConnections).Note,
		ErrorLog:    slog.NewLogLogger(d.Log.Handler(), slog.LevelWarn),
	}

	failed := make(chan error, 1)
	work.Go(func() { failed <- server.Serve(d.listener) })

	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}

	d.searches.end() // requests under way are answered
	within, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	if server.Shutdown(within) != nil {
		_ = server.Close() // their requests took too long
	}

	stop()
	work.Wait()
	return err
}

func (d *Dashboard) routes() http.Handler {
	const queuePath = "/queue/{kind}/{name}"
	// The answer to a form is a page, which shares the time of the request that the form makes.
	formTime := min(d.Timeout, requestTime)
	mux := http.NewServeMux()
	for pattern, handle := range map[string]http.HandlerFunc{
		"GET /{$}":                              d.within(pageTime, d.getQueues),
		"GET /bridges":                          d.within(pageTime, d.getBridges),
		"GET /dead":                             d.within(pageTime, d.getDead),
		"GET /busy":                             d.within(pageTime, d.getBusy),
		"GET /schedules":                        d.within(pageTime, d.getSchedules),
		"GET /schedule":                         d.within(pageTime, d.getSchedule),
		"POST /schedule":                        d.within(formTime, d.postSchedule),
		"GET " + queuePath:                      d.within(pageTime, d.ofQueue(d.getQueue)),
		"GET " + queuePath + "/items":           d.within(pageTime, d.ofQueue(d.getItems)),
		"GET " + queuePath + "/item/{id}":       d.within(pageTime, d.ofQueue(d.getItem)),
		"GET " + queuePath + "/item/{id}/value": d.within(requestTime, d.ofQueue(d.getValue)),
		"POST " + queuePath + "/push":           d.within(formTime, d.ofQueue(d.push)),
		"POST " + queuePath + "/config":         d.within(formTime, d.ofQueue(d.configure)),
		"POST " + queuePath + "/pause":          d.within(formTime, d.ofQueue(d.pause)),
		"POST " + queuePath + "/resume":         d.within(formTime, d.ofQueue(d.resume)),
		"POST " + queuePath + "/purge":          d.within(requestTime, d.ofQueue(d.purge)),
		"POST " + queuePath + "/{action}":       d.within(requestTime, d.ofQueue(d.actOnItems)),
		"POST " + queuePath + "/search":         d.within(requestTime, d.ofQueue(d.postSearch)),
		"POST " + queuePath + "/stop/{id}":      d.within(requestTime, d.ofQueue(d.postStop)),
		"GET " + loginPath:                      d.getLogin,
		"POST " + loginPath:                     d.postLogin,
		"POST /logout":                          d.postLogout,
		"GET " + healthPath:                     func(http.ResponseWriter, *http.Request) {}, // 200
		"GET " + readyPath:                      d.getReady,
		"/":                                     d.notFound,
	} {
		mux.HandleFunc(pattern, handle)
	}

	mux.Handle("GET "+staticPath, d.pages.static())
	return mux
}
