package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/process"
)

// Rows of a comparison with peers, in the order of their turns.
const (
	rowPushEach = "push, a request each" // the service's only, as the next three
	rowPopEach  = "pop, a request each"
	rowWorkEach = "work, two requests each"
	rowWorkNext = "work, a request each"
	rowPop      = "pop"
	rowWork     = "work"
	rowPushMany = "push 100"
	rowPopMany  = "pop 100"
	rowWorkMany = "work 100"
)

var peerRows = []string{rowPush, rowPushEach, rowPushMany, rowPop, rowPopEach, rowWork, rowWorkNext, rowWorkEach, rowPopMany, rowWorkMany}

// pushes reports whether a row adds items.
func pushes(row string) bool { return row == rowPush || row == rowPushEach || row == rowPushMany }

// serviceName is the name of the service among its peers.
const serviceName = "pqbridge"

// RunPeers compares the service with its peers: with queues that are empty but for what is
// popped, and again with each of Backlogs, all servers running and taking turns. Errors are
// those of Run.
func RunPeers(ctx context.Context, o Options, peers []Peer) (*PeersReport, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Pqbridge == "" || o.NATSServer == "" {
		return nil, errors.New("peers are compared with servers that are started for that: name the programs pqbridge and nats-server")
	}
	if o.Progress == nil {
		o.Progress = func(int, int, string) {}
	}
	r, ctx, err := newRig(ctx, o)
	if err != nil {
		return nil, err
	}
	defer r.close()
	report := &PeersReport{Report: newReport(o)}
	if report.Sync, err = syncTime(r.dir); err != nil {
		return nil, err
	}
	installed := report.setPeers(peers)
	for _, backlog := range append([]int{0}, o.Backlogs...) {
		if err := r.comparePeers(ctx, installed, backlog, report); err != nil {
			return nil, err
		}
	}
	return report, nil
}

// contender is the service or a peer, with a queue of its own.
type contender struct {
	name   string
	loads  map[string]*load
	rows   map[string]*measured
	queued int // items
	lost   int // items that were pushed and could not be popped
	close  func()
}

// comparePeers measures all rows with a backlog.
func (r *rig) comparePeers(ctx context.Context, peers []Peer, backlog int, report *PeersReport) (err error) {
	s, err := r.startService(ctx, "-"+strconv.Itoa(backlog))
	if err != nil {
		return err
	}
	defer s.end(&err)
	us, err := r.newServiceContender(s)
	if err != nil {
		return err
	}
	defer us.close()
	if err := r.deepen(ctx, us, backlog); err != nil {
		return err
	}
	all := []*contender{us}
	for _, p := range peers {
		r.Progress(0, 1, fmt.Sprintf("%s, backlog %d", p.Name, backlog))
		c, server, err := r.startPeer(ctx, p, backlog)
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		defer server.Stop()
		all = append(all, c)
		report.peer(p.Name).Version = server.Version()
		if backlog == 0 {
			if err := checkPeerOrder(ctx, p, server, report); err != nil {
				return fmt.Errorf("%s: order: %w", p.Name, err)
			}
		}
	}
	if backlog == 0 {
		if err := r.checkServiceOrder(ctx, s, report); err != nil {
			return fmt.Errorf("order: %w", err)
		}
	}
	echo := r.newMeasured(phase{name: rowEcho, load: r.load, steps: []step{{subject: EchoSubject, payload: newValue(r.Payload)}}, who: r.echo})
	if err := r.takePeerTurns(ctx, echo, all, backlog); err != nil {
		return err
	}
	for _, c := range all {
		if backlog == 0 {
			if err := c.drain(ctx); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		report.setLost(c)
	}
	report.addRows(echo, all, backlog)
	return nil
}

// newServiceContender has package client's Producer and Worker for the rows of single items, and the service's own
// requests for the others.
func (r *rig) newServiceContender(s *service) (*contender, error) {
	w, err := newWork(s, r.Queue, r.Payload, r.Priorities)
	if err != nil {
		return nil, err
	}
	library, err := r.newLibraryClients(s, r.Queue)
	if err != nil {
		return nil, err
	}
	workers, err := r.newWorkerLoad(s, r.Queue)
	if err != nil {
		library.close()
		return nil, err
	}
	c := &contender{name: serviceName, loads: map[string]*load{}, rows: map[string]*measured{}}
	c.close = func() {
		workers.close()
		library.close()
	}
	add := func(name string, l *load, steps []step) {
		c.loads[name] = l
		c.rows[name] = r.newMeasured(phase{name: name, load: l, steps: steps, who: s.Process})
	}
	for name, steps := range map[string][]step{
		rowPushEach: w.push, rowPopEach: w.popMin, rowWorkEach: w.lease, rowWorkNext: w.next,
		rowPopMany: w.popBatch,
	} {
		add(name, r.load, steps)
	}
	for name, l := range peerLoads(library.clients, r.Payload, r.Priorities) {
		add(name, l, []step{{}})
	}
	add(rowWork, workers, []step{{}})
	return c, nil
}

// startPeer starts a peer whose queue has a backlog already.
func (r *rig) startPeer(ctx context.Context, p Peer, backlog int) (*contender, PeerServer, error) {
	dir, err := os.MkdirTemp(r.dir, "peer-")
	if err != nil {
		return nil, nil, err
	}
	// A server may run as another user.
	if err := errors.Join(os.Chmod(r.dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
		return nil, nil, err
	}
	relaxed := p.Relaxed && backlog > 0
	c, server, err := r.connectPeer(ctx, p, dir, relaxed)
	if err != nil {
		return nil, nil, err
	}
	err = r.deepen(ctx, c, backlog)
	if err == nil && relaxed {
		server.Stop()
		queued := c.queued
		if c, server, err = r.connectPeer(ctx, p, dir, false); err != nil {
			return nil, nil, err
		}
		c.queued = queued
	}
	if err != nil {
		server.Stop()
	}
	return c, server, err
}

func (r *rig) connectPeer(ctx context.Context, p Peer, dir string, relaxed bool) (*contender, PeerServer, error) {
	server, err := p.Start(ctx, dir, relaxed)
	if err != nil {
		return nil, nil, err
	}
	clients, err := server.Connect(ctx, r.Clients, r.Connections, r.Priorities)
	if err != nil {
		server.Stop()
		return nil, nil, err
	}
	c := &contender{name: p.Name, loads: peerLoads(clients, r.Payload, r.Priorities), rows: map[string]*measured{}}
	for name, load := range c.loads {
		c.rows[name] = r.newMeasured(phase{name: name, load: load, steps: []step{{}}, who: unknown{}})
	}
	return c, server, nil
}

// unknown is a user that cannot be watched.
type unknown struct{}

func (unknown) Used() process.Usage { return process.Usage{} }

// takePeerTurns measures each row of each contender, and the echo, once in each round.
func (r *rig) takePeerTurns(ctx context.Context, echo *measured, all []*contender, backlog int) error {
	turn := r.Duration / time.Duration(r.Rounds)
	for round := range r.Rounds {
		if err := echo.run(ctx, limit{duration: turn}); err != nil {
			return err
		}
		for i, name := range peerRows {
			for _, c := range all {
				if c.rows[name] == nil || r.Only != nil && !r.Only.MatchString(name) {
					continue
				}
				r.Progress(round*len(peerRows)+i, r.Rounds*len(peerRows), c.name+" "+name)
				if err := r.takePeerTurn(ctx, c, name, turn, backlog); err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
			}
		}
	}
	return nil
}

// takePeerTurn brings the queue to its length and measures a row for one turn.
func (r *rig) takePeerTurn(ctx context.Context, c *contender, name string, turn time.Duration, backlog int) error {
	row := c.rows[name]
	lim := limit{duration: turn}
	if backlog > 0 {
		if c.queued < backlog*9/10 {
			if err := r.deepen(ctx, c, backlog); err != nil {
				return err
			}
		}
	} else {
		items, steps := r.needed(c, name, turn)
		if c.queued > items+fewItems {
			if err := c.drain(ctx); err != nil {
				return err
			}
		}
		if err := r.deepen(ctx, c, items); err != nil {
			return err
		}
		lim.steps = steps(c.queued)
	}
	before := row.out.items
	if err := row.run(ctx, lim); err != nil {
		return err
	}
	c.count(name, int(row.out.items-before))
	return nil
}

// fewItems is how many items a queue without backlog may have more than needed.
const fewItems = 20_000

// needed is how many items a row wants in a queue without backlog, and in how many steps it may pop
// what is there: more than it will do in its time, but not so many that it finds the queue empty.
func (r *rig) needed(c *contender, name string, turn time.Duration) (items int, steps func(queued int) int) {
	if pushes(name) {
		return 0, func(int) int { return 0 }
	}
	rate, each := 1.5*c.rate(name), 1
	if rate == 0 {
		rate = 2 * c.rate(rowPush)
	}
	if name == rowPopMany || name == rowWorkMany {
		each = batchItems
		rate = max(rate, c.rate(rowPushMany))
	}
	return int(rate*turn.Seconds()) + 2*r.Clients*each, func(queued int) int { return max(queued/each, 1) }
}

// rate is that of a row so far.
func (c *contender) rate(name string) float64 {
	if c.rows[name] == nil {
		return 0
	}
	return c.rows[name].out.rate()
}

// count adds items that a row pushed or popped.
func (c *contender) count(name string, items int) {
	if pushes(name) {
		c.queued += items
	} else {
		c.queued -= items
	}
}

// deepen pushes until the queue has n items. It measures nothing.
func (r *rig) deepen(ctx context.Context, c *contender, n int) error {
	missing := n - c.queued
	if missing <= 0 {
		return nil
	}
	name, steps := rowPush, missing
	if c.loads[rowPushMany] != nil {
		name, steps = rowPushMany, (missing+batchItems-1)/batchItems
	}
	out, err := c.loads[name].run(ctx, c.rows[name].steps, limit{steps: steps})
	c.count(name, int(out.items))
	return err
}

// drain pops until the queue is empty. It measures nothing, but notes items that should have
// been there.
func (c *contender) drain(ctx context.Context) error {
	for _, name := range []string{rowPopMany, rowPop, rowWorkMany, rowWork} {
		l := c.loads[name]
		if l == nil {
			continue
		}
		for {
			out, err := l.run(ctx, c.rows[name].steps, limit{})
			if err != nil {
				return err
			}
			c.count(name, int(out.items))
			if out.items == 0 || c.queued <= 0 {
				break
			}
		}
		c.lost += c.queued
		c.queued = 0
		return nil
	}
	return nil
}

// orderPriorities is how many distinct priorities the check of the order pushes.
const orderPriorities = 1000

// checkPeerOrder pushes an item of each priority, the least urgent first, and pops all. In that
// sequence a peer that does not tell two priorities apart returns them in the wrong order.
func checkPeerOrder(ctx context.Context, p Peer, server PeerServer, report *PeersReport) error {
	clients, err := server.Connect(ctx, 1, 1, orderPriorities)
	if err != nil {
		return err
	}
	c := clients[0]
	pop := c.Pop
	if pop == nil {
		pop = c.Work
	}
	return report.checkOrder(p.Name,
		func(priority int, value []byte) error {
			return c.Push(ctx, PeerItem{Priority: priority, Value: value})
		},
		func() ([]byte, error) { return pop(ctx) })
}

// checkServiceOrder is the same for the service.
func (r *rig) checkServiceOrder(ctx context.Context, s *service, report *PeersReport) error {
	q := client.New(r.conn, client.WithGrammar(s.grammar)).PriorityQueue(r.Queue + "-order")
	return report.checkOrder(serviceName,
		func(priority int, value []byte) error {
			_, err := q.Push(ctx, int64(priority), value)
			return err
		},
		func() ([]byte, error) {
			item, err := q.PopMin(ctx)
			if err != nil {
				return nil, err
			}
			return item.Value, nil
		})
}
