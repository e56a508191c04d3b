package fdbpq

import (
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// checkNothing returns the error for an operation of no family.
func (op *Op) checkNothing(*codec.Layout) error { return badOp("no operation %d", op.Kind) }

// checkPush returns an error if no queue can have the message, or not with these options.
func (op *Op) checkPush(l *codec.Layout) error {
	if size := op.Message.Size(); size > MaxMessageSize {
		const text = "%w: value and headers are %d bytes: want at most %d"
		return fmt.Errorf(text, ErrMessageTooLarge, size, MaxMessageSize)
	}
	if n := max(len(op.Message.MsgID), len(op.Message.Unique)); n > MaxKey {
		return badOp("a message id or unique key of %d bytes: want at most %d", n, MaxKey)
	}

	if op.Message.First != nil {
		return errMoved
	}

	group := op.Message.Headers[GroupHeader]
	if op.Weight < 0 || op.Weight > MaxWeight || op.Weight > 0 && group == nil {
		return badOp("bad weight %d: want 1 to %d, beside %s", op.Weight, MaxWeight, GroupHeader)
	}
	if err := codec.CheckGroup(group); err != nil {
		return err
	}
	if err := settings.CheckBounds(op.Message.Keep, MinKeep, MaxKeep); err != nil {
		return badOp("it is kept for %w", err)
	}
	if err := op.checkJoin(l); err != nil {
		return err
	}
	return op.checkTimes()
}

// checkJoin returns an error if an OpPush cannot be a joiner or a member as it says.
func (op *Op) checkJoin(l *codec.Layout) error {
	m, member := &op.Message, op.Message.Joiner != nil || op.MemberOf != 0
	switch {
	case m.Join == 0 && !member:
		return nil
	case l.List == nil:
		return badOp("a join in a queue outside a Keyspace: want one inside")
	case m.Joiner != nil && op.MemberOf != 0 || op.MemberOf < 0:
		return badOp("it is a member of a joiner %d places before it, and of another one: "+
			"want one of them", op.MemberOf)
	case m.Joiner != nil && (m.Joiner.Queue == "" || len(m.Joiner.Queue) > MaxQueueName):
		return badOp("the queue of its joiner has a name of %d bytes: want 1 to %d",
			len(m.Joiner.Queue), MaxQueueName)
	case member && m.Unique != "":
		return badOp("a member of a join has a unique key: want none, " +
			"because a duplicate would be missing")
	case m.Join == 0:
		return nil
	case op.delays() || op.TTL != 0 || !m.Expires.IsZero():
		return badOp("a joiner has a delay or expires: want neither, it waits for its members")
	case m.Size() > MaxJoiner:
		return fmt.Errorf("%w: a joiner of %d bytes: want at most %d", ErrMessageTooLarge,
			m.Size(), MaxJoiner)
	}
	if err := settings.CheckBounds(m.Join, MinJoin, MaxJoin); err != nil {
		return badOp("a joiner waits for %w", err)
	}
	return nil
}

// errMoved is the error of a message that says that it was in a queue before.
var errMoved = badOp("Message.First is set: want it nil, the queue sets it")

// errNoJoiner is the error of a member of something else than a joiner.
var errNoJoiner = badOp("a member of a push that is no joiner: want one with a Join, before it")

// checkTimes returns an error if an OpPush cannot have these times.
func (op *Op) checkTimes() error {
	switch {
	case op.Delay < 0 || op.Delay > MaxDelay:
		return badOp("a delay of %v: want 0 to %v", op.Delay, MaxDelay)
	case op.Delay > 0 && !op.At.IsZero():
		return badOp("a delay of %v and one until %v: want one of them", op.Delay, op.At)
	case op.At.Unix() >= codec.LastTime/1e6:
		return badOp("a delay until %v: want a time before 2200", op.At)
	}

	if op.TTL != Never {
		if err := settings.CheckBounds(op.TTL, MinTTL, MaxTTL); err != nil {
			return badOp("it expires after %w", err)
		}
	}
	at := op.Message.Expires
	if !at.IsZero() && (at.Unix() < codec.FirstTime/1e6 || at.Unix() >= codec.LastTime/1e6) {
		return badOp("it expires at %v: want a time from 2020 on and before 2200", at)
	}
	return nil
}

// checkPop returns an error if the queue does not support a pop, lease or peek.
func (op *Op) checkPop(l *codec.Layout) error {
	if op.Kind != OpLease || op.Lease != SettingsLease {
		if err := codec.CheckLease(op.Lease); err != nil {
			return err
		}
	}
	if err := settings.CheckHolder(op.Holder); err != nil {
		return badOp("%w", err)
	}

	switch {
	case op.End > Back:
		return badOp("no end %d", op.End)
	case l.Fifo && op.End == Back:
		return codec.ErrFIFOEnd
	}
	return nil
}

// checkToken returns an error if the delay, the length of the lease or the report are out of
// bounds.
func (op *Op) checkToken(l *codec.Layout) error {
	if op.Report != nil {
		if err := op.checkReport(l); err != nil {
			return err
		}
	}
	if (op.Delay < 0 || op.Delay > MaxDelay) && op.Delay != Backoff {
		return badOp("a delay of %v: want 0 to %v", op.Delay, MaxDelay)
	}
	if op.RetryDelay < 0 || op.RetryDelay > MaxDelay {
		return badOp("a retry delay of %v: want 0 to %v", op.RetryDelay, MaxDelay)
	}
	if op.RetryDelay > 0 && (op.Delay != Backoff || op.Uncounted) {
		return badOp("a retry delay of %v with a delay, or uncounted: want Backoff as the delay",
			op.RetryDelay)
	}
	return codec.CheckLease(op.Lease)
}

// checkReport returns an error if what the holder says is out of bounds, or not for such an
// operation.
func (op *Op) checkReport(l *codec.Layout) error {
	r := op.Report
	switch {
	case op.Kind != OpAck && (r.Result != nil || r.ContentType != ""):
		return badOp("an outcome: only an acknowledgement has one")
	case len(r.Result) > MaxResult:
		return badOp("a result of %d bytes: want at most %d", len(r.Result), MaxResult)
	case len(r.ContentType) > MaxContentType:
		return badOp("a content type of %d bytes: want at most %d", len(r.ContentType),
			MaxContentType)
	case op.Kind != OpExtend && len(r.Progress) > 0:
		return badOp("a progress: only a renewal has one")
	case len(r.Progress) > MaxProgress:
		return badOp("a progress of %d bytes: want at most %d", len(r.Progress), MaxProgress)
	}
	return op.checkNext(l)
}

// checkNext returns an error if the operation can never push its successors.
func (op *Op) checkNext(l *codec.Layout) error {
	successors := op.Report.Next
	switch {
	case len(successors) == 0:
		return nil
	case op.Kind != OpAck:
		return badOp("successors: only an acknowledgement has them")
	case len(successors) > MaxNext:
		return badOp("%d successors: want at most %d", len(successors), MaxNext)
	}

	for n := range successors {
		err := successors[n].checkSuccessor(l)
		if before := successors[n].MemberOf; err == nil && before > 0 &&
			(before > n || successors[n-before].Message.Join == 0) {
			err = errNoJoiner
		}
		if err != nil {
			return badOp("successor %d: %w", n, err) // badOp, so that too large is as bad
		}
	}
	return nil
}

// checkSuccessor returns an error if acknowledgements of a queue cannot make this push.
func (op *Op) checkSuccessor(of *codec.Layout) error {
	m := &op.Message
	switch {
	case op.Kind != OpPush:
		return badOp("it is of kind %d: want an OpPush", op.Kind)
	case m.MsgID != "" || m.Unique != "":
		return badOp("it has a message id or a unique key: want none, " +
			"because the lease makes the push happen once")
	case op.Weight != 0:
		return badOp("it has the weight %d: want none", op.Weight)
	case !of.PushesTo(op.Queue.Layout()):
		return badOp("its queue is of another kind or Keyspace: want the same")
	}
	return op.checkPush(op.Queue.Layout())
}

// checkManaging returns an error if the queue does not support an operation on an item by its id,
// or on all of its items.
func (op *Op) checkManaging(l *codec.Layout) error {
	switch {
	case op.Kind == OpMove && l.Fifo:
		return badOp("a FIFO queue has no priorities to move an item to")
	case op.State > Done:
		return badOp("no state %d", op.State)
	case op.Kind == OpPurge:
		return nil
	case op.End > Back:
		return badOp("no end %d", op.End)
	case op.Kind == OpGet && op.Message.MsgID != "" && op.ID != (ID{}):
		return badOp("an id and a message id: want one of them")
	case op.Kind == OpGet && len(op.Message.MsgID) > MaxKey:
		return badOp("a message id of %d bytes: want at most %d", len(op.Message.MsgID), MaxKey)
	case op.Kind == OpRank && l.Fifo && op.End == Back:
		return badOp("a FIFO queue is served from its front only")
	case l.Fifo && op.ID.Priority != 0: // its key would be that of another item
		return notFound(&op.ID)
	}
	return nil
}

// checkChange returns an error if the operation does not say what to change, or names no record.
func (op *Op) checkChange(*codec.Layout) error {
	kind := op.Kind.recordKind()
	switch {
	case !op.Kind.Writes():
		return nil
	case op.Kind == OpConfigure && op.Configure == nil:
		return badOp("nothing says what to configure")
	case kind != "" && op.Change == nil:
		return badOp("nothing says what becomes of the %v", kind)
	case kind != "":
		return codec.CheckRecord(kind, op.Record)
	}
	for i := range op.Dead {
		if op.Dead[i].First != nil {
			return errMoved
		}
	}
	return nil
}

// checkRestore returns an error if the queue cannot have had the item.
func (op *Op) checkRestore(l *codec.Layout) error {
	if op.Item == nil || l.Fifo && op.Item.ID.Priority != 0 {
		return badOp("want the item that a pop took from this queue")
	}
	return nil
}

// pushBytes is about how many bytes of a transaction an OpPush takes.
func (op *Op) pushBytes(l *codec.Layout) int {
	n := op.Message.Size() + l.DedupSize(&op.Message) + l.JoinSize(&op.Message)
	if op.Message.Group() != "" {
		n += l.GroupSize()
	}
	return n
}

// popBytes is about how many bytes of a transaction a pop or lease takes: keys that it removes, or
// that are in its conflict ranges.
func (op *Op) popBytes(l *codec.Layout) int { return 16 * len(l.Prefix) }

// tokenBytes is about how many bytes of a transaction an operation with a token adds.
func (op *Op) tokenBytes(*codec.Layout) int {
	r := op.report()
	n := len(r.Result) + 2*len(r.ContentType)
	for i := range r.Next {
		next := &r.Next[i]
		l := next.Queue.Layout()
		n += state.RestoreOverhead + l.PushSize(&next.Message, next.delays())
		n += 3*len(l.Prefix) + len(op.Queue.Layout().Prefix) + 300 // to name its parent
		n += l.JoinSize(&next.Message)
	}
	return n
}

// restoreBytes is about how many bytes of a transaction an OpRestore takes.
func (op *Op) restoreBytes(l *codec.Layout) int {
	if op.Item == nil {
		return 0
	}
	return op.Item.Size() + l.DedupSize(&op.Item.Message)
}

// configBytes is about how many bytes of a transaction an OpSetSource takes.
func (op *Op) configBytes(*codec.Layout) (n int) {
	for _, m := range op.Dead {
		n += m.Size() + codec.DeadLetterSize
	}
	return n
}

// recordBytes is about how many bytes of a transaction an OpSetConsumer or OpSetSchedule takes.
func (op *Op) recordBytes(*codec.Layout) int {
	if !op.Kind.Writes() {
		return 0
	}
	return codec.MaxRecordName + op.Kind.recordKind().Bounds().MaxValue
}
