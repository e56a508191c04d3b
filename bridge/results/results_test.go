package results

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// A wait is answered once: at once if the job is done or there is none, when the job ends, or at
// its end with the state that the job has then.
func TestWaitIsAnsweredWithTheTruth(t *testing.T) {
	run(t, func(x *test) {
		x.store.begin(2, 3)
		x.store.end(1, 11)

		done, none := x.wait(1, time.Hour), x.wait(4, time.Hour)
		ends, stays := x.wait(2, time.Hour), x.wait(3, time.Hour)
		short := x.wait(3, time.Millisecond)

		done.want("a job that is done", "11", 0)
		time.Sleep(10 * time.Minute)
		done.want("a job that is done, later", "11", 0)
		none.want("no such job", "not found", 0)
		short.want("a short wait", "leased", time.Millisecond)
		ends.wantWaiting("a job that goes on")

		x.store.end(2, 22)
		x.Told([]fdbpq.QueueJob{jobOf(9), jobOf(2), jobOf(2)})
		time.Sleep(soon)
		same(t, "a job that ends", ends.told(), "[22]")

		time.Sleep(time.Hour)
		stays.want("a job that goes on to the end", "leased", time.Hour)
	})
}

// A job that ends while its wait begins, or while it is looked at, is not missed, however the two
// meet.
func TestNoEndIsMissed(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))

	run(t, func(x *test) {
		const n = 2000
		var waits []*asked
		within := func() time.Duration {
			return time.Duration(random.IntN(5000)) * time.Microsecond
		}

		for i := range int64(n) {
			x.store.begin(i)
			endsIn := within()
			go func() {
				time.Sleep(endsIn)
				x.store.end(i, int(i))
				x.Told([]fdbpq.QueueJob{jobOf(i)})
			}()

			time.Sleep(within())
			waits = append(waits, x.wait(i, time.Hour))
			if i%3 == 0 {
				waits = append(waits, x.wait(i, time.Hour))
			}
		}

		time.Sleep(time.Second)
		for _, a := range waits {
			if got := a.told(); got != fmt.Sprintf("[%d]", a.n) {
				t.Fatalf("job %d: answered %s", a.n, got)
			}
			if a.took > time.Second/2 {
				t.Fatalf("job %d: answered after %v", a.n, a.took)
			}
		}
	})
}

// A wait is answered by a look that began after it: what an earlier look finds may be over, as when
// a job that was done is redriven and then waited for.
func TestLookBeforeTheWaitDoesNotCount(t *testing.T) {
	run(t, func(x *test) {
		x.store.latency = 100 * time.Millisecond
		x.store.end(1, 1)

		first := x.wait(1, time.Hour)
		time.Sleep(75 * time.Millisecond) // the look has its snapshot
		x.store.begin(1)
		second := x.wait(1, time.Minute)
		time.Sleep(time.Second)

		same(t, "the first answer", first.told(), "[1]")
		second.wantWaiting("a job that was redriven before")
		time.Sleep(time.Minute)
		same(t, "the second answer", second.told(), "[leased]")
	})
}

// The last look of a wait begins at its end: a job that ended just before, after an earlier look
// has read it, is done.
func TestLastLookIsAtTheEnd(t *testing.T) {
	run(t, func(x *test) {
		x.store.begin(1)
		x.store.latency = 100 * time.Millisecond

		w := x.wait(1, 80*time.Millisecond)
		time.Sleep(60 * time.Millisecond) // the look has its snapshot
		x.store.end(1, 1)
		time.Sleep(time.Second)

		same(t, "the answer", w.told(), "[1]")
	})
}

// A second wait for a job looks at once, and its look counts for the first as well.
func TestSecondWaitForAJob(t *testing.T) {
	run(t, func(x *test) {
		x.store.begin(1)
		first := x.wait(1, time.Hour)
		time.Sleep(time.Second)
		x.store.end(1, 1)
		first.wantWaiting("nobody has told")

		second := x.wait(1, time.Hour)
		second.want("a job that is done", "1", 0)
		same(t, "the first", first.told(), "[1]")
	})
}

// What nobody tells is found within lookEvery, and at once after LookAll.
func TestUntoldEnds(t *testing.T) {
	run(t, func(x *test) {
		x.store.begin(1, 2)
		first, second := x.wait(1, time.Hour), x.wait(2, time.Hour)

		time.Sleep(time.Minute + time.Second)
		x.store.end(1, 1)
		x.store.end(2, 2)
		time.Sleep(time.Second)
		first.wantWaiting("nobody has told")
		x.LookAll()
		first.want("all look", "1", time.Minute+2*time.Second)
		second.want("all look", "2", time.Minute+2*time.Second)

		x.store.begin(3)
		third := x.wait(3, time.Hour)
		time.Sleep(time.Second)
		x.store.end(3, 3)
		time.Sleep(lookEvery)
		third.want("it looks by itself", "3", lookEvery)
	})
}

// While the store cannot be read, waits wait, those whose time is over get an error soon, and what
// was told meanwhile is found when it can be read again.
func TestStoreIsAway(t *testing.T) {
	run(t, func(x *test) {
		x.store.begin(1, 2, 3)
		long, short := x.wait(1, time.Hour), x.wait(2, 10*time.Second)
		time.Sleep(time.Second)

		x.store.fail(errors.New("away"))
		x.store.end(1, 1)
		x.Told([]fdbpq.QueueJob{jobOf(1)})
		time.Sleep(12 * time.Second)
		long.wantWaiting("the store is away")
		same(t, "a wait that ended meanwhile", short.told(), "[unavailable]")
		if short.took > 10*time.Second+failedPause+x.store.latency {
			t.Errorf("answered after %v", short.took)
		}

		x.store.fail(nil)
		time.Sleep(failedPause)
		same(t, "a wait for what ended meanwhile", long.told(), "[1]")
	})
}

// A store that hangs delays the end of a wait by hardly more than one read, however many wait.
func TestStoreHangs(t *testing.T) {
	run(t, func(x *test) {
		x.store.hangs = true
		var waits []*asked
		for i := range int64(4 * lookPage) {
			waits = append(waits, x.wait(i, 10*time.Second))
		}

		time.Sleep(time.Minute)
		for _, a := range waits {
			same(t, "an answer", a.told(), "[unavailable]")
			if a.took > 10*time.Second+waitTimeout+failedPause {
				t.Fatalf("job %d: answered after %v", a.n, a.took)
			}
		}
	})
}

// If the store is too slow for as many jobs as a look is for, fewer are looked at.
func TestStoreIsSlow(t *testing.T) {
	run(t, func(x *test) {
		x.store.each = waitTimeout / 10
		var waits []*asked
		for i := range int64(40) {
			x.store.end(i, int(i))
			waits = append(waits, x.wait(i, time.Hour))
		}

		time.Sleep(5 * time.Minute)
		for _, a := range waits {
			same(t, "an answer", a.told(), fmt.Sprintf("[%d]", a.n))
		}
	})
}

// A job that cannot be read, or that finds no room among others, does not disturb the waits for
// others.
func TestDamagedJob(t *testing.T) {
	run(t, func(x *test) {
		x.store.begin(1, 2, 3)
		x.store.mu.errs[1] = fmt.Errorf("%w: job", kv.ErrCorrupt)
		x.store.mu.errs[3] = fdbpq.ErrNoRoom
		x.store.end(2, 2)
		x.store.end(3, 3)

		damaged, other, large := x.wait(1, time.Hour), x.wait(2, time.Hour), x.wait(3, time.Hour)
		time.Sleep(time.Second)
		x.store.mu.Lock()
		delete(x.store.mu.errs, 3)
		x.store.mu.Unlock()
		time.Sleep(time.Second)

		damaged.want("a damaged job", x.store.mu.errs[1].Error(), 0)
		other.want("another job", "2", 0)
		same(t, "a job that had no room", large.told(), "[3]")
	})
}

// A bridge that stops answers all its waits at once, also those that are being looked at, and takes
// no more.
func TestClose(t *testing.T) {
	run(t, func(x *test) {
		x.store.begin(1, 2)
		first := x.wait(1, time.Hour)
		first.wantWaiting("a job that goes on")
		time.Sleep(time.Second)
		synctest.Wait()
		x.store.latency = time.Minute
		second := x.wait(2, time.Hour)
		time.Sleep(10 * time.Millisecond)

		x.Close()

		first.want("a wait", "unavailable", time.Second+10*time.Millisecond)
		second.want("a wait that is looked at", "unavailable", 10*time.Millisecond)
		if err := x.Add(&Wait{Job: jobOf(1)}); !errors.Is(err, dispatch.ErrUnavailable) {
			t.Errorf("another wait: %v", err)
		}
		time.Sleep(time.Hour)
		second.want("a wait that was looked at", "unavailable", 10*time.Millisecond)
	})
}

// Waits beyond the limit are refused, and waits that have ended make room.
func TestLimit(t *testing.T) {
	run(t, func(x *test) {
		x.most = 2
		x.store.begin(1)
		first := x.wait(1, time.Minute)
		x.wait(1, time.Hour)

		if err := x.Add(&Wait{Job: jobOf(1)}); !errors.Is(err, dispatch.ErrTooManyWaiters) {
			t.Errorf("a third wait: %v", err)
		}
		time.Sleep(2 * time.Minute)

		first.want("the first", "leased", time.Minute)
		x.wait(1, time.Hour)
		same(t, "waits", x.Len(), 2)
	})
}

// Many waits that begin or look at once share few transactions, with rests in between, and a job
// that is told does not wait until all others have looked.
func TestManyWaits(t *testing.T) {
	run(t, func(x *test) {
		const n = 100_000
		var waits []*asked
		for i := range int64(n) {
			x.store.begin(i)
			waits = append(waits, x.wait(i, time.Hour))
		}
		began := time.Now()
		const pages = n / lookPage
		for x.store.reads() < pages {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took < 2*pages*x.store.latency*9/10 {
			t.Errorf("all looked within %v, without rests", took)
		}
		time.Sleep(time.Second)
		if reads := x.store.reads(); reads > pages+2 {
			t.Errorf("%d reads, want %d full ones", reads, pages)
		}

		x.LookAll()
		x.LookAll()
		x.store.end(n-1, 7)
		x.Told([]fdbpq.QueueJob{jobOf(n - 1)})
		time.Sleep(soon)
		same(t, "the job that was told", waits[n-1].told(), "[7]")
	})
}

// However many are told one after the other, those that look again have their turn.
func TestToldDoNotStarveOthers(t *testing.T) {
	run(t, func(x *test) {
		for i := range int64(4 * lookPage) {
			x.store.begin(i)
			x.wait(i, time.Hour)
		}
		missed := x.wait(4*lookPage, time.Hour)
		x.store.begin(4 * lookPage)
		time.Sleep(time.Second)

		x.store.end(4*lookPage, 7)
		x.LookAll()
		for range 100 {
			for i := range int64(4 * lookPage) {
				x.Told([]fdbpq.QueueJob{jobOf(i)})
			}
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		same(t, "the job that nobody told", missed.told(), "[7]")
	})
}

func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
