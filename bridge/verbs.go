package bridge

import (
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// verb is what the bridge does with the requests of a subjects.Verb.
type verb struct {
	op  fdbpq.OpKind
	end fdbpq.End
	// needsReply: without a reply subject nobody would receive what it returns.
	needsReply bool
	// routed: it runs on the bridge that owns the queue.
	routed bool

	// decode fills the operation, whose kind and end are set, from a message whose
	// subject was parsed.
	decode func(m *nats.Msg, r *subjects.Request, op *fdbpq.Op) error
	// send sends the result. An error means that the client did not get it.
	send func(c *clientReplier, r *dispatch.Request, op *fdbpq.Op, result *fdbpq.Result) error
}

// verbs has a row for each verb: all that the bridge knows about it. Package subjects
// has the names.
var verbs = [...]verb{
	subjects.Push:    {op: fdbpq.OpPush, decode: decodePush, send: (*clientReplier).sendPushed},
	subjects.PopMin:  {op: fdbpq.OpPop, end: fdbpq.Front, needsReply: true, routed: true, decode: decodeBare, send: (*clientReplier).sendItem},
	subjects.PopMax:  {op: fdbpq.OpPop, end: fdbpq.Back, needsReply: true, routed: true, decode: decodeBare, send: (*clientReplier).sendItem},
	subjects.PeekMin: {op: fdbpq.OpPeek, end: fdbpq.Front, needsReply: true, decode: decodeBare, send: (*clientReplier).sendItem},
	subjects.PeekMax: {op: fdbpq.OpPeek, end: fdbpq.Back, needsReply: true, decode: decodeBare, send: (*clientReplier).sendItem},
	subjects.Len:     {op: fdbpq.OpLen, needsReply: true, decode: decodeBare, send: (*clientReplier).sendLength},
	subjects.Enqueue: {op: fdbpq.OpPush, decode: decodePush, send: (*clientReplier).sendPushed},
	subjects.Dequeue: {op: fdbpq.OpPop, end: fdbpq.Front, needsReply: true, routed: true, decode: decodeBare, send: (*clientReplier).sendItem},
	subjects.Peek:    {op: fdbpq.OpPeek, end: fdbpq.Front, needsReply: true, decode: decodeBare, send: (*clientReplier).sendItem},
}
