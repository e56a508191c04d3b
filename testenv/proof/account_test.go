package proof_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
)

// The load of a run that keeps accounts.
const (
	lines      = 8  // connections
	maxWorkers = 64 // of each; fewer in short runs
	maxBurst   = 64 // requests at once of a worker
	maxServed  = 64 // items of one pop or lease
	maxPushed  = 16 // items of a batch of pushes
	maxAwaited = 8  // items that a request waits for
	maxGrips   = 64 // leases that a worker has at once
	maxEdited  = 16 // items that are removed or moved at once

	// Workers of each connection where nothing breaks, so that no request waits for most of
	// patience.
	calmWorkers = 8

	// Items that there are, at least; fewer in short runs.
	fewItems = 100_000

	shortRun = 50_000 // operations, or fewer

	// Leases last that much longer than in histories, because requests take longer under load.
	longWaits  = 5
	shortWaits = 2 // in short runs

	accountTime = time.Second           // to wait for an answer
	minExpires  = 20 * time.Millisecond // of requests that wait
	maxExpires  = 300 * time.Millisecond

	// To count and take the items left, 100,000 or more after a long run.
	toClose = 10 * time.Minute

	// Limits of queues that have some.
	maxItems    = 50
	maxPerGroup = 3               // leases
	maxRateTTL  = 2 * time.Second // of items, so that they do not become more and more
	uniqueKeys  = 50              // that pushes choose from

	betweenAll = 50_000 // operations between two faults of a long run
)

// accountDelay bounds the delays of pushes, and what comes of the retry delays of negative
// acknowledgements, which are minRetry to maxRetry.
const (
	accountDelay = time.Second
	minRetry     = 20 * time.Millisecond
	maxRetry     = 120 * time.Millisecond
)

// accountTTLs bound the time after which items expire, beyond the shortest. After most of them the
// items are still there in the end.
var accountTTLs = []time.Duration{time.Second, 10 * time.Second, 10 * time.Minute}

// Under much more load than a history can hold, the accounts of every item are right: after -ops
// operations on each system, or as many as there is time for in -duration.
func TestAccounts(t *testing.T) {
	testAccounts(t, accountSystems(), allKinds)
}

// accountSystems are the systems on which accounts are kept.
func accountSystems() []system {
	list := append(systems(), system{"embedded-full", startFull, 1})
	return some(append(list, calmSystems()...), "mem-faults", "mem-calm")
}

// prepareAccounts prepares a system for accounts. In half of those whose clocks are wrong, they are
// so by seconds.
func (r *rig) prepareAccounts() {
	r.tighten(50_000, 150_000)
	r.serveJetStream()
	if r.skew > 0 && r.random.IntN(2) == 0 {
		r.skew, r.strobe = wideSkew, wideStrobe
	}
}

// allKinds chooses queues of all kinds.
func allKinds(b *bank) {
	for i := range 6 {
		b.full = append(b.full, fmt.Sprint("a-", i))
	}

	b.full = append(b.full, "fifo-0", "fifo-1")
	b.scarce = []string{"w-0", "fifo-w"}
	b.unique = []string{"u-0", "fifo-u"}
	b.purged = []string{"a-purged", "fifo-purged"}
	b.mortal = []string{"d-0", "fifo-d-0"}
	b.retried = []string{"r-0", "fifo-r-0"}
	b.limited = []string{"m-0", "fifo-m"}
	b.large = []string{"l-0", "fifo-l"}
	b.grouped = []string{"g-0", "fifo-g"}
	b.rated = []string{"g-r", "fifo-gr"}
	b.traced = tracedQueues()
	b.brief = []string{"k-0", "fifo-k"}
	b.joined = slices.Concat(b.full, b.scarce, b.purged, b.mortal, b.limited, b.grouped, b.traced)
}

// testAccounts keeps accounts of the queues that choose names, on each system.
func testAccounts(t *testing.T, systems []system, choose func(b *bank)) {
	seed := flags.firstSeed(t)
	found := false

	for _, s := range systems {
		t.Run(s.name, func(t *testing.T) {
			found = true
			s.run(t, seed, (*rig).prepareAccounts, func(r *rig) {
				b := newBank(r, flags.ops, flags.duration)
				choose(b)
				b.run()
			})
		})
	}
	if !found {
		t.Error("there is no such system")
	}
}

// newBank returns a run of so many operations, or of as many as there is time for if that is not 0.
func newBank(r *rig, ops int, duration time.Duration) *bank {
	b := &bank{
		rig:      r,
		books:    books.New(int64(r.skew)),
		joins:    newJoins(int64(r.skew)),
		pruned:   newPruned(),
		counts:   newCounts(),
		target:   int64(ops),
		few:      min(cmp.Or(r.few, fewItems), int64(ops)/20),
		duration: duration,

		between: cmp.Or(r.between, betweenAll),
		waits:   longWaits,
	}

	if ops < shortRun {
		b.waits = shortWaits
	}
	r.tally.add("accounts", 1)

	return b
}

// bank is a run that keeps accounts.
type bank struct {
	*rig
	books    *books.Books
	joins    *joins
	pruned   *pruned
	counts   *counts
	target   int64
	few      int64         // items that there are, at least, and three times that at most
	between  int64         // operations between two faults of a long run
	duration time.Duration // how long it may take; 0 is no limit
	waits    int64         // how much longer leases last than in histories
	pullWait time.Duration // the length of leases of pulls
	done     atomic.Int64  // operations
	answered atomic.Int64  // acknowledgements as JetStream
	tellers  []*teller
	strikes  chan struct{}
	toCome   atomic.Int64 // faults that the run has to have yet, however many operations it takes

	full    []string // queues
	scarce  []string // those with few items, so that requests wait
	unique  []string // those whose items have unique keys
	purged  []string
	mortal  []string // those with max_deliver
	retried []string // those with a backoff alone
	limited []string // those with max_items
	large   []string // those with large items
	grouped []string // those whose items have groups, with a limit of their leases
	rated   []string // those with rates, of the queue and of groups
	traced  []string // queues that keep jobs, and push to each other
	brief   []string // queues that keep few jobs
	joined  []string // those that get joiners and their members
	dead    []string // dead-letter queues

	redriven []string // those that are redriven
}

// run puts load on the system until enough operations are done, and closes the books.
func (b *bank) run() {
	most := int64(maxWorkers)
	b.timeout.Store(int64(accountTime))
	if len(b.faults) == 0 { // each request is answered, however slow the machine is
		most = calmWorkers
		b.timeout.Store(int64(patience))
	}

	for _, name := range b.living() {
		b.dead = append(b.dead, name+"-dead")
		if !movesItems(name) && !books.IsTraced(name) &&
			!slices.Contains(slices.Concat(b.purged, b.mortal, b.limited), name) {
			b.redriven = append(b.redriven, name+"-dead")
		}
	}

	b.configure()
	b.strikes = make(chan struct{}, 1)
	var running sync.WaitGroup
	connections := lines

	if b.target < shortRun/10 { // so that each worker does more than push
		connections /= 4
	}

	for n := range connections {
		l := newLine(b.t, b.toNATS.url())
		workers := int(min(most, max(4, b.target/20_000)))

		for i := range workers {
			w := &teller{
				bank:     b,
				burster:  newBurster(b.t, b.newCaller(n*workers+i, l)),
				workload: &workload{random: rand.New(rand.NewPCG(b.random.Uint64(), 6))},
			}

			b.tellers = append(b.tellers, w)
			running.Go(w.run)
		}
	}

	go func() {
		running.Wait()
		close(b.strikes)
	}()

	for range b.strikes {
		if len(b.faults) == 0 {
			continue
		}

		b.strike()
		b.toCome.Add(-1)
		if b.struck%len(b.faults) == 0 {
			b.t.Logf("%d operations and %d faults in %v",
				b.done.Load(), b.struck, time.Since(b.zero).Round(time.Second))
		}
	}

	if !b.t.Failed() {
		b.close()
	}
}

// configure sets what some queues have.
func (b *bank) configure() {
	c := b.newCaller(-1, newLine(b.t, b.toNATS.url()))
	c.await()

	set := func(queues []string, s client.Settings) {
		for _, name := range queues {
			must(b.t, b.books.Limit(name, s))
			q := queueOf(c.client, name)

			c.insist(fmt.Sprint("setting ", name), func(ctx context.Context) error {
				_, err := q.Configure(ctx, s)
				return err
			})
		}
	}

	set(b.mortal, client.Settings{
		MaxDeliver: books.MaxDeliver, Backoff: books.Backoff(), Trail: 8,
	})
	set(b.retried, client.Settings{Backoff: books.Backoff()})
	set(b.grouped, client.Settings{MaxLeasedPerGroup: maxPerGroup})
	set(b.rated, b.rates())
	set(b.limited, client.Settings{MaxItems: maxItems})
	b.configureTraced(set)
	b.configurePruned(set)
	b.configureJoined(c)
	b.configurePulls(c)
}

// living returns all queues but the dead-letter queues.
func (b *bank) living() []string {
	list := slices.Concat(b.full, b.scarce, b.unique, b.purged, b.mortal, b.retried, b.limited,
		b.large, b.grouped, b.rated, b.traced, b.brief)
	slices.Sort(list)
	return slices.Compact(list) // a full one may be traced
}

// over reports whether there were enough operations and faults, or the run ends early.
func (b *bank) over() bool {
	return b.done.Load() >= b.target && b.toCome.Load() <= 0 ||
		b.t.Failed() || b.duration > 0 && time.Since(b.zero) > b.duration
}

// count counts operations, and asks for a fault now and then.
func (b *bank) count(n int) {
	now := b.done.Add(int64(n))
	every := max(1, min(b.target/4, b.between))

	if now/every != (now-int64(n))/every {
		select {
		case b.strikes <- struct{}{}:
		default: // one is being made
		}
	}
}

// close ends the system and balances the books with its store.
func (b *bank) close() {
	ctx, db := b.shut(toClose)
	held := time.Duration(b.waits)*dueTime + books.LongestBackoff
	<-time.After(max(held, accountDelay) + 2*b.skew)
	b.compare(ctx, db)

	for _, name := range b.rated { // so that all that is left can be taken at once
		lift := fdbpq.Op{
			Kind:      fdbpq.OpConfigure,
			Configure: func(s *fdbpq.Settings) { s.Rate, s.RatePerGroup = "", "" },
		}
		b.apply(ctx, db, name, time.Now(), lift)
	}

	for n := range 2 { // a joiner may run as late as the second after its last member
		<-time.After(time.Duration(n) * time.Second)
		for _, name := range slices.Concat(b.living(), b.dead) {
			must(b.t, empty(ctx, db, name, func(item *fdbpq.Item) {
				b.books.Left(name, numberOf(item), item.ID.String())
				b.joins.left(numberOf(item), item)
			}))
		}
	}

	b.leaveDone(ctx, db)
	b.checkPruned(ctx, db)
	emptied := time.Since(b.zero).Milliseconds()
	b.scan(ctx, db, 0)
	b.checkCounts(db)
	balance, err := b.books.Close(emptied)
	if err = errors.Join(err, b.joins.close()); err != nil {
		b.t.Errorf("%v\nmake a similar run: %s", err, b.again())
	}

	b.t.Logf("%+v; %v; clocks wrong by up to %v", balance, b.joins, b.skew)
	b.checkAnswers()
}

// teller is one of the clients.
type teller struct {
	*bank
	*burster
	*workload
	broken bool              // a request failed
	late   []*grip           // leases that run out
	hungry bool              // a queue was empty
	noRoom bool              // a push was refused because the disk is full
	pushed []books.Operation // items to edit
	open   []books.Operation // pushes of joiners, which may wait
	jobs   []knownJob        // in traced queues
}

// run makes requests of every kind until the run is over. The shares below are in percent: while
// there are too few items it mostly pushes, and with leases it mostly uses them.
func (w *teller) run() {
	random, few := w.workload.random, w.few
	for !w.bank.over() && errors.Join(w.books.Problems(), w.joins.problems()) == nil {
		waiting := w.books.Waiting()
		switch x := random.IntN(100); {
		case x >= 37 && x < 40 && len(w.large) > 0:
			w.crowd()
		case x >= 84 && x < 90, x >= 78 && x < 99 && len(w.redriven) == 0:
			w.askAll()
		case len(w.grips) > maxGrips, len(w.grips) > 0 && x < 40:
			w.useAll()
		case len(w.grips) > 0 && x < 47:
			w.one(w.useSome())
		case w.noRoom && x < 97: // few pushes, which would all be refused
			w.one(w.take(x%7 == 0))
		case waiting < few, waiting < 3*few && (x < 72 || w.hungry):
			w.pushAll()
		case x == 99:
			w.toNobody()
		case x >= 92:
			w.editAll()
		case x >= 90:
			w.sweep()
		default:
			w.one(w.take(x%7 == 0))
		}

		// After a failure, no load until the system answers again.
		if w.broken {
			w.line.awaiting.Lock() // one of them asks often enough
			w.await()
			w.line.awaiting.Unlock()
			w.broken = false
		}
	}
}

// end judges an operation.
func (w *teller) end(op *books.Operation, i books.Intent) {
	at := func(t int64) time.Time { return w.burster.zero.Add(time.Duration(t)) }
	if op.Kind.Takes() && mayEndEarly(at(op.Call), at(op.Return)) {
		op.Expires = 0 // whether it waited long enough is not judged
	}
	w.books.End(op, i)
	w.joins.end(op)
	w.counts.end(op)
	if slices.Contains(w.brief, op.Queue) {
		w.pruned.end(op)
	}
	// A purge is repeated as long as others change the queue: see protocol.md.
	if len(w.faults) == 0 && op.Outcome == books.Lost && op.Text != "" &&
		op.Kind != books.Purge && op.Return-op.Call >= int64(patience) {
		w.bank.t.Errorf("no answer: %s of %s: %s", op.Kind, op.Queue, op.Text)
	}

	// Some thousand requests may be under way. On a slow machine the last ones wait too long.
	if len(w.faults) == 0 && books.IsTraced(op.Queue) && op.Kind.Acks() &&
		op.Outcome == books.Refused && op.Return-op.Call < int64(dispatch.TurnTime(patience)) {
		w.bank.t.Errorf("not acknowledged: %s: %s", op, op.Text)
	}

	n := max(1, len(op.Items)) + len(op.Also)
	w.tally.operation(op, n)

	if op.Kind.Takes() && op.Outcome == books.Empty {
		n = 0 // that would be no load
	}

	w.hungry = op.Kind.Takes() && op.Outcome == books.Empty
	if op.Kind == books.Push {
		w.noRoom = op.Outcome == books.Refused && strings.Contains(op.Text, diskFull)
	}
	w.broken = w.broken || broken(op) && op.Text != ""
	w.count(n)
}

// one sends one request.
func (w *teller) one(op books.Operation) {
	w.decorate(&op)
	intent := w.books.Begin(&op)
	w.joins.begin(&op)
	w.send(&op, 0)
	w.end(&op, intent)
	w.learn(&pending{op: op})
	w.note(w.workload, &op)
}
