package bridge

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/outbox"
	"github.com/pqbridge/pqbridge/bridge/peers"
	"github.com/pqbridge/pqbridge/bridge/requests"
	"github.com/pqbridge/pqbridge/bridge/results"
	"github.com/pqbridge/pqbridge/bridge/sources"
	"github.com/pqbridge/pqbridge/bridge/web"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// New checks the options and opens the HTTP listener. Call Close if Run will not be called. The
// error comes from Options.Validate or from the listener.
func New(o Options) (*Bridge, error) {
	o = o.WithDefaults()
	o.Logger = slog.New(detailHandler{o.Logger.Handler()})
	if err := o.Validate(); err != nil {
		return nil, err
	}

	b := &Bridge{
		options: o, quiet: newQuietLog(o.Logger),
		id: nuid.Next(), created: time.Now().UTC(),
		metrics: newMetrics(), closed: make(chan struct{}),
	}

	b.cable = newCable(b.backlog)
	b.notServing("starting: the store has not answered yet")

	// The dispatcher first, because the others give it work. It calls them only once it runs.
	b.dispatcher = b.newDispatcher()
	b.outbox = b.newOutbox()
	b.results = b.newResults()
	b.peers = b.newPeers()
	b.handler = b.newHandler()
	b.jetStream = b.newJetStream()
	b.sources = b.newSources()
	b.metrics.registry.MustRegister(collector(b.collectSources))
	if o.MetricQueues >= 0 {
		b.metrics.registry.MustRegister(collector(b.collectTraffic))
	}
	if o.Space != nil {
		b.metrics.registry.MustRegister(collector(b.collectStore))
	}
	b.registerGauges()

	var err error
	if b.web, err = b.newWeb(); err != nil {
		return nil, err
	}

	return b, nil
}

// Close closes the HTTP listener of a bridge that is not run. During Run it ends Run, as any
// failure of the listener does; after Run it does nothing.
func (b *Bridge) Close() error { return b.web.Close() }

// Waiters returns the number of pops that wait for items.
func (b *Bridge) Waiters() int { return b.dispatcher.Waiters() }

// Addr returns the address of the HTTP listener, "" without one.
func (b *Bridge) Addr() string { return b.web.Addr() }

// Run serves until ctx ends, then finishes the requests that have been delivered. It returns when
// all its goroutines have ended, within the shutdown timeout unless the store takes longer to
// cancel a batch. One goroutine may outlive it: an attempt to connect by a CustomDialer that does
// not return. Call Run once. The error is nil after an orderly shutdown; otherwise it says why the
// bridge could not start or continue, or how much it left undone.
func (b *Bridge) Run(ctx context.Context) error {
	// Accepted requests outlive ctx: see shutdown.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()

	// There is room for both senders of failed.
	started := running{failed: make(chan error, 2), stop: stop, stopServing: func() {}}
	started.dispatcher.Go(func() { b.dispatcher.Run(work) })
	started.dispatcher.Go(func() { b.results.Run(work) })
	started.others.Go(func() { b.outbox.Run(work) })
	started.others.Go(func() { b.handler.Audit.Run(work) })

	err := b.connect(ctx)
	b.web.Start(started.failed) // after connect, because it uses the connection
	if err == nil {
		serving, stopServing := context.WithCancel(ctx)
		started.stopServing = stopServing
		started.serving.Go(func() {
			opened := func(store string) {
				// First the sources, because the sweeper finds some.
				started.others.Go(b.sources.Start(serving, store))
				sweeper := func() { b.dispatcher.Sweeper().Run(serving) }
				sweep := func() { started.others.Go(sweeper) }
				started.others.Go(func() { b.dispatcher.Maintain(work, sweep) })
				started.others.Go(func() { b.dispatcher.SaveTraffic(work) })
			}
			if err := b.serve(serving, opened); err != nil {
				started.failed <- err
			}
		})

		select {
		case <-ctx.Done():
		case err = <-started.failed:
		case <-b.closed:
			err = fmt.Errorf("bridge: the NATS connection was closed: %w", b.nc.LastError())
		}
	}

	return b.shutdown(ctx, err, &started)
}

// newDispatcher gives package dispatch what it needs of the bridge.
func (b *Bridge) newDispatcher() *dispatch.Dispatcher {
	o := &b.options
	lanes := dispatch.Options{
		DB: o.DB, Keyspace: o.Keyspace, Now: o.Now, Limits: o.Limits, ID: b.id,
		Member:         func(id string) bool { return b.peers.Router.Knows(id) },
		MaxUnconfirmed: o.maxUnconfirmed(), MetricQueues: o.MetricQueues,
		Warn: b.quiet.warn,
		BatchDone: func(operations int) {
			b.handler.Inspector.Batches.Add(1)
			b.metrics.batchSize.Observe(float64(operations))
		},
		JobRan: func(took time.Duration) { b.metrics.jobs.Observe(took.Seconds()) },
		Owns: func(kind subjects.Kind, name string) bool {
			return b.peers.Router.Owns(kind, name)
		},
		Source: func(queue fdbpq.QueueName, changed bool) {
			b.sources.Tell(queue, changed)
			if changed {
				b.peers.Router.SourceChanged(queue)
			}
		},
		RequeueLate: func(q *dispatch.Queue, kind fdbpq.OpKind, result *fdbpq.Result) {
			b.outbox.Return(q, kind, result, outbox.Late)
		},
	}

	lanes.Ended = func(jobs []fdbpq.QueueJob) {
		b.results.Told(jobs)
		b.peers.Router.JobsEnded(jobs)
	}
	if o.DB.Traits().Shared {
		lanes.PollEvery = time.Second // for items of programs that tell no bridge
		lanes.Waits = func() { b.peers.Router.Waits() }
		lanes.Filled = func(q *dispatch.Queue) { b.peers.Router.Filled(q) }
	}

	return dispatch.New(lanes)
}

// newResults gives package results what it needs of the bridge.
func (b *Bridge) newResults() *results.Waits {
	o := &b.options
	return results.New(results.Config{
		Read: func(ctx context.Context, ops []fdbpq.Op) ([]fdbpq.Result, error) {
			return kv.ReadTransact(ctx, o.DB, func(r kv.Reader) ([]fdbpq.Result, error) {
				return fdbpq.ReadSome(r, ops, o.Now(), o.MaxBatchBytes)
			})
		},
		Timeout: min(o.RequestTimeout/2, 4*time.Second),
		Admit:   b.dispatcher.AdmitWaiter,
		Release: b.dispatcher.ReleaseWaiter,
		Waiting: func() { b.peers.Router.AwaitsJobs() },
		Warn:    b.quiet.warn,
	})
}

// newSources gives package sources what it needs of the bridge.
func (b *Bridge) newSources() *sources.Sources {
	return sources.New(sources.Config{
		Dispatcher: b.dispatcher,
		Conn:       func() *nats.Conn { return b.nc },
		Owns:       b.peers.Router.Owns,
		Configured: b.options.Sources,
		Warn:       b.quiet.warn,
	})
}

// newOutbox gives package outbox what it needs of the bridge.
func (b *Bridge) newOutbox() *outbox.Outbox {
	o := &b.options
	return outbox.New(outbox.Config{
		ID:         b.id,
		Conn:       func() *nats.Conn { return b.nc },
		Dispatcher: b.dispatcher,
		// Pops stop at maxUnconfirmed plus all that may be in flight, see
		// dispatch.Options.MaxUnconfirmed, and then the batches in flight may add as much again.
		MaxBytes: o.maxUnconfirmed() + 4*o.Lanes*o.MaxBatchBytes,
		Patience: min(natsPatience, o.ShutdownTimeout/4),
		Stopping: b.stopping.Load,
		Failed:   b.replyFailed,
		Stray:    func(m *nats.Msg) { b.handler.RefuseAck(m) },
		Relays:   func(subject string) bool { return strings.HasPrefix(subject, peers.Root) },
		Tell:     func(fate string, tokens ...string) { b.peers.Router.Tell(fate, tokens...) },
		Returned: b.metrics.returned,
		Lost:     func(items int) { b.metrics.lostItems.Add(float64(items)) },
		Logger:   b.options.Logger,
		WarnLost: b.quiet.warn,
	})
}

// newPeers gives package peers what it needs of the bridge.
func (b *Bridge) newPeers() *peers.Peers {
	o := &b.options
	return peers.New(peers.Config{
		Self: peers.Self{
			ID: b.id, Group: o.QueueGroup, Subjects: o.Grammar.Wildcards(),
			Exclusive: o.Exclusive, Location: o.Location, Started: b.created,
		},
		Shared:     o.DB.Traits().Shared,
		Limits:     o.Limits,
		Dispatcher: b.dispatcher,
		OwnersChanged: func() {
			b.dispatcher.OwnersChanged()
			if face := b.jetStream.current(); face != nil {
				face.OwnersChanged()
			}
		},
		SourceChanged: func(queue fdbpq.QueueName) { b.sources.Tell(queue, true) },
		Conn:          func() *nats.Conn { return b.nc },
		Online:        b.online.Load,
		Flush:         b.flush,
		Receive:       func(m *nats.Msg, from peers.Origin) { b.handler.Receive(m, from) },
		Cancel:        func(key string) { b.handler.Waits.End(key) },
		ResultWaits:   b.results.Len,
		Told:          b.results.Told,
		LookAll:       b.results.LookAll,
		Relay:         requests.Relay,
		Settle:        b.outbox.Settle,
		SettleRest:    b.outbox.SettleRest,
		Forwarded:     b.metrics.forwarded.Inc,
		Logger:        o.Logger,
		Warn:          b.quiet.warn,
	})
}

// newHandler gives package requests what it needs of the bridge.
func (b *Bridge) newHandler() *requests.Handler {
	o := &b.options
	b.unknown = b.metrics.endpoint(subjects.Endpoint{Name: "unknown"})
	return requests.New(requests.Config{
		Grammar: o.Grammar, DB: o.DB, Keyspace: o.Keyspace, Now: o.Now,
		RequestTimeout: o.RequestTimeout,
		Dispatcher:     b.dispatcher,
		Outbox:         b.outbox,
		Results:        b.results,
		Peers:          b.peers,
		MaxPayload:     func() int64 { return b.nc.MaxPayload() },
		MaxResult:      o.MaxResult,
		Endpoint: func(of subjects.Endpoint) requests.Endpoint {
			e := b.metrics.endpoint(of)
			b.endpoints = append(b.endpoints, e)
			return e
		},
		Unknown:     b.unknown,
		Delivered:   b.metrics.delivered,
		Duplicate:   b.metrics.duplicates.Inc,
		Refused:     b.metrics.noteRefused,
		Unanswered:  b.metrics.unanswered.Inc,
		ReplyFailed: b.replyFailed,
		Logger:      o.Logger,
		Warn:        b.quiet.warn,
	})
}

// newWeb opens the HTTP listener and says what package web shows.
func (b *Bridge) newWeb() (*web.Server, error) {
	o := &b.options
	server, err := web.New(web.Config{
		Addr: o.HTTPAddr, Timeout: o.HTTPTimeout,
		Ready:  b.notReady,
		Queues: b.handler.Inspector.List, Info: b.handler.Inspector.Info,
		Registry: b.metrics.registry,
		DB:       o.DB, Keyspace: o.Keyspace, MetricQueues: o.MetricQueues,
		Owns:   b.peers.Router.Owns,
		Owners: b.peers.Router.Bridges,
		Failure: func(err error) (code int, text string) {
			told := requests.Failure(err)
			return int(told.Code), told.Text
		},
		Warn: b.quiet.warn,
	})
	if err != nil {
		return nil, optionError("HTTPAddr", o.HTTPAddr, "an address to listen on: "+err.Error())
	}

	return server, nil
}

// registerGauges adds to /metrics what the parts of the bridge count themselves.
func (b *Bridge) registerGauges() {
	auto := promauto.With(b.metrics.registry)
	d := b.dispatcher
	auto.NewGauge(prometheus.GaugeOpts{
		Name: "pq_build_info", Help: "1, with the version of pqbridge and the kind of its store.",
		ConstLabels: prometheus.Labels{"version": b.options.Version, "engine": b.options.Engine},
	}).Set(1)

	for _, gauge := range []struct {
		name, help string
		value      func() int64
	}{
		{"pq_pending_requests", "Requests that wait or run.",
			func() int64 { n, _ := d.Pending(); return n }},
		{"pq_pending_bytes", "Bytes of the requests that wait or run.",
			func() int64 { _, n := d.Pending(); return n }},
		{"pq_waiters", "Pops that wait for items.",
			func() int64 { return int64(d.Waiters()) }},
		{"pq_result_waiters", "Requests that wait for outcomes of jobs.",
			func() int64 { return int64(b.results.Len()) }},
		{"pq_bridges", "Bridges that share the queues as far as this one knows, itself included.",
			func() int64 { return int64(b.peers.Router.Count()) }},
		{"pq_nats_connected", "1 if connected to NATS.",
			func() int64 { return int64(oneIf(b.online.Load())) }},
		{"pq_serving", "1 if subscribed to requests.",
			func() int64 { return int64(oneIf(b.servingReady() == nil)) }},
		{"pq_ready", "1 if ready, as far as is known without asking NATS and the store: /readyz " +
			"asks them, and says why not.",
			func() int64 {
				ready := b.online.Load() && b.jetStream.ready() == nil && b.whyNotReady() == ""
				return int64(oneIf(ready))
			}},
	} {
		opts := prometheus.GaugeOpts{Name: gauge.name, Help: gauge.help}
		auto.NewGaugeFunc(opts, func() float64 { return float64(gauge.value()) })
	}

	for _, counter := range []struct {
		name, help string
		value      func() float64
	}{
		{"pq_sweeps_total",
			"Transactions that handled what had fallen due in queues without requests.",
			func() float64 { return float64(d.Sweeper().Sweeps()) }},
		{"pq_conflicts_total", "Attempts at batches that failed because another transaction " +
			"changed what they read, and were repeated.",
			func() float64 { return float64(d.Conflicts()) }},
		{"pq_dropped_total", "Messages dropped by the NATS client because the bridge fell behind.",
			func() float64 { return float64(b.dropped()) }},
		{"pq_expired_total", "Items that were removed because they had expired.",
			func() float64 { return float64(d.SideEffects().Expired) }},
		{"pq_dead_total", "Items that moved to a dead-letter queue.",
			func() float64 { return float64(d.SideEffects().Dead) }},
		{"pq_discarded_total", "Items that were discarded to make room for others, because of a " +
			"limit of their queue.",
			func() float64 { return float64(d.SideEffects().Discarded) }},
		{"pq_schedule_fired_total", "Items that schedules have pushed.",
			func() float64 { return float64(d.SideEffects().Fired) }},
		{"pq_schedule_skipped_total", "Times at which a schedule pushed no item, because they " +
			"were missed or the previous item was still there.",
			func() float64 { return float64(d.SideEffects().Skipped) }},
		{"pq_schedule_late_seconds_total",
			"Total time by which schedules have pushed items late.",
			func() float64 { return d.SideEffects().Late.Seconds() }},
	} {
		opts := prometheus.CounterOpts{Name: counter.name, Help: counter.help}
		auto.NewCounterFunc(opts, counter.value)
	}
}
