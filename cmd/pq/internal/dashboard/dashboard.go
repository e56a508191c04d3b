// Package dashboard serves web pages that show what the queues are doing, and act on them. It talks
// to the bridges over NATS like any client, and may do what its NATS user may.
//
// Everybody who can open the pages acts as that user. By default only this machine can: to listen
// on another address needs a token, or a proxy that says who is there. The guard refuses requests
// that pages of other sites make a browser send.
//
// Pages that somebody looks at ask for themselves every two seconds. They share requests to the
// bridges, see monitor, and while nobody looks nothing is asked. Pages that go through many queues,
// such as the page of the dead letters, share a scan in the background. The memory and time that
// browsers can take are bounded by the constants of this package.
package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/pqbridge/pqbridge/bridge/web/connlimit"
)

// Dashboard is a server that listens. It has what the handlers of all pages need.
type Dashboard struct {
	Options
	listener net.Listener
	guard    *guard
	gateway  *gateway
	monitor  *monitor
	searches *searchRegistry
	details  ttlCache[queueRef, details]

	durations ttlCache[queueRef, *durations]

	turns chan struct{}       // an element for each page that is made
	sent  *semaphore.Weighted // bytes of pages that browsers have not read yet
	files *semaphore.Weighted // bytes of values, likewise

	dead      backgroundScan[deadView]
	busy      backgroundScan[busyView]
	schedules backgroundScan[schedulesView]
}

// New returns a Dashboard that listens on its address. Run serves the pages, and closes the
// listener. Errors about the options wrap ErrOptions.
func New(o Options) (*Dashboard, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
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

	b := &Dashboard{
		Options: o, listener: listener, gateway: newGateway(&o),
		guard: newGuard(&o, addr.Port), turns: make(chan struct{}, maxTurns),
		sent: semaphore.NewWeighted(maxSent), files: semaphore.NewWeighted(maxFiles),
		details:   ttlCache[queueRef, details]{lasts: detailTime, most: maxDetails},
		durations: ttlCache[queueRef, *durations]{lasts: durationsTime, most: maxDetails},
	}
	if b.monitor, err = newMonitor(b.gateway); err != nil {
		_ = listener.Close()
		return nil, err
	}

	b.searches = newSearchRegistry(b.gateway)
	b.dead.searches, b.dead.gather = b.searches, b.countDead
	b.busy.searches, b.busy.gather = b.searches, b.listBusy
	b.schedules.searches, b.schedules.gather = b.searches, b.listSchedules
	return b, nil
}

// URL returns the address that the pages are served at: the one to listen on, with its port.
func (b *Dashboard) URL() string {
	host, _, _ := net.SplitHostPort(b.Listen) // net.Listen took it
	port := b.listener.Addr().(*net.TCPAddr).Port
	return "http://" + net.JoinHostPort(cmp.Or(host, "0.0.0.0"), strconv.Itoa(port))
}

// stopTime is how long requests have to finish when the dashboard stops.
const stopTime = 5 * time.Second

// Run serves the pages until ctx ends, and then returns nil. It returns earlier if serving fails.
func (b *Dashboard) Run(ctx context.Context) error {
	working, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { b.monitor.run(working) })

	server := &http.Server{
		Handler: b.guard.wrap(b.routes()), MaxHeaderBytes: maxHeaderBytes,
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 20 * time.Second,
		IdleTimeout: 2 * time.Minute,
		ConnState:   connlimit.New(maxConnections).Note,
		ErrorLog:    slog.NewLogLogger(b.Log.Handler(), slog.LevelWarn),
	}

	failed := make(chan error, 1)
	work.Go(func() { failed <- server.Serve(b.listener) })

	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}

	b.searches.end() // requests under way are answered
	within, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	if server.Shutdown(within) != nil {
		_ = server.Close() // their requests took too long
	}

	stop()
	work.Wait()
	return err
}

func (b *Dashboard) routes() http.Handler {
	const queuePath = "/queue/{kind}/{name}"
	// The answer to a form is a page, which shares the time of the request that the form makes.
	formTime := min(b.Timeout, requestTime)
	mux := http.NewServeMux()
	for pattern, handle := range map[string]http.HandlerFunc{
		"GET /{$}":                              b.within(pageTime, b.getQueues),
		"GET /find":                             b.within(requestTime, b.getJob),
		"GET /bridges":                          b.within(pageTime, b.getBridges),
		"GET /dead":                             b.within(pageTime, b.getDead),
		"GET /busy":                             b.within(pageTime, b.getBusy),
		"GET /schedules":                        b.within(pageTime, b.getSchedules),
		"GET /schedule":                         b.within(pageTime, b.getSchedule),
		"POST /schedule":                        b.within(formTime, b.postSchedule),
		"GET " + queuePath:                      b.within(pageTime, b.ofQueue(b.getQueue)),
		"GET " + queuePath + "/items":           b.within(pageTime, b.ofQueue(b.getItems)),
		"GET " + queuePath + "/item/{id}":       b.within(pageTime, b.ofQueue(b.getItem)),
		"GET " + queuePath + "/item/{id}/value": b.within(requestTime, b.ofQueue(b.getValue)),
		"POST " + queuePath + "/push":           b.within(formTime, b.ofQueue(b.push)),
		"POST " + queuePath + "/config":         b.within(formTime, b.ofQueue(b.configure)),
		"POST " + queuePath + "/pause":          b.within(formTime, b.ofQueue(b.pause)),
		"POST " + queuePath + "/resume":         b.within(formTime, b.ofQueue(b.pause)),
		"POST " + queuePath + "/purge":          b.within(requestTime, b.ofQueue(b.purge)),
		"POST " + queuePath + "/{action}":       b.within(requestTime, b.ofQueue(b.actOnItems)),
		"POST " + queuePath + "/search":         b.within(requestTime, b.ofQueue(b.postSearch)),
		"POST " + queuePath + "/stop/{id}":      b.within(requestTime, b.ofQueue(b.postStop)),
		"GET " + loginPath:                      b.getLogin,
		"POST " + loginPath:                     b.postLogin,
		"POST /logout":                          b.postLogout,
		"GET " + healthPath:                     func(http.ResponseWriter, *http.Request) {}, // 200
		"GET " + readyPath:                      b.getReady,
		"/":                                     b.notFound,
	} {
		mux.HandleFunc(pattern, handle)
	}

	mux.Handle("GET "+staticPath, serveAssets())
	return mux
}
