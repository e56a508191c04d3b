package requests

import (
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/jetstream"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/settings"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// jobOf returns the id of the job of an item that an operation named, or what it named if there was
// no such item.
func jobOf(op *fdbpq.Op, result *fdbpq.Result) string {
	if result.Item.ID == (fdbpq.ID{}) {
		return op.ID.String()
	}
	return result.Item.Job().String()
}

// pushed returns the payload of the reply to a push.
func (e *encoder) pushed(q *dispatch.Queue, _ []fdbpq.Op, results []fdbpq.Result) []byte {
	item := &results[0].Item
	id := item.ID.String()
	e.buf = subjects.AppendPushed(e.buf[:0], q.Kind, q.Name, id, item.ID.Priority, item.PushedAt)
	if results[0].Duplicate {
		e.buf = subjects.AppendDuplicate(e.buf)
	}
	return e.buf
}

// pushedBatch returns the payload of the reply to a batch of pushes.
func (e *encoder) pushedBatch(q *dispatch.Queue, _ []fdbpq.Op, results []fdbpq.Result) []byte {
	appendID := func(b []byte, i int) []byte { return results[i].Item.ID.AppendTo(b) }
	at, duplicates := duplicatesOf(results)
	e.buf = subjects.AppendPushedBatch(e.buf[:0], q.Name, len(results), appendID, at)
	e.buf = subjects.AppendDuplicates(e.buf, duplicates)
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

// each returns the payload of the reply to a request for several items: the result of each.
func (*encoder) each(q *dispatch.Queue, ops []fdbpq.Op, results []fdbpq.Result) []byte {
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

// length returns the payload of the reply to a len.
func (*encoder) length(q *dispatch.Queue, _ []fdbpq.Op, results []fdbpq.Result) []byte {
	return strictjson.Marshal(subjects.Length{Queue: q.Name, Len: results[0].Len})
}

// settings returns the payload of the reply to a config.
func (*encoder) settings(_ *dispatch.Queue, _ []fdbpq.Op, results []fdbpq.Result) []byte {
	return subjects.EncodeSettings(results[0].Settings)
}

// schedule returns the payload of the reply to a schedule or unschedule.
func (*encoder) schedule(q *dispatch.Queue, ops []fdbpq.Op, results []fdbpq.Result) []byte {
	if set := results[0].Records[0].Value; set != nil {
		return set
	}
	return strictjson.Marshal(subjects.Removed{Queue: q.Name, ID: ops[0].Record})
}

// moved returns the payload of the reply to a move of one item.
func (*encoder) moved(q *dispatch.Queue, ops []fdbpq.Op, results []fdbpq.Result) []byte {
	op, result := &ops[0], &results[0]
	return strictjson.Marshal(subjects.Moved{
		Queue: q.Name, ID: jobOf(op, result), Place: result.Item.ID.String(),
		Priority: op.Priority,
	})
}

// purged returns the payload of the reply to a purge of all items, or of finished jobs.
func (*encoder) purged(_ *dispatch.Queue, _ []fdbpq.Op, results []fdbpq.Result) []byte {
	return strictjson.Marshal(subjects.Purged{Purged: results[0].Len})
}

// removed returns the payload of the reply to a remove or release of one item.
func (*encoder) removed(q *dispatch.Queue, ops []fdbpq.Op, results []fdbpq.Result) []byte {
	return strictjson.Marshal(subjects.Removed{Queue: q.Name, ID: jobOf(&ops[0], &results[0])})
}

// info returns the payload of the reply to an info. The results are the queue's figures, its
// settings and its consumers.
func (e *encoder) info(q *dispatch.Queue, _ []fdbpq.Op, results []fdbpq.Result) []byte {
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
		age := max(0, e.now().Sub(info.Oldest))
		reply.OldestAge = &age
	}

	if !info.NextDue.IsZero() {
		reply.NextDue = &info.NextDue
	}

	return reply.Encode()
}
