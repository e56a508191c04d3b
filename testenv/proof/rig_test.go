package proof_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
	"github.com/pqbridge/pqbridge/testenv/proof"
)

// fault is one way to break something. strike breaks it and returns when the cause is
// gone; the system may need longer to recover.
type fault struct {
	name   string
	strike func()
}

// rig is a system under test: a NATS server, bridges, a store.
type rig struct {
	t      *testing.T
	name   string
	seed   uint64
	random *rand.Rand
	tally  *tally

	env    *testenv.Env // its NATS server only
	leaf   string       // the address of its leaf node port
	toNATS *proxy       // for the clients
	// For the leaf node connections of bridges; nil without the JetStream face.
	toLeaf  *proxy
	faults  []fault
	timeout atomic.Int64 // nanoseconds that a client waits for an answer

	// See proof.History.
	oneByOne, mortal bool
	// skew is the most by which clocks of bridges are wrong.
	skew time.Duration
	// strobe is for how long a clock that jumps to and fro shows one time, at most.
	strobe time.Duration
	limits limits
	// patient: bridges answer each request, however long that takes.
	patient bool
	// unreadable: the store may fail to read, which requests are told with 500.
	unreadable bool
	// few and between replace the bank's unless they are 0.
	few, between int64
	bridges      int // how many there are
	// strangers: the bridges cannot talk to each other.
	strangers bool

	// measure measures the process of a bridge; nil if all are in this one.
	measure func() resources
	// stop ends the bridges in an orderly way and returns the store.
	stop func() kv.Database

	zero    time.Time // of the clock of the histories
	clients []*burster
	struck  int // faults so far
	share   int // see system
	rounds  int
	kept    []*proof.History // those that may have left something in the store
}

// clients in each round. More would make the search for an order slow.
const (
	clients   = 5
	requests  = 60 // of each client in a round, without those at its end
	maxFaults = 2  // in a round

	// maxSkew is the skew in systems whose clocks are wrong.
	maxSkew   = 40 * time.Millisecond
	maxStrobe = 20 * time.Millisecond

	// wideSkew is the skew where clocks are set by seconds: two of them are 5 s apart at most.
	wideSkew   = 2500 * time.Millisecond
	wideStrobe = 10 * time.Second

	// answerTime is how long a client waits for an answer.
	answerTime = 2 * time.Second
)

func newRig(t *testing.T, name string, seed uint64, y *tally) *rig {
	r := &rig{
		t: t, name: name, random: rand.New(rand.NewPCG(seed, 1)), tally: y,
		seed: seed, bridges: 1, strobe: maxStrobe,
	}

	r.timeout.Store(int64(answerTime))
	if r.random.IntN(2) == 0 {
		r.skew = maxSkew
	}

	r.env = testenv.New(t, testenv.Options{Stopped: true, NATS: r.natsOptions})
	r.env.NATS.Start()
	r.toNATS = newProxy(t, r.env.NATS.URL())

	r.faults = []fault{
		{"NATS server restarted", r.env.NATS.Restart},
		{"connections of clients cut", r.toNATS.cut},
		{"replies lost, then connections cut", func() { r.lose(r.toNATS, true) }},
		{"requests lost, then connections cut", func() { r.lose(r.toNATS, false) }},
	}

	return r
}

// clock returns the clock of another bridge. Half of those that are wrong jump to and fro.
func (r *rig) clock() clock {
	c := clock{Ahead: time.Duration(r.random.Int64N(int64(2*r.skew+1))) - r.skew}
	if r.random.IntN(2) == 0 {
		c.Strobe = time.Millisecond + time.Duration(r.random.Int64N(int64(r.strobe)))
	}

	switch {
	case c.Ahead == 0:
	case c.Strobe == 0:
		r.tally.add("fault: clock wrong", 1)
	default:
		r.tally.add("fault: clock jumps to and fro", 1)
	}
	return c
}

// lineOfBridges returns a proxy for the connections of bridges to NATS, whose faults it adds.
func (r *rig) lineOfBridges() *proxy {
	p := newProxy(r.t, r.env.NATS.URL())
	r.faults = append(r.faults,
		fault{"connections of bridges cut", p.cut},
		fault{"what bridges hear lost, then their connections cut", func() { r.lose(p, true) }},
		fault{"what bridges say lost, then their connections cut", func() { r.lose(p, false) }},
		fault{"line of bridges still, one way or both, then all comes", func() {
			r.holdStill(p, time.Duration(harness.Times(1, 8))*answerTime/4)
		}},
	)

	return p
}

// again returns the command that reproduces the run up to this round.
func (r *rig) again() string {
	test, kind, _ := strings.Cut(r.t.Name(), "/")
	switch {
	case test != "TestVerify":
	case strings.Contains(kind, "/histories/"):
		test = "TestProof"
	default:
		test = "TestAccounts"
	}

	return fmt.Sprintf("go test %s-count=1 -timeout 0 -run '^%s$/^%s$' ./testenv/proof "+
		"-seed %d -rounds %d -ops %d -calm=%t",
		tagFlags, test, r.name, r.seed, r.rounds*r.share, flags.ops, flags.calm)
}

// requestTimeout returns after how long a bridge gives a request up.
func (r *rig) requestTimeout(usually time.Duration) time.Duration {
	if r.patient {
		return patience
	}
	return usually
}

// natsOptions keeps the bridges of about half of the systems from talking to each
// other, so that they pop from the same queues at the same time.
func (r *rig) natsOptions(o *server.Options) {
	r.leaf = openLeafPort(r.t, o)
	if r.strangers = r.random.IntN(2) == 0; r.strangers {
		keepApart(o)
	}
}

// keepApart keeps bridges from talking to each other.
func keepApart(o *server.Options) {
	between := &server.SubjectPermission{Deny: []string{"_pqbridge.>"}}
	o.Users = []*server.User{{
		Username: "all", Password: "all",
		Permissions: &server.Permissions{Publish: between, Subscribe: between},
	}}

	o.NoAuthUser = "all"
}

// lose drops what the server says through a proxy, or what is said to it, then cuts its
// connections. If all clients have ended, there may be nothing to lose.
func (r *rig) lose(p *proxy, fromServer bool) {
	swallowed := p.deafen(fromServer)
	select {
	case <-swallowed:
		r.hold(answerTime / 4)
	case <-time.After(answerTime / 2):
	}

	p.hear()
}

// hold lets a fault last for a random part of d.
func (r *rig) hold(d time.Duration) {
	<-time.After(time.Duration(r.random.Int64N(int64(d))))
}

// holdStill holds up what goes through a proxy, one way or both, for a random part of d.
func (r *rig) holdStill(p *proxy, d time.Duration) {
	ways := 1 + r.random.IntN(3)
	for i := range p.still {
		if ways&(1<<i) != 0 {
			p.still[i].Lock()
			defer p.still[i].Unlock()
		}
	}
	r.hold(d)
}

// start connects the clients and waits until the system answers. Short runs have some of the
// faults.
func (r *rig) start() {
	r.random.Shuffle(len(r.faults),
		func(i, j int) { r.faults[i], r.faults[j] = r.faults[j], r.faults[i] })
	r.zero = time.Now()
	for i := range clients {
		c := r.newCaller(i, newLine(r.t, r.toNATS.url()))
		c.tight, c.calm = r.limits.tight(), len(r.faults) == 0
		r.clients = append(r.clients, newBurster(r.t, c))
	}

	r.clients[0].await()
	r.awaitJetStream()
}

// odometer counts requests and signals when a number of them is reached.
type odometer struct {
	mu    sync.Mutex
	count int
	marks map[int]chan struct{}
}

func (o *odometer) mark(at int) <-chan struct{} {
	reached := make(chan struct{})
	o.marks[at] = reached
	return reached
}

func (o *odometer) add() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.count++

	if reached := o.marks[o.count]; reached != nil {
		close(reached)
	}
}

// queuesOf returns the queues of a round.
func queuesOf(n int) []string {
	round := fmt.Sprint(n)
	return []string{"a-" + round, "g-" + round, "fifo-" + round, "fifo-g" + round, "o-" + round}
}

// round makes one history, with faults meanwhile, and checks it.
func (r *rig) round(faults int) {
	r.rounds++
	round := fmt.Sprint(r.rounds)
	queues := queuesOf(r.rounds)
	maxLeased := r.configure(queues)
	meter := &odometer{marks: map[int]chan struct{}{}}
	var marks []<-chan struct{}

	for i := range faults {
		marks = append(marks, meter.mark(10+i*100+r.random.IntN(100)))
	}

	open := &openPops{count: map[string]int{}}
	var running sync.WaitGroup

	for _, c := range r.clients {
		w := &workload{
			random: rand.New(rand.NewPCG(r.random.Uint64(), 2)),
			queues: queues,
			round:  round,
			tight:  r.limits.tight(),
			early:  2*(r.skew+books.ClockSlack) + 10*time.Millisecond,
		}
		running.Go(func() { c.run(w, open, meter) })
	}

	ended := make(chan struct{})
	go func() {
		running.Wait()
		close(ended)
	}()

	for _, mark := range marks {
		select {
		case <-mark:
			r.strike()
		case <-ended: // all clients have given up
		}
	}

	<-ended
	if !r.t.Failed() {
		r.awaitDue()
		r.drain(queues)
		r.check(queues, maxLeased)
	}
}

// strike makes the next fault.
func (r *rig) strike() {
	f := r.faults[r.struck%len(r.faults)]
	r.struck++
	f.strike()
	r.tally.add("fault: "+f.name, 1)
}

// breakThings makes faults, with pauses of random length, until there were enough.
func (r *rig) breakThings(pause time.Duration, enough func() bool) {
	for !r.t.Failed() && !enough() {
		r.hold(pause)
		r.strike()
	}
}

// awaitDue waits until everything that is held should have fallen due.
func (r *rig) awaitDue() {
	var due int64
	for _, c := range r.clients {
		for i := range c.ops {
			op := &c.ops[i]
			due = max(due, op.Until, op.Return+op.Delay)

			if op.JetStream && op.Outcome == books.Lost || op.Kind == books.Extend {
				due = max(due, op.Return+int64(dueTime)+op.Delay+op.Wait)
			}

			if op.Untold() > 0 {
				due = max(due, op.Return+op.Expires+op.Wait)
			}

			for _, item := range op.Items {
				due = max(due, item.Until)
			}
		}
		c.grips, c.fresh = nil, nil
	}

	<-time.After(time.Until(r.zero.Add(time.Duration(due) + 2*r.skew + 20*time.Millisecond)))
}

// drain pops until the queues are empty.
func (r *rig) drain(queues []string) {
	var running sync.WaitGroup
	pushed := map[string][]books.Operation{}
	for _, c := range r.clients {
		for _, op := range c.ops {
			if op.Kind == books.Push && op.Outcome == books.Done {
				pushed[op.Queue] = append(pushed[op.Queue], op)
			}
		}
	}

	for i, queue := range queues {
		c := r.clients[i]
		running.Go(func() {
			if books.IsTraced(queue) {
				r.settleAll(c, queue, pushed[queue])
				return
			}
			for !r.t.Failed() {
				op := c.do(books.Operation{Queue: queue, Kind: books.PopMin}, 0)
				if op.Outcome == books.Empty {
					return
				}

				if broken(op) {
					c.await()
				}
			}
		})
	}

	running.Wait()
}

// checkTimeout is how long the check of one queue may take, which is a second at most if the
// machine is not busy. If it takes longer, the queue is undecided and the test fails.
const checkTimeout = 5 * patience

func (r *rig) check(queues []string, maxLeased map[string]int) {
	h := &proof.History{
		Name:      fmt.Sprintf("%s-%d", r.name, r.rounds),
		Again:     r.again(),
		OneByOne:  r.oneByOne,
		Mortal:    r.mortal,
		Skew:      int64(r.skew),
		MaxLeased: maxLeased,
	}

	for _, c := range r.clients {
		h.Operations = append(h.Operations, c.ops...)
		c.ops = nil
	}

	r.tally.add("histories", 1)
	r.tally.add("queues of histories", len(queues))

	for i := range h.Operations {
		r.tally.operation(&h.Operations[i], 1)
	}

	if err := h.Check(checkTimeout); err != nil {
		r.wrong(h, err)
	} else if flags.keep != "" {
		must(r.t, h.Keep(flags.keep))
	}

	if !h.Settled() {
		r.kept = append(r.kept, h)
	}
}

// wrong reports a history that has a fault or is undecided.
func (r *rig) wrong(h *proof.History, err error) {
	r.t.Helper()
	path := filepath.Join(flags.out,
		fmt.Sprintf("history-%s-%d.json", h.Name, time.Now().UnixNano()))
	pages, visualErr := h.Visualize(path, checkTimeout)

	r.t.Errorf(
		"%v\nhistory: %s\npages: %s\ncheck the history again: go test -run '^TestFile$' "+
			"./testenv/proof -history %s\nmake a similar one: %s",
		err,
		path,
		strings.Join(pages, " "),
		path,
		h.Again,
	)
	if err := errors.Join(h.Write(path), visualErr); err != nil {
		r.t.Errorf("the history could not be written: %v", err)
	}
}

// shut ends the system, and returns its store and a context for using it.
func (r *rig) shut(timeout time.Duration) (context.Context, kv.Database) {
	for _, c := range r.clients {
		c.line.close()
	}

	db := r.stop()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	r.t.Cleanup(cancel)
	r.scan(ctx, db, -1)

	return ctx, db
}

// finish ends the system and checks what it left in its store.
func (r *rig) finish() {
	ctx, db := r.shut(patience)
	<-time.After(maxWait + answerTime) // for what leases of unknown outcome hold
	left := map[string][]books.Item{}

	for round := range r.rounds {
		for _, queue := range queuesOf(round + 1) {
			must(r.t, empty(ctx, db, queue, func(item *fdbpq.Item) {
				if books.IsTraced(queue) { // a lease of unknown outcome may have held it
					return
				}
				left[queue] = append(left[queue],
					books.Item{Value: numberOf(item), ID: item.ID.String()})
			}))
		}
	}

	r.scan(ctx, db, 0)
	for _, h := range r.kept {
		if err := h.CheckLeft(left); err != nil {
			r.wrong(h, err)
		}
		for i := range h.Operations {
			delete(left, h.Operations[i].Queue)
		}
	}

	for queue, items := range left {
		r.t.Errorf(
			"left in queue %s, after all its requests were answered and it was reported empty: %+v",
			queue, items)
	}
}

// scan checks the invariants of everything stored and, unless items is negative, the
// number of items.
func (r *rig) scan(ctx context.Context, db kv.Database, items int) {
	contents, err := fdbpqtest.CheckInvariants(ctx, db, subjects.DefaultPriorityPrefix,
		subjects.DefaultFIFOPrefix)
	if err == nil && items >= 0 && contents.Items != items {
		err = fmt.Errorf("%d items, want %d", contents.Items, items)
	}
	if err != nil {
		r.t.Errorf("the store: %v\nreproduce with: %s", err, r.again())
	}

	r.tally.add("keyspaces scanned", 1)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
