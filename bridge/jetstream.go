package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/jetstream"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/bridge/outbox"
	"github.com/pqbridge/pqbridge/bridge/requests"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// jetStream runs the JetStream face while the bridge serves. It is nil if the face is off.
type jetStream struct {
	b *Bridge

	// start sets these for end, which comes after it.
	stop    context.CancelFunc
	running sync.WaitGroup

	face atomic.Pointer[jetstream.Face] // nil while it does not run

	requests, errors *prometheus.CounterVec
}

// newJetStream returns nil if the face is off.
func (b *Bridge) newJetStream() *jetStream {
	if b.options.JetStream.LeafURL == "" {
		return nil
	}

	auto := series{promauto.With(b.metrics.registry)}
	j := &jetStream{b: b}
	j.requests = auto.counters("pq_jetstream_requests_total", "Calls of JetStream's API, pulls "+
		"and acknowledgements that were answered, errors included, by call.", "call")
	j.errors = auto.counters("pq_jetstream_errors_total", "Calls of JetStream's API, pulls "+
		"and acknowledgements that were answered with an error or changed nothing, by call.",
		"call")
	connected := prometheus.GaugeOpts{
		Name: "pq_jetstream_connected", Help: "1 if connected to NATS as a leaf node.",
	}

	auto.NewGaugeFunc(connected, func() float64 { return float64(oneIf(j.ready() == nil)) })
	return j
}

// start begins to serve, once the identity of the store is known.
func (j *jetStream) start(ctx context.Context, store string) error {
	if j == nil {
		return nil
	}

	face, err := jetstream.New(j.config(store))
	if err != nil {
		return fmt.Errorf("bridge: %w", err)
	}

	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	j.stop = stop
	j.face.Store(face)
	j.running.Go(func() { _ = face.Run(running) }) // fails only if called twice
	return nil
}

// current returns the face while it runs, or nil.
func (j *jetStream) current() *jetstream.Face {
	if j == nil {
		return nil
	}
	return j.face.Load()
}

// leave takes no more requests. Requests that have arrived are answered while the lanes run.
func (j *jetStream) leave(ctx context.Context) error {
	face := j.current()
	if face == nil {
		return nil
	}

	return face.Stop(ctx)
}

// end closes the connection, once NATS has received everything sent.
func (j *jetStream) end(ctx context.Context) error {
	face := j.current()
	if face == nil {
		return nil
	}

	err := face.Flush(ctx)
	j.stop()
	j.running.Wait()
	j.face.Store(nil)
	if errors.Is(err, leaf.ErrOffline) {
		return nil
	}

	return err
}

// ready returns why JetStream's programs are not served, nil if they are or if the face is off.
func (j *jetStream) ready() error {
	if j == nil {
		return nil
	}

	face := j.current()
	if face == nil {
		return errors.New("jetstream: not started")
	}

	if err := face.Ready(); err != nil {
		return fmt.Errorf("jetstream: %w", err)
	}

	return nil
}

// config is what the face needs of the bridge.
func (j *jetStream) config(store string) jetstream.Config {
	b, g := j.b, j.b.options.Grammar
	return jetstream.Config{
		Leaf: b.options.JetStream.leafConfig(), Group: b.options.QueueGroup, Identity: store,
		Self: b.id, Owner: b.peers.Router.Owner,
		Domains: map[subjects.Kind]string{
			subjects.Priority: g.Prefix(subjects.Priority), subjects.FIFO: g.Prefix(subjects.FIFO),
		},
		Grammar: g, Dispatcher: b.dispatcher, RequestTimeout: b.options.RequestTimeout,
		List: b.handler.Inspector.List, ErrorText: jetStreamFailure,
		AppendHeader: b.handler.AppendHeader,
		Counted:      j.counted, Delivered: b.metrics.delivered,
		Return: func(q *dispatch.Queue, result *fdbpq.Result, gone bool) {
			why := outbox.Unsendable
			if gone {
				why = outbox.Gone
			}
			b.outbox.Return(q, fdbpq.OpLease, result, why)
		},
		MayReply: func(subject string) bool { return b.handler.Unanswerable(subject) == "" },
		Now:      b.options.Now, Logger: b.options.Logger, Warn: b.quiet.warn,
	}
}

// jetStreamFailure returns what JetStream's clients are told of an error.
func jetStreamFailure(err error) (code int, text string) {
	f := requests.Failure(err)
	if f.Code == subjects.CodeTooLarge { // which JetStream does not have
		return int(subjects.CodeBadRequest), f.Text
	}
	return int(f.Code), f.Text
}

// counted counts a call.
func (j *jetStream) counted(call string, failed bool) {
	j.requests.WithLabelValues(call).Inc()
	if errors := j.errors.WithLabelValues(call); failed {
		errors.Inc()
	}
}
