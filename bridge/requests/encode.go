package requests

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// encoder builds replies. It reuses its memory, so a reply must be published before the
// next one is built, and only one goroutine may use it at a time.
type encoder struct {
	now func() time.Time // the clock of the bridge

	buf    []byte
	block  []byte      // headers of a frame
	header nats.Header // of the pusher
	own    []ownHeader // in their order
	text   []byte      // the values of own
	values []string    // the same in header

	pushedAt, until timeText

	ackWait     time.Duration // of the last lease, and its text
	ackWaitText string
}

// ownHeader is a header of our own. Its value begins where the value before it ends.
type ownHeader struct {
	name string
	end  int // of its value in text
}

// item sets the headers of a reply that carries an item: those stored with it and our own.
func (e *encoder) item(q *dispatch.Queue, item *fdbpq.Item) {
	e.stored(item)
	for name := range e.header {
		if strings.EqualFold(name, subjects.HeaderTraceParent) {
			e.header[subjects.HeaderTraceDest] = traceDisabled // a server must not trace the reply
			break
		}
	}

	job := item.Job()
	e.add(subjects.HeaderID, job.AppendTo(e.text))
	if job != item.ID {
		e.add(subjects.HeaderPlace, item.ID.AppendTo(e.text))
	}
	if q.Kind == subjects.Priority {
		e.add(subjects.HeaderPriority, strconv.AppendInt(e.text, item.ID.Priority, 10))
	}

	if !item.PushedAt.IsZero() {
		e.add(subjects.HeaderPushedAt, e.pushedAt.appendTo(e.text, item.PushedAt))
	}
}

// leased sets the headers of a reply that carries a leased item.
func (e *encoder) leased(q *dispatch.Queue, item *fdbpq.Item, lease *fdbpq.Lease) {
	e.item(q, item)
	e.add(subjects.HeaderDeliveries, strconv.AppendInt(e.text, lease.Deliveries, 10))
	e.add(subjects.HeaderLeaseUntil, e.until.appendTo(e.text, lease.Until))
}

// leasedBy is leased for an operation. It adds what the settings of the queue decide: the length of
// the lease unless the request says it, and the limit of deliveries.
func (e *encoder) leasedBy(q *dispatch.Queue, op *fdbpq.Op, result *fdbpq.Result) {
	e.leased(q, &result.Item, &result.Lease)
	if op.Lease <= 0 {
		e.add(subjects.HeaderAckWait, append(e.text, e.duration(result.LeaseLength())...))
	}
	if result.MaxDeliver > 0 {
		e.add(subjects.HeaderMaxDeliver, strconv.AppendInt(e.text, result.MaxDeliver, 10))
	}
}

// found adds the headers of the reply to a get: what a result request says of the job, but not of
// its result.
func (e *encoder) found(kind subjects.Kind, result *fdbpq.Result) {
	j := jobInfo(result)
	j.State = subjects.State(result.State.String()) // also of a dead letter
	j.ContentType, j.HasResult = "", false
	maps.Copy(e.header, j.Headers(kind))
	if attempts := result.Found.Attempts(); len(attempts) > 0 {
		e.header[subjects.HeaderTrail] = trail.Values(attempts, len(attempts))
	}
	if next := result.Item.Headers[subjects.HeaderNext]; len(next) > 0 {
		e.header[subjects.HeaderNext] = next
	}
	if f := result.Found.Finished; f != nil && f.NoValue {
		e.header[subjects.HeaderValueDropped] = []string{subjects.ValueDropped}
	}
}

// duration returns the text of the length of a lease. Most are as long as the one before.
func (e *encoder) duration(d time.Duration) string {
	if d != e.ackWait {
		e.ackWait, e.ackWaitText = d, strictjson.DurationText(d)
	}
	return e.ackWaitText
}

// itemAlone is item without our own headers, for which there is no room, and without its parent,
// which came after its size was checked. It omits a trace context too, because no header can keep
// servers from tracing the reply.
func (e *encoder) itemAlone(item *fdbpq.Item) nats.Header {
	e.pushers(item)
	delete(e.header, subjects.HeaderParent)
	for name := range e.header {
		if strings.EqualFold(name, subjects.HeaderTraceParent) {
			delete(e.header, name)
		}
	}
	return e.header
}

// stored resets the headers to those stored with an item: the pusher's, and how it died.
func (e *encoder) stored(item *fdbpq.Item) {
	e.pushers(item)
	if item.DeadLetter != nil {
		dead := subjects.DeadLetter(*item.DeadLetter)
		dead.Headers(e.header)
	}
}

// pushers resets the header to the pusher's. It omits headers that only another program can have
// stored, because a push over NATS is refused with them: a NATS server would act on them, or a
// client would take the item for the end of a batch or for a message of the server.
func (e *encoder) pushers(item *fdbpq.Item) {
	if e.header == nil {
		e.header = nats.Header{}
	}

	clear(e.header)
	e.own, e.text = e.own[:0], e.text[:0]

	for name, values := range item.Headers {
		ours := subjects.IsReserved(name) && !subjects.IsStored(name)
		ofPush := item.DeadLetter != nil && subjects.OfPushAlone(name) // so not about a dead letter
		if subjects.HeaderFate(name, values) == subjects.Kept && !ours && !ofPush {
			e.header[name] = values
		}
	}

	if subjects.IsStatus(e.header, item.Value) {
		delete(e.header, subjects.HeaderStatus)
	}

	setProperties(e.header, &item.Message)
}

// setProperties sets the headers that decodePush has made properties of a message.
func setProperties(h nats.Header, m *fdbpq.Message) {
	if m.MsgID != "" {
		h[subjects.HeaderMsgID] = []string{m.MsgID}
	}
	if m.Unique != "" {
		h[subjects.HeaderUnique] = []string{m.Unique}
	}
	if m.Keep > 0 {
		h[subjects.HeaderKeep] = []string{strictjson.DurationText(m.Keep)}
	}
	if m.Join > 0 {
		h[subjects.HeaderJoin] = []string{strictjson.DurationText(m.Join)}
	}
	if j := m.Joiner; j != nil {
		joiner := subjects.Joiner{Queue: j.Queue, ID: j.ID.String()}
		h[subjects.HeaderJoiner] = []string{joiner.String()}
	}
}

// add adds a header of our own. text is e.text with the value appended.
func (e *encoder) add(name string, text []byte) {
	e.text = text
	e.own = append(e.own, ownHeader{name, len(text)})
}

// headers returns the headers that were set.
func (e *encoder) headers() nats.Header {
	e.values = slices.Grow(e.values[:0], len(e.own)) // all in one array, which must not move
	text, start := string(e.text), 0
	for i, own := range e.own {
		e.values = append(e.values, text[start:own.end])
		e.header[own.name] = e.values[i : i+1 : i+1]
		start = own.end
	}
	return e.header
}

// headerBlock returns the headers as they stand in a frame. The error names a header that NATS
// cannot carry.
func (e *encoder) headerBlock() (block []byte, err error) {
	block = append(e.block[:0], wire.BlockStart...)
	if block, err = subjects.AppendHeaderLines(block, e.header); err != nil {
		return nil, err
	}

	start := 0
	for _, own := range e.own {
		block = subjects.AppendHeaderLine(block, own.name, e.text[start:own.end])
		start = own.end
	}

	e.block = append(block, wire.CRLF...)
	return e.block, nil
}

var traceDisabled = []string{subjects.TraceDisabled}

// timeText is a time in subjects.TimeLayout.
type timeText struct {
	second int64 // since 1970
	text   [len(subjects.TimeLayout)]byte
}

// appendTo appends t in subjects.TimeLayout. Most times are in the same second as the one
// before, so usually only the microseconds are formatted.
func (f *timeText) appendTo(b []byte, t time.Time) []byte {
	if second := t.Unix(); second != f.second || f.text[0] == 0 {
		f.second = second
		copy(f.text[:], t.UTC().Format(subjects.TimeLayout))
	}

	const last = len(subjects.TimeLayout) - len("0Z")
	for i, us := last, t.Nanosecond()/1000; i > last-6; i-- {
		f.text[i] = byte('0' + us%10)
		us /= 10
	}

	return append(b, f.text[:]...)
}

// setNotKept sets the headers that say which results are not kept, and which values. The first
// message of a reply has them.
func setNotKept(h nats.Header, r *dispatch.Request) {
	if u := r.Unkept; u != nil {
		setNumbers(h, subjects.HeaderNotKept, u.Results)
		setNumbers(h, subjects.HeaderValueDropped, u.Values)
		r.Unkept = nil
	}
}

// jobInfo returns what the result of an OpGet says of a job.
func jobInfo(r *fdbpq.Result) subjects.JobInfo {
	found, item := r.Found, &r.Item
	j := subjects.JobInfo{
		State: subjects.State(r.State.String()), Due: found.Due, LeasedAt: found.LeasedSince,
		Holder: found.Holder, Deliveries: found.Deliveries, Progress: found.Progress,
		Reason: found.Reason,
	}
	job := item.Job()
	j.ID, j.Priority, j.PushedAt = job.String(), item.ID.Priority, item.PushedAt
	j.Join = item.Join
	if j.FoundIn = r.Queue; job != item.ID {
		j.Place = item.ID.String()
	}

	if item.DeadLetter != nil {
		j.State, j.DeadLetter = subjects.StateDead, (*subjects.DeadLetter)(item.DeadLetter)
	}

	if f := found.Finished; f != nil {
		j.FinishedAt, j.KeptUntil, j.ContentType = f.At, f.Until, f.ContentType
		j.HasResult, j.ResultSize = f.Result != nil, int64(len(f.Result))
	}
	return j
}
