package fdbpq_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
)

// kept makes a push whose job is kept for an hour.
func kept(push fdbpq.Op) fdbpq.Op {
	push.Message.Keep = time.Hour
	return push
}

// ackWith acknowledges a lease with a result.
func ackWith(q fdbpq.Target, token fdbpq.Token, result string) fdbpq.Op {
	said := &fdbpq.Report{
		Outcome: fdbpq.Outcome{Result: []byte(result), ContentType: "text/plain"},
	}
	return fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: token, Report: said}
}

// finish pushes, leases and acknowledges an item, and returns what the lease returned.
func (f *fixture) finish(now time.Time, push fdbpq.Op) fdbpq.Result {
	f.Helper()
	f.one(now, push)
	leased := f.one(now, fdbpq.Op{Kind: fdbpq.OpLease, Queue: push.Queue})
	acked := f.one(now, ackWith(push.Queue, leased.Lease.Token, string(push.Message.Value)))
	wantErrors(f.T, []fdbpq.Result{leased, acked})
	return leased
}

// finishedJobs returns the finished jobs of a queue, newest first.
func (f *fixture) finishedJobs(q fdbpq.Target, now time.Time) (jobs []*fdbpq.Browsed) {
	f.Helper()
	walk := fdbpq.Browse{State: fdbpq.Done}
	must(walk.Walk(f.ctx, f.db, q, now, func(job *fdbpq.Browsed) bool {
		jobs = append(jobs, job)
		return true
	}))
	return jobs
}

// results returns the results of finished jobs.
func results(jobs []*fdbpq.Browsed) (list []string) {
	for _, job := range jobs {
		list = append(list, string(job.Finished.Result))
	}
	return list
}

// A job that is kept leaves what it was, when its lease began and ended, and its result, in a
// priority or FIFO queue, whether its push or the settings say so. It is in the queue no more.
func TestFinishedJobs(t *testing.T) {
	onEngines(t, func(f *fixture) {
		clock := f.setClock()
		large := pattern(250_000, 1)

		for name, push := range map[string]fdbpq.Op{
			"by its push":      kept(inGroup(opPush(f.queue("a"), 7, "\x00value"), "acme")),
			"FIFO":             kept(opPush(f.fifoQueue("a"), 0, "value")),
			"large":            kept(opPush(f.queue("b"), 7, string(large))),
			"by the settings":  opPush(f.queue("c"), 7, "value"),
			"large, by them":   opPush(f.queue("d"), 7, string(large)),
			"FIFO, by them":    opPush(f.fifoQueue("c"), 0, "value"),
			"its push matters": kept(opPush(f.queue("e"), 7, "value")),
		} {
			keep := time.Hour
			if name != "by its push" && push.Message.Keep > 0 {
				push.Message.Headers = map[string][]string{"A": {"1", ""}}
			}
			if push.Message.Keep == 0 || name == "its push matters" {
				f.configure(push.Queue, func(s *fdbpq.Settings) { s.Keep = 2 * time.Hour })
			}
			if push.Message.Keep == 0 {
				keep = 2 * time.Hour
			}
			began := clock.now().UTC()
			pushed := f.apply(push)[0].Item
			leased := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: push.Queue})[0]
			clock.advance(20 * time.Second)
			ended := clock.now().UTC()

			r := f.apply(ackWith(push.Queue, leased.Lease.Token, "result"))[0]

			wantErrors(f.T, []fdbpq.Result{leased, r})
			wantEqual(f.T, name+": not kept", r.NotKept, false)
			jobs := f.finishedJobs(push.Queue, ended)
			wantEqual(f.T, name+": jobs", len(jobs), 1)
			pushed.Message = push.Message
			want := &fdbpq.Finished{
				Item:       pushed,
				Outcome:    fdbpq.Outcome{Result: []byte("result"), ContentType: "text/plain"},
				At:         ended,
				Order:      ended,
				Until:      ended.Add(keep),
				Since:      began,
				Deliveries: 1,
				Fence:      leased.Lease.Token.Fence,
			}
			if got := jobs[0].Finished; !reflect.DeepEqual(got, want) {
				f.Errorf("%s: %.300v\nwant %.300v", name, fmt.Sprintf("%+v", got),
					fmt.Sprintf("%+v", want))
			}
			wantError(f.T, f.apply(op(opPopMin, push.Queue))[0].Err, fdbpq.ErrEmpty)
			wantEqual(f.T, name+": over", len(f.finishedJobs(push.Queue, want.Until)), 0)
		}
	})
}

// A job is not kept without a setting or property that says so, as a dead letter, or if what
// belongs to it cannot be read. Its acknowledgement counts, and says that the result is not kept.
func TestNotKept(t *testing.T) {
	f := onMem(t)
	now := time.Now()
	jobs, dead := f.queue("jobs"), f.queue("jobs-dead")
	f.one(now, kept(opPush(jobs, 1, "dies")))
	token := f.leaseSome(jobs, 1, time.Minute)[0]
	f.one(now, fdbpq.Op{Kind: fdbpq.OpTerm, Queue: jobs, Token: token})
	f.one(now, opPush(jobs, 1, "plain"))
	f.one(now, kept(opPush(f.queue("damaged"), 1, "damaged")))

	for _, q := range []*fdbpq.PriorityQueue{jobs, dead, f.queue("damaged")} {
		token := f.leaseSome(q, 1, time.Minute)[0]
		if q.Layout().Name() == "damaged" {
			f.corrupt = true
			write(f, func(tx kv.Transaction) {
				tx.Set(q.Layout().MetaKey(&token.ID, 0), []byte("damaged"))
			})
		}

		r := f.one(now, ackWith(q, token, "result"))

		wantError(t, r.Err, nil)
		wantEqual(t, "not kept", r.NotKept, true)
		wantEqual(t, "items", must(kv.ReadTransact(f.ctx, f.db, q.Len)), 0)
		for _, kind := range []string{codec.KindFinished, codec.KindFinishedOrder} {
			pairs := must(kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) ([]kv.KeyValue, error) {
				return r.GetRange(q.Layout().AllOf(kind), kv.RangeOptions{}).Get()
			}))
			wantEqual(t, "keys", len(pairs), 0)
		}
	}
}

// A repeated acknowledgement says that the job is done, and changes nothing. One with a token that
// another lease has overtaken only says that the lease is lost.
func TestRepeatedAcknowledgement(t *testing.T) {
	onEngines(t, func(f *fixture) {
		now := time.Now()
		for _, q := range []fdbpq.Target{f.queue("jobs"), f.fifoQueue("jobs")} {
			f.one(now, kept(opPush(q, 1, "a")))
			lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute}
			old := f.one(now, lease).Lease.Token
			now = now.Add(time.Hour)
			token := f.one(now, lease).Lease.Token
			f.one(now, kept(opPush(q, 1, "b")))
			other := f.one(now, lease).Lease.Token
			first := grouped(ackWith(q, token, "1"), ackWith(q, other, "2"))
			first = append([]fdbpq.Op{ackWith(q, old, "late")}, first...)
			wantErrors(f.T, f.applyAt(now, first...)[1:])

			lost := f.one(now, ackWith(q, old, "late")).Err
			again := f.applyAt(now, ackWith(q, token, "late"), ackWith(q, token, "later"))
			both := f.applyAt(now, grouped(ackWith(q, token, "late"), ackWith(q, other, "late"))...)
			some := f.applyAt(now, grouped(ackWith(q, old, "late"), ackWith(q, other, "late"))...)
			nak := f.one(now, fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: token}).Err

			for what, err := range map[string]error{"late": lost, "some": some[0].Err, "nak": nak} {
				if !errors.Is(err, fdbpq.ErrLeaseLost) || errors.Is(err, fdbpq.ErrDone) {
					f.Errorf("%s: %v, want the lease lost, and no word of done", what, err)
				}
			}
			for _, err := range []error{again[0].Err, again[1].Err, both[0].Err, both[1].Err} {
				if !errors.Is(err, fdbpq.ErrLeaseLost) || !errors.Is(err, fdbpq.ErrDone) {
					f.Errorf("again: %v, want the lease lost and the job done", err)
				}
			}
			var of *fdbpq.LostLeases
			if !errors.As(some[1].Err, &of) || fmt.Sprint(of.Lost, of.Done) != "[0 1] [1]" {
				f.Errorf("some: %+v, want both lost, the second done", some[1].Err)
			}
			got := results(f.finishedJobs(q, now))
			slices.Sort(got)
			wantList(f.T, "results", got, "1", "2")
		}
	})
}

// Each job is finished once with the result of the acknowledgement that counted, and its batch
// names it, whatever becomes of the commit.
func TestFinishWithFaults(t *testing.T) {
	for _, fault := range append(slices.Clone(unanswered), faultkv.Conflict) {
		t.Run(fmt.Sprint(fault), func(t *testing.T) {
			f := newUnsure(t, faultkv.Options{})
			clock := f.setClock()
			q := f.queue("jobs")
			f.apply(kept(opPush(q, 1, "a")))
			leased := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0]
			f.faults.Next(fault, faultkv.None, fault)

			p := f.batcher.Start(f.ctx, []fdbpq.Op{ackWith(q, leased.Lease.Token, "result")})
			r := must(p.Wait())

			f.calm()
			wantErrors(t, r)
			job := fdbpq.QueueJob{Queue: fdbpq.QueueName{Name: "jobs"}, Job: leased.Item.ID}
			if !slices.Contains(p.Ended(), job) {
				t.Errorf("ended: %v, want %v", p.Ended(), job)
			}
			wantList(t, "results", results(f.finishedJobs(q, clock.now())), "result")
		})
	}
}

// Keeping never fails an acknowledgement: values that a transaction has no room for are left out,
// but headers and results are kept, alone and in a long chain.
func TestKeepWithoutRoom(t *testing.T) {
	f := onMem(t)
	const n = 60
	q := f.queue("jobs")
	f.batcher.LimitMoved(1_000_000)
	f.batcher.LimitReturned(400_000) // the values of 32 leases are read at once
	var tokens []fdbpq.Token
	for i := range n {
		push := kept(opPush(q, 1, string(pattern(150_000, i))))
		push.Message.Headers = map[string][]string{"N": {fmt.Sprint(i)}}
		f.apply(push)
		tokens = append(tokens, f.leaseSome(q, 1, time.Hour)...)
	}
	ops := make([]fdbpq.Op, n)
	for i, token := range tokens {
		ops[i] = ackWith(q, token, fmt.Sprint(i))
	}

	wantErrors(t, f.apply(grouped(ops...)...))

	whole := 0
	jobs := f.finishedJobs(q, time.Now())
	for _, job := range jobs {
		i := string(job.Finished.Result)
		if job.Headers["N"][0] != i {
			t.Errorf("job %s has headers %v", i, job.Headers)
		}
		switch {
		case job.Finished.NoValue != (job.Value == nil):
			t.Errorf("job %s: no value: %v, %d bytes", i, job.Finished.NoValue, len(job.Value))
		case !job.Finished.NoValue:
			if n := must(strconv.Atoi(i)); !bytes.Equal(job.Value, pattern(150_000, n)) {
				t.Errorf("job %s has a value of %d bytes that it was not pushed with", i,
					len(job.Value))
			}
			whole++
		}
	}
	if len(jobs) != n || whole < 3 || whole > 7 {
		t.Errorf("%d of %d jobs have their values, want about 6 of %d", whole, len(jobs), n)
	}
}

// A long chain of acknowledgements keeps each value in full or says that it has none, whatever the
// sizes of the items and the room for them, and the bytes of the queue stay right.
func TestKeptValuesOfALongChain(t *testing.T) {
	random, _ := newRandom(t)
	onStores(t, func(f *fixture) {
		const n = 90 // more than the values that are read at once
		q := f.queue("jobs")
		f.configure(q, func(s *fdbpq.Settings) { s.Keep, s.MaxBytes = time.Hour, 1<<30 })
		f.batcher.LimitMoved(500_000 + random.IntN(6_000_000))
		f.batcher.LimitReturned(100_000 + random.IntN(900_000))
		sizes := []int{10, 60_000, 89_900, 91_000, 150_000, 250_000}
		large := random.Float64()
		var tokens []fdbpq.Token
		for i := range n {
			size := sizes[0]
			if random.Float64() < large {
				size = sizes[random.IntN(len(sizes))]
			}
			push := opPush(q, 1, string(pattern(size, i)))
			if random.IntN(2) == 0 {
				push.Message.Headers = map[string][]string{"N": {fmt.Sprint(i)}}
			}
			f.apply(push)
			tokens = append(tokens, f.leaseSome(q, 1, time.Hour)...)
		}
		ops := make([]fdbpq.Op, n)
		for i, token := range tokens {
			ops[i] = ackWith(q, token, fmt.Sprint(i))
		}

		r := f.apply(grouped(ops...)...)

		wantErrors(f.T, r)
		jobs := f.finishedJobs(q, time.Now())
		wantEqual(f.T, "jobs", len(jobs), n)
		for _, job := range jobs {
			i := must(strconv.Atoi(string(job.Finished.Result)))
			wantEqual(f.T, "said that it was dropped", r[i].ValueDropped, job.Finished.NoValue)
			size := len(job.Value)
			if job.Finished.NoValue != (job.Value == nil) ||
				size > 0 && !slices.Contains(sizes, size) ||
				!bytes.Equal(job.Value, pattern(size, i)) {
				f.Errorf("job %d: no value: %v, %d bytes", i, job.Finished.NoValue, len(job.Value))
			}
		}
		f.check()
	})
}

// A long chain of acknowledgements with more values than fit does not take the room of the next one
// in the same transaction.
func TestRoomOfTheNextChain(t *testing.T) {
	f := onMem(t)
	const n = 40
	q := f.queue("jobs")
	f.batcher.LimitReturned(400_000)
	var ops []fdbpq.Op
	for _, size := range []int{20_000, 5_000} {
		var chain []fdbpq.Op
		for i := range n {
			f.apply(kept(opPush(q, 1, string(pattern(size, i)))))
			chain = append(chain, ackWith(q, f.leaseSome(q, 1, time.Hour)[0], ""))
		}
		ops = append(ops, grouped(chain...)...)
	}

	wantErrors(t, f.apply(ops...))

	whole := map[int]int{}
	for _, job := range f.finishedJobs(q, time.Now()) {
		whole[len(job.Value)]++
	}
	if whole[20_000] >= n || whole[5_000] != n {
		t.Errorf("values kept by size: %v, want some of the first chain and %d of the second",
			whole, n)
	}
}

// A sweep removes the records that are over, and the oldest of more than the settings allow, but of
// these none of the last minute. What is ahead says when the next is due.
func TestSweepFinished(t *testing.T) {
	onEngines(t, func(f *fixture) {
		now := time.Now().UTC().Truncate(time.Microsecond)
		q := f.queue("jobs")
		sweep := fdbpq.Op{Kind: fdbpq.OpSweep, Queue: q}
		f.configure(q, func(s *fdbpq.Settings) { s.KeepItems = 3 })
		for i := range 5 {
			f.finish(now.Add(time.Duration(i)*time.Second), kept(opPush(q, 1, fmt.Sprint(i))))
		}
		brief := kept(opPush(q, 1, "brief"))
		brief.Message.Keep = time.Second
		f.finish(now.Add(5*time.Second), brief)

		wantEqual(f.T, "first", f.ahead(q).Over.UTC(), now.Add(6*time.Second))
		wantEqual(f.T, "at once", f.one(now.Add(5*time.Second), sweep).Swept, fdbpq.Swept{})
		wantEqual(f.T, "over", f.one(now.Add(59*time.Second), sweep).Swept,
			fdbpq.Swept{Done: true, Finished: 1})
		wantEqual(f.T, "then", f.ahead(q).Over.UTC(), now.Add(time.Minute))
		wantEqual(f.T, "two", f.one(now.Add(61*time.Second), sweep).Swept,
			fdbpq.Swept{Done: true, Finished: 2})
		wantList(f.T, "left", results(f.finishedJobs(q, now)), "4", "3", "2")
		wantEqual(f.T, "last", f.ahead(q).Over.UTC(), now.Add(time.Hour+2*time.Second))
		f.check()

		wantEqual(f.T, "all", f.one(now.Add(2*time.Hour), sweep).Swept,
			fdbpq.Swept{Done: true, Finished: 3})
		wantEqual(f.T, "nothing", f.ahead(q), fdbpq.Upcoming{})
	})
}

// finishMany finishes jobs that are kept for a time, whose results are numbers.
func (f *fixture) finishMany(now time.Time, q fdbpq.Target, keep time.Duration, from, n int) {
	f.Helper()
	for to := from + n; from < to; from += 100 {
		jobs := min(100, to-from)
		f.applyAt(now, many(jobs, func(int) fdbpq.Op {
			o := opPush(q, 1, "value")
			o.Message.Keep = keep
			return o
		})...)
		lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute}
		leased := f.applyAt(now, slices.Repeat([]fdbpq.Op{lease}, jobs)...)
		f.applyAt(now, many(jobs, func(i int) fdbpq.Op {
			return ackWith(q, leased[i].Lease.Token, fmt.Sprint(from+i))
		})...)
	}
}

// sweepAll sweeps a queue until there is no more to do.
func (f *fixture) sweepAll(now time.Time, q fdbpq.Target) {
	f.Helper()
	for f.one(now, fdbpq.Op{Kind: fdbpq.OpSweep, Queue: q}).Swept.More {
	}
}

// numbers returns the results first, first+step, ... up to and including last.
func numbers(first, last, step int) (list []string) {
	for n := first; n != last+step; n += step {
		list = append(list, fmt.Sprint(n))
	}
	return list
}

// Jobs that are kept for long stay, however many brief ones finish after them, as long as no more
// than keep_items are kept at a time. What is over does not stay behind them.
func TestBriefJobsLeaveOthers(t *testing.T) {
	onEngines(t, func(f *fixture) {
		for n, test := range []struct {
			keepItems   int64
			kept        int // jobs that are kept for keep
			keep        time.Duration
			brief       int // jobs that are kept for a second, finishing at a time
			every       time.Duration
			times       int
			sweepsAfter int // as many times
		}{
			{1000, 600, 24 * time.Hour, 100, time.Second, 8, 8},
			{300, 100, time.Hour, 20, time.Second, 90, 5},
			{1000, 500, 24 * time.Hour, 60, time.Minute, 100, 1},
		} {
			now := time.Now().Add(-48 * time.Hour)
			q := f.queue(fmt.Sprint("jobs", n))
			f.configure(q, func(s *fdbpq.Settings) { s.KeepItems = test.keepItems })
			f.finishMany(now, q, test.keep, 1, test.kept)

			for i := range test.times {
				now = now.Add(test.every)
				f.finishMany(now, q, time.Second, 1, test.brief)
				if (i+1)%test.sweepsAfter == 0 {
					f.sweepAll(now.Add(time.Second), q)
				}
			}
			f.sweepAll(now.Add(time.Minute), q)

			wantEqual(f.T, "counted", f.infoOf(q, 0).Finished, int64(test.kept))
			wantList(f.T, "kept", results(f.finishedJobs(q, now)), numbers(test.kept, 1, -1)...)
			f.sweepAll(now.Add(24*time.Hour), q)
			wantEqual(f.T, "in the end", f.infoOf(q, 0).Finished, 0)
		}
	})
}

// After a clock was ahead for a while, keep_items removes the oldest jobs, and no later ones. The
// records say when they finished by that clock.
func TestClockWasAhead(t *testing.T) {
	onEngines(t, func(f *fixture) {
		now := time.Now().UTC().Truncate(time.Microsecond)
		q := f.queue("jobs")
		f.configure(q, func(s *fdbpq.Settings) { s.KeepItems = 100 })
		f.finishMany(now.Add(time.Hour), q, 2*time.Hour, 1, 150)
		f.finishMany(now.Add(time.Second), q, 2*time.Hour, 151, 30)

		later := now.Add(2 * time.Minute)
		wantEqual(f.T, "due", f.aheadAt(later, q).Over.UTC(), later)
		f.sweepAll(later, q)

		jobs := f.finishedJobs(q, later)
		wantList(f.T, "left", results(jobs), numbers(180, 81, -1)...)
		wantEqual(f.T, "last", jobs[0].Finished.At, now.Add(time.Second))
		wantEqual(f.T, "ahead", jobs[99].Finished.At, now.Add(time.Hour))
		f.check()
	})
}

// Where the clocks of bridges differ, jobs are listed and removed in the order in which they
// finished, and what has just finished by the true time stays.
func TestFinishedByClocksThatDiffer(t *testing.T) {
	onEngines(t, func(f *fixture) {
		now := time.Now().UTC().Truncate(time.Microsecond)
		q := f.queue("jobs")
		f.configure(q, func(s *fdbpq.Settings) { s.KeepItems = 10 })
		clocks := []time.Duration{0, 40 * time.Second, -40 * time.Second, 10 * time.Minute}
		var bridges []*fdbpq.Batcher
		for _, ahead := range clocks {
			b := fdbpq.NewBatcher(f.db, f.Keyspace)
			b.SetNow(func() time.Time { return now.Add(ahead) })
			bridges = append(bridges, b)
		}

		const jobs = 40
		for i := range jobs {
			b := bridges[i%len(bridges)]
			must(b.Apply(f.ctx, []fdbpq.Op{kept(opPush(q, 1, "value"))}))
			lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute}
			token := must(b.Apply(f.ctx, []fdbpq.Op{lease}))[0].Lease.Token
			wantErrors(f.T, must(b.Apply(f.ctx, []fdbpq.Op{ackWith(q, token, fmt.Sprint(i))})))
			now = now.Add(time.Second)
		}

		all := f.finishedJobs(q, now)
		wantList(f.T, "in order", results(all), numbers(jobs-1, 0, -1)...)
		for i, job := range all {
			n := jobs - 1 - i
			wantEqual(f.T, fmt.Sprint("time of ", n), job.Finished.At,
				now.Add(time.Duration(n-jobs)*time.Second+clocks[n%len(clocks)]))
		}

		// Of the oldest 30, those of the clock that is far ahead are not recent, nor those of the
		// one behind that are a minute old by the clock of the sweep.
		f.sweepAll(now, q)
		var want []string
		for n := jobs - 1; n >= 0; n-- {
			age := time.Duration(jobs-n)*time.Second - clocks[n%len(clocks)]
			if n >= jobs-10 || -time.Minute <= age && age < time.Minute {
				want = append(want, fmt.Sprint(n))
			}
		}
		wantList(f.T, "left", results(f.finishedJobs(q, now)), want...)
		if len(want) == 10 || len(want) == jobs {
			f.Errorf("%d are left: want some that are recent, and some gone", len(want))
		}

		f.sweepAll(now.Add(2*time.Minute), q)
		wantList(f.T, "then", results(f.finishedJobs(q, now)), numbers(jobs-1, jobs-10, -1)...)
		f.check()
	})
}

// An entry of a finished job that cannot be read goes alone, and the record goes with the other.
func TestSweepDamagedEntries(t *testing.T) {
	f := onMem(t)
	now := time.Now().UTC().Truncate(time.Microsecond)
	q := f.queue("jobs")
	f.finishMany(now, q, time.Hour, 1, 4)
	jobs := f.finishedJobs(q, now)
	f.corrupt = true
	write(f, func(tx kv.Transaction) {
		second, third := jobs[2].Job(), jobs[1].Job()
		l, junk := q.Layout(), []byte("damaged")
		tx.Set(l.FinishedOrderKey(jobs[2].Finished.Order, &second), junk)
		tx.Set(l.FinishedEndKey(jobs[1].Finished.Until, &third), junk)
	})

	now = now.Add(2 * time.Hour)
	f.sweepAll(now, q)
	wantEqual(t, "left", f.infoOf(q, 0).Finished, 1)

	f.finishMany(now, q, time.Hour, 5, 1)
	f.configure(q, func(s *fdbpq.Settings) { s.KeepItems = 1 })
	f.sweepAll(now.Add(time.Minute), q)
	wantList(t, "the last", results(f.finishedJobs(q, now)), "5")
	wantEqual(t, "counted", f.infoOf(q, 0).Finished, 1)
	for kind, keys := range map[string]int{
		codec.KindFinished: 1, codec.KindFinishedOrder: 2, codec.KindFinishedEnd: 1,
	} {
		wantEqual(t, "keys of "+kind, f.keysOf("jobs", kind), keys)
	}
}

// A queue with finished jobs stays listed, and leaves the list once they are gone.
func TestRetireWithFinishedJobs(t *testing.T) {
	f := onMem(t)
	now := time.Now()
	q := f.queue("jobs")
	f.finish(now, kept(opPush(q, 1, "a")))
	retire := func(next, ripe fdbpq.Mark) fdbpq.Retired {
		return must(fdbpq.Retire(f.ctx, f.db, []fdbpq.Target{q}, next, ripe))[0]
	}

	wantEqual(t, "with a job", retire("1", ""), fdbpq.InUse)
	f.one(now.Add(2*time.Hour), fdbpq.Op{Kind: fdbpq.OpSweep, Queue: q})
	wantEqual(t, "without", retire("2", "1"), fdbpq.Marked)
	wantEqual(t, "and again", retire("3", "2"), fdbpq.NotListed)
}

// Acknowledgements that keep their jobs do not conflict with each other, a sweep or a purge. A
// sweep conflicts with whatever else removes the same job.
func TestFinishConflicts(t *testing.T) {
	now := time.Now()
	ack := func(f *fixture, q fdbpq.Target, keep bool) fdbpq.Op {
		push := opPush(q, 1, "a")
		if keep {
			push = kept(push)
		}
		f.apply(push)
		return ackWith(q, f.leaseSome(q, 1, time.Minute)[0], "r")
	}
	sweep := func(f *fixture, q fdbpq.Target, _ bool) fdbpq.Op {
		old := opPush(q, 1, "old")
		old.Message.Keep = time.Second
		f.finish(now.Add(-time.Hour), old)
		return fdbpq.Op{Kind: fdbpq.OpSweep, Queue: q}
	}
	trim := func(f *fixture, q fdbpq.Target, _ bool) fdbpq.Op {
		f.configure(q, func(s *fdbpq.Settings) { s.KeepItems = 2 })
		f.finishMany(now.Add(-10*time.Minute), q, time.Hour, 1, 3)
		return fdbpq.Op{Kind: fdbpq.OpSweep, Queue: q}
	}
	remove := func(which int) func(*fixture, fdbpq.Target, bool) fdbpq.Op {
		return func(f *fixture, q fdbpq.Target, _ bool) fdbpq.Op {
			o := named(fdbpq.OpRemove, q, f.finishedJobs(q, now)[which].Job())
			o.State = fdbpq.Done
			return o
		}
	}
	purge := func(f *fixture, q fdbpq.Target, _ bool) fdbpq.Op {
		f.finish(now, kept(opPush(q, 1, "old")))
		return fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q, State: fdbpq.Done}
	}

	for _, test := range []struct {
		name          string
		first, second func(*fixture, fdbpq.Target, bool) fdbpq.Op
		keeps         [2]bool
		want          bool
	}{
		{"two that keep", ack, ack, [2]bool{true, true}, false},
		{"one that keeps", ack, ack, [2]bool{true, false}, false},
		{"ack, sweep", ack, sweep, [2]bool{true, true}, false},
		{"sweep, ack", sweep, ack, [2]bool{true, true}, false},
		{"ack, purge", ack, purge, [2]bool{true, true}, false},
		{"ack, trim", ack, trim, [2]bool{true, true}, false},
		{"trim, ack", trim, ack, [2]bool{true, true}, false},
		{"sweep, sweep", sweep, sweep, [2]bool{}, true},
		{"purge, sweep", purge, sweep, [2]bool{}, true},
		{"remove of the oldest, trim", remove(2), trim, [2]bool{}, true},
		{"remove of the newest, trim", remove(0), trim, [2]bool{}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := onMem(t)
			q := f.queue("jobs")
			second := test.second(f, q, test.keeps[1])
			first := test.first(f, q, test.keeps[0])

			f.wantConflict(test.want, func() { wantErrors(t, f.apply(first)) }, second)
		})
	}
}

// Finished jobs are visited newest first, page by page from where the last page ended, also while
// others finish and go, and one that cannot be read is told apart.
func TestBrowseFinished(t *testing.T) {
	onEngines(t, func(f *fixture) {
		now := time.Now()
		q := f.queue("jobs")
		random := rand.New(rand.NewPCG(1, 2))
		var want []string
		for i := range 40 {
			now = now.Add(time.Millisecond)
			value := string(pattern(random.IntN(3)*100_000, i)) + fmt.Sprint(i)
			f.finish(now, kept(opPush(q, int64(random.IntN(3)), value)))
			want = append(want, value)
		}
		slices.Reverse(want)

		var got []string
		walk := fdbpq.Browse{State: fdbpq.Done, MaxItems: 7}
		for more := true; more; {
			end := must(walk.Walk(f.ctx, f.db, q, now, func(job *fdbpq.Browsed) bool {
				got = append(got, string(job.Value))
				return true
			}))
			more, walk.After, walk.AfterTime = end.More, &end.Last, end.LastTime
			if len(got) == 7 { // this one comes before the first page
				f.finish(now.Add(time.Second), kept(opPush(q, 1, "late")))
			}
		}
		if !slices.Equal(got, want) {
			f.Errorf("visited %d jobs, want %d, in the order in which they finished", len(got),
				len(want))
		}

		// Keys of another program, more than are read at a time, come before the newest job.
		f.corrupt = true
		write(f, func(tx kv.Transaction) {
			for i := range 600 {
				foreign := []byte{'0', byte(i >> 8), byte(i)}
				tx.Set(append(q.Layout().Key(codec.KindFinishedOrder, 3), foreign...), nil)
			}
		})
		wantEqual(f.T, "behind them", len(f.finishedJobs(q, now)), len(want)+1)

		first := f.finishedJobs(q, now)[0]
		write(f, func(tx kv.Transaction) { tx.Clear(q.Layout().FinishedKey(&first.ID, 0)) })
		damaged := f.finishedJobs(q, now)[0]
		wantError(f.T, damaged.Err, fdbpq.ErrCorrupt)
		wantEqual(f.T, "damaged", damaged.ID, first.ID)
	})
}

// The time for which a job is kept has bounds, and so have its result and the type of that.
func TestBoundsOfKeeping(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	push := func(keep time.Duration) fdbpq.Op {
		o := opPush(q, 1, "a")
		o.Message.Keep = keep
		return o
	}
	token := fdbpq.Token{Fence: 1}
	long := ackWith(q, token, strings.Repeat("x", fdbpq.MaxResult+1))
	typed := ackWith(q, token, "")
	typed.Report.ContentType = strings.Repeat("x", fdbpq.MaxContentType+1)
	nak := ackWith(q, token, "")
	nak.Kind = fdbpq.OpNak

	for _, o := range []fdbpq.Op{push(fdbpq.MinKeep), push(fdbpq.MaxKeep)} {
		wantErrors(t, f.apply(o))
	}
	for want, o := range map[string]fdbpq.Op{
		"it is kept for 999ms: want 1s to 87600h0m0s":     push(fdbpq.MinKeep - time.Millisecond),
		"it is kept for 87600h0m1s: want 1s to":           push(fdbpq.MaxKeep + time.Second),
		"it is kept for -1s: want":                        push(-time.Second),
		"a result of 1048577 bytes: want at most 1048576": long,
		"a content type of 257 bytes: want at most 256":   typed,
		"only an acknowledgement has one":                 nak,
	} {
		err := f.apply(o)[0].Err
		if !errors.Is(err, fdbpq.ErrOp) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// An acknowledgement whose job is kept reads where the order ends, and takes one more round trip
// than others, in which all of a batch read what belongs to their items; others read nothing more.
func TestReadsOfKeeping(t *testing.T) {
	var read []string
	var queue []byte
	store := &spy{Database: memkv.New(memkv.Options{}), asked: func(method string, key []byte) {
		rest, found := bytes.CutPrefix(key, queue)
		if found && (method == "range" || method == "snapshot range") {
			kind, _, _ := strings.Cut(string(rest[1:]), "\x00")
			read = append(read, kind)
		}
	}}
	f := newFixture(t, store, fdbpq.RawValues)
	q := f.queue("jobs")
	queue = q.Layout().Key("", 0)
	queue = queue[:len(queue)-2]
	headers := opPush(q, 1, "plain")
	headers.Message.Headers = map[string][]string{"A": {"1"}}
	f.apply(headers, kept(opPush(q, 2, "kept")))
	tokens := f.leaseSome(q, 2, time.Hour)

	read = nil
	f.apply(ackWith(q, tokens[0], ""))
	wantList(t, "read for a plain job", read)
	f.apply(ackWith(q, tokens[1], ""))
	wantList(t, "read for a kept job", read, "o", "m")
}

// A finished job is found by its id and by its last place, and is removed only where that is asked
// for. Operations on items in the queue say that the job is done.
func TestFinishedByID(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		job, place := f.moved(q, kept(opPush(nil, 1, "value")))
		token := f.leaseSome(q, 1, time.Minute)[0]
		f.done(ackWith(q, token, "result"))

		for _, id := range []fdbpq.ID{job, place} {
			got := named(fdbpq.OpGet, q, id)
			items := readItems(f, q, id)
			for _, r := range append(f.read(got), f.done(got)) {
				if r.State != fdbpq.Done || r.Item.Job() != job || r.Item.ID != place ||
					string(r.Found.Finished.Result) != "result" || r.Queue != "" {
					f.Errorf("got %+v, want the finished job", r)
				}
			}
			if items[0].State != fdbpq.Done || items[0].Job() != job || items[0].Err != nil {
				f.Errorf("read %+v, want the finished job", items[0])
			}
			wantError(f.T, f.apply(named(fdbpq.OpMove, q, id))[0].Err, fdbpq.ErrDone)
			wantError(f.T, f.apply(named(fdbpq.OpRelease, q, id))[0].Err, fdbpq.ErrDone)
			wantError(f.T, f.apply(named(fdbpq.OpRank, q, id))[0].Err, fdbpq.ErrDone)
			wantError(f.T, f.apply(named(fdbpq.OpRemove, q, id))[0].Err, fdbpq.ErrNotFound)
			f.done(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q})
		}
		again := f.apply(ackWith(q, token, "late"))[0].Err
		if !errors.Is(again, fdbpq.ErrLeaseLost) || !errors.Is(again, fdbpq.ErrDone) {
			f.Errorf("%v, want the lease lost and the job done", again)
		}

		remove := named(fdbpq.OpRemove, q, job)
		remove.State = fdbpq.Done
		r := f.apply(remove, remove)

		wantErrors(f.T, r, nil, fdbpq.ErrNotFound)
		wantEqual(f.T, "removed", r[0].Item.Job(), job)
		wantError(f.T, f.apply(named(fdbpq.OpGet, q, job))[0].Err, fdbpq.ErrNotFound)
		wantError(f.T, readItems(f, q, job)[0].Err, fdbpq.ErrNotFound)
		wantEqual(f.T, "records", f.keysOf("jobs", codec.KindFinished), 0)
	})
}

// readItems returns what ReadItems visits.
func readItems(f *fixture, q fdbpq.Target, ids ...fdbpq.ID) (items []*fdbpq.Browsed) {
	wantError(f.T, fdbpq.ReadItems(f.ctx, f.db, q, ids, time.Now(),
		func(_ int, item *fdbpq.Browsed) bool {
			items = append(items, item)
			return true
		}), nil)
	return items
}

// However many finished jobs ReadItems is asked for, it reads about a megabyte of them at a time.
func TestReadItemsReadsFinishedJobsInParts(t *testing.T) {
	const jobs, size = 40, 200_000
	store := countkv.New(memkv.New(memkv.Options{}))
	f := newFixture(t, store, fdbpq.RawValues)
	q := f.queue("jobs")
	var ids []fdbpq.ID
	for range jobs {
		push := kept(opPush(q, 0, string(pattern(size, 1))))
		ids = append(ids, f.finish(time.Now(), push).Item.ID)
	}

	store.TakeBytes()
	visited := 0
	err := fdbpq.ReadItems(f.ctx, f.db, q, ids, time.Now(), func(int, *fdbpq.Browsed) bool {
		visited++
		return false
	})
	first := store.TakeBytes()
	all := readItems(f, q, ids...)

	wantError(t, err, nil)
	wantEqual(t, "visited", visited, 1)
	if first > 5<<20 { // a part, and what it has begun to read
		t.Errorf("the first part has read %d bytes", first)
	}
	wantEqual(t, "items", len(all), jobs)
	for i, item := range all {
		if item.Err != nil || item.Job() != ids[i] || len(item.Message.Value) != size {
			t.Errorf("job %d: got %v of %d bytes, %v",
				i, item.Job(), len(item.Message.Value), item.Err)
		}
	}
}

// A redriven job begins a new life with the same id, at the end of its priority, without its record
// and the headers of its push alone. It may finish again. A job without its value stays.
func TestRedriveFinished(t *testing.T) {
	onEngines(t, func(f *fixture) {
		for _, q := range []fdbpq.Target{f.queue("jobs"), f.fifoQueue("jobs")} {
			push := kept(opPush(q, 1, string(pattern(200_000, 1))))
			push.Message.Headers = map[string][]string{"A": {"1"}, "Drop": {"1"}}
			job := f.done(push).Item.ID
			f.done(ackWith(q, f.leaseSome(q, 1, time.Minute)[0], "first"))
			f.done(opPush(q, 1, "other"))

			redrive := named(fdbpq.OpRedriveItem, q, job)
			redrive.DropHeader = func(name string) bool { return name == "Drop" }
			r := f.apply(redrive, redrive)

			wantError(f.T, r[0].Err, nil)
			wantError(f.T, r[1].Err, fdbpq.ErrNotDeadLetter)
			wantEqual(f.T, "job", r[0].Item.Job(), job)
			wantEqual(f.T, "finished", len(f.finishedJobs(q, time.Now())), 0)
			got := f.done(named(fdbpq.OpGet, q, job))
			wantEqual(f.T, "headers", fmt.Sprint(got.Item.Headers), "map[A:[1]]")
			wantEqual(f.T, "value", len(got.Item.Value), 200_000)
			wantEqual(f.T, "place", got.Item.ID, r[0].Item.ID)

			tokens := f.leaseSome(q, 2, time.Minute)
			f.done(ackWith(q, tokens[1], "second"))
			jobs := f.finishedJobs(q, time.Now())
			wantList(f.T, "results", results(jobs), "second")
			wantEqual(f.T, "job", jobs[0].Job(), job)
		}
	})
}

// A job whose value had no room is finished, with its result, but cannot be run again.
func TestRedriveWithoutValue(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	var ids []fdbpq.ID
	for i := range 3 {
		ids = append(ids, f.done(kept(opPush(q, 1, string(pattern(150_000, i))))).Item.ID)
	}
	var ops []fdbpq.Op
	for range ids { // one at a time has room
		ops = append(ops, ackWith(q, f.leaseSome(q, 1, time.Minute)[0], "result"))
	}
	f.batcher.LimitMoved(200_000) // for the acknowledgements
	wantErrors(t, f.apply(ops...))

	err := f.apply(named(fdbpq.OpRedriveItem, q, ids[2]))[0].Err

	wantError(t, err, fdbpq.ErrNoValue)
	wantEqual(t, "finished", len(f.finishedJobs(q, time.Now())), 3)
	f.done(named(fdbpq.OpRedriveItem, q, ids[0]))
}

// A purge of the finished jobs removes all of them and nothing else, and says how many there were.
func TestPurgeFinished(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		for i := range 3 {
			f.finish(time.Now(), kept(opPush(q, int64(i), "a")))
		}
		f.push(q, 1, "stays")
		wantEqual(f.T, "counted", f.infoOf(q, 0).Finished, 3)

		r := f.done(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q, State: fdbpq.Done})

		wantEqual(f.T, "purged", r.Len, 3)
		wantEqual(f.T, "left", len(f.finishedJobs(q, time.Now())), 0)
		wantEqual(f.T, "records", f.keysOf("jobs", codec.KindFinished), 0)
		wantEqual(f.T, "items", f.length(q), 1)
		wantEqual(f.T, "then counted", f.infoOf(q, 0).Finished, 0)
	})
}

// A push with the message id of a finished job is a duplicate while the window lasts.
func TestDuplicateOfFinished(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	push := kept(opPushOnce(q, "id", ""))
	job := f.done(push).Item.ID
	f.done(ackWith(q, f.leaseSome(q, 1, time.Minute)[0], "result"))

	r := f.done(push)

	wantEqual(t, "duplicate", r.Duplicate, true)
	wantEqual(t, "job", r.Item.ID, job)
	get := fdbpq.Op{Kind: fdbpq.OpGet, Queue: q, Message: fdbpq.Message{MsgID: "id"}}
	wantEqual(t, "state", f.done(get).State, fdbpq.Done)
}
