package dashboard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/micro"

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
	// maxBridges are shown.
	maxBridges = 1_000
)

// bridgeState is what a bridge has said about itself, and when.
type bridgeState struct {
	bridgeRow
	missed   int                // questions since it answered
	rates    map[queueRef]rates // of its queues, known only after two answers
	counters map[queueRef]subjects.QueueTraffic
}

// rates are pushes and pops a second.
type rates struct{ in, out float64 }

// bridges are those that have answered, by their ids.
type bridges map[string]*bridgeState

// note takes in what a bridge says.
func (all bridges) note(now time.Time, data []byte) {
	var stats micro.Stats
	if json.Unmarshal(data, &stats) != nil || stats.ID == "" { // also a message that nobody listens
		return
	}

	said, err := subjects.ParseBridgeStats(data)
	if err != nil || said == nil { // an older bridge
		said = &subjects.BridgeStats{Ready: true}
	}

	// What answers may not be a bridge.
	for _, text := range []*string{&stats.ID, &stats.Version, &said.Store, &said.Why} {
		*text = shorten(*text)
	}

	b := all[stats.ID]
	if b == nil {
		if len(all) >= maxBridges {
			return
		}
		b = &bridgeState{}
		all[stats.ID] = b
	}

	b.update(now, stats, *said)
}

func (b *bridgeState) isGone() bool { return b.missed > maxMissed }

func (b *bridgeState) update(now time.Time, stats micro.Stats, said subjects.BridgeStats) {
	next := bridgeRow{Stats: stats, BridgeStats: said, Seen: now}
	for _, e := range stats.Endpoints {
		next.Requests += int64(e.NumRequests)
		next.Errors += int64(e.NumErrors)
		next.LastError = shorten(cmp.Or(e.LastError, next.LastError))
	}

	counters := map[queueRef]subjects.QueueTraffic{}
	for _, q := range said.Queues {
		counters[queueRef{q.Kind, q.Queue}] = q
	}

	if !b.Seen.IsZero() {
		elapsed := max(now.Sub(b.Seen).Seconds(), 0.1) // answers to two questions may come together
		perSecond := func(now, before int64) float64 {
			return float64(max(now-before, 0)) / elapsed
		}
		b.rates = map[queueRef]rates{}
		for q, n := range counters {
			before, known := b.counters[q]
			if !known && n.In+n.Out > 0 {
				continue // it was not among the busiest
			}
			b.rates[q] = rates{perSecond(n.In, before.In), perSecond(n.Out, before.Out)}
		}

		all := perSecond(next.Requests, b.Requests)
		next.PerSecond = &all
	}

	b.bridgeRow, b.counters, b.missed = next, counters, 0
}

// ratesOf returns the rates of a queue, nil if no bridge counts them.
func (all bridges) ratesOf(q queueRef) (in, out *float64) {
	var sum rates
	known := false
	for _, b := range all {
		if b.rates == nil || b.isGone() {
			continue
		}
		known = true // of a queue that it does not name, it has counted nothing
		sum.in, sum.out = sum.in+b.rates[q].in, sum.out+b.rates[q].out
	}

	if !known {
		return nil, nil
	}

	return &sum.in, &sum.out
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
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b bridgeRow) int { return cmp.Compare(a.ID, b.ID) })
	return rows
}
