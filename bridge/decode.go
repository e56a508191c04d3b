package bridge

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// decode completes a request, its replier and its operations, the first of which has its kind and
// end, from a message whose subject was parsed. It may append operations. Errors wrap
// errBadRequest, or are those of package subjects and of fdbpq.ParseToken and fdbpq.ParseID.
//
// It is a switch and no function in the table of verbs, so that its arguments stay on the
// stack.
func decode(v *verb, m *nats.Msg, r *subjects.Request, c *clientReplier, request *dispatch.Request, ops []fdbpq.Op) ([]fdbpq.Op, error) {
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
	op := &ops[0]
	switch r.Verb {
	case subjects.List:
		return ops, decodeList(m.Data, r.Kind, c)
	case subjects.Items:
		return ops, decodeItems(m.Data, r.Kind, r.Queue, c)
	case subjects.Schedules:
		return ops, decodeSchedules(m.Data, r, c)
	case subjects.Rank:
		return decodeItem(m, r, c, request, ops)
	}
	switch v.op {
	case fdbpq.OpPop:
		return decodePop(m, c, request, ops)
	case fdbpq.OpAck:
		return decodeAck(m, r, c, request, ops)
	case fdbpq.OpSettings:
		return ops, decodeSettings(m, op)
	case fdbpq.OpGet, fdbpq.OpRemove, fdbpq.OpMove, fdbpq.OpRelease, fdbpq.OpRedriveItem:
		return decodeItem(m, r, c, request, ops)
	case fdbpq.OpSetSchedule:
		return decodeSchedule(m, r, ops)
	case fdbpq.OpPurge:
		state, err := subjects.ParsePurge(m.Data)
		if state != "" {
			of := fdbpq.Op{Kind: fdbpq.OpRemove, State: states[state]}
			all := bulkEdit{op: of, state: of.State, max: math.MaxInt64, kind: r.Kind, queue: r.Queue}
			c.inspection = all.inspection(c.b.inspector, func(done int64, more bool) []byte {
				return subjects.EncodeReply(subjects.Purged{Purged: done, More: more})
			})
		}
		return ops, err
	case fdbpq.OpInfo:
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpSettings}, fdbpq.Op{Kind: fdbpq.OpConsumers})
	}

	if len(m.Data) > 0 {
		return nil, fmt.Errorf("%w: %s with a payload of %d bytes: want none", errBadRequest, r.Verb, len(m.Data))
	}
	return ops, nil
}

// decodePop reads the options of a pop. If it returns no operations, the request cancels the one
// whose Wait has this ID.
func decodePop(m *nats.Msg, c *clientReplier, request *dispatch.Request, ops []fdbpq.Op) ([]fdbpq.Op, error) {
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
		r.Wait = &dispatch.Wait{Until: r.Received.Add(o.Expires), Heartbeat: o.IdleHeartbeat, OnlyIfEmpty: o.NoWait, ID: o.ID}
	}
	if o.Batch > 1 {
		c.batch, r.Pops = o.Batch, o.Batch
	}

	// One plain item needs no frame. Clients of other accounts may know no subject for
	// acknowledgements but reply subjects.
	plain, far := last.Kind == fdbpq.OpPop, wire.Imported(c.reply)
	c.frames = o.Frames && (plain && o.Batch > 1 || !plain && !far)

	last.Lease, last.Holder, last.MaxBytes = o.AckWait, o.Holder, o.MaxBytes
	if o.Lease && o.AckWait == 0 {
		last.Lease = fdbpq.SettingsLease // also after +NXT, whose lease would have the length of the one before
	}
}

// decodeAck reads an acknowledgement.
func decodeAck(m *nats.Msg, r *subjects.Request, c *clientReplier, request *dispatch.Request, ops []fdbpq.Op) ([]fdbpq.Op, error) {
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
			break // nobody would receive the next
		}
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpLease, End: token.End, Follows: true})
		applyOptions(c, request, &ops[len(ops)-1], a.Next)
	}
	return ops, nil
}

// appendAlso appends acknowledgements of further leases to that of the first.
func appendAlso(ops []fdbpq.Op, also []string) ([]fdbpq.Op, error) {
	ops = slices.Grow(ops, len(also))
	inOrder := [2]bool{true, true} // by End, as leases from there are: then no two are the same
	for i, text := range also {
		token, err := fdbpq.ParseToken(text)
		if err != nil {
			return nil, fmt.Errorf("also: element %d: %w", i, err)
		}
		order := token.ID.Compare(&ops[i].Token.ID)
		inOrder = [2]bool{inOrder[fdbpq.Front] && order > 0, inOrder[fdbpq.Back] && order < 0}
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpAck, Token: token, Follows: true})
	}
	if inOrder[fdbpq.Front] || inOrder[fdbpq.Back] {
		return ops, nil
	}
	return ops, wantDifferent(ops)
}

// wantDifferent refuses acknowledgements of which two are of the same lease.
func wantDifferent(ops []fdbpq.Op) error {
	numbers := make(map[fdbpq.Token]int, len(ops))
	for i := range ops {
		other, again := numbers[ops[i].Token]
		switch {
		case again && other == 0:
			return fmt.Errorf("%w: also: element %d is the token of the subject: want other leases", errBadRequest, i-1)
		case again:
			return fmt.Errorf("%w: also: elements %d and %d are the same token: want each lease once", errBadRequest, other-1, i-1)
		}
		numbers[ops[i].Token] = i
	}
	return nil
}

// decodeSettings reads a change of settings.
func decodeSettings(m *nats.Msg, op *fdbpq.Op) error {
	if len(m.Data) == 0 {
		return nil
	}
	change, err := subjects.ParseChange(m.Data)
	if err != nil {
		return err
	}

	op.Kind, op.Configure = fdbpq.OpConfigure, change.Apply
	return nil
}

// decodeItem reads the payload of an operation on one item, or on several, of each its own, or of a
// redrive.
func decodeItem(m *nats.Msg, r *subjects.Request, c *clientReplier, request *dispatch.Request, ops []fdbpq.Op) ([]fdbpq.Op, error) {
	o, err := subjects.ParseItemOptions(r.Verb, m.Data)
	if err != nil {
		return nil, err
	}

	op := &ops[0]
	op.Priority = o.Priority
	if o.Max {
		op.End = fdbpq.Back
	}
	if r.Verb == subjects.Redrive {
		op.DropHeader = subjects.OfPushAlone
		if o.IDs == nil {
			letters := bulkEdit{op: *op, state: fdbpq.Ready, max: int64(o.Most), kind: r.Kind, queue: r.Queue}
			c.inspection = letters.inspection(c.b.inspector, func(done int64, more bool) []byte {
				return subjects.EncodeReply(subjects.Redriven{Redriven: done, More: more})
			})
			return ops, nil
		}
	}
	if o.IDs == nil {
		op.ID, err = fdbpq.ParseID(o.ID)
		if r.Verb == subjects.Rank {
			c.look(r, fdbpq.Op{Kind: fdbpq.OpRank, ID: op.ID, End: op.End}, rankReply)
		}
		return ops, err
	}

	ids, err := parseIDs(o.IDs)
	if err != nil {
		return nil, err
	}
	if size, most := subjects.MaxItemResults(len(ids)), c.b.nc.MaxPayload(); int64(size) > most {
		return nil, fmt.Errorf("%w: a reply with %d results can have %d bytes, and the server carries at most %d: send fewer ids at once",
			errTooLarge, len(ids), size, most)
	}
	if op.Kind == fdbpq.OpGet {
		c.inspection = getItems(c, r.Kind, r.Queue, ids, o.ValueBytes)
		return ops, nil
	}
	request.Each = true
	all := slices.Repeat(ops, len(ids))
	for i := range all {
		all[i].ID = ids[i]
	}
	return all, nil
}

// parseIDs reads the ids of a request for several items.
func parseIDs(texts []string) ([]fdbpq.ID, error) {
	ids := make([]fdbpq.ID, len(texts))
	for i, text := range texts {
		id, err := fdbpq.ParseID(text)
		if err != nil {
			return nil, fmt.Errorf("ids: element %d: %w", i, err)
		}
		ids[i] = id
	}
	return ids, nil
}

// checkStatus refuses what NATS itself sends, such as "no responders": it does not say that
// an item is done.
func checkStatus(h nats.Header) error {
	for name := range h {
		if strings.EqualFold(name, "Status") {
			return fmt.Errorf("%w: header %s: NATS sends messages with a status, and they acknowledge nothing", errBadRequest, name)
		}
	}
	return nil
}
