package dispatch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

func TestMain(m *testing.M) { harness.Main(m, testenv.FDBGoroutines()...) }

// fleet has processes that count on one store, with clocks that the test sets. They do nothing by
// themselves.
type fleet struct {
	*testing.T
	db       kv.Database
	keyspace *fdbpq.Keyspace
	now      time.Time

	mu      sync.Mutex
	members map[string]bool // those that the others see
	warned  int
}

// process is one of them.
type process struct {
	*fleet
	*dispatch.Dispatcher
	id    string
	ahead time.Duration // of the time of the fleet
}

// sharedDB is a store that processes share.
type sharedDB struct{ kv.Database }

func (sharedDB) Traits() kv.Traits { return kv.Traits{Shared: true} }

// onEach runs a test on each engine, as a store that processes share.
func onEach(t *testing.T, test func(f *fleet)) {
	testenv.Each(t, func(t *testing.T, e testenv.Engine) {
		f := newFleet(t, sharedDB{e.Open(t)})
		test(f)
		f.checkStore()
		if f.warned > 0 {
			t.Errorf("%d warnings", f.warned)
		}
	})
}

func newFleet(t *testing.T, db kv.Database) *fleet {
	keyspace, err := fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
	if err != nil {
		t.Fatal(err)
	}
	return &fleet{
		T: t, db: db, keyspace: keyspace, members: map[string]bool{},
		now: time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC),
	}
}

// start starts a process. As a bridge does, it looks at once.
func (f *fleet) start(id string, ahead time.Duration) *process {
	p := &process{fleet: f, id: id, ahead: ahead}
	p.Dispatcher = dispatch.New(dispatch.Options{
		DB: f.db, Keyspace: f.keyspace, ID: id, MetricQueues: 100,
		Now:    func() time.Time { return f.now.Add(p.ahead) },
		Limits: dispatch.Limits{Lanes: 1, RequestTimeout: time.Minute},
		Member: func(id string) bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.members[id]
		},
		Warn: func(message string, args ...any) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.warned++
			f.Log(id, message, args)
		},
	})
	f.members[id] = true
	p.save()
	return p
}

// kill ends the process. The others notice.
func (p *process) kill() { p.members[p.id] = false }

// push counts pushes to a queue.
func (p *process) push(queue string, n int64) {
	p.Helper()
	q, err := p.Queue(subjects.Priority, queue)
	if err != nil {
		p.Fatal(err)
	}
	p.Count(q, subjects.Traffic{In: n})
}

// save does what the process does when a minute with traffic is over.
func (p *process) save() { p.SaveTrafficNow(context.Background()) }

// settle saves until that succeeds.
func (p *process) settle() {
	for p.warned = 1; p.warned > 0; {
		p.warned = 0
		p.save()
	}
}

// pass lets time pass.
func (f *fleet) pass(d time.Duration) { f.now = f.now.Add(d) }

// want asks the process, and expects that many pushes in the last hour and day, of a queue and in
// total: all pushes are to one queue.
func (p *process) want(hour, day int64) {
	p.Helper()
	total, queues, _ := p.Traffic(10)
	if total.Hour.In != hour || total.Day.In != day {
		p.Errorf("%s at %s: %d in the last hour and %d in the last day, want %d and %d", p.id,
			p.now.Format(time.TimeOnly), total.Hour.In, total.Day.In, hour, day)
	}
	for _, q := range queues {
		if q.Hour != total.Hour || q.Day != total.Day {
			p.Errorf("%s: %+v of the queue, %+v in total", p.id, q.Windows, total)
		}
	}
}

// wantCounted expects that many pushes in metrics.
func (p *process) wantCounted(want int64) {
	p.Helper()
	shown, rest := p.Counted()
	for _, q := range shown {
		rest.Add(&q.Traffic)
	}
	if total, _, _ := p.Traffic(0); rest.In != want || total.In != want {
		p.Errorf("%s: metrics have %d, the count since the start is %d, want %d", p.id, rest.In,
			total.In, want)
	}
}

// wantSince expects that nothing is missing since a minute.
func (p *process) wantSince(since time.Time) {
	p.Helper()
	since = since.Truncate(time.Minute)
	_, q, known := p.TrafficOf(subjects.Priority, "jobs")
	if !known || !q.Since.Equal(since) || !p.TrafficSince().Equal(since) {
		p.Errorf("%s: since %s and %s, want %s", p.id, q.Since, p.TrafficSince(), since)
	}
}

// checkStore checks that all rows in the store are named in exactly one record, and that there is
// nothing else below their keys.
func (f *fleet) checkStore() {
	f.Helper()
	named, rows := map[string]int{}, map[string]bool{}
	for _, pair := range f.stored() {
		key, err := tuple.Unpack(pair.Key)
		if err == nil && len(key) == 7 {
			rows[key[3].(string)] = true
			continue
		}

		var record struct {
			Rows map[string]int64 `json:"rows"`
		}
		if err != nil || len(key) != 4 || json.Unmarshal(pair.Value, &record) != nil {
			f.Errorf("key %q, value %s: %v", pair.Key, pair.Value, err)
		}
		for id := range record.Rows {
			named[id]++
		}
	}
	for id := range rows {
		if named[id] != 1 {
			f.Errorf("the rows of %s are in %d records, want 1", id, named[id])
		}
	}
	for id := range named {
		if !rows[id] {
			f.Errorf("a record names %s, which has no rows", id)
		}
	}
}

// What a bridge counted before the last minute outlives it. Another one has it within three
// minutes, with the times at which it happened, and passes it on when it is killed itself. Metrics
// show none of it.
func TestCountsOfAKilledBridge(t *testing.T) {
	onEach(t, func(f *fleet) {
		began := f.now
		a, b, c := f.start("a", 0), f.start("b", 0), f.start("c", 0)
		a.push("jobs", 1)
		f.pass(time.Minute)
		a.save()
		a.push("jobs", 10)
		f.pass(time.Minute)
		a.save()
		a.push("jobs", 100) // in the minute in which it is killed
		a.want(111, 111)

		a.kill()
		f.pass(30 * time.Second)
		b.want(0, 0) // it has not been silent for two minutes
		f.pass(150 * time.Second)
		b.want(11, 11)
		c.want(0, 0)
		b.wantCounted(0)
		b.wantSince(began)

		b.push("jobs", 1000)
		b.wantCounted(1000)
		f.pass(time.Minute)
		b.save()
		b.kill()
		f.pass(3 * time.Minute)
		c.want(1011, 1011)
		c.wantCounted(0)

		// They leave the windows as if the bridge that counted them were there.
		f.now = began.Add(59 * time.Minute)
		c.want(1011, 1011)
		f.pass(time.Minute)
		c.want(1010, 1011)
		f.pass(time.Minute)
		c.want(1000, 1011)
		f.now = began.Add(23 * time.Hour)
		c.want(0, 1011)
		f.pass(time.Hour)
		c.want(0, 0)
	})
}

// Whoever starts on the store later has the counts of a whole day, however long each of many
// bridges ran.
func TestCountsOfADay(t *testing.T) {
	onEach(t, func(f *fleet) {
		total, began := int64(0), f.now
		for i := range 34 {
			p := f.start(fmt.Sprint(i), 0)
			for range 4 {
				p.push("jobs", 10)
				f.pass(10 * time.Minute)
				p.save()
				total += 10
			}
			p.EndTraffic(context.Background())
			p.kill()
		}
		last := f.start("last", 0)
		last.wantSince(began)
		last.want(50, total) // 60 minutes ago began the minute that the last hour no longer has

		f.pass(48 * time.Hour)
		last.want(0, 0)
		last.push("jobs", 1)
		f.pass(time.Minute)
		last.save()
		if n := len(f.stored()); n != 3 {
			f.Errorf("%d keys are left, want a record and the rows of a minute and its hour", n)
		}
	})
}

// stored returns what the store has of counts.
func (f *fleet) stored() []kv.KeyValue {
	all := kv.Range{Begin: f.keyspace.TrafficKey(0), End: f.keyspace.TrafficKey(2)}
	pairs, err := kv.ReadTransact(context.Background(), f.db,
		func(r kv.Reader) ([]kv.KeyValue, error) {
			return r.GetRange(all, kv.RangeOptions{}).Get()
		})
	if err != nil {
		f.Error(err)
	}
	return pairs
}

// Whatever a bridge saves within a minute, for example because somebody asks, it saves as well as
// what it saved before.
func TestCountsSavedTwiceInAMinute(t *testing.T) {
	onEach(t, func(f *fleet) {
		a := f.start("a", 0)
		for range 3 {
			a.push("jobs", 1)
			a.save()
		}
		a.kill()
		f.pass(3 * time.Minute)
		f.start("b", 0).want(3, 3)
	})
}

// A bridge that was frozen while another took over its counts has none of them any more: when it is
// asked or saves next, it begins anew. What it counts then is saved again.
func TestCountsOfAFrozenBridge(t *testing.T) {
	for name, finds := range map[string]func(a *process){
		"when asked":    func(a *process) { a.want(0, 0) },
		"when it saves": func(a *process) { a.save() },
		"after a day": func(a *process) {
			a.pass(24 * time.Hour)
			a.save()
			a.pass(-24 * time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(f *fleet) {
				a, b := f.start("a", 0), f.start("b", 0)
				a.push("jobs", 1)
				f.pass(time.Minute)
				a.save()

				f.members["a"] = false // it stands still
				f.pass(3 * time.Minute)
				b.want(1, 1)
				f.members["a"] = true

				finds(a)
				a.push("jobs", 10)
				f.pass(time.Minute)
				a.save()
				a.want(10, 10)
				b.want(1, 1)

				a.kill()
				f.pass(3 * time.Minute)
				b.want(11, 11)
				f.checkStore()
			})
		})
	}
}

// Of several bridges that look at the same time, one takes over the counts; none does if the bridge
// that has them goes on and is faster.
func TestRaceForCounts(t *testing.T) {
	onEach(t, func(f *fleet) {
		const bridges = 4
		sum := int64(0)
		for round := range 10 {
			a := f.start(fmt.Sprint("a", round), 0)
			a.push("jobs", 1)
			f.pass(time.Minute)
			a.save()
			a.kill()

			racers := []*process{a}
			for i := range bridges {
				racers = append(racers, f.start(fmt.Sprint("r", round, "-", i), 0))
			}
			f.pass(3 * time.Minute)
			a.push("jobs", 1)

			var looking sync.WaitGroup
			for _, p := range racers {
				looking.Go(p.save)
			}
			looking.Wait()

			before := sum
			sum = 0
			for _, p := range racers {
				total, _, _ := p.Traffic(0)
				sum += total.Day.In
				p.kill()
			}
			// The bridge has not saved the second, and drops it if it is not faster.
			if counted := sum - before; counted < 1 || counted > 2 {
				f.Fatalf("round %d: %d of 2 are counted", round, counted)
			}
			f.checkStore()
			f.pass(3 * time.Minute)
		}
	})
}

// hookedDB is a store that calls a test once before a commit.
type hookedDB struct {
	kv.Database
	commits *func()
}

type hookedTransaction struct {
	kv.Transaction
	commits *func()
}

func (db hookedDB) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	tx, err := db.Database.Begin(ctx, o)
	return hookedTransaction{tx, db.commits}, err
}

func (tx hookedTransaction) Commit() kv.Future[struct{}] {
	if hook := *tx.commits; hook != nil {
		*tx.commits = nil
		hook()
	}
	return tx.Transaction.Commit()
}

// A bridge that goes on just while another takes over its counts saves nothing that nobody has. On
// the embedded store, transactions do not overlap.
func TestCountsTakenDuringASave(t *testing.T) {
	for _, e := range []testenv.Engine{testenv.Mem(), {Name: "fdb", Open: testenv.FDB}} {
		t.Run(e.Name, func(t *testing.T) {
			var hook func()
			f := newFleet(t, hookedDB{e.Open(t), &hook})
			a, b := f.start("a", 0), f.start("b", 0)
			a.push("jobs", 1)
			f.pass(time.Minute)
			a.save()
			f.members["a"] = false
			f.pass(3 * time.Minute)

			a.push("jobs", 10)
			hook = b.save
			a.save()
			f.checkStore()
			a.want(0, 0)
			b.want(1, 1)
		})
	}
}

// Whatever the clocks of bridges say, nothing is lost or counted twice. What was counted in the
// future counts as of now.
func TestCountsAndClocks(t *testing.T) {
	for _, ahead := range []time.Duration{
		-30 * time.Hour, -10 * time.Minute, 90 * time.Second, 10 * time.Minute, 30 * time.Hour,
	} {
		t.Run(ahead.String(), func(t *testing.T) {
			onEach(t, func(f *fleet) {
				a, b := f.start("a", ahead), f.start("b", 0)
				a.push("jobs", 1)
				b.push("jobs", 10)
				f.pass(time.Minute)
				a.save()
				b.save()
				a.want(1, 1)

				a.kill()
				f.pass(max(ahead, 0) + 3*time.Minute)
				hour, day := int64(11), int64(11)
				if ahead > time.Hour || ahead < -time.Hour {
					hour, day = 0, 0 // more than a day has passed, by the one clock or the other
				}
				if ahead > time.Hour {
					hour, day = 1, 1
				}
				if ahead < -time.Hour {
					hour, day = 10, 10
				}
				b.want(hour, day)
			})
		})
	}
}

// In a store that only one process uses, the next one has the counts at once, also if the last one
// was killed; and in any store if it has ended in order, with what it counted in its last minute.
func TestCountsAfterARestart(t *testing.T) {
	testenv.Each(t, func(t *testing.T, e testenv.Engine) {
		f := newFleet(t, e.Open(t))
		began := f.now
		a := f.start("a", 0)
		a.push("jobs", 1)
		f.pass(time.Minute)
		a.save()
		a.push("jobs", 10)
		a.EndTraffic(t.Context())
		a.kill()

		b := f.start("b", 0)
		b.want(11, 11)
		b.wantCounted(0)
		b.wantSince(began)
		b.push("jobs", 100)
		f.pass(time.Minute)
		b.save()
		b.push("jobs", 1000) // lost
		b.kill()

		c := f.start("c", 0)
		if f.db.Traits().Shared {
			c.want(0, 0)
			f.pass(2 * time.Minute)
		}
		c.want(111, 111)
		f.checkStore()
	})
}

// Whatever is made of commits of unknown outcome, a bridge saves everything once. It tries again
// when the next minute is over.
func TestCountsAndUnknownCommits(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			db := faultkv.New(memkv.New(memkv.Options{}), faultkv.Options{
				Seed: seed, Rates: map[faultkv.Fault]float64{
					faultkv.UnknownLost: 0.2, faultkv.UnknownMade: 0.2, faultkv.Conflict: 0.1,
					faultkv.UnknownBeforeNext: 0.1, faultkv.UnknownDuringNext: 0.1,
				},
			})
			f, total := newFleet(t, db), int64(0)
			for i := range 7 {
				p := f.start(fmt.Sprint(i), 0)
				p.settle()
				for range 5 {
					p.push("jobs", 1)
					total++
					f.pass(time.Minute)
					p.save()
				}
				p.settle()
				p.want(total, total)
				p.kill()
				f.pass(3 * time.Minute)
			}
			last := f.start("last", 0)
			last.settle()
			last.want(total, total)
			f.checkStore()
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// unsureDB is a store that makes all commits and never says so, while the test wants that.
type unsureDB struct {
	kv.Database
	unsure *bool
}

type unsureTransaction struct {
	kv.Transaction
	unsure *bool
}

func (db unsureDB) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	tx, err := db.Database.Begin(ctx, o)
	return unsureTransaction{tx, db.unsure}, err
}

func (tx unsureTransaction) Commit() kv.Future[struct{}] {
	if done := tx.Transaction.Commit(); !*tx.unsure {
		return done
	}
	return kv.Ready(struct{}{}, kv.ErrCommitUnknown)
}

// A bridge that cannot know whether it has saved anything finds out that another has its counts.
func TestCountsOfUnknownFate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unsure := false
		f := newFleet(t, sharedDB{unsureDB{memkv.New(memkv.Options{}), &unsure}})
		b := f.start("b", 0)
		unsure = true
		a := f.start("a", 0)
		a.push("jobs", 1)
		a.save()
		unsure = false
		a.kill()
		f.pass(3 * time.Minute)
		b.want(1, 1)

		a.push("jobs", 10)
		a.save()
		a.want(0, 0)
		a.push("jobs", 100)
		f.pass(time.Minute)
		a.save()
		a.want(100, 100)
		f.checkStore()
	})
}

// failingDB is a store that fails while the test says so.
type failingDB struct {
	kv.Database
	down *bool
}

func (db failingDB) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	if *db.down {
		return nil, kv.ErrUnavailable
	}
	return db.Database.Begin(ctx, o)
}

// While the store is away, a bridge goes on counting. It saves that, and takes over what it may,
// once the store is back.
func TestCountsAfterAnOutage(t *testing.T) {
	onEach(t, func(f *fleet) {
		a, down := f.start("a", 0), true
		a.push("jobs", 1)
		f.pass(time.Minute)
		a.save()
		a.kill()

		f.db = failingDB{f.db, &down}
		b := f.start("b", 0)
		for range 3 {
			b.push("jobs", 10)
			f.pass(time.Minute)
			b.save()
		}
		b.want(30, 30)
		if f.warned != 4 {
			f.Errorf("%d warnings, want one for each of 4 looks", f.warned)
		}
		f.warned, down = 0, false

		f.pass(time.Minute)
		b.want(31, 31)
		b.kill()
		f.pass(3 * time.Minute)
		f.start("c", 0).want(31, 31)
	})
}

// Bridges start, end, are killed and freeze at random: afterwards each item is counted once by one
// of those that are there.
func TestCountsAreCountedOnce(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	onEach(t, func(f *fleet) {
		random := rand.New(rand.NewPCG(seed, 0))
		var there []*process
		var thaws []*process // frozen
		total, started := int64(0), 0
		begin := func() {
			there = append(there, f.start(fmt.Sprint(started), 0))
			started++
		}
		begin()
		for range 300 {
			i := random.IntN(len(there))
			p := there[i]
			switch random.IntN(8) {
			case 0:
				begin()
			case 1: // what is saved is not lost
				p.save()
				p.kill()
				there = append(there[:i], there[i+1:]...)
			case 2:
				p.EndTraffic(f.Context())
				p.kill()
				there = append(there[:i], there[i+1:]...)
			case 3:
				p.save()
				p.kill()
				there, thaws = append(there[:i], there[i+1:]...), append(thaws, p)
			case 4:
				for _, p := range thaws {
					f.members[p.id] = true
					p.save()
				}
				there, thaws = append(there, thaws...), nil
			default:
				p.push(fmt.Sprint("q", random.IntN(3)), 1)
				total++
				f.pass(20 * time.Second)
				p.save()
			}
			if len(there) == 0 {
				begin()
			}
		}

		sum := int64(0)
		for range 3 {
			f.pass(2 * time.Minute)
			for _, p := range there {
				p.save()
			}
		}
		for _, p := range there {
			all, queues, _ := p.Traffic(10)
			sum += all.Day.In
			for _, q := range queues {
				all.Day = all.Day.Since(&q.Day)
			}
			if all.Day != (subjects.Traffic{}) {
				f.Errorf("%+v are in no queue", all.Day)
			}
		}
		if sum != total {
			f.Errorf("seed %d: %d are counted, want %d", seed, sum, total)
		}
	})
}

// With more queues than a bridge counts by themselves, the next one knows that it does not know
// all.
func TestCountsOfManyQueues(t *testing.T) {
	onEach(t, func(f *fleet) {
		a := f.start("a", 0)
		for i := range 2100 {
			a.push(fmt.Sprint("tenant-", i), 1)
		}
		a.EndTraffic(f.Context())
		a.kill()

		b := f.start("b", 0)
		total, queues, more := b.Traffic(3000)
		if total.Day.In != 2100 || len(queues) != 2000 || !more {
			f.Errorf("%d of %d queues, more: %v", total.Day.In, len(queues), more)
		}
		if _, _, known := b.TrafficOf(subjects.Priority, "tenant-2099"); known {
			f.Error("a queue that was counted with others is known")
		}
	})
}

// Names of any bytes that a queue may have, as many and as long as can be, fit into the store.
func TestCountsOfLongNames(t *testing.T) {
	onEach(t, func(f *fleet) {
		a := f.start("a", 0)
		for i := range 2000 {
			name := fmt.Sprint(i, string(bytes.Repeat([]byte("<"), 124)))
			a.push(name, 1<<62/2000)
		}
		a.EndTraffic(f.Context())
		a.kill()
		if total, queues, _ := f.start("b", 0).Traffic(3000); len(queues) != 2000 ||
			total.Day.In != 2000*(1<<62/2000) {
			f.Errorf("%d of %d queues", total.Day.In, len(queues))
		}
	})
}
