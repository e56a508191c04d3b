package requests

import (
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// noFrame is the number of no frame.
const noFrame = -1

// takeJoin reads what makes a push a joiner or a member from its headers, and takes it out: it
// comes back as a property. It returns the number of the frame with its joiner, or noFrame. Errors
// wrap errBadRequest, subjects.ErrJoin, ErrQueueName or fdbpq.ErrID.
func takeJoin(h nats.Header, op *fdbpq.Op) (frame int, err error) {
	join, err := single(h, subjects.HeaderJoin, subjects.ParseJoin, &op.Message.Join)
	if err != nil {
		return noFrame, err
	}
	var joiner subjects.Joiner
	member, err := single(h, subjects.HeaderJoiner, subjects.ParseJoiner, &joiner)
	if err != nil || member == "" && join == "" {
		return noFrame, err
	}
	delete(h, join)
	delete(h, member)
	switch {
	case member == "":
		return noFrame, nil
	case joiner.Queue == "":
		return joiner.Frame, nil
	}

	op.Message.Joiner = &fdbpq.Joiner{Queue: joiner.Queue}
	op.Message.Joiner.ID, err = fdbpq.ParseID(joiner.ID)
	return noFrame, err
}

// joinFrame makes the last of some pushes a member of the joiner that one of the others adds, which
// has a number among them.
func joinFrame(pushes []fdbpq.Op, joiner int) error {
	last := len(pushes) - 1
	switch {
	case joiner < 0 || joiner >= last || pushes[joiner].Message.Join == 0:
		return badRequest("header %s: want the number of a frame before it that has the header %s",
			subjects.HeaderJoiner, subjects.HeaderJoin)
	case (pushes[joiner].Message.MsgID == "") != (pushes[last].Message.MsgID == ""):
		return badRequest("header %s: want one in all of a joiner and its members, or in none: "+
			"if the request is repeated, the others would be pushed again", subjects.HeaderMsgID)
	}
	pushes[last].MemberOf = last - joiner
	return nil
}
