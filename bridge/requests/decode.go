package requests

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// decode completes a request, whose subject was parsed, from its message: see verb.decode.
func (q *request) decode(m *nats.Msg) error {
	r, verb := &q.parsed, q.verb
	q.ops = append(q.ops, fdbpq.Op{Kind: verb.op, End: verb.end})
	if err := checkNames(m.Header, r); err != nil {
		return err
	}

	if !verb.value {
		switch most := r.Verb.MostPayload(); {
		case len(m.Data) <= most:
		case most == 0:
			return badRequest("%s with a payload of %d bytes: want none",
				r.Verb.Name(r.Kind), len(m.Data))
		default:
			return fmt.Errorf("%w: %s with a payload of %d bytes: want at most %d",
				errTooLarge, r.Verb.Name(r.Kind), len(m.Data), most)
		}
		if verb.audit != noAudit {
			q.audit = newAuditEntry(m, verb.audit, r)
		}
	}

	if verb.decode == nil {
		return nil
	}
	return verb.decode(q, m)
}

// decodePop reads the options of a pop, or a cancel.
func (q *request) decodePop(m *nats.Msg) error {
	if len(m.Data) == 0 {
		return nil
	}

	o, err := q.parsePop(m.Data)
	if err != nil {
		return err
	}

	if o.Cancel != "" {
		q.ops, q.Wait = nil, &dispatch.Wait{ID: o.Cancel}
		return nil
	}

	if o.Lease {
		q.ops[0].Kind = fdbpq.OpLease
	}

	q.applyOptions(o)
	return nil
}

// decodePeek reads the options of a peek.
func (q *request) decodePeek(m *nats.Msg) error {
	o, err := subjects.ParsePeekOptions(m.Data)
	q.frames = o.Frames
	return err
}

// parsedPop is the payload of a pop, and its options.
type parsedPop struct {
	payload string
	options subjects.PopOptions
}

// parsePop is subjects.ParsePopOptions, for clients that send the same options with each request.
// It takes 4 % off the processor time of a lease and an acknowledgement, a request each.
func (q *request) parsePop(payload []byte) (subjects.PopOptions, error) {
	if last := q.h.lastPop.Load(); last != nil && last.payload == string(payload) {
		return last.options, nil
	}
	o, err := subjects.ParsePopOptions(payload)
	if err == nil && o.ID == "" && o.Cancel == "" { // those occur once
		q.h.lastPop.Store(&parsedPop{string(payload), o})
	}
	return o, err
}

// applyOptions gives the request and its last operation, a pop or lease, the options.
func (q *request) applyOptions(o subjects.PopOptions) {
	last := &q.ops[len(q.ops)-1]
	if o.Expires > 0 {
		q.Wait = &dispatch.Wait{
			Until: q.Received.Add(o.Expires), Heartbeat: o.IdleHeartbeat,
			OnlyIfEmpty: o.NoWait, ID: o.ID,
		}
	}

	if o.Batch > 1 {
		q.batch, q.Pops = o.Batch, o.Batch
	}

	q.frames = o.Frames
	last.Lease, last.Holder, last.MaxBytes = o.AckWait, o.Holder, o.MaxBytes
	if o.Lease && o.AckWait == 0 { // which after +NXT would mean the length of the lease before
		last.Lease = fdbpq.SettingsLease
	}
}
