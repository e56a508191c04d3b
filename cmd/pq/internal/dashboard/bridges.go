package dashboard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/discovery"
	"github.com/pqbridge/pqbridge/subjects"
)

// States of the connection.
const (
	stateConnected = "connected"
	stateAway      = "away"
	stateDenied    = "denied"
)

const (
	// A bridge is gone once it has left more than maxMissed questions in a row unanswered. It is
	// shown for forgetAfter.
	maxMissed   = 3
	forgetAfter = 10 * time.Minute
	// maxBridges are shown. Bridges that are gone make room for others.
	maxBridges = 100
)

// bridgeState is what a bridge has said about itself, and when.
type bridgeState struct {
	bridgeRow
	missed   int // questions since it answered
	counters map[queueRef]subjects.QueueTraffic
	before   map[queueRef]subjects.QueueTraffic // of the answer before; nil after the first
	elapsed  float64                            // seconds between these two
}

// allQueues stands for all queues together among the counters of a bridge.
var allQueues = queueRef{}

// bridges has the bridges that have answered, by their ids.
type bridges map[string]*bridgeState

// note takes in what a bridge says.
func (all bridges) note(now time.Time, said *discovery.Bridge) {
	said.Queues = said.Queues[:min(len(said.Queues), subjects.MaxStatsQueues)]
	for _, text := range []*string{&said.ID, &said.Version, &said.Store, &said.Why} {
		*text = shorten(*text) // the sender may not be a bridge
	}

	b := all[said.ID]
	if b == nil {
		if len(all) >= maxBridges {
			maps.DeleteFunc(all, func(_ string, b *bridgeState) bool { return b.isGone() })
		}
		if len(all) >= maxBridges {
			return
		}
		b = &bridgeState{}
		all[said.ID] = b
	}

	b.update(now, said)
}

func (b *bridgeState) isGone() bool { return b.missed > maxMissed }

// isFull reports whether the bridge may have counted items of queues that it does not name.
func (b *bridgeState) isFull() bool {
	return b.More || len(b.counters) > subjects.MaxStatsQueues
}

func (b *bridgeState) update(now time.Time, said *discovery.Bridge) {
	next := bridgeRow{BridgeStats: *said.BridgeStats, Seen: now}
	next.ID, next.Version, next.Started = said.ID, said.Version, said.Started
	next.Host = shorten(said.Metadata[subjects.MetadataHost])
	next.Queues = nil // the counters have them
	for _, e := range said.Endpoints {
		next.Requests += int64(e.NumRequests)
		next.Errors += int64(e.NumErrors)
		next.LastError = shorten(cmp.Or(e.LastError, next.LastError))
	}

	counters := map[queueRef]subjects.QueueTraffic{
		allQueues: {Waiters: said.Waiters, Windows: said.Total},
	}
	for _, q := range said.Queues {
		counters[queueRef{q.Kind, q.Queue}] = q
	}

	if !b.Seen.IsZero() {
		// Answers to two questions may come together.
		b.elapsed = max(now.Sub(b.Seen).Seconds(), 0.1)
		all := b.perSecond(next.Requests, b.Requests)
		next.PerSecond = &all
	}
	b.bridgeRow, b.before, b.counters, b.missed = next, b.counters, counters, 0
}

// perSecond is a rate between the last two answers.
func (b *bridgeState) perSecond(now, before int64) float64 {
	return float64(max(now-before, 0)) / b.elapsed
}

// traffic returns what bridges say of a queue, or of allQueues. What none of them counts is nil.
func (all bridges) traffic(q queueRef) traffic {
	var in, out, failed float64
	var waiting int64
	counted, known := false, false
	for _, b := range all {
		if b.isGone() {
			continue
		}
		// A queue that it does not name has no traffic, unless it names only the busiest.
		n, named := b.counters[q]
		counted = counted || named || !b.isFull()
		waiting += int64(n.Waiters)

		before, wasNamed := b.before[q]
		isNew := named && !wasNamed && n.In+n.Out > 0 // it was not among the busiest
		if b.before == nil || isNew && b.isFull() {
			continue
		}
		if known = known || named || !b.isFull(); !isNew {
			in += b.perSecond(n.In, before.In)
			out += b.perSecond(n.Out, before.Out)
			failed += b.perSecond(n.Failed, before.Failed)
		}
	}

	var t traffic
	if counted {
		t.Waiting = &waiting
	}
	if known {
		t.In, t.Out, t.Failed = &in, &out, &failed
	}
	return t
}

// past returns what bridges have counted of a queue, or of allQueues.
func (all bridges) past(q queueRef) (p past) {
	for _, b := range all {
		n, named := b.counters[q]
		if b.isGone() || !named && b.isFull() {
			continue
		}
		p.Counted = cmp.Or(p.Counted, &subjects.Windows{})
		p.Counted.Add(&n.Windows)
		since := cmp.Or(b.Since, b.Started)
		p.Since = slices.MaxFunc([]time.Time{p.Since, since, n.Since}, time.Time.Compare)
	}
	return p
}

// status returns how the bridges are: connected if one is ready, or none is known.
func (all bridges) status() status {
	s := status{State: stateConnected}
	for _, b := range all { // those that answer, and are not ready, refuse requests
		switch {
		case b.isGone() && s.Text == "":
			s = status{stateAway, "no bridge answers"}
		case b.isGone():
		case b.Ready:
			return status{State: stateConnected}
		default:
			s = status{stateAway, fmt.Sprintf("bridge %s is not ready: %s", b.ID, b.Why)}
		}
	}
	return s
}

// rows returns what the page of the bridges shows.
func (all bridges) rows() (rows []bridgeRow) {
	for _, b := range all {
		row := b.bridgeRow
		if b.isGone() {
			row.Ready, row.Why, row.PerSecond = false, "it does not answer", nil
			row.Gone = true
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b bridgeRow) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.ID, b.ID))
	})
	return rows
}
