package fdbpq_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// joining makes a push one of a joiner, which waits for a day.
func joining(push fdbpq.Op) fdbpq.Op {
	push.Message.Join = 24 * time.Hour
	return push
}

// memberOf makes a push one of a member of the joiner with an id.
func memberOf(q fdbpq.Target, joiner fdbpq.ID, push fdbpq.Op) fdbpq.Op {
	push.Message.Joiner = &fdbpq.Joiner{Queue: q.Layout().Name(), ID: joiner}
	return push
}

// fan is a queue with a joiner, and its members, which are before it in the order of pops.
type fan struct {
	*fixture
	clock   *clock
	q       *fdbpq.PriorityQueue
	joiner  fdbpq.ID
	members []fdbpq.ID
}

// newFan pushes a joiner and some members in one chain. Their values are m0, m1 and so on.
func (f *fixture) newFan(members int, more ...func(*fdbpq.Op)) *fan {
	f.Helper()
	a := &fan{fixture: f, clock: f.setClock(), q: f.queue("jobs")}
	ops := []fdbpq.Op{joining(opPush(a.q, 9, "joiner"))}
	for n := range members {
		member := opPush(a.q, 1, fmt.Sprint("m", n))
		member.MemberOf, member.Follows = n+1, true
		for _, change := range more {
			change(&member)
		}
		ops = append(ops, member)
	}
	results := f.apply(ops...)
	wantErrors(f.T, results)
	a.joiner = results[0].Item.ID
	for _, r := range results[1:] {
		a.members = append(a.members, r.Item.ID)
	}
	return a
}

// later lets the clock run into the next second, when all that was left to be looked at is due.
func (a *fan) later() { a.clock.advance(2 * time.Second) }

// waits checks that the joiner is still held.
func (a *fan) waits() {
	a.Helper()
	a.later()
	a.apply(fdbpq.Op{Kind: fdbpq.OpSweep, Queue: a.q})
	wantEqual(a.T, "state of the joiner", a.done(named(fdbpq.OpGet, a.q, a.joiner)).State,
		fdbpq.Delayed)
	a.check()
}

// fires checks that the joiner is ready, once, and what it says of its members.
func (a *fan) fires(joined string) {
	a.Helper()
	a.later()
	a.apply(fdbpq.Op{Kind: fdbpq.OpSweep, Queue: a.q})
	a.check()
	r := a.done(fdbpq.Op{Kind: fdbpq.OpPop, Queue: a.q, End: fdbpq.Back})
	wantEqual(a.T, "popped", r.Item.ID, a.joiner)
	wantList(a.T, "joined", r.Item.Headers[fdbpq.HeaderJoined], joined)
	wantEqual(a.T, "joins left", a.keysOf("jobs", "J"), a.openRows())
	a.check()
}

// openRows is how many counters of members there are, which stay until they have ended.
func (a *fan) openRows() int {
	return len(slices.DeleteFunc(a.stored(a.priority), func(pair kv.KeyValue) bool {
		key := must(tuple.Unpack(pair.Key))
		return key[2] != codec.KindJoin || key[3] != "m"
	}))
}

// leaseAll leases the members.
func (a *fan) leaseAll() []fdbpq.Token { return a.leaseSome(a.q, len(a.members), time.Minute) }

// A joiner is ready, at its old place, as soon as its last member has ended.
func TestJoinerRunsAfterItsMembers(t *testing.T) {
	onStores(t, func(f *fixture) {
		a := f.newFan(3)
		tokens := a.leaseAll()
		for _, token := range tokens[:2] {
			a.done(fdbpq.Op{Kind: fdbpq.OpAck, Queue: a.q, Token: token})
			a.waits()
		}

		a.done(fdbpq.Op{Kind: fdbpq.OpAck, Queue: a.q, Token: tokens[2]})

		a.fires("done=3 dead=0 gone=0 open=0")
	})
}

// Members that end in one transaction count as those that end in several.
func TestMembersThatEndTogether(t *testing.T) {
	onStores(t, func(f *fixture) {
		a := f.newFan(3)
		wantErrors(f.T, a.apply(acks(a.q, a.leaseAll()...)...))
		a.fires("done=3 dead=0 gone=0 open=0")
	})
}

// A joiner without members runs at once.
func TestJoinWithoutMembers(t *testing.T) {
	onStores(t, func(f *fixture) { f.newFan(0).fires("done=0 dead=0 gone=0 open=0") })
}

// A joiner whose time is over runs, and says how many members are open. They end as others do.
func TestJoinerWhoseTimeIsOver(t *testing.T) {
	onStores(t, func(f *fixture) {
		a := f.newFan(2)
		a.clock.advance(23 * time.Hour)
		token := a.leaseSome(a.q, 1, 2*time.Hour)[0]
		a.clock.advance(time.Hour)
		a.fires("done=0 dead=0 gone=0 open=2")
		a.done(fdbpq.Op{Kind: fdbpq.OpAck, Queue: a.q, Token: token})
		a.done(op(opPopMin, a.q))
		wantEqual(f.T, "joins left", a.keysOf("jobs", "J"), 0)
		f.check()
	})
}

// Later pushes can be members, while the joiner waits, and a member that is a joiner holds back
// the one that it is a member of.
func TestLaterMembers(t *testing.T) {
	onStores(t, func(f *fixture) {
		a := f.newFan(1)
		inner := memberOf(a.q, a.joiner, joining(opPush(a.q, 2, "inner")))
		leaf := opPush(a.q, 0, "leaf")
		leaf.MemberOf, leaf.Follows = 1, true
		results := a.apply(inner, leaf)
		wantErrors(f.T, results)
		a.done(fdbpq.Op{Kind: fdbpq.OpAck, Queue: a.q, Token: a.leaseSome(a.q, 1, 0)[0]})
		a.waits()
		a.done(fdbpq.Op{Kind: fdbpq.OpAck, Queue: a.q, Token: a.leaseSome(a.q, 1, 0)[0]})
		a.waits()

		r := a.done(fdbpq.Op{Kind: fdbpq.OpLease, Queue: a.q})
		wantEqual(f.T, "inner", r.Item.ID, results[0].Item.ID)
		wantList(f.T, "joined", r.Item.Headers[fdbpq.HeaderJoined], "done=1 dead=0 gone=0 open=0")
		a.done(fdbpq.Op{Kind: fdbpq.OpAck, Queue: a.q, Token: r.Lease.Token})
		a.fires("done=2 dead=0 gone=0 open=0")
	})
}

// A push to a join that is over is refused with all that is tied to it, and a duplicate is not.
func TestJoinThatIsOver(t *testing.T) {
	onStores(t, func(f *fixture) {
		a := f.newFan(1, func(op *fdbpq.Op) { op.Message.MsgID = "once" })
		once := memberOf(a.q, a.joiner, opPushOnce(a.q, "once", ""))
		a.done(op(opPopMin, a.q))
		a.fires("done=0 dead=0 gone=1 open=0")

		wantEqual(f.T, "duplicate", a.done(once).Duplicate, true)
		late := grouped(opPush(a.q, 1, "with it"), memberOf(a.q, a.joiner, opPush(a.q, 1, "late")))
		for _, r := range a.apply(late...) {
			wantError(f.T, r.Err, fdbpq.ErrJoined)
		}
		wantEqual(f.T, "length", f.length(a.q), 0)
	})
}

// The end of a joiner ends the join: its members go on, and leave nothing.
func TestRemovedJoiner(t *testing.T) {
	onStores(t, func(f *fixture) {
		a := f.newFan(2)
		a.done(named(fdbpq.OpRemove, a.q, a.joiner))
		f.check()
		wantErrors(f.T, a.apply(acks(a.q, a.leaseAll()...)...))
		wantEqual(f.T, "joins left", a.keysOf("jobs", "J"), 0)
		wantEqual(f.T, "length", f.length(a.q), 0)
		f.check()
	})
}

// A joiner that waits does not move, does not expire as the settings say, and makes no room.
func TestWaitingJoinerStays(t *testing.T) {
	onStores(t, func(f *fixture) {
		f.configure(f.queue("jobs"), func(s *fdbpq.Settings) {
			s.TTL, s.MaxItems, s.Discard = time.Minute, 1, fdbpq.DiscardOld
		})
		q := f.queue("jobs")
		clock := f.setClock()
		results := f.apply(joining(opPush(q, 9, "joiner")))
		wantErrors(f.T, results)
		f.configure(q, func(s *fdbpq.Settings) { s.MaxItems = 0 })
		f.done(memberOf(q, results[0].Item.ID, withTTL(opPush(q, 1, "member"), fdbpq.Never)))
		f.configure(q, func(s *fdbpq.Settings) { s.MaxItems = 2 })

		f.done(opPush(q, 0, "evicts the member"))
		clock.advance(2 * time.Minute)
		r := f.done(op(opPopMax, q))
		wantEqual(f.T, "popped", r.Item.ID, results[0].Item.ID)
		wantList(f.T, "joined", r.Item.Headers[fdbpq.HeaderJoined], "done=0 dead=0 gone=1 open=0")

		a := f.newFan(1)
		wantError(f.T, f.apply(named(fdbpq.OpMove, q, a.joiner))[0].Err, fdbpq.ErrJoins)
	})
}

// Successors can be a joiner and its members, in other queues too.
func TestSuccessorsThatJoin(t *testing.T) {
	onStores(t, func(f *fixture) {
		clock := f.setClock()
		q, mail := f.queue("jobs"), f.queue("mail")
		token := f.lease1(q)
		f.configure(mail, func(s *fdbpq.Settings) { s.Next = []string{"jobs"} })
		member := opPush(mail, 1, "member")
		member.MemberOf = 1

		wantErrors(f.T, f.apply(ackThen(q, token, joining(opPush(q, 1, "joiner")), member)))
		wantError(f.T, f.apply(op(opPopMin, q))[0].Err, fdbpq.ErrEmpty)
		f.check()
		f.done(op(opPopMin, mail))
		clock.advance(2 * time.Second)
		r := f.done(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})
		wantList(f.T, "joined", r.Item.Headers[fdbpq.HeaderJoined], "done=0 dead=0 gone=1 open=0")

		// The lease that ends must not be lost because of a join that is over.
		late := memberOf(q, r.Item.ID, opPush(mail, 1, "late"))
		wantErrors(f.T, f.apply(ackThen(q, r.Lease.Token, late)))
		popped := f.done(op(opPopMin, mail)).Item
		wantEqual(f.T, "joiner of the late one", popped.Joiner, nil)
		f.check()
	})
}

// A worker can add members with its acknowledgement while it is one itself.
func TestMemberThatAddsMembers(t *testing.T) {
	onStores(t, func(f *fixture) {
		f.configure(f.queue("jobs"), func(s *fdbpq.Settings) { s.Next = []string{"jobs"} })
		a := f.newFan(1)
		next := memberOf(a.q, a.joiner, opPush(a.q, 1, "next"))
		wantErrors(f.T, a.apply(ackThen(a.q, a.leaseAll()[0], next)))
		a.waits()
		a.done(op(opPopMin, a.q))
		a.fires("done=1 dead=0 gone=1 open=0")
	})
}

// What cannot be a join is refused, with what would be right.
func TestBadJoins(t *testing.T) {
	onStores(t, func(f *fixture) {
		q, other := f.queue("jobs"), f.queue("other")
		joiner := f.done(joining(opPush(q, 1, "joiner"))).Item.ID
		space := tuple.NewSubspace(tuple.Tuple{f.priority, "jobs"})
		outside := fdbpq.NewPriorityQueue(space, f.format)
		both := memberOf(q, joiner, opPush(q, 1, ""))
		both.MemberOf = 1
		unnamed := memberOf(q, joiner, opPush(q, 1, ""))
		unnamed.Message.Joiner.Queue = ""
		long := joining(opPush(q, 1, ""))
		long.Message.Join = fdbpq.MaxJoin + 1
		late := joining(opPush(q, 1, ""))
		late.Delay = time.Second
		large := joining(opPush(q, 1, strings.Repeat("x", fdbpq.MaxJoiner+1)))
		toNone := opPush(q, 1, "")
		toNone.MemberOf = 1

		for want, bad := range map[string]fdbpq.Op{
			"outside a Keyspace":       joining(opPush(outside, 1, "")),
			"and of another one":       both,
			"has a name of 0 bytes":    unnamed,
			"has a unique key":         memberOf(q, joiner, opPushOnce(q, "", "key")),
			"want 1s to":               long,
			"has a delay or expires":   late,
			"want at most 65536":       large,
			"a push that is no joiner": toNone,
			"the setting next":         memberOf(q, joiner, opPush(other, 1, "")),
			"no such job waits for":    memberOf(q, fdbpq.ID{Priority: 1}, opPush(q, 1, "")),
		} {
			err := f.apply(bad)[0].Err
			if err == nil || !strings.Contains(err.Error(), want) {
				f.Errorf("%v: want it to say %q", err, want)
			}
		}
	})
}

// Members conflict with nobody but the end of the join: neither pushes nor ends with each other.
func TestConflictsOfMembers(t *testing.T) {
	for _, test := range []struct {
		name      string
		meanwhile func(a *fan) fdbpq.Op
		op        func(a *fan) fdbpq.Op
		want      bool
	}{
		{"push and push", (*fan).pushMember, (*fan).pushMember, false},
		{"push and end", (*fan).pushMember, (*fan).endMember, false},
		{"end and end", (*fan).endMember, (*fan).endMember, false},
		{"removed joiner and push", (*fan).removeJoiner, (*fan).pushMember, true},
		{"removed joiner and end", (*fan).removeJoiner, (*fan).endMember, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := onMem(t)
			a := f.newFan(3)
			a.done(fdbpq.Op{Kind: fdbpq.OpLen, Queue: a.q})
			meanwhile, op := test.meanwhile(a), test.op(a)
			f.wantConflict(test.want, func() { wantErrors(f.T, f.apply(meanwhile)) }, op)
		})
	}
}

func (a *fan) pushMember() fdbpq.Op {
	push := memberOf(a.q, a.joiner, opPush(a.q, 1, "another"))
	return push
}

func (a *fan) endMember() fdbpq.Op {
	return fdbpq.Op{Kind: fdbpq.OpAck, Queue: a.q, Token: a.leaseSome(a.q, 1, time.Minute)[0]}
}

func (a *fan) removeJoiner() fdbpq.Op { return named(fdbpq.OpRemove, a.q, a.joiner) }

// Two transactions that end the last two members at the same time, each without seeing the other,
// leave a joiner that runs.
func TestLastMembersAtTheSameTime(t *testing.T) {
	onStores(t, func(f *fixture) {
		if f.db.Traits().Serial {
			f.Skip("a serial store runs one transaction at a time")
		}
		a := f.newFan(2)
		tokens := a.leaseAll()
		now := a.clock.now()
		var txs []kv.Transaction
		for _, token := range tokens {
			tx := must(f.db.Begin(f.ctx, kv.BeginOptions{}))
			ack := fdbpq.Op{Kind: fdbpq.OpAck, Queue: a.q, Token: token}
			wantErrors(f.T, must(fdbpq.Apply(tx, []fdbpq.Op{ack}, now)))
			txs = append(txs, tx)
		}
		for _, tx := range txs {
			_, err := tx.Commit().Get()
			wantError(f.T, err, nil)
		}
		a.fires("done=2 dead=0 gone=0 open=0")
	})
}

// A version that knew nothing of joins leaves their items alone: their places have the flag for
// that.
func TestJoinsMustBeUnderstood(t *testing.T) {
	f := onMem(t)
	a := f.newFan(1)
	for _, id := range append(a.members, a.joiner) {
		wantEqual(f.T, "flag", codec.Must(&id), true)
	}
}

// A pop that waits beside the end of the last member hears when to look again: its transaction has
// made the joiner ready only for the next one.
func TestNextDueOfAJoin(t *testing.T) {
	onStores(t, func(f *fixture) {
		a := f.newFan(1)
		token := a.leaseAll()[0]
		r := a.apply(fdbpq.Op{Kind: fdbpq.OpAck, Queue: a.q, Token: token},
			fdbpq.Op{Kind: fdbpq.OpLease, Queue: a.q, Waits: true})

		wantErrors(f.T, r, nil, fdbpq.ErrEmpty)
		if after := r[1].NextDue.Sub(a.clock.now()); after > time.Second {
			f.Errorf("next due in %v, want at most a second", after)
		}
	})
}

// Joiners that are due together run by as many as fit into a transaction, however large they are.
func TestLargeJoinersRunTogether(t *testing.T) {
	onStores(t, func(f *fixture) {
		clock, q := f.setClock(), f.queue("jobs")
		const joiners = 300
		for range joiners {
			large := joining(opPush(q, 9, "joiner"))
			large.Message.Headers = map[string][]string{"A": {strings.Repeat("x", 60_000)}}
			f.done(large)
		}

		clock.advance(2 * time.Second)
		for f.done(fdbpq.Op{Kind: fdbpq.OpSweep, Queue: q}).Swept.More {
		}

		wantEqual(f.T, "ready", f.length(q), joiners)
	})
}

// A transaction reads the joiners that are due together, and not one after the other.
func TestRoundsOfJoiners(t *testing.T) {
	f := onMem(t)
	clock, q := f.setClock(), f.queue("jobs")
	f.pushMany(1_000, func(int) fdbpq.Op { return joining(opPush(q, 1, "joiner")) })
	counted := countkv.New(f.db)
	tx := must(counted.Begin(f.ctx, kv.BeginOptions{}))
	must(fdbpq.Apply(tx, []fdbpq.Op{{Kind: fdbpq.OpSweep, Queue: q}}, clock.now().Add(time.Second)))
	tx.Cancel()

	if rounds := counted.Take()[0].Rounds; rounds > 30 {
		f.Errorf("%d round trips for a sweep of 1,000 joiners, want a few", rounds)
	}
}

// A bridge whose clock is ahead makes progress while one that is behind goes on ending members: the
// marks of the latter do not make the due work of the former fail.
func TestMarksOfAClockBehind(t *testing.T) {
	f := onMem(t)
	a := f.newFan(3)
	tokens, now := a.leaseAll(), a.clock.now()
	end := func(token fdbpq.Token) {
		ack := fdbpq.Op{Kind: fdbpq.OpAck, Queue: a.q, Token: token}
		wantErrors(f.T, f.applyAt(now, ack))
	}
	end(tokens[0])

	ahead := must(f.db.Begin(f.ctx, kv.BeginOptions{}))
	lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: a.q}
	must(fdbpq.Apply(ahead, []fdbpq.Op{lease}, now.Add(3*time.Second)))
	end(tokens[1])
	_, err := ahead.Commit().Get()

	wantError(f.T, err, nil)
	end(tokens[2])
	a.fires("done=3 dead=0 gone=0 open=0")
}

// A batch may have as many members as items otherwise: they share what a join takes.
func TestLargestBatchOfMembers(t *testing.T) {
	onStores(t, func(f *fixture) {
		a := f.newFan(4_000)
		wantEqual(f.T, "members", f.length(a.q), 4_000)
	})
}

// A purge whose items are members of too many joins is refused, and changes nothing.
func TestPurgeOfTooManyJoins(t *testing.T) {
	f := onMem(t)
	reports, parts := f.queue("reports"), f.queue("parts")
	f.configure(parts, func(s *fdbpq.Settings) { s.Next = []string{"reports"} })
	const joins = 12_000
	for range joins / 500 {
		joiners := slices.Repeat([]fdbpq.Op{joining(opPush(reports, 9, "joiner"))}, 500)
		var members []fdbpq.Op
		for _, r := range f.apply(joiners...) {
			members = append(members, memberOf(reports, r.Item.ID, opPush(parts, 1, "part")))
		}
		wantErrors(f.T, f.apply(members...))
	}

	r := f.apply(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: parts})[0]

	wantError(f.T, r.Err, fdbpq.ErrJoins)
	wantEqual(f.T, "left", f.length(parts), joins)
}

// A member whose joiner turns out to be a duplicate of what the same transaction has pushed is
// refused, unless that waits.
func TestMemberOfADuplicate(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	member := opPushOnce(q, "member", "")
	member.MemberOf, member.Follows = 1, true

	r := f.apply(opPushOnce(q, "id", ""), joining(opPushOnce(q, "id", "")), member)

	wantErrors(f.T, r, nil, fdbpq.ErrJoined, fdbpq.ErrJoined)
}

// A purge of a million members of a hundred joins is one transaction, and all joiners run.
func TestPurgeOfAMillionMembers(t *testing.T) {
	harness.OnlyNightly(t)
	f := newFixture(t, openPebble(t, vfs.NewMem()), fdbpq.RawValues)
	clock, reports, parts := f.setClock(), f.queue("reports"), f.queue("parts")
	f.configure(parts, func(s *fdbpq.Settings) { s.Next = []string{"reports"} })
	const joins, members = 100, 1_000_000
	one := joining(opPush(reports, 9, "joiner"))
	joiners := f.apply(slices.Repeat([]fdbpq.Op{one}, joins)...)
	for done := 0; done < members; {
		var pushes []fdbpq.Op
		for range 1_000 {
			joiner := joiners[done%joins].Item.ID
			pushes = append(pushes, memberOf(reports, joiner, opPush(parts, 1, "part")))
			done++
		}
		wantErrors(f.T, f.apply(pushes...))
	}

	purged := f.done(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: parts})
	clock.advance(2 * time.Second)
	f.done(fdbpq.Op{Kind: fdbpq.OpSweep, Queue: reports})

	wantEqual(f.T, "purged", purged.Len, members)
	wantEqual(f.T, "joiners that run", f.length(reports), joins)
}
