package wire

import (
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// SetAck makes op the operation that an acknowledgement asks for, on the lease of its token. What
// AckNext leases and AckDone names besides are operations of their own.
func SetAck(op *fdbpq.Op, a *subjects.Ack) {
	switch a.Kind {
	case subjects.AckNak:
		op.Kind, op.Delay, op.Uncounted, op.Reason = fdbpq.OpNak, fdbpq.Backoff, a.Snooze, a.Reason
		op.RetryDelay = a.RetryDelay
		if a.HasDelay {
			op.Delay = a.Delay
		}
	case subjects.AckTerm:
		op.Kind, op.Reason = fdbpq.OpTerm, a.Reason
	case subjects.AckProgress:
		op.Kind = fdbpq.OpExtend
	default:
		op.Kind = fdbpq.OpAck
	}
}
