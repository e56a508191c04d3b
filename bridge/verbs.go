package bridge

import (
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

	// payload says how decode reads the message.
	payload payload
	// send sends the result. An error means that the client did not get it.
	send func(c *clientReplier, r *dispatch.Request, op *fdbpq.Op, result *fdbpq.Result) error
	// sendAll is instead of send: it sends the results of all operations in one reply.
	sendAll func(c *clientReplier, r *dispatch.Request, results []fdbpq.Result) error
}

// payload is what the payload of a request is.
type payload uint8

const (
	payloadNone     payload = iota // there must be none
	payloadMessage                 // the value to push
	payloadOptions                 // subjects.PopOptions
	payloadAck                     // subjects.Ack
	payloadSettings                // subjects.Change, or nothing
	payloadFrames                  // subjects.Frames: the values to push
	payloadInfo                    // none; the settings are wanted as well
	payloadItem                    // subjects.ItemOptions
	payloadPurge                   // subjects.ParsePurge
	payloadRedrive                 // subjects.ParseRedrive
	payloadList                    // subjects.ListOptions, which the inspector reads
)

// verbs has a row for each verb: all that the bridge knows about it. Package subjects
// has the names.
var verbs = [...]verb{
	subjects.Push:     {op: fdbpq.OpPush, payload: payloadMessage, send: (*clientReplier).sendPushed},
	subjects.PopMin:   {op: fdbpq.OpPop, end: fdbpq.Front, needsReply: true, routed: true, payload: payloadOptions, send: (*clientReplier).sendItem},
	subjects.PopMax:   {op: fdbpq.OpPop, end: fdbpq.Back, needsReply: true, routed: true, payload: payloadOptions, send: (*clientReplier).sendItem},
	subjects.PeekMin:  {op: fdbpq.OpPeek, end: fdbpq.Front, needsReply: true, payload: payloadNone, send: (*clientReplier).sendItem},
	subjects.PeekMax:  {op: fdbpq.OpPeek, end: fdbpq.Back, needsReply: true, payload: payloadNone, send: (*clientReplier).sendItem},
	subjects.Len:      {op: fdbpq.OpLen, needsReply: true, payload: payloadNone, send: (*clientReplier).sendLength},
	subjects.Enqueue:  {op: fdbpq.OpPush, payload: payloadMessage, send: (*clientReplier).sendPushed},
	subjects.Dequeue:  {op: fdbpq.OpPop, end: fdbpq.Front, needsReply: true, routed: true, payload: payloadOptions, send: (*clientReplier).sendItem},
	subjects.AckLease: {op: fdbpq.OpAck, payload: payloadAck, send: (*clientReplier).sendAcked},
	subjects.Config:   {op: fdbpq.OpSettings, needsReply: true, payload: payloadSettings, send: (*clientReplier).sendSettings},
	subjects.Peek:     {op: fdbpq.OpPeek, end: fdbpq.Front, needsReply: true, payload: payloadNone, send: (*clientReplier).sendItem},

	subjects.Info:    {op: fdbpq.OpInfo, needsReply: true, payload: payloadInfo, sendAll: (*clientReplier).sendInfo},
	subjects.Get:     {op: fdbpq.OpGet, needsReply: true, payload: payloadItem, send: (*clientReplier).sendItem},
	subjects.Remove:  {op: fdbpq.OpRemove, needsReply: true, payload: payloadItem, send: (*clientReplier).sendManaged},
	subjects.Rank:    {op: fdbpq.OpRank, needsReply: true, payload: payloadItem, send: (*clientReplier).sendManaged},
	subjects.Move:    {op: fdbpq.OpMove, needsReply: true, payload: payloadItem, send: (*clientReplier).sendManaged},
	subjects.Purge:   {op: fdbpq.OpPurge, needsReply: true, payload: payloadPurge, send: (*clientReplier).sendManaged},
	subjects.Redrive: {op: fdbpq.OpRedrive, needsReply: true, payload: payloadRedrive, send: (*clientReplier).sendManaged},

	subjects.List: {op: fdbpq.OpInfo, needsReply: true, payload: payloadList, send: (*clientReplier).sendManaged},

	subjects.PushBatch:    {op: fdbpq.OpPush, payload: payloadFrames, sendAll: (*clientReplier).sendPushedBatch},
	subjects.EnqueueBatch: {op: fdbpq.OpPush, payload: payloadFrames, sendAll: (*clientReplier).sendPushedBatch},
}
