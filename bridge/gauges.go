package bridge

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// registerGauges adds to /metrics what the parts of the bridge count themselves.
func (b *Bridge) registerGauges() {
	auto := promauto.With(b.metrics.registry)
	gauge := func(name, help string, value func() float64) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	gauge("pq_pending_requests", "Requests that wait or run.",
		func() float64 { n, _ := b.dispatcher.Pending(); return float64(n) })
	gauge("pq_pending_bytes", "Bytes of the requests that wait or run.",
		func() float64 { _, n := b.dispatcher.Pending(); return float64(n) })
	gauge("pq_waiters", "Pops that wait for items.", func() float64 { return float64(b.dispatcher.Waiters()) })
	gauge("pq_bridges", "Bridges that share the queues as far as this one knows, itself included.",
		func() float64 { return float64(b.peers.Router.Count()) })
	gauge("pq_nats_connected", "1 if connected to NATS.", func() float64 { return float64(oneIf(b.online.Load())) })
	gauge("pq_serving", "1 if subscribed to requests.",
		func() float64 { return float64(oneIf(b.servingReady() == nil)) })

	counter := func(name, help string, value func() float64) {
		auto.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value)
	}
	counter("pq_sweeps_total", "Transactions that did what had fallen due in queues that nobody asked.",
		func() float64 { return float64(b.dispatcher.Sweeper().Sweeps()) })
	counter("pq_conflicts_total",
		"Attempts at batches that failed because another transaction changed what they read, and were repeated.",
		func() float64 { return float64(b.dispatcher.Conflicts()) })
	counter("pq_dropped_total", "Messages dropped by the NATS client because the bridge fell behind.", b.dropped)

	removed := func(name, help string, of func(fdbpq.Removed) int64) {
		counter(name, help, func() float64 { return float64(of(b.dispatcher.Removed())) })
	}
	removed("pq_expired_total", "Items that were removed because they had expired.",
		func(r fdbpq.Removed) int64 { return r.Expired })
	removed("pq_dead_total", "Items that moved to a dead-letter queue.",
		func(r fdbpq.Removed) int64 { return r.Dead })
	removed("pq_discarded_total", "Items that were discarded to make room for others, because of a limit of their queue.",
		func(r fdbpq.Removed) int64 { return r.Discarded })
}
