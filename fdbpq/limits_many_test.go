package fdbpq_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// pushMany pushes n items, in batches. push returns the push of an item.
func (f *fixture) pushMany(n int, push func(i int) fdbpq.Op) {
	f.Helper()
	var ops []fdbpq.Op

	for i := range n {
		ops = append(ops, push(i))
	}
	for some := range slices.Chunk(ops, 1000) {
		wantErrors(f.T, f.apply(some...))
	}
}

// applySearching applies pops in a transaction that searches at once.
func (f *fixture) applySearching(s fdbpq.Searches, ops ...fdbpq.Op) []fdbpq.Result {
	f.Helper()
	return must(do(f, func(tx kv.Transaction) ([]fdbpq.Result, error) {
		return fdbpq.ApplySearching(tx, ops, time.Now(), s)
	}))
}

// A search finds what its own transaction has pushed: a job that runs again, and a successor, with
// a group and without.
func TestSearchOfOwnPushes(t *testing.T) {
	onEngines(t, func(f *fixture) {
		for _, group := range []string{"", "b"} {
			for _, limits := range []bool{false, true} { // from the start, or once there are items
				q := f.queue(fmt.Sprint("q", group, limits))
				set := func(s *fdbpq.Settings) {
					s.PausedGroups, s.Next = []string{"a"}, []string{q.Layout().Name()}
				}
				if limits {
					f.configure(q, set)
				}
				job := func(value string) fdbpq.Op {
					push := kept(opPush(q, 5, value))
					if group == "" {
						return push
					}
					return inGroup(push, group)
				}
				now := time.Now()
				done := f.finish(now, job("again"))
				f.one(now, job("job"))
				leased := f.one(now, leaseOf(q, fdbpq.Front))
				f.pushGroup(q, "a", 3, 1)
				f.configure(q, set)

				redrive := fdbpq.Op{Kind: fdbpq.OpRedriveItem, Queue: q, ID: done.Item.ID}
				next := ackThen(q, leased.Lease.Token, job("next"))
				for n, before := range []fdbpq.Op{redrive, next} {
					pop := op(opPopMin, q)
					pop.Count = true
					got := f.applySearching(fdbpq.Searches{}, before, pop)
					wantErrors(f.T, got)
					want := []string{"again", "next"}[n]
					wantEqual(f.T, "popped", string(got[1].Item.Value), want)
					wantEqual(f.T, "ready after it", got[1].Ready, 3)
				}
				f.check()
			}
		}
	})
}

// A group with a large backlog at many priorities keeps no other group waiting, at its limit or
// paused, and an info counts all of it.
func TestBacklogOfOneGroup(t *testing.T) {
	backlog, others := harness.Times(2_500, 25_000), 8
	for name, set := range map[string]func(*fdbpq.Settings){
		"at its limit": func(s *fdbpq.Settings) { s.MaxLeasedPerGroup = 1 },
		"paused":       func(s *fdbpq.Settings) { s.PausedGroups = []string{"noisy"} },
	} {
		t.Run(name, func(t *testing.T) {
			onEngines(t, func(f *fixture) {
				q := f.queue("q")
				f.pushMany(backlog, func(i int) fdbpq.Op {
					return inGroup(opPush(q, int64(i), "noisy"), "noisy")
				})

				f.pushMany(others, func(i int) fdbpq.Op {
					name := fmt.Sprint("quiet", i)
					return inGroup(opPush(q, int64(backlog+i), name), name)
				})
				wantError(f.T, f.apply(leaseOf(q, fdbpq.Front))[0].Err, nil)

				f.configure(q, set)

				for i := range others {
					r := f.apply(leaseOf(q, fdbpq.Front))[0]
					want := fmt.Sprint("quiet", i)

					if r.Err != nil || string(r.Item.Value) != want {
						f.Errorf("leased %q (error %v), want %q", r.Item.Value, r.Err, want)
					}
				}
				wantError(f.T, f.apply(leaseOf(q, fdbpq.Front))[0].Err, fdbpq.ErrGroupLimits)

				info := f.infoOf(q, 10)
				noisy := fdbpq.GroupCount{Group: "noisy", Ready: int64(backlog) - 1, Leased: 1}

				if !slices.Contains(info.Groups, noisy) || info.GroupCount != 1+others ||
					info.MoreGroups {
					f.Errorf("info has %+v of %d groups (more: %t), want %+v of %d",
						info.Groups, info.GroupCount, info.MoreGroups, noisy, 1+others)
				}
			})
		})
	}
}

// Behind the backlog of a group at its limit, the items of any number of other groups come in
// order.
func TestBacklogBeforeManyGroups(t *testing.T) {
	backlog, many, few := harness.Times(250, 25_000), harness.Times(300, 30_000), 50
	bounds := fdbpq.Searches{Rows: harness.Times(100, 0)}

	onEngines(t, func(f *fixture) {
		q := f.queue("q")
		f.configure(q, func(s *fdbpq.Settings) { s.MaxLeasedPerGroup = 1 })
		f.pushMany(backlog, func(int) fdbpq.Op {
			return inGroup(opPush(q, 1, "blocked"), "blocked")
		})
		f.pushMany(many, func(i int) fdbpq.Op {
			return inGroup(opPush(q, 10, "late"), fmt.Sprint("late", i))
		})
		f.pushMany(few, func(i int) fdbpq.Op {
			return inGroup(opPush(q, 5, "early"), fmt.Sprint("early", i))
		})

		wantError(f.T, f.apply(leaseOf(q, fdbpq.Front))[0].Err, nil)

		for _, want := range []string{"early", "late"} {
			leases := slices.Repeat([]fdbpq.Op{leaseOf(q, fdbpq.Front)}, few)
			for i, r := range f.applySearching(bounds, leases...) {
				if r.Err != nil || string(r.Item.Value) != want {
					f.Fatalf("lease %d is of %q (error %v), want %q", i, r.Item.Value, r.Err, want)
				}
			}
		}
	})
}

// A search that has no time to look at all groups serves nothing, and does not say that there is
// nothing to serve.
func TestSearchWithoutTime(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("q")
		f.blockFront(q)

		for i := range 8 {
			f.apply(inGroup(opPush(q, int64(9-i), fmt.Sprint(i)), fmt.Sprint(i)))
		}

		short := fdbpq.Searches{Rows: 3, NoTime: true}
		for _, r := range f.applySearching(short, leaseOf(q, fdbpq.Front), op(opPopMin, q)) {
			if wantError(f.T, r.Err, fdbpq.ErrManyGroups); errors.Is(r.Err, fdbpq.ErrEmpty) {
				f.Errorf("%v is like the error of an empty queue", r.Err)
			}
		}

		r := f.applySearching(fdbpq.Searches{Rows: 3}, leaseOf(q, fdbpq.Front))[0]
		wantError(f.T, r.Err, nil)
		wantEqual(f.T, "leased", string(r.Item.Value), "7")
	})
}

// However few groups a search reads or remembers at once, it serves the first items of groups that
// may be served.
func TestSearchInPages(t *testing.T) {
	onEngines(t, func(f *fixture) {
		random, _ := newRandom(f.T)
		f.fixGroups()
		q := f.queue("q")
		f.configure(q, func(s *fdbpq.Settings) {
			s.MaxLeasedPerGroup, s.PausedGroups = 2, []string{"g0", "g1"}
		})
		m := &searchModel{fixture: f, q: q, leases: map[codec.GroupHash][]fdbpq.Token{}}

		for range f.steps(200) {
			for range random.IntN(20) {
				push := opPush(q, random.Int64N(4), "v")
				const groups = 14
				if group := random.IntN(groups + 1); group < groups { // else it has none
					push = inGroup(push, fmt.Sprint("g", group))
				}

				f.apply(push)
			}

			ops := make([]fdbpq.Op, 1+random.IntN(5))
			for i := range ops {
				end := fdbpq.End(random.IntN(2))
				if ops[i] = leaseOf(q, end); random.IntN(2) == 0 {
					ops[i] = fdbpq.Op{Kind: fdbpq.OpPop, Queue: q, End: end}
				}
			}
			m.check(ops, fdbpq.Searches{Rows: 3 + random.IntN(20), Heads: 1 + random.IntN(8)})

			m.ackSome(random.IntN(3))
		}
	})
}

// searchModel is what a queue with a limit of two leases for each group must serve.
type searchModel struct {
	*fixture
	q      fdbpq.Target
	leases map[codec.GroupHash][]fdbpq.Token
}

// ready returns the ids of the ready items in order.
func (m *searchModel) ready() []fdbpq.ID {
	m.Helper()
	l := m.q.Layout()

	return must(kv.ReadTransact(m.ctx, m.db, func(r kv.Reader) (ids []fdbpq.ID, err error) {
		pairs, err := r.GetRange(l.ItemRange(), kv.RangeOptions{}).Get()
		for _, pair := range pairs {
			ids = append(ids, must(l.ParseItem(pair.Key)))
		}

		return ids, err
	}))
}

func (m *searchModel) mayServe(id fdbpq.ID) bool {
	hash := codec.GroupIn(&id)
	paused := hash == fixedHash("g0") || hash == fixedHash("g1")
	return hash == codec.NoGroup || !paused && len(m.leases[hash]) < 2
}

// check applies pops and leases, and compares what they get. With fewer heads than operations, some
// may find no room.
func (m *searchModel) check(ops []fdbpq.Op, s fdbpq.Searches) {
	m.Helper()
	ids := m.ready()

	for i, r := range m.applySearching(s, ops...) {
		if errors.Is(r.Err, fdbpq.ErrNoRoom) && s.Heads < len(ops) {
			continue
		}

		served := slices.IndexFunc(ids, m.mayServe)
		if ops[i].End == fdbpq.Back {
			slices.Reverse(ids)
			served = slices.IndexFunc(ids, m.mayServe)
		}

		switch {
		case served < 0:
			wantError(m.T, r.Err, fdbpq.ErrEmpty)
		case r.Err != nil || r.Item.ID != ids[served]:
			m.Fatalf("%+v: operation %d gets %v (error %v), want %v",
				s, i, r.Item.ID, r.Err, ids[served])
		default:
			ids = slices.Delete(ids, served, served+1)
		}

		if hash := codec.GroupIn(&r.Item.ID); r.Err == nil && ops[i].Kind == fdbpq.OpLease {
			m.leases[hash] = append(m.leases[hash], r.Lease.Token)
		}

		slices.SortFunc(ids, func(a, b fdbpq.ID) int { return a.Compare(&b) })
	}
}

// ackSome acknowledges a lease of each of up to n groups.
func (m *searchModel) ackSome(n int) {
	m.Helper()
	for hash, tokens := range m.leases {
		if n--; n < 0 {
			return
		}
		if len(tokens) > 0 {
			ack := fdbpq.Op{Kind: fdbpq.OpAck, Queue: m.q, Token: tokens[0]}
			wantError(m.T, m.apply(ack)[0].Err, nil)
			m.leases[hash] = tokens[1:]
		}
	}
}

// A search never serves a group whose rate it has not read.
func TestSearchAmongManyRates(t *testing.T) {
	f := onMem(t)
	f.corrupt = true
	q := f.queue("q")
	f.configure(q, func(s *fdbpq.Settings) { s.RatePerGroup = "1/1h" })
	f.fixGroups()

	first, last := fixedHash("a"), fixedHash("new")
	if first > last {
		t.Fatal("the groups are in the wrong order")
	}

	f.pushGroup(q, "a", 100, 1)
	f.apply(inGroup(opPush(q, 0, "first"), "new"))
	for range 2 {
		wantError(t, f.apply(leaseOf(q, fdbpq.Front))[0].Err, nil)
	}

	f.apply(inGroup(opPush(q, 2, "second"), "new"))
	write(f, func(tx kv.Transaction) { // rates of groups without items, between the two
		for i := range 10 {
			row := codec.EncodeCount(time.Now().Add(time.Hour).UnixNano())
			tx.Set(q.Layout().BucketKey(first+1+codec.GroupHash(i)), row)
		}
	})

	for _, rows := range []int{3, 4, 5, 10, 11, 20} { // pages that end before, at and behind "new"
		r := f.applySearching(fdbpq.Searches{Rows: rows}, leaseOf(q, fdbpq.Front))[0]
		if !errors.Is(r.Err, fdbpq.ErrGroupLimits) {
			t.Errorf("%d rows: leased %q (error %v)", rows, r.Item.Value, r.Err)
		}
	}
}
