package bridge

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// encoder builds replies. It reuses its memory, so a reply must be published before the
// next one is built, and only one goroutine may use it at a time.
type encoder struct {
	buf    []byte
	header nats.Header
	values [5]string

	second   int64 // since 1970, of pushedAt
	pushedAt [len(subjects.TimeLayout)]byte
}

// encoders is a pool of encoders.
type encoders struct{ pool sync.Pool }

// get returns an encoder; the caller passes it to put when done.
func (p *encoders) get() *encoder {
	if e, ok := p.pool.Get().(*encoder); ok {
		return e
	}
	return &encoder{}
}

func (p *encoders) put(e *encoder) { p.pool.Put(e) }

// pushed returns the payload of the reply to a push.
func (e *encoder) pushed(q *dispatch.Queue, id *fdbpq.ID) []byte {
	e.buf = subjects.AppendPushed(e.buf[:0], q.Kind, q.Name, id.String(), id.Priority)
	return e.buf
}

// length returns the payload of the reply to a len.
func (e *encoder) length(q *dispatch.Queue, n int64) []byte {
	e.buf = subjects.AppendLength(e.buf[:0], q.Name, n)
	return e.buf
}

// item returns the headers of a reply that carries an item: the pusher's and our own.
// It omits pushers' headers that a NATS server would act on; an item that another
// program or an earlier version wrote may have them.
func (e *encoder) item(q *dispatch.Queue, item *fdbpq.Item) nats.Header {
	e.pushers(item)
	for name := range e.header {
		if strings.EqualFold(name, subjects.HeaderTraceParent) {
			e.header[subjects.HeaderTraceDest] = traceDisabled
			break
		}
	}
	e.set(subjects.HeaderID, 0, item.ID.String())
	if q.Kind == subjects.Priority {
		e.set(subjects.HeaderPriority, 1, strconv.FormatInt(item.ID.Priority, 10))
	}
	if !item.PushedAt.IsZero() {
		e.set(subjects.HeaderPushedAt, 2, e.time(item.PushedAt))
	}
	return e.header
}

// leased returns the headers of a reply that carries a leased item.
func (e *encoder) leased(q *dispatch.Queue, item *fdbpq.Item, lease *fdbpq.Lease) nats.Header {
	e.item(q, item)
	e.set(subjects.HeaderDeliveries, 3, strconv.FormatInt(lease.Deliveries, 10))
	e.set(subjects.HeaderLeaseUntil, 4, lease.Until.Format(subjects.TimeLayout))
	return e.header
}

// traceDisabled keeps the server from tracing a reply because the pushed item has a
// trace context.
var traceDisabled = []string{subjects.TraceDisabled}

// itemAlone is like item without our own headers, for which there is no room. It
// therefore omits a trace context too.
func (e *encoder) itemAlone(item *fdbpq.Item) nats.Header {
	e.pushers(item)
	for name := range e.header {
		if strings.EqualFold(name, subjects.HeaderTraceParent) {
			delete(e.header, name)
		}
	}
	return e.header
}

// pushers resets the header to the pusher's, without names that are the protocol's: programs
// that write to the store themselves could store those, and a client would take an item for
// the end of a batch.
func (e *encoder) pushers(item *fdbpq.Item) {
	if e.header == nil {
		e.header = nats.Header{}
	}
	clear(e.header)
	for name, values := range item.Headers {
		if subjects.HeaderFate(name, values) == subjects.Kept && !subjects.IsReserved(name) {
			e.header[name] = values
		}
	}
}

func (e *encoder) set(name string, at int, value string) {
	e.values[at] = value
	e.header[name] = e.values[at : at+1 : at+1]
}

// time formats t in subjects.TimeLayout. Most items have the same second as the one
// before, so usually only the microseconds are formatted.
func (e *encoder) time(t time.Time) string {
	if second := t.Unix(); second != e.second || e.pushedAt[0] == 0 {
		e.second = second
		copy(e.pushedAt[:], t.UTC().Format(subjects.TimeLayout))
	}
	const last = len(subjects.TimeLayout) - len("0Z")
	for i, us := last, t.Nanosecond()/1000; i > last-6; i-- {
		e.pushedAt[i] = byte('0' + us%10)
		us /= 10
	}
	return string(e.pushedAt[:])
}
