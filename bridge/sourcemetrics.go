package bridge

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pqbridge/pqbridge/bridge/sources"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// sourceMetrics shows the sources that this bridge draws from, or would.
type sourceMetrics struct{ sources *sources.Sources }

var (
	sourceLabels    = []string{"kind", "queue"}
	sourceLagDesc   = prometheus.NewDesc("pq_source_lag", "Messages of a stream that its queue has yet to draw, when it last drew some or was held back.", sourceLabels, nil)
	sourceDrawnDesc = prometheus.NewDesc("pq_source_drawn_total", "Messages that a queue has drawn from its stream, dead letters included.", sourceLabels, nil)
	sourceStopDesc  = prometheus.NewDesc("pq_source_stopped", "1 if a source has stopped or cannot draw for now: info says why.", sourceLabels, nil)
)

// Describe implements prometheus.Collector.
func (m sourceMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- sourceLagDesc
	ch <- sourceDrawnDesc
	ch <- sourceStopDesc
}

// Collect implements prometheus.Collector.
func (m sourceMetrics) Collect(ch chan<- prometheus.Metric) {
	m.sources.Each(func(queue fdbpq.QueueName, s *settings.SourceState) {
		show := func(desc *prometheus.Desc, t prometheus.ValueType, value float64) {
			ch <- prometheus.MustNewConstMetric(desc, t, value, sources.KindOf(queue).String(), queue.Name)
		}
		show(sourceLagDesc, prometheus.GaugeValue, float64(s.Lag))
		show(sourceDrawnDesc, prometheus.CounterValue, float64(s.Drawn+s.Dead))
		show(sourceStopDesc, prometheus.GaugeValue, float64(oneIf(s.Stopped+s.Waiting != "")))
	})
}
