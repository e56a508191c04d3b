package requests

import (
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// verbs has a row for each verb. Package subjects has the names.
var verbs = [...]verb{
	subjects.Push: {
		op:     fdbpq.OpPush,
		decode: (*request).decodeOne,
		reply:  (*encoder).pushed,
		value:  true,
	},
	subjects.PushBatch: {
		op:      fdbpq.OpPush,
		decode:  (*request).decodeFrames,
		reply:   (*encoder).pushedBatch,
		value:   true,
		several: true,
	},
	subjects.Pop:      {op: fdbpq.OpPop, end: fdbpq.Front, decode: (*request).decodePop},
	subjects.PopMax:   {op: fdbpq.OpPop, end: fdbpq.Back, decode: (*request).decodePop},
	subjects.Peek:     {op: fdbpq.OpPeek, end: fdbpq.Front, decode: (*request).decodePeek},
	subjects.PeekMax:  {op: fdbpq.OpPeek, end: fdbpq.Back, decode: (*request).decodePeek},
	subjects.Len:      {op: fdbpq.OpLen, reply: (*encoder).length},
	subjects.AckLease: {op: fdbpq.OpAck, decode: (*request).decodeAck, value: true},
	subjects.Config: {
		op:     fdbpq.OpSettings,
		decode: (*request).decodeSettings,
		reply:  (*encoder).settings,
		audit:  auditSettings,
	},

	subjects.Info:   {op: fdbpq.OpInfo, decode: (*request).decodeInfo, reply: (*encoder).info},
	subjects.List:   {decode: (*request).decodeList},
	subjects.Get:    {op: fdbpq.OpGet, decode: (*request).decodeItem},
	subjects.Result: {decode: (*request).decodeResult},
	subjects.Remove: {
		op:     fdbpq.OpRemove,
		decode: (*request).decodeItem,
		reply:  (*encoder).removed,
		audit:  auditItems,
	},
	subjects.Rank: {decode: (*request).decodeItem},
	subjects.Move: {
		op:     fdbpq.OpMove,
		decode: (*request).decodeItem,
		reply:  (*encoder).moved,
		audit:  auditItems,
	},
	subjects.Purge: {
		op:     fdbpq.OpPurge,
		decode: (*request).decodePurge,
		reply:  (*encoder).purged,
		audit:  auditItems,
	},
	subjects.Redrive: {
		op:     fdbpq.OpRedriveItem,
		decode: (*request).decodeItem, // of several, or of all that the Inspector finds
		audit:  auditItems,
	},
	subjects.Items: {decode: (*request).decodeItems},
	subjects.Release: {
		op:     fdbpq.OpRelease,
		decode: (*request).decodeItem,
		reply:  (*encoder).removed,
		audit:  auditItems,
	},

	subjects.Schedule: {
		op:     fdbpq.OpSetSchedule,
		decode: (*request).decodeSchedule,
		reply:  (*encoder).schedule,
		audit:  auditSettings,
	},
	subjects.Unschedule: {
		op:     fdbpq.OpSetSchedule,
		decode: (*request).decodeUnschedule,
		reply:  (*encoder).schedule,
		audit:  auditSettings,
	},
	subjects.Schedules: {decode: (*request).decodeSchedules},
}
