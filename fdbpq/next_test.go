package fdbpq_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
)

// ackThen acknowledges a lease with successors.
func ackThen(q fdbpq.Target, token fdbpq.Token, next ...fdbpq.Op) fdbpq.Op {
	return fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: token, Report: &fdbpq.Report{Next: next}}
}

// lease1 pushes and leases an item in a queue whose acknowledgements may push to the queue mail.
func (f *fixture) lease1(q fdbpq.Target) fdbpq.Token {
	f.Helper()
	f.configure(q, func(s *fdbpq.Settings) { s.Next = []string{"mail", q.Layout().Name()} })
	f.apply(opPush(q, 1, "job"))
	return f.leaseSome(q, 1, time.Minute)[0]
}

// What an acknowledgement pushes is at the end of its priority, with its group, headers and times,
// and limits of its queue do not refuse it. The batch says that the queue got items.
func TestSuccessors(t *testing.T) {
	onEngines(t, func(f *fixture) {
		for _, queues := range [][2]fdbpq.Target{
			{f.queue("jobs"), f.queue("mail")}, {f.fifoQueue("jobs"), f.fifoQueue("mail")},
		} {
			clock := f.setClock()
			q, mail := queues[0], queues[1]
			token := f.lease1(q)
			f.configure(mail, func(s *fdbpq.Settings) { s.MaxItems, s.TTL = 1, time.Hour })
			f.apply(opPush(mail, 5, "before"))
			large := inGroup(opPush(mail, 5, string(pattern(250_000, 1))), "acme")
			large.Message.Headers["A"] = []string{"1", ""}

			p := f.batcher.Start(f.ctx, []fdbpq.Op{ackThen(q, token, opPush(mail, 5, "a"), large,
				withDelay(withTTL(opPush(mail, 5, "late"), 2*time.Hour), time.Minute))})
			wantErrors(f.T, must(p.Wait()))

			filled := fdbpq.QueueName{Name: "mail", FIFO: q.Layout().Fifo}
			wantEqual(f.T, "filled", slices.Contains(p.Filled(), filled), true)
			wantEqual(f.T, "leased", f.infoOf(q, 0).Leased, 0)
			pop := fdbpq.Op{Kind: fdbpq.OpPop, Queue: mail}
			popped := f.apply(pop, pop, pop, pop)
			wantErrors(f.T, popped, nil, nil, nil, fdbpq.ErrEmpty)
			var values []string
			for _, r := range popped[:3] {
				values = append(values, string(r.Item.Value[:1]))
				wantEqual(f.T, "expires in", r.Item.Expires.Sub(r.Item.PushedAt), time.Hour)
			}
			slices.Sort(values[1:])
			group := string(large.Message.Value[:1])
			wantEqual(f.T, "values", fmt.Sprint(values), fmt.Sprint(append([]string{"b"},
				slices.Sorted(slices.Values([]string{"a", group}))...)))

			clock.advance(time.Minute)
			late := f.apply(pop)[0].Item
			wantEqual(f.T, "late", string(late.Value), "late")
			wantEqual(f.T, "expires", late.Expires.Sub(late.PushedAt), 2*time.Hour)
			f.check()
		}
	})
}

// A successor in the job's own queue is there for the lease that follows.
func TestSuccessorInItsOwnQueue(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		token := f.lease1(q)

		r := f.apply(ackThen(q, token, opPush(q, 1, "next page")),
			fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Follows: true})

		wantErrors(f.T, r)
		wantEqual(f.T, "value", string(r[1].Item.Value), "next page")
		f.check()
	})
}

// What cannot be pushed fails the acknowledgement and those tied to it, and nothing is done: the
// leases go on.
func TestBadSuccessors(t *testing.T) {
	f := onMem(t)
	q, mail := f.queue("jobs"), f.queue("mail")
	f.lease1(q)
	good := opPush(mail, 1, "good")
	tooMany := slices.Repeat([]fdbpq.Op{good}, fdbpq.MaxNext+1)
	large := opPush(mail, 1, strings.Repeat("x", fdbpq.MaxMessageSize+1))
	half := opPush(mail, 1, strings.Repeat("x", fdbpq.MaxMessageSize/2+1))

	for name, next := range map[string][]fdbpq.Op{
		"the setting next":        {good, opPush(f.queue("other"), 1, "")},
		"of another kind":         {good, opPush(f.fifoQueue("mail"), 0, "")},
		"a message id":            {good, opPushOnce(mail, "id", "")},
		"or a unique key":         {good, opPushOnce(mail, "", "key")},
		"want an OpPush":          {good, {Kind: fdbpq.OpPop, Queue: mail}},
		"a delay of":              {good, withDelay(opPush(mail, 1, ""), -1)},
		"value and headers are":   {good, large},
		"257 successors":          tooMany,
		"the successors take 9":   {half, half},
		"the weight 2: want none": {good, {Kind: fdbpq.OpPush, Queue: mail, Weight: 2}},
	} {
		f.apply(opPush(q, 1, "a"), opPush(q, 1, "b"))
		tokens := f.leaseSome(q, 2, time.Minute)
		acks := grouped(ackThen(q, tokens[0]), ackThen(q, tokens[1], next...))

		for _, r := range f.apply(acks...) {
			wantError(t, r.Err, fdbpq.ErrOp)
			if !strings.Contains(fmt.Sprint(r.Err), name) {
				t.Errorf("%v: want it to say %q", r.Err, name)
			}
		}

		wantEqual(t, name+": pushed", f.length(mail), 0)
		wantErrors(t, f.apply(grouped(ackThen(q, tokens[0]), ackThen(q, tokens[1]))...))
	}

	nak := ackThen(q, fdbpq.Token{Fence: 1}, good)
	nak.Kind = fdbpq.OpNak
	r := f.apply(nak)[0]
	wantError(t, r.Err, fdbpq.ErrOp)
	f.check()
}

// Acknowledgements of lost leases push nothing, and nor do repeated ones.
func TestSuccessorsOfLostLeases(t *testing.T) {
	f := onMem(t)
	q, mail := f.queue("jobs"), f.queue("mail")
	f.configure(q, func(s *fdbpq.Settings) { s.Keep = time.Hour })
	token := f.lease1(q)
	f.apply(opPush(q, 1, "other"))
	held := f.leaseSome(q, 1, time.Minute)[0]
	ack := ackThen(q, token, opPush(mail, 1, "next"))
	wantErrors(t, f.apply(ack))

	again := f.apply(ack)[0].Err
	chain := f.apply(grouped(ackThen(q, held, opPush(mail, 1, "no")), ackThen(q, token))...)

	wantError(t, again, fdbpq.ErrDone)
	wantErrors(t, chain, fdbpq.ErrLeaseLost, fdbpq.ErrLeaseLost)
	wantEqual(t, "pushed", f.length(mail), 1)
	f.check()
}

// An acknowledgement has all of its successors once, or is not done, whatever becomes of the
// commit.
func TestSuccessorsWithFaults(t *testing.T) {
	for _, fault := range append(slices.Clone(unanswered), faultkv.Conflict) {
		t.Run(fmt.Sprint(fault), func(t *testing.T) {
			f := newUnsure(t, faultkv.Options{})
			f.setClock()
			q, mail := f.queue("jobs"), f.queue("mail")
			token := f.lease1(q)
			f.faults.Next(fault, faultkv.None, fault)

			r := f.apply(ackThen(q, token, opPush(mail, 1, "a"), opPush(mail, 2, "b")))

			f.calm()
			wantErrors(t, r)
			wantList(t, "values", f.values(mail.PopMin), "a", "b")
			wantError(t, f.apply(ackThen(q, token))[0].Err, fdbpq.ErrLeaseLost)
		})
	}
}

// Acknowledgements that push to one queue at the same priority do not conflict, with each other or
// with pushes there. They conflict with a change of the setting that allows it.
func TestSuccessorConflicts(t *testing.T) {
	for _, test := range []struct {
		name      string
		meanwhile func(*fixture) fdbpq.Op
		want      bool
	}{
		{"ack", func(f *fixture) fdbpq.Op {
			return ackThen(f.queue("b"), f.lease1(f.queue("b")), opPush(f.queue("mail"), 1, "b"))
		}, false},
		{"push", func(f *fixture) fdbpq.Op { return opPush(f.queue("mail"), 1, "p") }, false},
		{"settings", func(f *fixture) fdbpq.Op {
			return fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: f.queue("a"),
				Configure: func(s *fdbpq.Settings) { s.Next = nil }}
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := onMem(t)
			other := test.meanwhile(f)
			ack := ackThen(f.queue("a"), f.lease1(f.queue("a")), opPush(f.queue("mail"), 1, "a"))

			f.wantConflict(test.want, func() { wantErrors(t, f.apply(other)) }, ack)
		})
	}
}

// Pushes to the queue of a successor come behind it, and the Batcher need not read their counts.
func TestKnownCountsOfSuccessors(t *testing.T) {
	f, store := onlyWay(t)
	q, mail := f.queue("jobs"), f.queue("mail")
	token := f.lease1(q)
	f.apply(opPush(mail, 1, "first"))
	push := func(value string) int {
		store.Take()
		f.apply(opPush(mail, 1, value))
		return store.Take()[0].Reads
	}
	before := push("second")

	wantErrors(t, f.apply(ackThen(q, token, opPush(mail, 1, "third"))))

	wantEqual(t, "reads of a push", push("fourth"), before)
	wantList(t, "values", f.values(mail.PopMin), "first", "second", "third", "fourth")
}

// A queue outside a Keyspace cannot name others, and lists of names are bounded.
func TestNextSetting(t *testing.T) {
	f := onMem(t)
	for name, names := range map[string][]string{
		"a name of 0 bytes":   {""},
		"a name of 129 bytes": {strings.Repeat("x", codec.MaxQueueName+1)},
		"is there twice":      {"a", "a"},
		"17 names":            strings.Split("abcdefghijklmnopq", ""),
	} {
		r := f.apply(fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: f.queue("jobs"),
			Configure: func(s *fdbpq.Settings) { s.Next = names }})[0]

		wantError(t, r.Err, fdbpq.ErrSettings)
		if !strings.Contains(fmt.Sprint(r.Err), name) {
			t.Errorf("%v: want it to say %q", r.Err, name)
		}
	}
}
