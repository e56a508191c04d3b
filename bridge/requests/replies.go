package requests

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/jetstream"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// sendPayload sends any reply but items and those to acknowledgements. The operations share it.
func (c *replier) sendPayload(
	r *dispatch.Request, ops []fdbpq.Op, results []fdbpq.Result,
) error {
	e := c.h.encoders.Get().(*encoder)
	defer c.h.encoders.Put(e)

	// measure has refused requests whose replies do not fit, but the server may carry less by now.
	err := c.sendData(nil, c.payload(e, r, ops, results))
	if (ops[0].Kind == fdbpq.OpPush || r.Each) && errors.Is(err, errTooLarge) {
		err = fmt.Errorf("%w: the request is done, but its results do not fit into a reply: %w",
			dispatch.ErrUnknownOutcome, err)
	}

	return err
}

// payload returns what sendPayload sends. It may be in the memory of the encoder.
func (c *replier) payload(
	e *encoder, r *dispatch.Request, ops []fdbpq.Op, results []fdbpq.Result,
) []byte {
	q, op, result := r.Queue, &ops[0], &results[0]
	if r.Each {
		return resultsOf(q, ops, results)
	}

	switch op.Kind {
	case fdbpq.OpPush:
		return e.pushed(q, results, c.verb.several)
	case fdbpq.OpLen:
		return strictjson.Marshal(subjects.Length{Queue: q.Name, Len: result.Len})
	case fdbpq.OpSettings, fdbpq.OpConfigure:
		return subjects.EncodeSettings(result.Settings)
	case fdbpq.OpInfo: // and OpSettings and OpConsumers
		return infoReply(q, results, c.h.config.Now()).Encode()
	case fdbpq.OpSetSchedule:
		if set := result.Records[0].Value; set != nil {
			return set
		}
		return strictjson.Marshal(subjects.Removed{Queue: q.Name, ID: op.Record})
	case fdbpq.OpMove:
		return strictjson.Marshal(subjects.Moved{
			Queue: q.Name, ID: jobOf(op, result), Place: result.Item.ID.String(),
			Priority: op.Priority,
		})
	case fdbpq.OpPurge:
		return strictjson.Marshal(subjects.Purged{Purged: result.Len})
	default: // OpRemove and OpRelease
		return strictjson.Marshal(subjects.Removed{Queue: q.Name, ID: jobOf(op, result)})
	}
}

// jobOf returns the id of the job of an item that an operation named, or what it named if there was
// no such item.
func jobOf(op *fdbpq.Op, result *fdbpq.Result) string {
	if result.Item.ID == (fdbpq.ID{}) {
		return op.ID.String()
	}
	return result.Item.Job().String()
}

// pushed returns the payload of the reply to a push, or to a batch of them.
func (e *encoder) pushed(q *dispatch.Queue, results []fdbpq.Result, batch bool) []byte {
	if batch {
		appendID := func(b []byte, i int) []byte { return results[i].Item.ID.AppendTo(b) }
		at, duplicates := duplicatesOf(results)
		e.buf = subjects.AppendPushedBatch(e.buf[:0], q.Name, len(results), appendID, at)
		e.buf = subjects.AppendDuplicates(e.buf, duplicates)
		return e.buf
	}

	item := &results[0].Item
	id := item.ID.String()
	e.buf = subjects.AppendPushed(e.buf[:0], q.Kind, q.Name, id, item.ID.Priority, item.PushedAt)
	if results[0].Duplicate {
		e.buf = subjects.AppendDuplicate(e.buf)
	}

	return e.buf
}

// duplicatesOf returns the indexes of the pushes of a batch that changed nothing, and the time of a
// push that did, if there is one.
func duplicatesOf(results []fdbpq.Result) (at time.Time, duplicates []int) {
	at = results[0].Item.PushedAt
	for i := range results {
		if results[i].Duplicate {
			duplicates = append(duplicates, i)
		} else {
			at = results[i].Item.PushedAt
		}
	}

	return at, duplicates
}

// resultsOf returns the payload of the reply to a request for several items: the result of each.
func resultsOf(q *dispatch.Queue, ops []fdbpq.Op, results []fdbpq.Result) []byte {
	all := make([]subjects.ItemResult, len(results))
	for i := range results {
		op, result := &ops[i], &results[i]
		all[i].ID = jobOf(op, result)
		switch {
		case result.Err != nil && op.AtPlace:
			all[i] = subjects.ItemResult{
				Place: op.ID.String(), Failure: itemFailure(result.Err),
			}
		case result.Err != nil:
			all[i].Failure = itemFailure(result.Err)
		case op.Kind == fdbpq.OpMove || op.Kind == fdbpq.OpRedriveItem:
			all[i].Place, all[i].Home = result.Item.ID.String(), result.Home
		}
	}

	return strictjson.Marshal(&subjects.ItemResults{Queue: q.Name, Results: all})
}

// answerData answers a request that has no lane.
func (c *replier) answerData(r *dispatch.Request, h nats.Header, data []byte, err error) {
	if err != nil {
		c.Fail(r, nil, err)
		return
	}

	if err = c.sendData(h, data); err != nil {
		c.h.config.ReplyFailed(err)
	}

	c.replied(r, err)
	c.ended()
}

// inspect has the inspector answer the request.
func (c *replier) inspect(r *dispatch.Request) error {
	answered, asked := *r, c.inspection // so that r itself stays off the heap
	if asked.known {
		return c.await(&answered)
	}
	return c.h.Inspector.answer(asked, func(payload []byte, err error) {
		if errors.Is(err, errWaits) {
			if err = c.await(&answered); err == nil {
				return
			}
		}
		c.audited(asked.changed, err)
		answered.Answered = time.Now()
		c.answerData(&answered, asked.header, payload, err)
	})
}

// infoReply is the reply to an info. The results are the queue's figures, its settings and its
// consumers.
func infoReply(q *dispatch.Queue, results []fdbpq.Result, now time.Time) *subjects.QueueInfo {
	info := results[0].Info
	reply := &subjects.QueueInfo{
		Queue: q.Name, Ready: info.Ready, Leased: info.Leased, Delayed: info.Delayed,
		Finished: info.Finished, PrioritiesMore: info.MorePriorities,
		Settings:   *results[1].Settings,
		GroupsMore: info.MoreGroups, GroupsAtLimit: info.GroupsAtLimit,
		Consumers: jetstream.Describe(results[2].Records),
	}

	for _, g := range info.Groups {
		if reply.Groups == nil {
			reply.Groups = make(map[string]subjects.GroupCount, len(info.Groups))
		}
		reply.Groups[g.Group] = subjects.GroupCount{Ready: g.Ready, Leased: g.Leased}
	}

	if q.Kind == subjects.Priority {
		reply.Priorities = make([]subjects.PriorityCount, len(info.Priorities))
		for i, p := range info.Priorities {
			reply.Priorities[i] = subjects.PriorityCount(p)
		}
	}

	if state, err := settings.ParseSourceState(results[1].Source); err == nil {
		reply.Source = &state
	}

	if !info.Oldest.IsZero() {
		age := max(0, now.Sub(info.Oldest))
		reply.OldestAge = &age
	}

	if !info.NextDue.IsZero() {
		reply.NextDue = &info.NextDue
	}

	return reply
}
