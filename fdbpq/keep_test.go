package fdbpq_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// past is what the jobs of these tests have besides their values.
type past struct {
	header string // of the push
	failed int64  // deliveries that each has had, with long reasons
}

// pushMembers pushes members of a joiner, which have a past and a parent, and leases them.
func (f *trailed) pushMembers(n, size int, of past) (joiner fdbpq.ID, tokens []fdbpq.Token) {
	f.Helper()
	f.set(func(s *fdbpq.Settings) { s.Keep = time.Hour })
	joiner = f.done(joining(opPush(f.q, 9, "joiner"))).Item.ID
	member := memberOf(f.q, joiner, opPush(f.q, 1, string(pattern(size, 0))))
	member.Message.Headers = map[string][]string{
		"N": {of.header}, trail.HeaderParent: {"parents FQEU"},
	}
	moved := fdbpq.NewBatcher(f.db, f.Keyspace) // without the limits of the test
	for left := n; left > 0; left -= min(left, 500) {
		pushes := slices.Repeat([]fdbpq.Op{member}, min(left, 500))
		wantErrors(f.T, must(moved.Apply(f.ctx, pushes)))
	}
	if of.failed > 0 {
		var ids []fdbpq.ID
		for _, item := range f.list(f.q) {
			ids = append(ids, item.ID)
		}
		f.writeAttempts(ids, of.failed)
	}
	leases := slices.Repeat([]fdbpq.Op{{Kind: fdbpq.OpLease, Queue: f.q, Lease: time.Hour}}, 100)
	for len(tokens) < n {
		for _, r := range must(moved.Apply(f.ctx, leases[:min(100, n-len(tokens))])) {
			wantError(f.T, r.Err, nil)
			tokens = append(tokens, r.Lease.Token)
		}
	}
	return joiner, tokens
}

// list returns the ready items of a queue at priority 1, in their order.
func (f *fixture) list(q fdbpq.Target) (items []fdbpq.Item) {
	f.Helper()
	b := fdbpq.Browse{State: fdbpq.Ready}
	must(b.Walk(f.ctx, f.db, q, time.Now(), func(i *fdbpq.Browsed) bool {
		items = append(items, i.Item)
		return true
	}))
	return items
}

// wantPast checks that all finished jobs say what they had besides their values, and returns how
// many have their values.
func (f *trailed) wantPast(n int, joiner fdbpq.ID, size int, of past) (whole int) {
	f.Helper()
	jobs := f.finishedJobs(f.q, f.clock.now())
	wantEqual(f.T, "kept jobs", len(jobs), n)
	for _, job := range jobs {
		if job.Joiner == nil || job.Joiner.ID != joiner ||
			fmt.Sprint(job.Headers[trail.HeaderParent]) != "[parents FQEU]" ||
			strings.Join(job.Headers["N"], "") != of.header {
			f.Fatalf("job %v has the joiner %v, the parent %q, and a header of %d bytes, not %d",
				job.ID, job.Joiner, job.Headers[trail.HeaderParent],
				len(strings.Join(job.Headers["N"], "")), len(of.header))
		}
		all := job.Attempts()
		told := int64(len(all))
		for _, a := range all {
			told += a.LeftOut
		}
		if most := min(of.failed, 16) + 1; told < min(most, 16) {
			f.Fatalf("job %v tells of %d attempts, and had %d", job.ID, told, most)
		}
		if job.Finished.NoValue != (job.Value == nil) ||
			job.Value != nil && len(job.Value) != size {
			f.Fatalf("job %v: no value %t, %d bytes", job.ID, job.Finished.NoValue, len(job.Value))
		}
		if !job.Finished.NoValue {
			whole++
		}
	}
	return whole
}

// A thousand jobs that are acknowledged together keep all that is known of them but values, for
// which there is room for some.
func TestKeptTogether(t *testing.T) {
	onStores(t, func(f *fixture) {
		for _, name := range []string{"jobs", strings.Repeat("q", 128)} {
			s, of := newTrailed(f, f.queue(name), 8), past{header: "one", failed: 1}
			joiner, tokens := s.pushMembers(1000, 10_000, of)

			wantErrors(f.T, s.apply(acks(s.q, tokens...)...))

			if whole := s.wantPast(1000, joiner, 10_000, of); whole < 100 || whole == 1000 {
				f.Errorf("%.4s: %d of 1000 have their values", name, whole)
			}
			s.check()
		}
	})
}

// Values give way to what else is kept of the other jobs of a transaction, and an acknowledgement
// without room for that gets ErrNoRoom, changes nothing, and finds room in the next one.
func TestKeptBesideOthers(t *testing.T) {
	for name, test := range map[string]struct {
		of            past
		size, most    int // bytes
		without, left int // first transaction: that have no room, and values
	}{
		"values give way":    {past{"x", 0}, 20_000, 400_000, 0, 14},
		"headers do not":     {past{strings.Repeat("h", 2_000), 0}, 10, 120_000, 20, 20},
		"nor do attempts":    {past{"x", 17}, 10, 320_000, 20, 20},
		"each takes it all":  {past{strings.Repeat("h", 5_000), 0}, 10, 100_000, 30, 10},
		"there is no limit":  {past{strings.Repeat("h", 5_000), 3}, 10, 9_000_000, 0, 40},
		"a little is enough": {past{"x", 0}, 10, 200_000, 0, 40},
	} {
		t.Run(name, func(t *testing.T) {
			const chains, each = 4, 10
			f := onMem(t)
			s := newTrailed(f, f.queue("jobs"), 16)
			joiner, tokens := s.pushMembers(chains*each, test.size, test.of)
			s.batcher.LimitMoved(test.most)
			var ops []fdbpq.Op
			for some := range slices.Chunk(tokens, each) {
				ops = append(ops, acks(s.q, some...)...)
			}

			for turn := 0; len(ops) > 0; turn++ {
				var left []fdbpq.Op
				for i, r := range s.apply(ops...) {
					if errors.Is(r.Err, fdbpq.ErrNoRoom) {
						left = append(left, ops[i])
						continue
					}
					wantError(t, r.Err, nil)
				}
				if turn == 0 {
					wantEqual(t, "without room at first", len(left), test.without)
					whole := s.wantPast(chains*each-len(left), joiner, test.size, test.of)
					if whole > test.left || whole < test.left-3 {
						t.Errorf("%d have their values, want about %d", whole, test.left)
					}
				}
				if len(left) == len(ops) {
					t.Fatalf("%d never have room", len(left))
				}
				ops = left
			}

			s.wantPast(chains*each, joiner, test.size, test.of)
			s.check()
		})
	}
}

// Acknowledgements that would never have room are done all the same. Each job then says what it is
// part of, and how many attempts it had, whatever else there is.
func TestKeptWithLittle(t *testing.T) {
	for name, test := range map[string]struct {
		of     past
		most   int // bytes
		header bool
		all    bool // attempts
	}{
		"attempts go in ranges": {past{"x", 17}, 2_700_000, true, true},
		"attempts are too many": {past{"x", 17}, 1_350_000, true, false},
		"headers are too large": {past{strings.Repeat("h", 20_000), 17}, 1_350_000, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 150
			f := onMem(t)
			s := newTrailed(f, f.queue(strings.Repeat("q", 128)), 16)
			joiner, tokens := s.pushMembers(n, 10, test.of)
			s.batcher.LimitMoved(test.most)

			wantErrors(t, s.apply(acks(s.q, tokens...)...))

			want := test.of
			if !test.header {
				want.header = ""
			}
			s.wantPast(n, joiner, 10, want)
			for _, job := range s.finishedJobs(s.q, s.clock.now()) {
				all := job.Attempts()
				wantEqual(t, "has other attempts than the last", len(all) > 1, test.all)
				wantEqual(t, "last", all[len(all)-1].How, trail.Done)
			}
			s.check()
		})
	}
}

// Acknowledgements whose results leave no room for their jobs are refused for good, and nothing has
// changed.
func TestTooManyTogether(t *testing.T) {
	f := newTrailedOnMem(t, 1)
	_, tokens := f.pushMembers(200, 10, past{header: "x"})
	f.batcher.LimitMoved(50_000)

	for _, r := range f.apply(acks(f.q, tokens...)...) {
		wantError(t, r.Err, fdbpq.ErrOp)
	}

	for some := range slices.Chunk(tokens, 20) {
		wantErrors(t, f.apply(acks(f.q, some...)...))
	}
	f.check()
}
