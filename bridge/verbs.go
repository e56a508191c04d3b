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
	// encode sends the result. An error means that the client did not get it.
	encode func(c *clientReplier, r *dispatch.Request, op *fdbpq.Op, result *fdbpq.Result) error
}

// verbs is the table of all that can be asked for. Package subjects has the names; what
// else is to be known of a verb stands here.
var verbs = [...]verb{
	subjects.Push:    {op: fdbpq.OpPush, decode: decodePush, encode: (*clientReplier).sendPushed},
	subjects.PopMin:  {op: fdbpq.OpPop, end: fdbpq.Front, needsReply: true, routed: true, decode: decodeBare, encode: (*clientReplier).sendItem},
	subjects.PopMax:  {op: fdbpq.OpPop, end: fdbpq.Back, needsReply: true, routed: true, decode: decodeBare, encode: (*clientReplier).sendItem},
	subjects.PeekMin: {op: fdbpq.OpPeek, end: fdbpq.Front, needsReply: true, decode: decodeBare, encode: (*clientReplier).sendItem},
	subjects.PeekMax: {op: fdbpq.OpPeek, end: fdbpq.Back, needsReply: true, decode: decodeBare, encode: (*clientReplier).sendItem},
	subjects.Len:     {op: fdbpq.OpLen, needsReply: true, decode: decodeBare, encode: (*clientReplier).sendLength},
	subjects.Enqueue: {op: fdbpq.OpPush, decode: decodePush, encode: (*clientReplier).sendPushed},
	subjects.Dequeue: {op: fdbpq.OpPop, end: fdbpq.Front, needsReply: true, routed: true, decode: decodeBare, encode: (*clientReplier).sendItem},
	subjects.Peek:    {op: fdbpq.OpPeek, end: fdbpq.Front, needsReply: true, decode: decodeBare, encode: (*clientReplier).sendItem},
}
