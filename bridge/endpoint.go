package bridge

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/subjects"
)

// endpoint is one form of request, with statistics about those received.
type endpoint struct {
	name, subject string
	verb          *verb

	// For service discovery.
	requests, errors, nanoseconds atomic.Int64
	lastError                     atomic.Pointer[string]

	// For /metrics.
	total   prometheus.Counter
	failed  map[subjects.Code]prometheus.Counter // by code
	seconds prometheus.Observer
	items   prometheus.Observer // of requests for several
}

// done counts an answered request. f is nil if it succeeded.
func (e *endpoint) done(r *dispatch.Request, f *failure) {
	e.requests.Add(1)
	e.total.Inc()

	if r.Wait == nil { // else most of the time says nothing about the service
		took := r.Answered.Sub(r.Received)
		e.nanoseconds.Add(int64(took))
		e.seconds.Observe(took.Seconds())
	}

	if f == nil {
		return
	}
	if f.Code != subjects.CodeNotFound { // a queue that is empty is no fault of anybody
		e.errors.Add(1)
		e.lastError.Store(&f.Text)
	}
	e.failed[f.Code].Inc()
}

// endpoints finds the endpoint of a request.
type endpoints struct {
	all []*endpoint // as the grammar lists them

	// byRequest is indexed by kind, verb and whether the subject has a priority.
	byRequest [2][][2]*endpoint
	// unknown counts requests that match no endpoint.
	unknown *endpoint
}

func newEndpoints(m *metrics, g subjects.Grammar) *endpoints {
	es := &endpoints{unknown: m.endpoint("unknown", "")}
	for kind := range es.byRequest {
		es.byRequest[kind] = make([][2]*endpoint, len(verbs))
	}

	for _, ge := range g.Endpoints() {
		e := m.endpoint(ge.Name, ge.Subject)
		e.verb = &verbs[ge.Verb]
		es.all = append(es.all, e)
		es.byRequest[ge.Kind][ge.Verb][oneIf(ge.HasPriority)] = e
	}
	return es
}

// answered returns the number of requests answered.
func (es *endpoints) answered() int64 {
	n := es.unknown.requests.Load()
	for _, e := range es.all {
		n += e.requests.Load()
	}
	return n
}

func (es *endpoints) of(r *subjects.Request) *endpoint {
	return es.byRequest[r.Kind][r.Verb][oneIf(r.HasPriority)]
}

// oneIf returns 1 if b is true, else 0.
func oneIf(b bool) int {
	if b {
		return 1
	}
	return 0
}

// endpoint makes the series of an endpoint.
func (m *metrics) endpoint(name, subject string) *endpoint {
	e := &endpoint{
		name:    name,
		subject: subject,
		total:   m.requests.WithLabelValues(name),
		seconds: m.seconds.WithLabelValues(name),
		items:   m.items.WithLabelValues(name),
		failed:  map[subjects.Code]prometheus.Counter{},
	}
	e.lastError.Store(new(string))
	for _, code := range subjects.Codes() {
		e.failed[code] = m.errors.WithLabelValues(name, strconv.Itoa(int(code)))
	}
	return e
}
