package requests

import (
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// verb says how requests with a subjects.Verb are handled.
type verb struct {
	op  fdbpq.OpKind
	end fdbpq.End
	// several is set for a batch of pushes.
	several bool
	// audit says what the requests change, if the log has to say who asked.
	audit int
	// inspected is set if the Inspector answers, without an operation.
	inspected bool
}

// verbs has a row for each verb. Package subjects has the names.
var verbs = [...]verb{
	subjects.Push:      {op: fdbpq.OpPush},
	subjects.PushBatch: {op: fdbpq.OpPush, several: true},
	subjects.Pop:       {op: fdbpq.OpPop, end: fdbpq.Front},
	subjects.PopMax:    {op: fdbpq.OpPop, end: fdbpq.Back},
	subjects.Peek:      {op: fdbpq.OpPeek, end: fdbpq.Front},
	subjects.PeekMax:   {op: fdbpq.OpPeek, end: fdbpq.Back},
	subjects.Len:       {op: fdbpq.OpLen},
	subjects.AckLease:  {op: fdbpq.OpAck},
	subjects.Config:    {op: fdbpq.OpSettings, audit: auditSettings},

	subjects.Info:    {op: fdbpq.OpInfo},
	subjects.List:    {inspected: true},
	subjects.Get:     {op: fdbpq.OpGet},
	subjects.Result:  {inspected: true},
	subjects.Remove:  {op: fdbpq.OpRemove, audit: auditItems},
	subjects.Rank:    {inspected: true},
	subjects.Move:    {op: fdbpq.OpMove, audit: auditItems},
	subjects.Purge:   {op: fdbpq.OpPurge, audit: auditItems},
	subjects.Redrive: {op: fdbpq.OpRedriveItem, audit: auditItems},
	subjects.Items:   {inspected: true},
	subjects.Release: {op: fdbpq.OpRelease, audit: auditItems},

	subjects.Schedule:   {op: fdbpq.OpSetSchedule, audit: auditSettings},
	subjects.Unschedule: {op: fdbpq.OpSetSchedule, audit: auditSettings},
	subjects.Schedules:  {inspected: true},
}
