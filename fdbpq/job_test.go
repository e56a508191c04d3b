package fdbpq_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// named returns an operation on the item with an id, at priority 7 if it moves the item.
func named(kind fdbpq.OpKind, q fdbpq.Target, id fdbpq.ID) fdbpq.Op {
	return fdbpq.Op{Kind: kind, Queue: q, ID: id, Priority: 7}
}

// done applies one operation, which must succeed.
func (f *fixture) done(o fdbpq.Op) fdbpq.Result {
	f.Helper()
	r := f.apply(o)[0]
	wantError(f.T, r.Err, nil)
	return r
}

// moved pushes an item and moves it to priority 7. It returns the id of the job and its place.
func (f *fixture) moved(q fdbpq.Target, push fdbpq.Op) (job, place fdbpq.ID) {
	f.Helper()
	job = f.done(op(push, q)).Item.ID
	return job, f.done(named(fdbpq.OpMove, q, job)).Item.ID
}

// terminate leases the first item of a queue and gives it up.
func (f *fixture) terminate(q fdbpq.Target) {
	f.Helper()
	token := f.done(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute}).Lease.Token
	f.done(fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: token})
}

// wantJob checks where an OpGet by the id of a job finds it.
func (f *fixture) wantJob(q fdbpq.Target, job fdbpq.ID, queue string) (place fdbpq.ID) {
	f.Helper()
	results := append(f.read(named(fdbpq.OpGet, q, job)), f.done(named(fdbpq.OpGet, q, job)))
	for _, r := range results {
		if r.Err != nil || r.Item.Job() != job || r.Queue != queue {
			f.Fatalf("got job %v in %q, %v; want %v in %q",
				r.Item.Job(), r.Queue, r.Err, job, queue)
		}
	}
	return results[0].Item.ID
}

// keysOf returns how many keys of a kind a queue has.
func (f *fixture) keysOf(queue, kind string) int {
	return len(slices.DeleteFunc(f.stored(f.priority), func(pair kv.KeyValue) bool {
		key := must(tuple.Unpack(pair.Key))
		return key[1] != queue || key[2] != kind
	}))
}

// at returns an operation on the item at a place, at a priority if it moves the item.
func at(kind fdbpq.OpKind, q fdbpq.Target, place fdbpq.ID, priority int64) fdbpq.Op {
	return fdbpq.Op{Kind: kind, Queue: q, ID: place, AtPlace: true, Priority: priority}
}

// An operation that names a place and is repeated late, once the item has left the place, changes
// nothing: a job that somebody else has moved on stays there.
func TestLateRepeatOfMove(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		job := f.push(q, 1, "a")
		move := at(fdbpq.OpMove, q, job, 5)
		first := f.done(move).Item
		other := f.done(at(fdbpq.OpMove, q, first.ID, 3)).Item

		wantError(f.T, f.apply(move)[0].Err, fdbpq.ErrNotFound)
		wantEqual(f.T, "place after the repeat", f.wantJob(q, job, ""), other.ID)

		for _, place := range []fdbpq.ID{job, first.ID} {
			for _, kind := range []fdbpq.OpKind{
				fdbpq.OpGet, fdbpq.OpRank, fdbpq.OpRemove, fdbpq.OpMove, fdbpq.OpRelease,
				fdbpq.OpRedriveItem,
			} {
				wantError(f.T, f.apply(at(kind, q, place, 7))[0].Err, fdbpq.ErrNotFound)
			}
			wantError(f.T, f.read(at(fdbpq.OpGet, q, place, 0))[0].Err, fdbpq.ErrNotFound)
			wantError(f.T, f.read(at(fdbpq.OpRank, q, place, 0))[0].Err, fdbpq.ErrNotFound)
		}
		f.done(at(fdbpq.OpGet, q, other.ID, 0))
		f.done(at(fdbpq.OpRank, q, other.ID, 0))
		both := f.apply(at(fdbpq.OpMove, q, other.ID, 9), at(fdbpq.OpMove, q, other.ID, 9))
		wantErrors(f.T, both, nil, fdbpq.ErrNotFound)

		f.terminate(q)
		dead := f.wantJob(q, job, "jobs-dead")
		for _, place := range []fdbpq.ID{job, dead} {
			wantError(f.T, f.apply(at(fdbpq.OpGet, q, place, 0))[0].Err, fdbpq.ErrNotFound)
		}
	})
}

// A finished job that was redriven by its place, and is done again, does not run a third time when
// the redrive is repeated: its record is at another place now.
func TestLateRepeatOfRedrive(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		push := opPush(q, 1, "a")
		push.Message.Keep = time.Hour
		place := f.done(push).Item.ID
		job := place

		for range 3 {
			token := f.done(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute}).Lease.Token
			f.done(fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: token})
			redrive := at(fdbpq.OpRedriveItem, q, place, 0)
			wantEqual(f.T, "state", f.done(at(fdbpq.OpGet, q, place, 0)).State, fdbpq.Done)
			wantError(f.T, f.apply(at(fdbpq.OpMove, q, place, 2))[0].Err, fdbpq.ErrDone)
			wantError(f.T, f.apply(at(fdbpq.OpRank, q, place, 0))[0].Err, fdbpq.ErrDone)

			again := f.done(redrive).Item
			wantEqual(f.T, "job", again.Job(), job)
			wantError(f.T, f.apply(redrive)[0].Err, fdbpq.ErrNotFound)

			token = f.done(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute}).Lease.Token
			f.done(fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: token})
			wantError(f.T, f.apply(redrive)[0].Err, fdbpq.ErrNotFound)
			remove := at(fdbpq.OpRemove, q, place, 0)
			remove.State = fdbpq.Done
			wantError(f.T, f.apply(remove)[0].Err, fdbpq.ErrNotFound)
			for _, kind := range []fdbpq.OpKind{fdbpq.OpGet, fdbpq.OpRank, fdbpq.OpMove} {
				wantError(f.T, f.apply(at(kind, q, place, 2))[0].Err, fdbpq.ErrNotFound)
			}
			wantEqual(f.T, "state", f.done(named(fdbpq.OpGet, q, job)).State, fdbpq.Done)

			place = f.done(at(fdbpq.OpRedriveItem, q, again.ID, 0)).Item.ID
		}
	})
}

// A job keeps the id of its push through a move, its death, a redrive and another death, and the
// places where it was before mean nothing.
func TestJobKeepsItsID(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, dead := f.queue("jobs"), f.queue("jobs-dead")
		push := opPush(q, 3, "a")
		push.Message.Headers = map[string][]string{"A": {"1"}}
		job, place := f.moved(q, push)
		places := []fdbpq.ID{place}

		for range 2 {
			wantEqual(f.T, "place", f.wantJob(q, job, ""), places[len(places)-1])
			rank := f.done(named(fdbpq.OpRank, q, job))
			wantEqual(f.T, "rank", rank.Rank, 0)

			f.terminate(q)
			letter := f.wantJob(dead, job, "")
			wantEqual(f.T, "place of the letter", f.wantJob(q, job, "jobs-dead"), letter)

			back := f.done(named(fdbpq.OpRedriveItem, dead, job))
			wantEqual(f.T, "job", back.Item.Job(), job)
			places = append(places, letter, back.Item.ID)
		}

		popped := f.done(op(opPopMin, q)).Item
		f.done(opRestore(q, popped))
		wantEqual(f.T, "job", popped.Job(), job)
		wantEqual(f.T, "place", f.wantJob(q, job, ""), popped.ID)
		for _, old := range places[:len(places)-1] {
			for _, queue := range []fdbpq.Target{q, dead} {
				wantError(f.T, f.apply(named(fdbpq.OpGet, queue, old))[0].Err, fdbpq.ErrNotFound)
				wantError(f.T, f.apply(named(fdbpq.OpRemove, queue, old))[0].Err, fdbpq.ErrNotFound)
			}
		}

		removed := f.done(named(fdbpq.OpRemove, q, job))
		wantEqual(f.T, "job", removed.Item.Job(), job)
		wantEqual(f.T, "aliases", f.keysOf("jobs", "~")+f.keysOf("jobs-dead", "~"), 0)
		for _, kind := range []fdbpq.OpKind{
			fdbpq.OpGet, fdbpq.OpRank, fdbpq.OpRemove, fdbpq.OpMove, fdbpq.OpRelease,
			fdbpq.OpRedriveItem,
		} {
			wantError(f.T, f.apply(named(kind, q, job))[0].Err, fdbpq.ErrNotFound)
		}
	})
}

// A job of a FIFO queue keeps its id through its death and a redrive.
func TestJobKeepsItsIDInFIFOQueue(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, dead := f.fifoQueue("jobs"), f.fifoQueue("jobs-dead")
		job := f.done(opPush(q, 0, "a")).Item.ID

		f.terminate(q)
		f.wantJob(q, job, "jobs-dead")
		f.done(named(fdbpq.OpRedriveItem, dead, job))

		place := f.wantJob(q, job, "")
		f.done(named(fdbpq.OpRemove, q, place))
		wantEqual(f.T, "keys", len(f.stored(f.fifo)), 0)
	})
}

// An item of another program has its place as its id, and that is the id of its job once it moves.
func TestForeignItemKeepsItsID(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		f.foreign(items(f.priority, "jobs"), tuple.Tuple{2, 0}, "a")
		own := f.done(op(opPeekMin, q)).Item.ID

		moved := f.done(named(fdbpq.OpMove, q, own))

		wantEqual(f.T, "job", moved.Item.Job(), own)
		wantEqual(f.T, "place", f.wantJob(q, own, ""), moved.Item.ID)
		f.done(named(fdbpq.OpRemove, q, own))
		wantEqual(f.T, "keys", len(f.stored(f.priority)), 0)
	})
}

// Operations of one transaction that name a job and its place are about one item: the second sees
// what the first has done.
func TestTwoNamesOfOneItem(t *testing.T) {
	for _, test := range []struct {
		first, second fdbpq.OpKind
		byPlace       bool // the first names the place, otherwise the second does
		want          error
	}{
		{fdbpq.OpRemove, fdbpq.OpRemove, true, fdbpq.ErrNotFound},
		{fdbpq.OpRemove, fdbpq.OpRemove, false, fdbpq.ErrNotFound},
		{fdbpq.OpMove, fdbpq.OpRemove, true, nil},
		{fdbpq.OpMove, fdbpq.OpRemove, false, fdbpq.ErrNotFound}, // nothing is at the place now
		{fdbpq.OpMove, fdbpq.OpMove, true, nil},
		{fdbpq.OpPurge, fdbpq.OpRemove, true, fdbpq.ErrNotFound},
	} {
		f := onMem(t)
		q := f.queue("jobs")
		job, place := f.moved(q, opPush(q, 1, "a"))
		ids := []fdbpq.ID{job, place}
		if test.byPlace {
			slices.Reverse(ids)
		}

		results := f.apply(named(test.first, q, ids[0]), named(test.second, q, ids[1]))

		wantErrors(t, results, nil, test.want)
	}
}

// An edit sees an item that an edit before it, in the same transaction, has sent to its queue.
func TestEditOfRedrivenItem(t *testing.T) {
	f := onMem(t)
	q, dead := f.queue("jobs"), f.queue("jobs-dead")
	job := f.push(q, 1, "a")
	f.terminate(q)

	results := f.apply(named(fdbpq.OpRedriveItem, dead, job), named(fdbpq.OpMove, q, job),
		named(fdbpq.OpRemove, q, job))

	wantErrors(t, results, nil, nil, nil)
	wantEqual(t, "items", f.length(q)+f.length(dead), 0)
}

// Whatever removes an item that has moved removes its alias as well.
func TestAliasGoesWithItsItem(t *testing.T) {
	lease := fdbpq.Op{Kind: fdbpq.OpLease, Lease: time.Minute}
	for name, remove := range map[string]func(f *fixture, q *fdbpq.PriorityQueue, place fdbpq.ID){
		"pop": func(f *fixture, q *fdbpq.PriorityQueue, _ fdbpq.ID) { f.done(op(opPopMin, q)) },
		"purge": func(f *fixture, q *fdbpq.PriorityQueue, id fdbpq.ID) {
			f.done(named(fdbpq.OpPurge, q, id))
		},
		"acknowledgement": func(f *fixture, q *fdbpq.PriorityQueue, _ fdbpq.ID) {
			token := f.done(op(lease, q)).Lease.Token
			f.done(fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: token})
		},
		"expiry": func(f *fixture, q *fdbpq.PriorityQueue, _ fdbpq.ID) {
			f.applyAt(time.Now().Add(2*time.Hour), op(opLen, q))
		},
		"expiry of a delayed one": func(f *fixture, q *fdbpq.PriorityQueue, _ fdbpq.ID) {
			token := f.done(op(lease, q)).Lease.Token
			f.done(fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: token, Delay: 3 * time.Hour})
			f.applyAt(time.Now().Add(2*time.Hour), op(opLen, q))
		},
		"release after its expiry": func(f *fixture, q *fdbpq.PriorityQueue, id fdbpq.ID) {
			lease.Lease = 3 * time.Hour
			f.done(op(lease, q))
			f.applyAt(time.Now().Add(2*time.Hour), named(fdbpq.OpRelease, q, id))
		},
		"eviction": func(f *fixture, q *fdbpq.PriorityQueue, _ fdbpq.ID) {
			f.configure(q, func(s *fdbpq.Settings) { s.MaxItems, s.Discard = 1, fdbpq.DiscardOld })
			f.done(opPush(q, 1, "b"))
			f.done(op(opPopMin, q))
		},
		"expiry after a staged pop": func(f *fixture, q *fdbpq.PriorityQueue, _ fdbpq.ID) {
			f.leave(q, time.Now().Add(-time.Hour), fdbpq.Front)
			f.applyAt(time.Now().Add(2*time.Hour), op(opLen, q))
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEngines(t, func(f *fixture) {
				for _, bytes := range []int64{0, 1000} {
					q := f.queue("jobs")
					f.configure(q, func(s *fdbpq.Settings) {
						*s = fdbpq.Settings{MaxBytes: bytes}
					})
					_, place := f.moved(q, withTTL(opPush(q, 1, "a"), time.Hour))

					remove(f, q, place)

					wantEqual(f.T, "items", f.length(q), 0)
					wantEqual(f.T, "aliases", f.keysOf("jobs", "~"), 0)
				}
			})
		})
	}
}

// A hundred acknowledgements of items that have moved take as many round trips as one.
func TestAcknowledgementsOfMovedItems(t *testing.T) {
	f := newRoundsFixture(t, 1, false)
	q := f.queues[0]
	rounds := func(n int) (rounds int) {
		for range n {
			f.moved(q, opPush(q, 1, "a"))
		}
		tokens := f.leaseSome(q, n, time.Minute)
		other := fdbpq.NewBatcher(f.store, f.Keyspace) // knows nothing of the leases
		f.store.Take()

		wantErrors(t, must(other.Apply(f.ctx, acks(q, tokens...))), make([]error, n)...)
		for _, cost := range f.store.Take() {
			rounds += cost.Rounds
		}
		return rounds
	}

	one, many := rounds(1), rounds(100)

	wantEqual(t, "round trips of a hundred", many, one)
	wantEqual(t, "aliases", f.keysOf("queue-0", "~"), 0)
}

// A message id names its job, wherever that is now, and so does the duplicate of a unique key.
func TestKeysNameTheJob(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		job := f.done(opPushOnce(q, "m", "u")).Item.ID
		get := fdbpq.Op{Kind: fdbpq.OpGet, Queue: q, Message: fdbpq.Message{MsgID: "m"}}
		pushes := []fdbpq.Op{opPushOnce(q, "m", ""), opPushOnce(q, "", "u")}

		for n := range 2 {
			for i, r := range f.apply(pushes...) {
				f.wantDuplicate(fmt.Sprintf("push %d after %d moves", i, n), r, &job)
			}
			found := f.done(get)
			wantEqual(f.T, "job", found.Item.Job(), job)
			f.done(named(fdbpq.OpMove, q, job))
		}

		f.terminate(q)
		f.wantDuplicate("after its death", f.apply(pushes[0])[0], &job)
		wantEqual(f.T, "queue", f.done(get).Queue, "jobs-dead")
		over := f.applyAt(time.Now().Add(fdbpq.DefaultDuplicateWindow+time.Minute), get)[0]
		wantError(f.T, over.Err, fdbpq.ErrNotFound)

		get.Message.MsgID = "other"
		wantError(f.T, f.apply(get)[0].Err, fdbpq.ErrNotFound)
		get.Message.MsgID = strings.Repeat("x", fdbpq.MaxKey+1)
		wantError(f.T, f.apply(get)[0].Err, fdbpq.ErrOp)
		get.Message.MsgID, get.ID = "m", job
		wantError(f.T, f.apply(get)[0].Err, fdbpq.ErrOp)
	})
}

// Only a dead letter of this queue is found by the id of its job, and only in the dead-letter queue
// that the settings name.
func TestJobAmongDeadLetters(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, other, dead := f.queue("jobs"), f.queue("other"), f.queue("failed")
		intoFailed := func(s *fdbpq.Settings) { s.DeadLetter = "failed" }
		f.configure(q, intoFailed)
		f.configure(other, intoFailed)
		job := f.push(q, 1, "a")
		f.terminate(q)
		f.wantJob(q, job, "failed")

		wantError(f.T, f.apply(named(fdbpq.OpGet, other, job))[0].Err, fdbpq.ErrNotFound)
		f.configure(q, func(s *fdbpq.Settings) { s.DeadLetter = "" })
		wantError(f.T, f.apply(named(fdbpq.OpGet, q, job))[0].Err, fdbpq.ErrNotFound)
		f.configure(q, intoFailed)
		f.terminate(dead)
		wantError(f.T, f.apply(named(fdbpq.OpGet, q, job))[0].Err, fdbpq.ErrNotFound)
		wantError(f.T, f.apply(named(fdbpq.OpGet, dead, job))[0].Err, fdbpq.ErrNotFound)
		f.wantJob(f.queue("failed-dead"), job, "")
	})
}

// A message that says that it was in a queue before cannot be pushed.
func TestPushOfMovedMessage(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	push := opPush(q, 1, "a")
	first := f.push(q, 1, "b")
	push.Message.First = &first

	wantErrors(t, f.apply(push), fdbpq.ErrOp)
	dead := fdbpq.Op{Kind: fdbpq.OpSetSource, Queue: q, Dead: []fdbpq.Message{push.Message}}
	wantErrors(t, f.apply(dead), fdbpq.ErrOp)
}

// An operation by the id of a job conflicts with a transaction that moves the job meanwhile.
func TestAliasConflicts(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	job, _ := f.moved(q, opPush(q, 1, "a"))
	other := fdbpq.NewBatcher(f.db, f.Keyspace)
	apply := func(o fdbpq.Op) func() {
		return func() { wantErrors(t, must(other.Apply(f.ctx, []fdbpq.Op{o}))) }
	}

	f.wantConflict(true, apply(named(fdbpq.OpMove, q, job)), named(fdbpq.OpRemove, q, job))
	f.wantConflict(false, apply(opPush(q, 7, "b")), named(fdbpq.OpMove, q, job))
	f.wantConflict(false, apply(named(fdbpq.OpMove, q, job)), named(fdbpq.OpGet, q, job))
}

// Items that never move have no alias, and are acknowledged without a read of what belongs to them.
func TestWithoutMovesNothingIsAdded(t *testing.T) {
	var queue []byte
	var aliases, rests []string // what happens to keys of these kinds
	store := &spy{Database: memkv.New(memkv.Options{}), asked: func(method string, key []byte) {
		if rest, found := strings.CutPrefix(string(key), string(queue)); found && len(rest) > 2 {
			switch rest[1] {
			case '~':
				aliases = append(aliases, method)
			case 'm':
				rests = append(rests, method)
			}
		}
	}}
	f := newFixture(t, store, fdbpq.RawValues)
	queue = tuple.Tuple{f.priority, "jobs"}.Pack()
	q := f.queue("jobs")
	push := opPush(q, 1, "a")
	push.Message.Headers = map[string][]string{"A": {"1"}}
	lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute}
	id := f.done(push).Item.ID

	f.done(named(fdbpq.OpGet, q, id))
	f.done(named(fdbpq.OpRank, q, id))
	f.done(lease)
	f.done(named(fdbpq.OpRelease, q, id))
	token := f.done(lease).Lease.Token
	rests = nil
	f.done(fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: token})
	wantList(t, "rest of an item that is acknowledged", rests, "clear range")

	f.done(named(fdbpq.OpRemove, q, f.done(push).Item.ID))
	f.done(push)
	f.terminate(q)
	wantList(t, "aliases", aliases)
}
