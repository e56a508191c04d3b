package bridge

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

func sourceDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"kind", "queue"}, nil)
}

var (
	sourceLag = sourceDesc("pq_source_lag", "Messages of a stream that its queue has yet to draw, "+
		"when it last drew some or looked for some.")
	sourceDrawn = sourceDesc("pq_source_drawn_total",
		"Messages that a queue has drawn from its stream, dead letters included.")
	sourceStopped = sourceDesc("pq_source_stopped",
		"1 if a source has stopped or cannot draw for now: pq info says why.")
)

// collectSources shows the sources that this bridge draws from, or would.
func (b *Bridge) collectSources(ch chan<- prometheus.Metric) {
	b.sources.Each(func(queue fdbpq.QueueName, s *settings.SourceState) {
		show := func(desc *prometheus.Desc, of prometheus.ValueType, value float64) {
			kind := dispatch.KindOf(queue).String()
			ch <- prometheus.MustNewConstMetric(desc, of, value, kind, queue.Name)
		}
		show(sourceLag, prometheus.GaugeValue, float64(s.Lag))
		show(sourceDrawn, prometheus.CounterValue, float64(s.Drawn+s.Dead))
		show(sourceStopped, prometheus.GaugeValue, float64(oneIf(s.Stopped+s.Waiting != "")))
	})
}
