package proof_test

import (
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
	"github.com/pqbridge/pqbridge/subjects"
)

// maxTogether is how many leases one message of an account run acknowledges at most, so that many
// of these count: a single one that is lost refuses the others.
const maxTogether = 12

// tokenOf returns the token in a subject of acknowledgements.
func tokenOf(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

// addOthers has an operation acknowledge further leases of its queue, up to as many, and +NXT ask
// for up to as many items as all of these.
func (w *workload) addOthers(c *caller, op *books.Operation, most int) {
	next := op.Kind.Takes()
	if op.Kind != books.Ack && !next || op.JetStream {
		return
	}

	for _, n := range w.random.Perm(len(c.grips)) {
		if g := c.grips[n]; g.queue == op.Queue && !g.of(op) && len(op.Also) < most {
			op.Also = append(op.Also,
				books.Item{Value: g.item.Value, ID: g.item.ID, Fence: g.item.Fence})
		}
	}

	if n := 1 + w.random.IntN(1+len(op.Also)); next && n > 1 {
		op.Batch = n
	}
}

// useOfGrips returns the request of an operation, with the tokens of the leases that it uses.
func (c *caller) useOfGrips(op books.Operation) (r pending) {
	if r.op = op; op.Fence > 0 {
		r.token = c.grip(&op).acksTo(&op)
	}

	for _, item := range op.Also {
		r.also = append(r.also,
			tokenOf(c.grip(&books.Operation{ID: item.ID, Fence: item.Fence}).AckSubject()))
	}

	return r
}

// refused is the error of an operation that was refused. If several leases were named, it says
// which are lost.
func refused(op *books.Operation, reply *nats.Msg, failure *subjects.Error) error {
	var err error
	op.Lost, err = subjects.ParseNumbers(reply.Header, subjects.HeaderLost, 1+len(op.Also))
	if err != nil {
		return errors.Join(client.ErrBadReply, err)
	}

	op.Acked, err = subjects.ParseNumbers(reply.Header, subjects.HeaderDone, 1+len(op.Also))
	if err != nil {
		return errors.Join(client.ErrBadReply, err)
	}
	if failure.Reason == subjects.ReasonDone && len(op.Also) == 0 {
		op.Acked = []int{0}
	}

	return &client.Error{Code: failure.Code, Unknown: failure.Unknown, Text: failure.Text}
}

// over returns the leases that an operation has ended, or that are lost.
func over(op *books.Operation) (list []books.Item) {
	for n, lease := range op.Leases() {
		if op.Outcome != books.Stale || len(op.Also) == 0 || slices.Contains(op.Lost, n) {
			list = append(list, lease)
		}
	}
	return list
}

// share has acknowledgements of one queue share messages.
func (w *teller) share(requests []pending) (shared []pending) {
	type kind struct {
		queue  string
		silent bool
	}

	last := map[kind]int{} // indexes into shared
	for _, r := range requests {
		k := kind{r.op.Queue, r.silent}
		if r.op.Kind != books.Ack || r.op.JetStream || w.workload.random.IntN(3) == 0 {
			shared = append(shared, r)
			continue
		}

		at, ok := last[k]
		if !ok || len(shared[at].also) == maxTogether-1 {
			last[k] = len(shared)
			shared = append(shared, r)
			continue
		}

		first := &shared[at]
		first.op.Also = append(first.op.Also,
			books.Item{Value: r.op.Value, ID: r.op.ID, Fence: r.op.Fence})
		first.also = append(first.also, tokenOf(r.token))
	}

	for i := range shared {
		op := &shared[i].op
		if len(op.Also) > 0 && !shared[i].silent && w.workload.random.IntN(3) == 0 {
			op.Kind, op.Batch = books.NextMin, 2+w.workload.random.IntN(len(op.Also))
		}
	}

	return shared
}
