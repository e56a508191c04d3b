package bridge

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// decode completes a request, its replier and its operations from a message whose subject was
// parsed. The first operation already has its kind and end; decode may append others. Errors wrap
// errBadRequest, or are those of package subjects and of fdbpq.ParseToken and fdbpq.ParseID.
//
// A switch, rather than a function in each row of the table of verbs, keeps the arguments on the
// stack.
func decode(
	v *verb, m *nats.Msg, r *subjects.Request, c *clientReplier, request *dispatch.Request,
	ops []fdbpq.Op,
) ([]fdbpq.Op, error) {
	if v.op == fdbpq.OpPush && !v.several {
		return ops, decodePush(m, r, &ops[0])
	}

	if err := checkNames(m.Header, r); err != nil {
		return nil, err
	}

	if v.op == fdbpq.OpPush {
		return decodeFrames(m, r, ops)
	}

	if v.op == fdbpq.OpAck {
		if err := checkStatus(m.Header); err != nil {
			return nil, err
		}
	}

	// The headers were for NATS. Forwarded to another bridge they would act once more, with the
	// permissions of this one.
	m.Header = nil
	switch r.Verb {
	case subjects.PopMin, subjects.PopMax, subjects.Dequeue:
		return decodePop(m, c, request, ops)
	case subjects.AckLease:
		return decodeAck(m, r, c, request, ops)
	case subjects.Config:
		return ops, decodeSettings(m, &ops[0])
	case subjects.Get, subjects.Rank, subjects.Remove, subjects.Move, subjects.Release,
		subjects.Redrive:
		return decodeItem(m, r, c, request, ops)
	case subjects.Purge:
		return ops, decodePurge(m, r, c)
	case subjects.Schedule, subjects.Unschedule:
		return decodeSchedule(m, r, ops)
	case subjects.List:
		return ops, decodeList(m.Data, r.Kind, c)
	case subjects.Items:
		return ops, decodeItems(m.Data, r.Kind, r.Queue, c)
	case subjects.Schedules:
		return ops, decodeSchedules(m.Data, r, c)
	case subjects.Info:
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpSettings}, fdbpq.Op{Kind: fdbpq.OpConsumers})
	}

	if len(m.Data) > 0 {
		return nil, badRequest("%s with a payload of %d bytes: want none", r.Verb, len(m.Data))
	}

	return ops, nil
}

// checkNames refuses headers that no request may have, or that this one may not.
func checkNames(h nats.Header, r *subjects.Request) error {
	for name := range h {
		switch {
		case !subjects.RequestHeaderKnown(name):
			known := strings.Join(subjects.PushHeaders[:], ", ")
			return badRequest("unknown header %.64q: of the names that begin with Pq- only these "+
				"are known, spelled like this: %s", name, known)
		case name == subjects.HeaderPriority && r.Verb != subjects.Push:
			return badRequest("header %s with %s: only a push to a priority queue has one",
				name, r.Verb)
		case subjects.IsReserved(name) && r.Verb != subjects.Push && r.Verb != subjects.Enqueue:
			return badRequest("header %s with %s: only a push has one", name, r.Verb)
		}
	}

	return nil
}

// checkStatus refuses what NATS itself sends, such as "no responders": it does not say that
// an item is done.
func checkStatus(h nats.Header) error {
	for name := range h {
		if strings.EqualFold(name, subjects.HeaderStatus) {
			return badRequest("header %s: NATS sends messages with a status, and they acknowledge "+
				"nothing", name)
		}
	}
	return nil
}

// decodePop reads the options of a pop. If it returns no operations, the request cancels the one
// whose Wait has this ID.
func decodePop(
	m *nats.Msg, c *clientReplier, request *dispatch.Request, ops []fdbpq.Op,
) ([]fdbpq.Op, error) {
	if len(m.Data) == 0 {
		return ops, nil
	}

	o, err := subjects.ParsePopOptions(m.Data)
	if err != nil {
		return nil, err
	}

	if o.Cancel != "" {
		request.Wait = &dispatch.Wait{ID: o.Cancel}
		return nil, nil
	}

	if o.Lease {
		ops[0].Kind = fdbpq.OpLease
	}

	applyOptions(c, request, &ops[0], o)
	return ops, nil
}

// applyOptions gives the request and its last operation, a pop or lease, the options.
func applyOptions(c *clientReplier, r *dispatch.Request, last *fdbpq.Op, o subjects.PopOptions) {
	if o.Expires > 0 {
		r.Wait = &dispatch.Wait{
			Until: r.Received.Add(o.Expires), Heartbeat: o.IdleHeartbeat,
			OnlyIfEmpty: o.NoWait, ID: o.ID,
		}
	}

	if o.Batch > 1 {
		c.batch, r.Pops = o.Batch, o.Batch
	}

	// A single popped item needs no frame. A client in another account may be able to acknowledge
	// only through a message's reply subject, which leased items in frames do not have.
	if plain := last.Kind == fdbpq.OpPop; plain {
		c.frames = o.Frames && o.Batch > 1
	} else {
		c.frames = o.Frames && !wire.Imported(c.reply)
	}

	last.Lease, last.Holder, last.MaxBytes = o.AckWait, o.Holder, o.MaxBytes
	if o.Lease && o.AckWait == 0 { // which after +NXT would mean the length of the lease before
		last.Lease = fdbpq.SettingsLease
	}
}

// decodeAck reads an acknowledgement.
func decodeAck(
	m *nats.Msg, r *subjects.Request, c *clientReplier, request *dispatch.Request, ops []fdbpq.Op,
) ([]fdbpq.Op, error) {
	token, err := fdbpq.ParseToken(r.Token)
	if err != nil {
		return nil, err
	}

	a, err := subjects.ParseAck(m.Data)
	if err != nil {
		return nil, err
	}

	op := &ops[0]
	op.Token = token
	if ops, err = appendAlso(ops, a.Also); err != nil {
		return nil, err
	}

	switch a.Kind {
	case subjects.AckNak:
		op.Kind, op.Delay, op.Uncounted, op.Reason = fdbpq.OpNak, fdbpq.Backoff, a.Snooze, a.Reason
		if a.HasDelay {
			op.Delay = a.Delay
		}
	case subjects.AckTerm:
		op.Kind, op.Reason = fdbpq.OpTerm, a.Reason
	case subjects.AckProgress:
		op.Kind = fdbpq.OpExtend
	case subjects.AckNext:
		if m.Reply == "" {
			break // nobody would receive the next item
		}

		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpLease, End: token.End, Follows: true})
		applyOptions(c, request, &ops[len(ops)-1], a.Next)
	}

	return ops, nil
}

// appendAlso appends acknowledgements of further leases to that of the first. It refuses two of the
// same lease.
func appendAlso(ops []fdbpq.Op, also []string) ([]fdbpq.Op, error) {
	ops = slices.Grow(ops, len(also))
	ascending, descending := true, true
	for i, text := range also {
		token, err := fdbpq.ParseToken(text)
		if err != nil {
			return nil, fmt.Errorf("also: element %d: %w", i, err)
		}
		order := token.ID.Compare(&ops[i].Token.ID)
		ascending, descending = ascending && order > 0, descending && order < 0
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpAck, Token: token, Follows: true})
	}

	// Leases from one end come in order, and then all are different.
	if ascending || descending {
		return ops, nil
	}

	return ops, wantDifferent(ops)
}

// wantDifferent refuses acknowledgements of which two are of the same lease.
func wantDifferent(ops []fdbpq.Op) error {
	elements := make(map[fdbpq.Token]int, len(ops)) // -1 is the subject
	for i := range ops {
		n := i - 1
		switch other, again := elements[ops[i].Token]; {
		case again && other < 0:
			return badRequest("also: element %d is the token of the subject: want other leases", n)
		case again:
			return badRequest("also: elements %d and %d are the same token: want each lease once",
				other, n)
		}
		elements[ops[i].Token] = n
	}

	return nil
}
