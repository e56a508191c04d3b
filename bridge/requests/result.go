package requests

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/results"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// decodeResult reads the payload of a result request. It only reads: what is due in the queue stays
// where it is. A request that waits is answered by package results, under the id of its job. Only
// if it names the job in another way, the Inspector looks first.
func (q *request) decodeResult(m *nats.Msg) error {
	r := &q.parsed
	o, err := subjects.ParseResultOptions(m.Data)
	if err != nil {
		return err
	}

	q.frames = o.Frames
	op := fdbpq.Op{Kind: fdbpq.OpGet, Message: fdbpq.Message{MsgID: o.MsgID}, NoValue: true}
	if o.MsgID == "" {
		op.ID, err = parseName(o.ID, false)
	}
	if err == nil {
		op.Queue, err = dispatch.TargetOf(q.h.config.Keyspace, r.Kind, r.Queue)
	}
	if err != nil {
		return err
	}

	i, kind := q.h.Inspector, r.Kind
	asked := &inspection{limit: i.results}
	if o.Expires > 0 {
		// Not from when the request may have been received: it takes nothing, so to answer a client
		// that has given up does less harm than to end a wait too early.
		q.Wait = &dispatch.Wait{Until: time.Now().Add(o.Expires)}
		asked.awaits = &results.Wait{
			Job:   fdbpq.QueueJob{Queue: dispatch.NameOf(r.Kind, r.Queue), Job: op.ID},
			Queue: op.Queue, Until: q.Wait.Until,
		}
		asked.known = o.MsgID == ""
	}

	asked.reply = func(ctx context.Context) (payload []byte, err error) {
		err = i.run(ctx, i.slots, func() error {
			found, err := i.read(ctx, op)
			if err == nil {
				asked.header, payload = outcomeOf(kind, &found)
			}
			if err == nil && asked.awaits != nil && !results.IsOutcome(&found) {
				asked.awaits.Job.Job, err = found.Item.Job(), errWaits
			}
			return err
		})
		return payload, err
	}

	q.inspection = asked
	return nil
}

// outcomeOf returns the headers and the payload of the reply to a result request, from the result
// of its OpGet.
func outcomeOf(kind subjects.Kind, r *fdbpq.Result) (h nats.Header, payload []byte) {
	if f := r.Found.Finished; f != nil {
		payload = f.Result
	}
	j := jobInfo(r)
	return j.Headers(kind), payload
}
