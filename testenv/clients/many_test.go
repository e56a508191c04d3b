package clients_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

var ops = flag.Int("ops", harness.Times(1_000, 20_000), "jobs in each language, for TestManyJobs")

// The load of TestManyJobs.
const (
	manyWorkers = 3     // processes
	manyAtOnce  = "32"  // jobs of each of them
	manyPushed  = 100   // jobs of a push
	manyBacklog = 2_000 // jobs that are pushed and not done, at most
	manyLease   = 2 * time.Second
	manyPause   = 4 * time.Second // between two faults, at most; less in short runs
	manyShort   = 20_000          // jobs of a short run, or fewer
	manyDeliver = 25              // many, because deliveries that reach nobody count
)

// Processes in each language do every job, and have its effect once by its id, while they are
// killed and stopped, and NATS and the bridge are restarted. The process that pushes is killed and
// stopped too. There are -ops jobs or more, until each fault was there once.
func TestManyJobs(t *testing.T) {
	harness.OnlyClients(t)
	for _, l := range []language{inGo, inJavaScript, inPython, inJava} {
		t.Run(l.name, func(t *testing.T) {
			l.mustRun(t)
			t.Parallel()
			m := &manyJobs{
				story:  &story{T: t, language: l},
				done:   map[string]bool{},
				counts: map[string]int{},
			}
			m.run()
		})
	}
}

// manyJobs is a system with processes that work on many jobs. All but its note is for one
// goroutine.
type manyJobs struct {
	*story
	jobs    *client.Queue
	workers []*driver
	pusher  *driver
	next    int      // worker to break
	ids     []string // of the jobs that are pushed
	batch   []int    // the jobs that are being pushed
	asked   *asked   // the push of these, nil before
	heal    func()   // ends the present fault, nil without one
	struck  int      // faults
	hearing sync.WaitGroup

	mu     sync.Mutex
	done   map[string]bool // the effect of each job, by its id
	counts map[string]int  // what happened
}

func (m *manyJobs) run() {
	begin := time.Now()
	m.begin(testenv.Options{Engine: testenv.Pebble()})
	m.jobs = m.all.PriorityQueue("jobs")
	must(m.jobs.Configure(m.Context(), client.Settings{
		MaxDeliver: manyDeliver,
		// The test repeats pushes until they count.
		DuplicateWindow: 24 * time.Hour,
		Keep:            24 * time.Hour,
		KeepItems:       1e9,
		Next:            []string{"effects"},
	}))
	for range manyWorkers {
		m.workers = append(m.workers, m.worker())
	}
	m.pusher = m.startOne()

	m.pushAll()
	m.drain()
	for _, d := range m.workers {
		d.signal(syscall.SIGTERM)
		d.exits()
	}
	m.pusher.kill()
	m.hearing.Wait()
	m.env.Bridge.MustStop()

	m.audit()
	m.Logf("%s, in %v: jobs: %d;%s", m.language.name, time.Since(begin).Round(time.Second),
		len(m.ids), m.happened())
}

// startOne starts a process whose requests are not answered for five seconds at most.
func (m *manyJobs) startOne() *driver { return m.start(m.language, "PQ_TIMEOUT=5s").isReady() }

// worker starts a process that works, and notes what it says.
func (m *manyJobs) worker() *driver {
	d := m.startOne()
	m.hearing.Go(func() {
		for isOver := false; !isOver; {
			select {
			case <-d.changed:
			case <-d.done:
				isOver = true
			}

			d.mu.Lock()
			heard := d.heard
			d.heard = nil
			d.mu.Unlock()
			for _, e := range heard {
				m.note(e)
			}
		}
	})
	d.ask("work", in{"concurrency": manyAtOnce, "ackWait": manyLease.String()})
	return d
}

// note has the effect of a job that a handler has done, unless it was there before.
func (m *manyJobs) note(e event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case e.Event != "end":
	case e.How != "done":
		m.counts["runs that were "+e.How]++
	case m.done[e.Job]:
		m.counts["effects suppressed by the id"]++
	default:
		m.done[e.Job] = true
	}
}

// undone is how many jobs were pushed and are not known to be done or meant to die.
func (m *manyJobs) undone() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.ids) - len(m.done) - deadOf(len(m.ids))
}

// pushAll pushes all jobs, while faults come and go.
func (m *manyJobs) pushAll() {
	faults := m.faults()
	isShort := *ops <= manyShort
	pause := func() <-chan time.Time {
		d := manyPause * time.Duration(1+m.struck*7919%8) / 8
		if isShort {
			d /= 4
		}
		if m.heal != nil {
			d += manyLease // so that leases run out
		}
		return time.After(d)
	}

	for turn := pause(); len(m.ids) < *ops || m.struck < len(faults) || m.heal != nil; {
		var answered chan answer
		enough := *ops
		if isShort { // some between each two faults
			enough = *ops * (m.struck + 1) / len(faults)
		}
		if m.asked == nil && len(m.ids) < enough && m.undone() < manyBacklog {
			m.ask()
		}
		if m.asked != nil {
			answered = m.asked.is
		}

		select {
		case is := <-answered:
			m.asked = nil
			m.pushed(is)
		case <-m.pusher.done:
			m.Fatalf("%s has ended: %v", m.pusher.name, m.pusher.err)
		case <-turn:
			if m.heal != nil {
				m.heal()
				m.heal = nil
			} else {
				f := faults[m.struck%len(faults)]
				if m.struck++; m.struck%len(faults) == 0 {
					m.Logf("%d jobs and %d faults", len(m.ids), m.struck)
				}
				m.heal = f.strike()
				m.mu.Lock()
				m.counts["fault: "+f.name]++
				m.mu.Unlock()
			}
			turn = pause()
		case <-time.After(20 * time.Millisecond): // there may be room for more
		}
	}

	for m.asked != nil {
		is := m.asked.answer()
		m.asked = nil
		if m.pushed(is); m.batch != nil {
			m.ask()
		}
	}
}

// ask pushes the next jobs, or those of the last push once more.
func (m *manyJobs) ask() {
	for n := range manyPushed {
		if len(m.batch) < manyPushed {
			m.batch = append(m.batch, len(m.ids)+n)
		}
	}
	var items []in
	for _, n := range m.batch {
		items = append(items, in{
			"value": manyValue(n), "msgId": fmt.Sprint("job-", n), "priority": fmt.Sprint(n % 5),
		})
	}
	m.asked = m.pusher.ask("pushMany", in{"items": items})
}

// pushed notes the ids of a push, unless some of its jobs may not be there.
func (m *manyJobs) pushed(is answer) {
	var ids []string
	results, _ := is.Value.([]any)
	for _, r := range results {
		if id, ok := r.(map[string]any)["id"].(string); ok {
			ids = append(ids, id)
		}
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	if len(ids) < len(m.batch) {
		m.counts["pushes repeated"]++
		return
	}
	m.ids, m.batch = append(m.ids, ids...), nil
}

// manyFault is a way to break something. strike returns what mends it, nil for nothing.
type manyFault struct {
	name   string
	strike func() (heal func())
}

func (m *manyJobs) faults() []manyFault {
	// Another worker each time.
	kill := func() {
		m.next++
		at := m.next % manyWorkers
		m.workers[at].kill()
		m.workers[at] = m.worker()
	}
	stop := func(d *driver) (goOn func()) {
		d.signal(syscall.SIGSTOP)
		return func() { d.signal(syscall.SIGCONT) }
	}
	stopWorker := func() (goOn func()) {
		m.next++
		return stop(m.workers[m.next%manyWorkers])
	}

	return []manyFault{
		{"worker killed (SIGKILL)", func() func() {
			kill()
			return nil
		}},
		{"worker stopped (SIGSTOP) for longer than its leases", stopWorker},
		{"process that pushes killed (SIGKILL)", func() func() {
			m.pusher.kill()
			m.asked = nil
			m.pusher = m.startOne()
			return nil
		}},
		{"worker killed (SIGKILL) while another is stopped", func() func() {
			goOn := stopWorker()
			kill()
			return goOn
		}},
		{"NATS server restarted", func() func() {
			m.env.NATS.Restart()
			return nil
		}},
		{"process that pushes stopped (SIGSTOP)", func() func() { return stop(m.pusher) }},
		{"worker ended (SIGTERM), another started", func() func() {
			m.next++
			at := m.next % manyWorkers
			m.workers[at].signal(syscall.SIGTERM)
			m.workers[at].exits()
			m.workers[at] = m.worker()
			return nil
		}},
		{"bridge ended, another started", func() func() {
			_ = m.env.Bridge.Stop() // NATS may have been away for some replies
			m.env.Bridge = m.env.StartBridge()
			m.env.Bridge.WaitReady()
			return nil
		}},
	}
}

// drain waits until nothing is left in the queue, as long as that gets less.
func (m *manyJobs) drain() {
	least, deadline := int64(math.MaxInt64), time.Now().Add(testenv.Patience)
	for {
		info, err := m.jobs.Info(m.Context())
		if err == nil {
			left := info.Ready + info.Leased + info.Delayed
			if left == 0 {
				return
			}
			if left < least {
				least, deadline = left, time.Now().Add(testenv.Patience)
			}
		}
		if time.Now().After(deadline) {
			m.Fatalf("%d jobs are left, %v", least, err)
		}
		<-time.After(50 * time.Millisecond)
	}
}

// audit compares what is in the store with what was pushed and done.
func (m *manyJobs) audit() {
	ctx := context.Background()
	number, kept := map[string]int{}, make([]bool, len(m.ids))
	for n, id := range m.ids {
		number[id] = n
	}
	if len(number) != len(m.ids) {
		m.Errorf("%d jobs have %d ids", len(m.ids), len(number))
	}
	numberOf := func(id string) int {
		n, isThere := number[id]
		if !isThere {
			m.Fatalf("job %s is there, and nobody was told of its push", id)
		}
		return n
	}

	m.each(ctx, "jobs", fdbpq.Done, func(i *fdbpq.Browsed) {
		id := i.Job().String()
		n := numberOf(id)
		text := fmt.Sprint(n)
		isOwn := b64(string(i.Message.Value)) == manyValue(n) && string(i.Finished.Result) == text
		if kept[n] || diesOf(n) != "" || !m.done[id] || !isOwn {
			m.Errorf("job %d, %s, is done with the result %q; effect: %t, kept before: %t",
				n, i.Message.Value, i.Finished.Result, m.done[id], kept[n])
		}
		kept[n] = true
	})
	dead := 0
	m.each(ctx, "jobs-dead", fdbpq.AnyState, func(i *fdbpq.Browsed) {
		id := i.Job().String()
		n := numberOf(id)
		why := i.Message.DeadLetter.Reason
		if kept[n] || diesOf(n) != why || m.done[id] {
			m.Errorf("job %d is a dead letter, because of %q; effect: %t", n, why, m.done[id])
		}
		kept[n] = true
		dead++
	})

	effects := map[string]bool{}
	m.each(ctx, "effects", fdbpq.AnyState, func(i *fdbpq.Browsed) {
		text := string(i.Message.Value)
		if effects[text] {
			m.Errorf("the acknowledgement of job %s has pushed twice", text)
		}
		effects[text] = true
	})
	for n := range m.ids {
		if !kept[n] {
			m.Errorf("job %d, %s, is lost; effect: %t", n, m.ids[n], m.done[m.ids[n]])
		}
		if want := diesOf(n) == "" && hasSuccessor(n); effects[fmt.Sprint(n)] != want {
			m.Errorf("job %d has pushed a successor: %t, want %t", n, !want, want)
		}
		delete(effects, fmt.Sprint(n))
	}
	for text := range effects {
		m.Errorf("a successor that nobody pushed: %q", text)
	}

	if _, err := fdbpqtest.CheckInvariants(ctx, m.env.DB, subjects.DefaultPriorityPrefix,
		subjects.DefaultFIFOPrefix); err != nil {
		m.Errorf("the store: %v", err)
	}
	m.counts["done"], m.counts["dead letters"] = len(m.done), dead
}

// each tells of all items of a queue in a state.
func (m *manyJobs) each(
	ctx context.Context, queue string, state fdbpq.ItemState, tell func(*fdbpq.Browsed),
) {
	m.Helper()
	q := must(m.env.Keyspace.PriorityQueue(queue))
	if err := fdbpqtest.Each(ctx, m.env.DB, q, state, tell); err != nil {
		m.Fatal(err)
	}
}

// happened is what happened, as .ci/soak reads it.
func (m *manyJobs) happened() string {
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(m.counts)) {
		fmt.Fprintf(&b, " %s: %d;", what, m.counts[what])
	}
	return b.String()
}

// diesOf returns why a job becomes a dead letter; "" if it is done.
func diesOf(n int) string {
	switch n % 200 {
	case 7, 107:
		return "no use for it"
	case 57:
		return "max_deliver"
	}
	return ""
}

// deadOf is how many of the first n jobs die.
func deadOf(n int) int {
	dead := n / 200 * 3
	for i := n / 200 * 200; i < n; i++ {
		if diesOf(i) != "" {
			dead++
		}
	}
	return dead
}

// hasSuccessor reports whether the acknowledgement of a job pushes another.
func hasSuccessor(n int) bool { return n%4 == 1 }

// manyValue is the value of a job: most take no time, some half a second or less, few longer than a
// lease, and very few keep everything else in their process from running for a quarter of one.
func manyValue(n int) string {
	var steps []step
	switch {
	case diesOf(n) == "max_deliver":
		return do(step{"retry", "10ms", "not now"})
	case diesOf(n) != "":
		return do(step{"drop", diesOf(n)})
	case n%5000 == 903:
		steps = append(steps, step{"block", (manyLease / 4).String()})
	case n%500 == 303:
		steps = append(steps, step{"wait", (2 * manyLease).String()})
	case n%100 == 3:
		steps = append(steps, step{"wait", "500ms"})
	case n%50 == 11:
		steps = append(steps, step{"thread"}, step{"wait", "5ms"})
	case n%5 == 0:
		steps = append(steps, step{"wait", fmt.Sprint(n%20, "ms")})
	}
	if hasSuccessor(n) {
		steps = append(steps, step{"next", "effects", b64(fmt.Sprint(n))})
	}
	return do(append(steps, step{"return", b64(fmt.Sprint(n))})...)
}
