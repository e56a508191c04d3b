package peers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/results"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// network carries messages between nodes, in order for each pair of nodes and subject.
type network struct {
	t      *testing.T
	random *rand.Rand
	nodes  []*node
	born   int // how many nodes there were so far
	store  *jobStore

	mu   sync.Mutex
	loss map[string]float64 // by subject: which part of the messages is lost
	sent map[string]int     // by subject
}

// node is a bridge: its Router and its waits, with a clock of its own.
type node struct {
	*Peers
	net   *network
	waits *results.Waits
	going sync.RWMutex // held for writing while it is frozen
	dead  chan struct{}
	inbox map[string]chan string // by sender and subject
}

// jobStore has what became of jobs.
type jobStore struct {
	mu      sync.Mutex
	outcome map[int64]int64
	ended   map[int64]time.Time
}

// end ends a job with an outcome.
func (s *jobStore) end(n, outcome int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcome[n], s.ended[n] = outcome, time.Now()
}

func (s *jobStore) read(_ context.Context, ops []fdbpq.Op) ([]fdbpq.Result, error) {
	time.Sleep(time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make([]fdbpq.Result, len(ops))
	for i := range ops {
		found[i].State = fdbpq.Leased
		if outcome, done := s.outcome[ops[i].ID.Count]; done {
			found[i].Item.DeadLetter, found[i].Len = &fdbpq.DeadLetter{}, outcome
			found[i].State = fdbpq.Ready
		}
	}
	return found, nil
}

// inNetwork runs a test with nodes that know each other.
func inNetwork(t *testing.T, n int, test func(net *network)) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		net := &network{
			t: t, random: rand.New(rand.NewPCG(seed, 0)),
			store: &jobStore{outcome: map[int64]int64{}, ended: map[int64]time.Time{}},
			loss:  map[string]float64{}, sent: map[string]int{},
		}
		defer func() {
			for _, n := range net.nodes {
				n.die()
			}
			time.Sleep(time.Minute)
		}()
		for range n {
			net.add()
		}
		time.Sleep(2 * time.Second)

		test(net)
	})
}

// add starts a node.
func (net *network) add() *node {
	n := &node{net: net, Peers: newTest(net.t), dead: make(chan struct{})}
	n.config.Self.ID, n.config.Shared = fmt.Sprint("node", net.born), true
	net.born++
	n.Router.enter(phaseHere)
	n.Router.endings.publish = func(subject string, data []byte) { n.send(subject, string(data)) }
	n.waits = results.New(results.Config{
		Read: net.store.read, Timeout: time.Second,
		Admit: func() error { return nil }, Release: func() {},
		Waiting: func() { n.Router.AwaitsJobs() }, Warn: func(string, ...any) {},
	})
	n.config.ResultWaits, n.config.Told = n.waits.Len, n.waits.Told
	n.config.LookAll = n.waits.LookAll

	net.mu.Lock()
	net.nodes = append(net.nodes, n)
	n.inbox = map[string]chan string{}
	net.mu.Unlock()

	ctx, cancel := context.WithCancel(net.t.Context())
	go func() { <-n.dead; cancel() }()
	go n.waits.Run(ctx)
	go n.beat()
	return n
}

// beat does what Router.run does.
func (n *node) beat() {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-n.dead:
			return
		case <-n.Router.helloNow:
		case <-ticker.C:
			n.alive(func() {
				n.Router.agePeers()
				n.Router.endings.beat()
			})
		}
		n.alive(func() {
			n.send("members", "here "+n.config.Self.ID+" 0")
			n.Router.endings.sayWaits()
		})
	}
}

func (n *node) isDead() bool {
	select {
	case <-n.dead:
		return true
	default:
		return false
	}
}

// alive runs f unless the node is dead, once it is not frozen.
func (n *node) alive(f func()) {
	for !n.going.TryRLock() { // a bubble does not wait for a mutex
		time.Sleep(time.Millisecond)
	}
	defer n.going.RUnlock()
	if !n.isDead() {
		f()
	}
}

func (n *node) freeze() { n.going.Lock() }
func (n *node) thaw()   { n.going.Unlock() }

// die ends a node. It says nothing more.
func (n *node) die() {
	if !n.isDead() {
		close(n.dead)
		n.waits.Close()
	}
}

// send sends a message to all other nodes.
func (n *node) send(subject, text string) {
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	n.net.sent[subject]++
	for _, to := range n.net.nodes {
		lost := n.net.random.Float64() < n.net.loss[subject]
		if to == n || lost || to.isDead() {
			continue
		}
		from := n.config.Self.ID + " " + subject
		in := to.inbox[from]
		if in == nil {
			in = make(chan string, 10_000)
			to.inbox[from] = in
			go to.hear(subject, in)
		}
		in <- text
	}
}

// hear handles the messages from one node on one subject.
func (n *node) hear(subject string, in chan string) {
	handle := map[string]nats.MsgHandler{
		"members": n.Router.hearHeartbeat,
		"waits":   n.Router.endings.hearWaits,
		"ended":   n.Router.hearEnded,
	}[subject]
	for {
		select {
		case <-n.dead:
			return
		case text := <-in:
			time.Sleep(n.net.within(2 * time.Millisecond))
			n.alive(func() { handle(&nats.Msg{Data: []byte(text)}) })
		}
	}
}

// within returns a random time.
func (net *network) within(most time.Duration) time.Duration {
	net.mu.Lock()
	defer net.mu.Unlock()
	return time.Duration(net.random.Int64N(int64(most)))
}

// lose has a part of the messages on a subject be lost.
func (net *network) lose(subject string, part float64) {
	net.mu.Lock()
	defer net.mu.Unlock()
	net.loss[subject] = part
}

// sentOn returns how many messages were sent on a subject.
func (net *network) sentOn(subject string) int {
	net.mu.Lock()
	defer net.mu.Unlock()
	return net.sent[subject]
}

// end has a batch of the node end jobs, with their numbers as outcomes. It may freeze or die before
// it tells of them.
func (n *node) end(numbers ...int64) {
	var jobs []fdbpq.QueueJob
	n.alive(func() {
		for _, number := range numbers {
			n.net.store.end(number, number)
			jobs = append(jobs, job(number))
		}
	})
	time.Sleep(time.Millisecond)
	n.alive(func() {
		n.waits.Told(jobs)
		n.Router.JobsEnded(jobs)
	})
}

// job returns a job, one in three of a FIFO queue.
func job(n int64) fdbpq.QueueJob {
	name := fdbpq.QueueName{Name: fmt.Sprint("jobs-", n%5), FIFO: n%3 == 0}
	return fdbpq.QueueJob{Queue: name, Job: fdbpq.ID{Priority: n % 2 * (1 - n%3), Count: n}}
}

// waiting is a wait of a test.
type waiting struct {
	mu      sync.Mutex
	answers []int64 // outcomes; -1 is none at the end, -2 an error
	at      time.Time
}

// wait waits on the node for a job.
func (n *node) wait(number int64, expires time.Duration) *waiting {
	w := &waiting{}
	_ = n.waits.Add(&results.Wait{ // fails on a node that is dead
		Job: job(number), Until: time.Now().Add(expires),
		Answer: func(r *fdbpq.Result, err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.at = time.Now()
			switch {
			case err != nil:
				w.answers = append(w.answers, -2)
			case r.State == fdbpq.Leased:
				w.answers = append(w.answers, -1)
			default:
				w.answers = append(w.answers, r.Len)
			}
		},
	})
	return w
}

// answered waits for an answer and checks it.
func (w *waiting) answered(t *testing.T, what string, want int64, within time.Duration) {
	t.Helper()
	time.Sleep(within)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.answers, []int64{want}) {
		t.Errorf("%s: got %v after %v, want %d", what, w.answers, within, want)
	}
}

// A wait learns of a job that ends on another bridge at once, and soon if something went wrong on
// the way.
func TestEndsOnPeers(t *testing.T) {
	for name, test := range map[string]struct {
		do     func(net *network, a, b *node)
		within time.Duration
	}{
		"all is well": {func(_ *network, _, b *node) { b.end(1) }, 10 * time.Millisecond},
		"it was told among thousands": {func(_ *network, _, b *node) {
			var numbers []int64
			for i := range int64(3 * maxEndings) {
				numbers = append(numbers, 3*maxEndings-i)
			}
			b.end(numbers...)
		}, 10 * time.Millisecond},
		"the tell is lost": {func(net *network, _, b *node) {
			net.lose("ended", 1)
			b.end(1)
			net.lose("ended", 0)
		}, 600 * time.Millisecond},
		"the tell is lost, and others follow": {func(net *network, _, b *node) {
			net.lose("ended", 1)
			b.end(1)
			net.lose("ended", 0)
			b.end(2)
		}, 10 * time.Millisecond},
		"the peer does not hear that somebody waits": {func(net *network, _, b *node) {
			net.lose("waits", 1)
			time.Sleep(3 * time.Second)
			b.end(1)
			net.lose("waits", 0)
		}, 300 * time.Millisecond},
		"the peer has not told for a while": {func(net *network, _, b *node) {
			net.lose("waits", 1)
			net.lose("ended", 1)
			time.Sleep(3 * time.Second)
			b.end(1)
			time.Sleep(3 * time.Second)
			net.lose("waits", 0)
			time.Sleep(time.Second)
			net.lose("ended", 0)
		}, 600 * time.Millisecond},
		"the peer dies before it tells": {func(_ *network, _, b *node) {
			go b.end(1)
			time.Sleep(time.Millisecond / 2)
			b.die()
		}, 2 * time.Second},
		"the peer freezes before it tells": {func(_ *network, _, b *node) {
			go b.end(1)
			time.Sleep(time.Millisecond / 2)
			b.freeze()
			time.Sleep(time.Second)
			b.thaw()
		}, 10 * time.Millisecond},
		"the peer freezes for long": {func(_ *network, _, b *node) {
			go b.end(1)
			time.Sleep(time.Millisecond / 2)
			b.freeze()
			time.Sleep(2 * time.Second)
			go b.thaw()
		}, 0},
		"this bridge freezes": {func(_ *network, a, b *node) {
			a.freeze()
			b.end(1)
			time.Sleep(20 * time.Second)
			a.thaw()
		}, 600 * time.Millisecond},
		"this bridge connects again": {func(net *network, a, b *node) {
			net.lose("ended", 1)
			b.end(1)
			a.Connected()
			net.lose("ended", 0)
		}, 10 * time.Millisecond},
		"a bridge joins, and ends it": {func(net *network, _, _ *node) {
			c := net.add()
			c.end(1)
		}, 600 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inNetwork(t, 2, func(net *network) {
				a, b := net.nodes[0], net.nodes[1]
				w := a.wait(1, time.Hour)
				other := a.wait(0, 5*time.Minute)
				time.Sleep(time.Second)

				test.do(net, a, b)

				w.answered(net.t, name, 1, test.within)
				other.answered(net.t, "a job that goes on", -1, 5*time.Minute)
			})
		})
	}
}

// The first wait of a bridge learns what ended before its peers began to tell.
func TestFirstWaitOfABridge(t *testing.T) {
	inNetwork(t, 2, func(net *network) {
		for i := range int64(50) {
			w := net.nodes[0].wait(i, time.Hour)
			time.Sleep(net.within(6 * time.Millisecond))
			net.nodes[1].end(i)
			w.answered(net.t, "a wait", i, 20*time.Millisecond)
			time.Sleep(time.Minute)
		}
	})
}

// Bridges say nothing about jobs while nobody waits for them, and stop soon after the last wait.
func TestNobodyWaits(t *testing.T) {
	inNetwork(t, 2, func(net *network) {
		net.nodes[1].end(1)
		time.Sleep(time.Minute)
		same(net.t, "messages at first", net.sentOn("ended")+net.sentOn("waits"), 0)

		net.nodes[0].wait(2, time.Second)
		time.Sleep(time.Minute)
		said, told := net.sentOn("waits"), net.sentOn("ended")
		if said < 4 || said > 20 || told < 2 || told > 12 {
			net.t.Errorf("%d times said that one waits, %d tells, want about 12 and 8", said, told)
		}

		net.nodes[1].end(3)
		time.Sleep(time.Minute)
		same(net.t, "messages afterwards", net.sentOn("ended")+net.sentOn("waits"), said+told)
	})
}

// Messages are lost, and bridges stand still or die: every wait is answered once, with the outcome
// of its own job, and soon.
func TestWaitsAndFaults(t *testing.T) {
	inNetwork(t, 3, func(net *network) {
		const n, soon = 2000, 8 * time.Second
		random := rand.New(rand.NewPCG(uint64(net.within(time.Hour)), 0))
		type pair struct {
			*waiting
			began time.Time
		}
		waits, first := make([]pair, n), net.nodes[0]
		for _, subject := range []string{"members", "waits", "ended"} {
			net.lose(subject, 0.05)
		}

		for i := range int64(n) {
			on, by := net.nodes[random.IntN(2)], net.nodes[random.IntN(3)]
			w := &waits[i]
			waitsIn := time.Duration(random.IntN(5000)) * time.Millisecond
			endsIn := time.Duration(random.IntN(5000)) * time.Millisecond
			go func() {
				time.Sleep(waitsIn)
				w.began = time.Now()
				w.waiting = on.wait(i, time.Minute)
			}()
			if i%10 != 0 {
				go func() {
					time.Sleep(endsIn)
					if by.isDead() {
						by = first
					}
					by.end(i)
				}()
			}

			if i%200 == 199 {
				frozen := net.nodes[1+i/200%2] // the third is the one that dies
				frozen.freeze()
				time.Sleep(time.Duration(random.IntN(4000)) * time.Millisecond)
				frozen.thaw()
				if i%800 == 399 {
					frozen.die()
					net.mu.Lock()
					net.nodes = slices.Delete(net.nodes, 2, 3)
					net.mu.Unlock()
					net.add()
				}
			}
			time.Sleep(10 * time.Millisecond)
		}

		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for i := range waits {
			w, want := &waits[i], int64(i)
			ended, done := net.store.ended[want]
			if !done {
				want = -1
			}
			if !slices.Equal(w.answers, []int64{want}) {
				net.t.Fatalf("job %d: answered %v", i, w.answers)
			}
			if last := max(ended.Sub(w.began), 0); want >= 0 && w.at.Sub(w.began) > last+soon {
				net.t.Fatalf("job %d: answered %v after it ended", i, w.at.Sub(w.began)-last)
			}
		}
	})
}

// What another bridge sends and cannot be read does no harm.
func TestHostileEndings(t *testing.T) {
	p, looks := newTest(t), 0
	p.config.LookAll = func() { looks++ }
	p.config.Told = func(jobs []fdbpq.QueueJob) { t.Errorf("told of %v", jobs) }
	p.Router.hearHeartbeat(&nats.Msg{Data: []byte("here a")})

	p.Router.hearEnded(&nats.Msg{Data: []byte("a 1")})
	p.Router.hearEnded(&nats.Msg{Data: []byte("a 1\nxx jobs AA")}) // without jobs it would be known
	same(t, "looks", looks, 2)
	p.Router.hearEnded(&nats.Msg{Data: []byte("b 7")})
	same(t, "looks after an unknown peer", looks, 2)

	for _, text := range []string{
		"", "a", "a b", "a -1", "a 1\n", "a 1\n\n", "a 1\npq", "a 1\npq jobs", "a 1\nxx jobs AA",
		"a 1\npq jobs ??", "\x00\n\n", strings.Repeat("a ", 1000), "self 1\npq jobs AA",
	} {
		p.Router.hearEnded(&nats.Msg{Data: []byte(text)})
		p.Router.endings.hearWaits(&nats.Msg{Data: []byte("self")})
	}
}

func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
