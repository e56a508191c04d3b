package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The service among its peers.
const (
	serviceName   = "pqbridge"
	serviceChoice = "package client; for push, pop and work the Producer, PopMin and Worker, " +
		"one for each connection, batches with PushBatch, PopMinBatch, LeaseMinBatch and AckAll"
)

// RunPeers compares the service with its peers: with queues that are empty but for what is
// popped, and again with each of Backlogs, all servers running and taking turns. Errors are
// those of Run.
func RunPeers(ctx context.Context, o Options, peers []Peer) (*Report, error) {
	return measure(ctx, o, func(r *rig, ctx context.Context, report *Report) error {
		report.Notes = []string{serviceName + ": " + serviceChoice + "."}
		var installed []Peer
		var missing []string
		for _, p := range peers {
			if p.Missing == "" {
				installed = append(installed, p)
			} else {
				missing = append(missing, fmt.Sprintf("%s (%s)", p.Name, p.Missing))
			}
		}

		for _, backlog := range append([]int{0}, o.Backlogs...) {
			if err := r.comparePeers(ctx, installed, backlog, report); err != nil {
				return err
			}
		}
		if len(missing) > 0 {
			report.Notes = append(report.Notes,
				"Not measured, because they are not installed: "+strings.Join(missing, ", "))
		}
		return nil
	})
}

// comparePeers measures all rows with a backlog.
func (r *rig) comparePeers(ctx context.Context, peers []Peer, backlog int, report *Report) (err error) {
	s, err := r.startService(ctx, "-"+strconv.Itoa(backlog))
	if err != nil {
		return err
	}
	defer s.end(&err)
	us, err := r.newServiceContender(ctx, s)
	if err != nil {
		return err
	}
	defer func() { us.stop() }() // the check of the order replaces it
	if err := us.deepen(ctx, backlog); err != nil {
		return err
	}

	all := []*contender{us}
	for _, p := range peers {
		r.Progress(0, 1, fmt.Sprintf("%s, backlog %d", p.Name, backlog))
		c, err := r.startPeer(ctx, p, backlog)
		if err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		defer c.stop()
		all = append(all, c)
		if backlog == 0 {
			report.Notes = append(report.Notes,
				fmt.Sprintf("%s %s: %s. %s", p.Name, c.version, p.Choice, p.Notes))
		}
	}

	rows := r.peerTurns(all, backlog)
	if err := r.takeTurns(ctx, rows, r.rounds); err != nil {
		return err
	}
	report.addPeerRows(rows, backlog)
	if backlog > 0 {
		return nil
	}
	for _, c := range all {
		figures, err := c.about(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		report.Rows = append(report.Rows, Row{Name: rowOrder, Queue: c.name, Extra: figures})
	}
	return nil
}

// peerTurns returns the echo and the rows to measure, each with those of its peers.
func (r *rig) peerTurns(all []*contender, backlog int) []*row {
	rows := []*row{{
		name: rowEcho, load: r.asking(newValue(r.Payload), EchoSubject), who: r.echo,
		prepare: func(context.Context) (limit, error) { return r.part(), nil },
	}}
	for _, name := range peerRows {
		for _, c := range all {
			w := c.rows[name]
			if w == nil || r.Only != nil && !r.Only.MatchString(name) {
				continue
			}
			w.prepare = func(ctx context.Context) (limit, error) {
				lim := r.part()
				var err error
				if backlog == 0 {
					lim.steps, err = r.supply(ctx, c, name, lim.duration)
				} else if c.queued() < backlog*9/10 {
					err = c.deepen(ctx, backlog)
				}
				return lim, err
			}
			rows = append(rows, w)
		}
	}
	return rows
}

// fewItems is how many items a queue without backlog may have more than needed.
const fewItems = 20_000

// supply brings a queue without backlog to the items that a turn of a row needs, and returns in
// how many steps it may pop what is there: more than it will do in its time, but not so many that
// it finds the queue empty.
func (r *rig) supply(ctx context.Context, c *contender, name string, turn time.Duration) (steps int, err error) {
	items, each := 0, 1
	if !pushes(name) {
		rate := 1.5 * c.rate(name)
		if rate == 0 {
			rate = 2 * c.rate(rowPush)
		}
		if name == rowPopMany || name == rowWorkMany {
			each = batchItems
			rate = max(rate, c.rate(rowPushMany))
		}
		items = int(rate*turn.Seconds()) + 2*r.Clients*each
	}

	if c.queued() > items+fewItems {
		if err := c.drain(ctx); err != nil {
			return 0, err
		}
	}
	if err := c.deepen(ctx, items); err != nil || pushes(name) {
		return 0, err
	}
	return max(c.queued()/each, 1), nil
}

// addPeerRows adds what was measured with a backlog; the echo is the first.
func (r *Report) addPeerRows(rows []*row, backlog int) {
	var us *row // the service's row of the same name
	for _, w := range rows {
		if w.queue == serviceName {
			us = w
		}
		if us != nil && us != w && us.name == w.name {
			w.extra = append(w.extra, times(w.out.rate(), serviceName, us.out.rate()))
		}
		if backlog > 0 {
			w.extra = append(w.extra, Figure{Name: figureBacklog, Value: float64(backlog)})
		}
		r.Rows = append(r.Rows, w.result(rows[0].out.rate()))
	}
}

// figureBacklog is how many items were queued.
const figureBacklog = "backlog"

// startPeer starts a peer whose queue has a backlog already.
func (r *rig) startPeer(ctx context.Context, p Peer, backlog int) (*contender, error) {
	dir, err := os.MkdirTemp(r.dir, "peer-")
	if err != nil {
		return nil, err
	}
	// A server may run as another user.
	if err := errors.Join(os.Chmod(r.dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
		return nil, err
	}

	relaxed := p.Relaxed && backlog > 0
	c, err := r.connectPeer(ctx, p, dir, relaxed)
	if err != nil {
		return nil, err
	}
	if err := c.deepen(ctx, backlog); err != nil {
		c.stop()
		return nil, err
	}
	if !relaxed {
		return c, nil
	}

	// From here on it syncs the disk.
	c.stop()
	filled := c.filled
	if c, err = r.connectPeer(ctx, p, dir, false); err == nil {
		c.filled = filled
	}
	return c, err
}

func (r *rig) connectPeer(ctx context.Context, p Peer, dir string, relaxed bool) (*contender, error) {
	server, err := p.Start(ctx, dir, relaxed)
	if err != nil {
		return nil, err
	}
	clients, err := server.Connect(ctx, r.Clients, r.Connections, r.Priorities)
	if err != nil {
		server.Stop()
		return nil, err
	}
	c := newContender(p.Name, peerLoads(clients, r.Payload, r.Priorities), nil)
	c.version, c.stop = server.Version(), server.Stop
	c.single = func(ctx context.Context) (*PeerClient, error) {
		clients, err := server.Connect(ctx, 1, 1, orderPriorities)
		if err != nil {
			return nil, err
		}
		return clients[0], nil
	}
	return c, nil
}

func (r *rig) newServiceContender(ctx context.Context, s *service) (*contender, error) {
	loads, stop, err := r.serviceLoads(ctx, s)
	if err != nil {
		return nil, err
	}
	c := newContender(serviceName, loads, s.Process)
	c.stop = stop
	c.single = func(ctx context.Context) (*PeerClient, error) {
		one, stopOne, err := r.libraryClients(ctx, s, queueName+"-order")
		if err != nil {
			return nil, err
		}
		c.stop = func() { stop(); stopOne() }
		return one[0], nil
	}
	return c, nil
}

// contender is the service or a peer, with a queue of its own.
type contender struct {
	name, version string
	loads         map[string]load
	rows          map[string]*row
	filled        int // items that were pushed, less those popped, besides the rows
	lost          int // items that were pushed and could not be popped
	// single connects a client of another queue, for the check of the order.
	single func(ctx context.Context) (*PeerClient, error)
	stop   func()
}

func newContender(name string, loads map[string]load, who user) *contender {
	c := &contender{name: name, loads: loads, rows: map[string]*row{}}
	for operation, l := range loads {
		c.rows[operation] = &row{name: operation, queue: name, load: l, who: who, out: newOutcome()}
	}
	return c
}

// queued is how many items the queue has.
func (c *contender) queued() int {
	n := c.filled
	for name, w := range c.rows {
		if pushes(name) {
			n += int(w.out.items)
		} else {
			n -= int(w.out.items)
		}
	}
	return n
}

// rate is that of a row so far.
func (c *contender) rate(name string) float64 {
	if c.rows[name] == nil {
		return 0
	}
	return c.rows[name].out.rate()
}

// deepen pushes until the queue has n items. It measures nothing.
func (c *contender) deepen(ctx context.Context, n int) error {
	missing := n - c.queued()
	if missing <= 0 {
		return nil
	}
	l, steps := c.loads[rowPush], missing
	if many := c.loads[rowPushMany]; many != nil {
		l, steps = many, (missing+batchItems-1)/batchItems
	}
	out, err := runLoad(ctx, l, limit{steps: steps})
	c.filled += int(out.items)
	return err
}

// drain pops until the queue is empty. It measures nothing, but notes items that should have
// been there.
func (c *contender) drain(ctx context.Context) error {
	fastest := []string{rowPopMany, rowPop, rowWorkMany, rowWork}
	l := c.loads[fastest[slices.IndexFunc(fastest, func(name string) bool { return c.loads[name] != nil })]]
	for c.queued() > 0 {
		out, err := runLoad(ctx, l, limit{})
		if err != nil {
			return err
		}
		c.filled -= int(out.items)
		if out.items == 0 {
			break
		}
	}
	c.lost += c.queued()
	c.filled -= c.queued()
	return nil
}

// about checks the order of the queue, and that nothing was lost.
func (c *contender) about(ctx context.Context) ([]Figure, error) {
	if err := c.drain(ctx); err != nil {
		return nil, err
	}
	single, err := c.single(ctx)
	if err != nil {
		return nil, err
	}
	figures, err := checkOrder(ctx, single)
	return append(figures, Figure{Name: figureLost, Value: float64(c.lost)}), err
}

// figureLost is how many items were pushed and could not be popped.
const figureLost = "items lost"
