package bridge

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/subjects"
)

// queueCounters are the counters of a queue.
var queueCounters = []struct {
	desc *prometheus.Desc
	of   func(n *subjects.Traffic) int64
}{
	{
		counterDesc("pushed", "Items that were pushed to a queue, duplicates apart."),
		func(n *subjects.Traffic) int64 { return n.In },
	},
	{
		counterDesc("delivered", "Items of a queue that were popped, with or without a lease."),
		func(n *subjects.Traffic) int64 { return n.Delivered },
	},
	{
		counterDesc("done", "Items of a queue that were popped without a lease, or acknowledged."),
		func(n *subjects.Traffic) int64 { return n.Out },
	},
	{
		counterDesc("finished", "Items of a queue that were acknowledged and are kept, because "+
			"of Pq-Keep or the setting keep."),
		func(n *subjects.Traffic) int64 { return n.Finished },
	},
	{
		counterDesc("failed", "Leases of a queue that ended in failure: with a "+
			"negative acknowledgement, with +TERM, or because they ran out."),
		func(n *subjects.Traffic) int64 { return n.Failed },
	},
	{
		counterDesc("dead", "Items of a queue that moved to its dead-letter queue."),
		func(n *subjects.Traffic) int64 { return n.Dead },
	},
}

func counterDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("pq_queue_"+name+"_total", help, []string{"kind", "queue"}, nil)
}

// otherQueues are the labels of the queues that have no series of their own. No queue can have that
// name.
const otherQueues = "*"

// collectTraffic shows what this bridge has counted by queue.
func (b *Bridge) collectTraffic(ch chan<- prometheus.Metric) {
	queues, rest := b.dispatcher.Counted()
	others := dispatch.QueueCount{Kind: otherQueues, Name: otherQueues, Traffic: rest}
	queues = append(queues, others)
	for i := range queues {
		q := &queues[i]
		for _, c := range queueCounters {
			ch <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue,
				float64(c.of(&q.Traffic)), q.Kind, q.Name)
		}
	}
}
