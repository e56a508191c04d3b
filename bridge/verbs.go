package bridge

import (
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// verb is what the bridge does with the requests of a subjects.Verb.
type verb struct {
	op  fdbpq.OpKind
	end fdbpq.End
	// several says that it is a batch of pushes.
	several bool
	// inspected says that the inspector answers, without an operation.
	inspected bool
}

// needsReply reports whether nobody would receive what a request without a reply subject returns.
func (v *verb) needsReply() bool { return v.op != fdbpq.OpPush && v.op != fdbpq.OpAck }

// verbs has a row for each verb: all that the bridge knows about it. Package subjects
// has the names.
var verbs = [...]verb{
	subjects.Push:     {op: fdbpq.OpPush},
	subjects.PopMin:   {op: fdbpq.OpPop, end: fdbpq.Front},
	subjects.PopMax:   {op: fdbpq.OpPop, end: fdbpq.Back},
	subjects.PeekMin:  {op: fdbpq.OpPeek, end: fdbpq.Front},
	subjects.PeekMax:  {op: fdbpq.OpPeek, end: fdbpq.Back},
	subjects.Len:      {op: fdbpq.OpLen},
	subjects.Enqueue:  {op: fdbpq.OpPush},
	subjects.Dequeue:  {op: fdbpq.OpPop, end: fdbpq.Front},
	subjects.AckLease: {op: fdbpq.OpAck},
	subjects.Config:   {op: fdbpq.OpSettings},
	subjects.Peek:     {op: fdbpq.OpPeek, end: fdbpq.Front},

	subjects.Info:    {op: fdbpq.OpInfo},
	subjects.List:    {inspected: true},
	subjects.Get:     {op: fdbpq.OpGet},
	subjects.Remove:  {op: fdbpq.OpRemove},
	subjects.Rank:    {inspected: true},
	subjects.Move:    {op: fdbpq.OpMove},
	subjects.Purge:   {op: fdbpq.OpPurge},
	subjects.Redrive: {op: fdbpq.OpRedriveItem},
	subjects.Items:   {inspected: true},
	subjects.Release: {op: fdbpq.OpRelease},

	subjects.Schedule:   {op: fdbpq.OpSetSchedule},
	subjects.Unschedule: {op: fdbpq.OpSetSchedule},
	subjects.Schedules:  {inspected: true},

	subjects.PushBatch:    {op: fdbpq.OpPush, several: true},
	subjects.EnqueueBatch: {op: fdbpq.OpPush, several: true},
}
