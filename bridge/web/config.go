package web

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// Config is what a Server shows, and where. All functions are called from several goroutines.
type Config struct {
	// Addr is the host:port to listen on; empty serves nothing.
	Addr string
	// Timeout limits each time that a page reads the store, or checks whether the bridge is ready.
	Timeout time.Duration
	// Ready returns why the bridge is not ready; nothing if it is.
	Ready func(ctx context.Context) []error

	// Queues returns a page of the list of queues. Info returns what there is to know of one queue,
	// and when that was. Both only read.
	Queues func(
		ctx context.Context, kind subjects.Kind, o subjects.ListOptions,
	) (subjects.QueueList, error)
	Info func(
		ctx context.Context, kind subjects.Kind, name string,
	) (info *fdbpq.Info, at time.Time, err error)

	// Registry has the metrics to show. New adds metrics of the queues.
	Registry *prometheus.Registry
	// DB and Keyspace say where the queues are. Of the queues that Owns reports, the metrics show
	// the MetricQueues longest of each kind; none if it is negative.
	DB           kv.Database
	Keyspace     *fdbpq.Keyspace
	MetricQueues int
	Owns         func(kind subjects.Kind, name string) bool
	// Owners returns the bridges that share the queues. Callers do not change the slice.
	Owners func() []string

	// Failure returns the code and the text of an error that is not the client's.
	Failure func(error) (code int, text string)
	// Warn logs, and suppresses floods.
	Warn func(message string, args ...any)
}
