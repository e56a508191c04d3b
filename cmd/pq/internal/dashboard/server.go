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
		chains:    ttlCache[chainKey, []chainRow]{lasts: detailTime, most: maxDetails},
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
