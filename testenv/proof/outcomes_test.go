package proof_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	keepFor       = 24 * time.Hour // longer than any run
	maxAsked      = 12             // jobs that one client asks about at once
	maxSuccessors = 3
	fewTraced     = 300         // items that there are, at least
	betweenTraced = 1000        // operations between two faults
	askedWithin   = time.Minute // after its push, a job is found by its message id
)

// tracedQueues keep jobs: the settings of the first of each kind say so, and the pushes to the
// other.
func tracedQueues() []string { return []string{"o-0", "o-1", "fifo-o-0", "fifo-o-1"} }

// isKeptByPush reports whether pushes to a queue say that its jobs are kept.
func isKeptByPush(queue string) bool {
	return slices.Contains(tracedQueues(), queue) && strings.HasSuffix(queue, "-1")
}

// kept returns a message whose job is kept, in queues in which pushes say so.
func kept(m client.Message, queue string) client.Message {
	if isKeptByPush(queue) {
		m = m.With(client.Keep(keepFor))
	}
	return m
}

// newValue is the value of a new item of a client.
func (w *workload) newValue(c *caller) string {
	w.pushes++
	return fmt.Sprintf("%s-%d-%d", w.round, c.number, w.pushes)
}

// leased returns a lease in place of a pop.
func leased(k books.Kind) books.Kind {
	switch k {
	case books.PopMin:
		return books.LeaseMin
	case books.PopMax:
		return books.LeaseMax
	}
	return k
}

// Whatever breaks, clients learn what became of a job: it is at one place at any time, and its
// result comes from the acknowledgement that counted. An acknowledgement counts with all its leases
// and successors, or not at all. Only the queues of TestAccounts that keep jobs take part.
func TestOutcomes(t *testing.T) {
	testAccounts(t, accountSystems(), func(b *bank) {
		b.full = tracedQueues()
		b.traced, b.joined = b.full, b.full
		b.few, b.between = min(b.few, fewTraced), betweenTraced
	})
}

// settingsOf returns the settings of one of these queues, which may push to others of its kind.
func settingsOf(name string, others []string) client.Settings {
	s := client.Settings{KeepItems: 1e9}
	if !isKeptByPush(name) {
		s.Keep = keepFor
	}
	for _, next := range others {
		if isFIFO(next) == isFIFO(name) {
			s.Next = append(s.Next, next)
		}
	}
	return s
}

// configureTraced has the queues keep jobs, and push to each other.
func (b *bank) configureTraced(set func(queues []string, s client.Settings)) {
	for _, name := range b.traced {
		set([]string{name}, settingsOf(name, b.traced))
	}
}

// knownJob is a job that a client asks about later.
type knownJob struct {
	queue, value, id string
	once             bool
	pushed           time.Duration
}

// learn keeps some of the jobs that an operation names.
func (w *teller) learn(r *pending) {
	op := &r.op
	if !books.IsTraced(op.Queue) || op.Outcome != books.Done {
		return
	}
	home := strings.TrimSuffix(op.Queue, "-dead")
	if op.Kind == books.Push && op.Batch == 0 {
		w.keepJob(knownJob{home, op.Value, op.ID, r.once, time.Duration(op.Call)})
	}
	for _, item := range op.Items {
		if op.Kind.Leases() && item.Job != "" && w.workload.random.IntN(4) == 0 {
			w.keepJob(knownJob{queue: home, value: item.Value, id: item.Job})
		}
	}
}

func (w *teller) keepJob(j knownJob) {
	if len(w.jobs) == maxRemembered {
		w.jobs[w.workload.random.IntN(maxRemembered)] = j
		return
	}
	w.jobs = append(w.jobs, j)
}

// askAll asks what became of jobs, and does what clients do who name them by their ids.
func (w *teller) askAll() {
	random := w.workload.random
	if len(w.jobs) == 0 {
		return
	}

	requests := make([]pending, 1+random.IntN(maxAsked))
	for i := range requests {
		j := w.jobs[random.IntN(len(w.jobs))]
		op := &requests[i].op
		*op = books.Operation{Kind: books.Result, Queue: j.queue, Value: j.value, ID: j.id}
		switch x := random.IntN(100); {
		case x < 45:
		case x < 70:
			op.Expires = int64(minExpires) + random.Int64N(int64(maxExpires-minExpires))
		case x < 82:
			op.Kind = books.Rerun
		case x < 88:
			op.Kind, op.Queue = books.Rerun, j.queue+"-dead"
		case x < 96 && !isFIFO(j.queue):
			op.Kind, op.Priority = books.Move, random.Int64N(4)-1
		case x < 98:
			op.Kind = books.Remove
		default:
			op.Kind, op.State = books.Remove, books.StateDone
		}

		recent := time.Since(w.bank.zero)-j.pushed < askedWithin
		requests[i].once = op.Kind == books.Result && j.once && recent && random.IntN(2) == 0
	}
	w.burst(requests)
}

// decorate has an acknowledgement in these queues say results, and push to other queues.
func (w *workload) decorate(op *books.Operation, by int, next []string, value func() string) {
	if !books.IsTraced(op.Queue) || !op.Kind.Acks() || op.JetStream || op.Fence == 0 {
		return
	}

	result := func(value string) string {
		if w.random.IntN(4) == 0 {
			return ""
		}
		w.results++
		return fmt.Sprintf("%s by %d, %d", value, by, w.results)
	}
	op.Result = result(op.Value)
	for i := range op.Also {
		op.Also[i].Result = result(op.Also[i].Value)
	}

	if strings.HasSuffix(op.Queue, "-dead") || w.random.IntN(3) > 0 {
		return
	}
	for range 1 + w.random.IntN(maxSuccessors) {
		s := books.Successor{Queue: next[w.random.IntN(len(next))], Value: value()}
		s.Size = int64(len(successor(s.Value)))
		op.Next = append(op.Next, s)
	}
}

// addLost has some acknowledgements in these queues come right after one with another token of the
// same item, as an earlier delivery may have had it.
func (w *teller) addLost(requests []pending) (all []pending) {
	for _, r := range requests {
		traced := books.IsTraced(r.op.Queue) && r.op.Kind == books.Ack && !r.op.JetStream
		if traced && r.op.Fence > 1 && w.workload.random.IntN(4) == 0 {
			lost := pending{op: r.op}
			lost.op.Also = nil
			lost.op.Fence--

			text := tokenOf(r.token)
			token := sure(fdbpq.ParseToken(text))
			token.Fence -= 1 << 48
			lost.token = strings.TrimSuffix(r.token, text) + token.String()
			all = append(all, lost)
		}
		all = append(all, r)
	}
	return all
}

// successor is the value of an item that an acknowledgement pushes.
func successor(value string) []byte { return pad(value, 30) }

// decorate does so with accounts.
func (w *teller) decorate(op *books.Operation) {
	var next []string
	for _, name := range w.traced {
		if isFIFO(name) == isFIFO(op.Queue) {
			next = append(next, name)
		}
	}
	w.workload.decorate(op, w.number, next, w.newValue)
	w.joinNext(op)
}

// newValue is the value of a new item.
func (w *teller) newValue() string { return strconv.FormatInt(w.books.New(), 10) }

// encodeOutcome puts results and successors into an acknowledgement.
func (b *burster) encodeOutcome(r *pending, ack *nats.Msg) *nats.Msg {
	op := &r.op
	var frames []subjects.Frame
	if len(op.Also)+len(op.Next) > 0 {
		for n, lease := range op.Leases() {
			token := tokenOf(r.token)
			if n > 0 {
				token = r.also[n-1]
			}
			if lease.Result != "" {
				frames = append(frames, frameOf(nats.Header{subjects.HeaderToken: {token}},
					[]byte(lease.Result)))
			}
		}
	}
	first := len(frames)
	for _, next := range op.Next {
		h := joinHeaders(&next, first)
		h[subjects.HeaderQueue] = []string{next.Queue}
		if isKeptByPush(next.Queue) {
			h[subjects.HeaderKeep] = []string{keepFor.String()}
		}
		frames = append(frames, frameOf(h, successor(next.Value)))
	}

	switch {
	case len(frames) > 0:
		ack.Header = nats.Header{subjects.HeaderFrames: {strconv.Itoa(len(frames))}}
	case op.Result != "" && len(op.Also) == 0:
		ack.Header = nats.Header{}
	default:
		return ack
	}

	text := cmp.Or(string(ack.Data), "+ACK")
	ack.Header[subjects.HeaderAck] = []string{text}
	if ack.Data = []byte(op.Result); len(frames) > 0 {
		ack.Data = nil
		for _, f := range frames {
			ack.Data = subjects.AppendFrame(ack.Data, f)
		}
	}
	return ack
}

// frameOf returns a frame with headers.
func frameOf(h nats.Header, data []byte) subjects.Frame {
	return subjects.Frame{Headers: sure(subjects.AppendHeaders(nil, h)), Value: data}
}

// encodeAsk returns the message of a request about one job.
func (b *burster) encodeAsk(r *pending) *nats.Msg {
	op := &r.op
	if op.Kind == books.Rerun {
		o := subjects.ItemOptions{IDs: []string{op.ID}}
		return &nats.Msg{
			Subject: b.subject(op.Queue, subjects.Redrive),
			Data:    o.Encode(subjects.Redrive),
		}
	}

	o := subjects.ResultOptions{ID: op.ID, Expires: time.Duration(op.Expires)}
	if r.once {
		o = subjects.ResultOptions{MsgID: op.Value, Expires: o.Expires}
	}
	return &nats.Msg{Subject: b.subject(op.Queue, subjects.Result), Data: o.Encode()}
}

// readAsked reads the reply to such a request.
func readAsked(op *books.Operation, reply *nats.Msg) error {
	if op.Kind == books.Rerun {
		list, err := subjects.ParseReply[subjects.ItemResults](reply.Data)
		if err != nil || len(list.Results) != 1 {
			return errors.Join(client.ErrBadReply, err)
		}
		r := client.ItemResult(list.Results[0])
		if r.Code > 0 {
			return itemRefused(op, &r)
		}
		op.Moved, op.Job = r.Place, r.ID
		return nil
	}

	info, err := subjects.ParseJobInfo(reply.Header)
	if err != nil || info.ID == "" || info.HasResult != (len(reply.Data) > 0) {
		return errors.Join(client.ErrBadReply, err)
	}
	op.State, op.Result = books.State(info.State), string(reply.Data)
	op.ID, op.Job = cmp.Or(info.Place, info.ID), info.ID
	return nil
}

// itemRefused is the error of the one job of a request.
func itemRefused(op *books.Operation, r *client.ItemResult) error {
	if r.Reason == subjects.ReasonDone {
		op.Acked = []int{0}
	}
	return &client.Error{Code: r.Code, Text: r.Text}
}

// noteKept notes what an answer to an acknowledgement says was not kept.
func (r *pending) noteKept(reply *nats.Msg) (err error) {
	if r.op.Kind.Acks() && len(r.op.NotKept) == 0 {
		r.op.NotKept, err = subjects.ParseNumbers(reply.Header, subjects.HeaderNotKept,
			1+len(r.op.Also))
	}
	return err
}

// leaveDone records the jobs that are done in the end.
func (b *bank) leaveDone(ctx context.Context, db kv.Database) {
	for _, name := range b.traced {
		must(b.t, eachDone(ctx, db, name, func(i *fdbpq.Browsed) {
			b.books.LeftDone(numberOf(&i.Item), i.Job().String(), string(i.Finished.Result))
		}))
	}
}

// eachDone reports the jobs of a queue that are done.
func eachDone(
	ctx context.Context, db kv.Database, name string, tell func(*fdbpq.Browsed),
) error {
	q, err := target(keyspace(), name)
	if err == nil {
		err = fdbpqtest.Each(ctx, db, q, fdbpq.Done, tell)
	}
	return err
}

// ask returns a request in a history that asks what became of one of the client's jobs in a queue,
// if there is one.
func (w *workload) ask(c *caller, queue string) (op books.Operation, ok bool) {
	var pushed []*books.Operation
	for i := range c.ops {
		if p := &c.ops[i]; p.Kind == books.Push && p.Queue == queue && p.Outcome == books.Done {
			pushed = append(pushed, p)
		}
	}
	if len(pushed) == 0 {
		return op, false
	}

	p := pushed[w.random.IntN(len(pushed))]
	op = books.Operation{Kind: books.Result, Queue: queue, Value: p.Value, ID: p.ID}
	if w.random.IntN(2) == 0 {
		op.Expires = int64(time.Millisecond) + w.random.Int64N(int64(maxWait))
	}
	return op, true
}

// settleAll acknowledges all items that are left in a queue of a history, and asks what became of
// the jobs.
func (r *rig) settleAll(c *burster, queue string, pushed []books.Operation) {
	w := &workload{random: rand.New(rand.NewPCG(r.seed, 10))}
	for !r.t.Failed() {
		lease := c.do(books.Operation{
			Queue: queue, Kind: books.LeaseMin, Wait: int64(answerTime),
		}, 0)
		if lease.Outcome == books.Empty {
			break
		}

		if items := lease.Items; len(items) > 0 {
			c.note(w, lease)
			item := items[0]
			c.do(books.Operation{
				Queue: queue, Kind: books.Ack, Value: item.Value, ID: item.ID, Fence: item.Fence,
				Result: "the last of " + item.Value,
			}, 0)
		}
		if broken(&c.ops[len(c.ops)-1]) {
			c.await()
		}
	}

	c.grips = nil
	for _, p := range pushed {
		c.do(books.Operation{Kind: books.Result, Queue: queue, Value: p.Value, ID: p.ID}, 0)
	}
}
