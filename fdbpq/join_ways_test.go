package fdbpq_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/staged"
)

// Each way in which an item leaves its queue ends it as a member, and the joiner says how.
func TestWaysOutOfAJoin(t *testing.T) {
	const gone, dead = "done=0 dead=0 gone=1 open=0", "done=0 dead=1 gone=0 open=0"
	expires := func(op *fdbpq.Op) { op.TTL = time.Hour }
	delayed := func(op *fdbpq.Op) { op.TTL, op.Delay = time.Hour, 2*time.Hour }
	token := func(a *fan) fdbpq.Token { return a.leaseAll()[0] }
	for _, way := range []struct {
		name   string
		want   string
		member func(*fdbpq.Op)
		end    func(a *fan)
	}{
		{"acknowledged", "done=1 dead=0 gone=0 open=0", nil, func(a *fan) {
			a.done(fdbpq.Op{Kind: fdbpq.OpAck, Queue: a.q, Token: token(a)})
		}},
		{"+TERM", dead, nil, func(a *fan) {
			a.done(fdbpq.Op{Kind: fdbpq.OpTerm, Queue: a.q, Token: token(a)})
		}},
		{"the last -NAK", dead, nil, func(a *fan) {
			a.configure(a.q, func(s *fdbpq.Settings) { s.MaxDeliver = 1 })
			a.done(fdbpq.Op{Kind: fdbpq.OpNak, Queue: a.q, Token: token(a)})
		}},
		{"the last lease that runs out", dead, nil, func(a *fan) {
			a.configure(a.q, func(s *fdbpq.Settings) { s.MaxDeliver = 1 })
			token(a)
			a.clock.advance(time.Minute)
			a.apply(fdbpq.Op{Kind: fdbpq.OpSweep, Queue: a.q})
		}},
		{"leased and expired", gone, expires, func(a *fan) {
			token(a)
			a.clock.advance(2 * time.Hour)
			a.apply(fdbpq.Op{Kind: fdbpq.OpSweep, Queue: a.q})
		}},
		{"-NAK and expired", gone, expires, func(a *fan) {
			held := a.leaseSome(a.q, 1, 3*time.Hour)[0]
			a.clock.advance(2 * time.Hour)
			a.done(fdbpq.Op{Kind: fdbpq.OpNak, Queue: a.q, Token: held})
		}},
		{"ready and expired", gone, expires, func(a *fan) { a.clock.advance(2 * time.Hour) }},
		{"delayed and expired", gone, delayed,
			func(a *fan) { a.clock.advance(2 * time.Hour) }},
		{"discarded", gone, nil, func(a *fan) {
			a.configure(a.q, func(s *fdbpq.Settings) {
				s.MaxItems, s.Discard = 2, fdbpq.DiscardOld
			})
			a.done(opPush(a.q, 0, "better"))
		}},
		{"removed", gone, nil, func(a *fan) { a.done(named(fdbpq.OpRemove, a.q, a.members[0])) }},
		{"removed while leased", gone, nil, func(a *fan) {
			token(a)
			a.done(named(fdbpq.OpRemove, a.q, a.members[0]))
		}},
		{"purged while ready", gone, nil, func(a *fan) { a.purgeOf(fdbpq.Ready) }},
		{"purged while delayed", gone, delayed, func(a *fan) { a.purgeOf(fdbpq.Delayed) }},
		{"purged while leased", gone, nil, func(a *fan) {
			token(a)
			a.purgeOf(fdbpq.Leased)
		}},
		{"popped", gone, nil, func(a *fan) { a.done(op(opPopMin, a.q)) }},
		{"popped by the recipe's staged pop", gone, nil, func(a *fan) {
			item := must(staged.New(a.db, a.q).PopMin(a.ctx))
			wantEqual(a.T, "popped", item.ID, a.members[0])
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			onStores(t, func(f *fixture) {
				var more []func(*fdbpq.Op)
				if way.member != nil {
					more = append(more, way.member)
				}
				a := f.newFan(1, more...)
				way.end(a)
				a.fires(way.want)
			})
		})
	}
}

// purgeOf removes what is in a state, as a purge of that state does.
func (a *fan) purgeOf(in fdbpq.ItemState) {
	a.Helper()
	remove := named(fdbpq.OpRemove, a.q, a.members[0])
	remove.AtPlace, remove.State = true, in
	a.done(remove)
}

// Many members that expire together, which are removed in runs, all count.
func TestManyMembersExpire(t *testing.T) {
	onStores(t, func(f *fixture) {
		a := f.newFan(100, func(op *fdbpq.Op) { op.TTL = time.Hour })
		a.clock.advance(2 * time.Hour)
		a.fires("done=0 dead=0 gone=100 open=0")
	})
}

// What leaves an item in its queue, or brings it to another place of it, ends no member.
func TestWaysThatEndNoMember(t *testing.T) {
	onStores(t, func(f *fixture) {
		a := f.newFan(1)
		member := a.members[0]
		token := a.leaseAll()[0]
		a.done(fdbpq.Op{Kind: fdbpq.OpExtend, Queue: a.q, Token: token})
		a.done(fdbpq.Op{Kind: fdbpq.OpNak, Queue: a.q, Token: token, Delay: time.Second})
		a.waits()
		a.leaseAll()
		a.done(named(fdbpq.OpRelease, a.q, member))
		move := named(fdbpq.OpMove, a.q, member)
		move.Priority = 3
		a.done(move)
		a.leave(a.q, a.clock.now(), fdbpq.Front) // to a staged pop that never collects it
		a.clock.advance(answerLife)
		a.waits()

		r := a.done(fdbpq.Op{Kind: fdbpq.OpLease, Queue: a.q})
		wantEqual(f.T, "member", r.Item.Job(), member)
		wantEqual(f.T, "its joiner", *r.Item.Joiner, fdbpq.Joiner{Queue: "jobs", ID: a.joiner})
		a.done(fdbpq.Op{Kind: fdbpq.OpAck, Queue: a.q, Token: r.Lease.Token})
		a.fires("done=1 dead=0 gone=0 open=0")
	})
}

// An item that comes back after it has ended is no member any more: what a pop took and nobody
// received.
func TestMembersThatComeBack(t *testing.T) {
	onStores(t, func(f *fixture) {
		a := f.newFan(2)
		popped := a.done(op(opPopMin, a.q)).Item
		a.done(opRestore(a.q, popped))
		a.check()
		a.done(named(fdbpq.OpRemove, a.q, popped.ID))
		a.done(fdbpq.Op{Kind: fdbpq.OpAck, Queue: a.q, Token: a.leaseSome(a.q, 1, 0)[0]})
		a.fires("done=1 dead=0 gone=1 open=0")
	})
}

// A dead letter that is redriven is no member any more, whether its joiner still waits or not.
func TestDeadMemberThatIsRedriven(t *testing.T) {
	for _, early := range []bool{true, false} {
		t.Run(fmt.Sprint("before the joiner runs: ", early), func(t *testing.T) {
			onStores(t, func(f *fixture) {
				a := f.newFan(2)
				a.terminate(a.q)
				redrive := named(fdbpq.OpRedriveItem, f.queue("jobs-dead"), a.members[0])
				if early {
					a.done(redrive)
				}
				a.done(named(fdbpq.OpRemove, a.q, a.members[1]))
				a.fires("done=0 dead=1 gone=1 open=0")
				if !early {
					a.done(redrive)
				}

				r := a.done(fdbpq.Op{Kind: fdbpq.OpLease, Queue: a.q})
				wantEqual(f.T, "job", r.Item.Job(), a.members[0])
				wantEqual(f.T, "joiner", r.Item.Joiner, nil)
				a.done(fdbpq.Op{Kind: fdbpq.OpAck, Queue: a.q, Token: r.Lease.Token})
				a.later()
				wantError(f.T, a.apply(op(opPopMin, a.q))[0].Err, fdbpq.ErrEmpty)
				wantEqual(f.T, "joins left", a.keysOf("jobs", "J"), 0)
			})
		})
	}
}

// A member that was popped by a commit of unknown outcome is put back, and is no member there.
func TestMemberPoppedWithUnknownOutcome(t *testing.T) {
	onFaults(t, unanswered, func(f *unsure, fault faultkv.Fault) {
		a := f.newFan(1)
		f.abandon(fault, op(opPopMin, a.q))
		wantError(f.T, a.batcher.Settle(a.ctx), nil)
		f.calm()

		r := a.done(fdbpq.Op{Kind: fdbpq.OpLease, Queue: a.q})
		wantEqual(f.T, "member", r.Item.ID, a.members[0])
		want := "done=0 dead=0 gone=1 open=0"
		if fault == faultkv.UnknownLost { // the pop was not made
			want = "done=1 dead=0 gone=0 open=0"
		}
		wantEqual(f.T, "is a member", r.Item.Joiner != nil, fault == faultkv.UnknownLost)
		a.done(fdbpq.Op{Kind: fdbpq.OpAck, Queue: a.q, Token: r.Lease.Token})
		a.fires(want)
	})
}

// A purge ends the members among its items, and with a joiner its join.
func TestPurgeOfMembers(t *testing.T) {
	onStores(t, func(f *fixture) {
		a := f.newFan(1)
		other := f.queue("other")
		f.configure(other, func(s *fdbpq.Settings) { s.Next = []string{"jobs"} })
		f.apply(memberOf(a.q, a.joiner, opPush(other, 1, "a")),
			memberOf(a.q, a.joiner, opPush(other, 1, "b")))
		a.done(op(opPopMin, a.q))
		a.waits()

		a.done(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: other})
		a.fires("done=0 dead=0 gone=3 open=0")

		a = f.newFan(2)
		a.done(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: a.q})
		wantEqual(f.T, "joins left", a.keysOf("jobs", "J"), 0)
		wantEqual(f.T, "length", f.length(a.q), 0)
		f.check()
	})
}

// The purge of what the same batch has pushed leaves nothing.
func TestPurgeInTheBatchOfAJoin(t *testing.T) {
	onStores(t, func(f *fixture) {
		q := f.queue("jobs")
		member := opPush(q, 1, "member")
		member.MemberOf, member.Follows = 1, true
		wantErrors(f.T, f.apply(joining(opPush(q, 1, "joiner")), member,
			fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q}))
		wantEqual(f.T, "joins left", f.keysOf("jobs", "J"), 0)
		f.check()
	})
}

// A member that is delivered several times counts once, for the acknowledgement that counts.
func TestMemberDeliveredSeveralTimes(t *testing.T) {
	onStores(t, func(f *fixture) {
		a := f.newFan(2)
		ack := func(token fdbpq.Token) fdbpq.Op {
			return fdbpq.Op{Kind: fdbpq.OpAck, Queue: a.q, Token: token}
		}
		lost := a.leaseSome(a.q, 1, time.Second)[0]
		a.clock.advance(2 * time.Second)
		held := a.leaseSome(a.q, 1, time.Minute)[0]

		wantError(f.T, a.apply(ack(lost))[0].Err, fdbpq.ErrLeaseLost)
		a.waits()
		a.done(ack(held))
		for _, again := range []fdbpq.Token{held, lost} {
			wantError(f.T, a.apply(ack(again))[0].Err, fdbpq.ErrLeaseLost)
			a.waits()
		}

		a.done(ack(a.leaseSome(a.q, 1, time.Minute)[0]))
		a.fires("done=2 dead=0 gone=0 open=0")
	})
}

// A joiner that all other members have left waits as long as one holds it back, which was pushed
// for that.
func TestGuardOfAJoin(t *testing.T) {
	onStores(t, func(f *fixture) {
		a := f.newFan(1, func(op *fdbpq.Op) { op.TTL, op.Delay = time.Hour, 2*time.Hour })
		for range 2 {
			a.done(memberOf(a.q, a.joiner, opPush(a.q, 1, "late")))
			a.done(fdbpq.Op{Kind: fdbpq.OpAck, Queue: a.q, Token: a.leaseSome(a.q, 1, 0)[0]})
			a.waits()
		}

		a.done(named(fdbpq.OpRemove, a.q, a.members[0]))
		a.fires("done=2 dead=0 gone=1 open=0")
	})
}

// What is not pushed is no member: a duplicate, a push without room, and all that is tied to it.
func TestPushesThatAreNoMembers(t *testing.T) {
	onStores(t, func(f *fixture) {
		a := f.newFan(1, func(op *fdbpq.Op) { op.Message.MsgID = "once" })
		once := memberOf(a.q, a.joiner, opPushOnce(a.q, "once", ""))
		wantEqual(f.T, "duplicate", a.done(once).Duplicate, true)
		a.configure(a.q, func(s *fdbpq.Settings) { s.MaxItems = 3 })
		pair := grouped(memberOf(a.q, a.joiner, opPush(a.q, 1, "a")),
			memberOf(a.q, a.joiner, opPush(a.q, 1, "b")))
		wantErrors(f.T, a.apply(pair...), fdbpq.ErrFull, fdbpq.ErrFull)
		a.check()

		a.done(fdbpq.Op{Kind: fdbpq.OpAck, Queue: a.q, Token: a.leaseAll()[0]})
		a.fires("done=1 dead=0 gone=0 open=0")
	})
}

// What members leave when they are kept is found by their joiner, which has none of it itself.
func TestResultsOfMembers(t *testing.T) {
	onStores(t, func(f *fixture) {
		a := f.newFan(3, func(op *fdbpq.Op) { op.Message.Keep = time.Hour })
		for n, token := range a.leaseAll() {
			a.done(ackWith(a.q, token, fmt.Sprint("result ", n)))
		}
		a.fires("done=3 dead=0 gone=0 open=0")

		jobs := a.finishedJobs(a.q, a.clock.now())
		slices.Reverse(jobs)
		wantList(f.T, "results", results(jobs), "result 0", "result 1", "result 2")
		for _, job := range jobs {
			wantEqual(f.T, "its joiner", *job.Joiner, fdbpq.Joiner{Queue: "jobs", ID: a.joiner})
		}
	})
}

// A joiner has its place from its push on, before a backlog that came later.
func TestJoinerBeforeABacklog(t *testing.T) {
	onStores(t, func(f *fixture) {
		a := f.newFan(1)
		a.pushMany(100, func(int) fdbpq.Op { return opPush(a.q, 9, "backlog") })
		a.done(fdbpq.Op{Kind: fdbpq.OpAck, Queue: a.q, Token: a.leaseAll()[0]})
		a.later()
		wantEqual(f.T, "first", a.done(op(opPopMin, a.q)).Item.ID, a.joiner)
	})
}

// A joiner runs once, whatever becomes of the commits around it.
func TestJoinWithFaults(t *testing.T) {
	onFaults(t, append(slices.Clone(unanswered), faultkv.Conflict),
		func(f *unsure, fault faultkv.Fault) {
			a := f.newFan(2)
			tokens := a.leaseAll()
			for _, token := range tokens {
				f.faults.Next(fault, faultkv.None, fault)
				a.done(fdbpq.Op{Kind: fdbpq.OpAck, Queue: a.q, Token: token})
			}

			a.later()
			f.faults.Next(fault, faultkv.None, fault)
			a.apply(fdbpq.Op{Kind: fdbpq.OpSweep, Queue: a.q})

			f.calm()
			a.fires("done=2 dead=0 gone=0 open=0")
		})
}

// A purge in the batch that ends some of the members ends the others.
func TestPurgeInTheBatchOfAnEnd(t *testing.T) {
	onStores(t, func(f *fixture) {
		a := f.newFan(1)
		other := f.queue("other")
		f.configure(other, func(s *fdbpq.Settings) { s.Next = []string{"jobs"} })
		part := memberOf(a.q, a.joiner, opPush(other, 1, "part"))
		wantErrors(f.T, a.apply(part, part, part))
		a.done(op(opPopMin, a.q))
		token := a.leaseSome(other, 1, time.Hour)[0]

		wantErrors(f.T, a.apply(fdbpq.Op{Kind: fdbpq.OpAck, Queue: other, Token: token},
			fdbpq.Op{Kind: fdbpq.OpPurge, Queue: other}))

		a.fires("done=1 dead=0 gone=3 open=0")
		f.check()
	})
}
