package peers

import (
	"context"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/internal/signal"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
)

// Join begins to share the queues, for the first time or again after Leave, with the bridges that
// join the same realm. Nothing is shared before, and nothing at all unless the store is.
func (r *Router) Join(realm string) error {
	if !r.p.config.Shared {
		return nil
	}

	if r.is(phaseAway) {
		sum := xxhash.Sum64String(fmt.Sprint(routerVersion, " ", realm))
		r.root = fmt.Sprintf("%s%016x.", Root, sum)
		r.inbox = r.root + "to." + r.p.config.Self.ID + "."
		r.bell.root = r.root
		if err := r.subscribe(); err != nil {
			return fmt.Errorf("bridge: subscribe to the subjects between bridges: %w", err)
		}

		ctx, cancel := context.WithCancel(context.Background())
		r.stop = cancel
		r.running.Go(func() { r.run(ctx) })
	}

	r.enter(phaseHere)
	r.p.config.OwnersChanged()
	signal.To(r.helloNow)
	return nil
}

func (r *Router) subscribe() error {
	var made []*nats.Subscription
	defer func() { r.subscriptions.Store(&made) }()
	for subject, handle := range map[string]nats.MsgHandler{
		r.root + "members": r.hearHeartbeat,
		r.root + "report." + r.p.config.Self.ID + ".>": r.hearReport,
		r.root + "fate." + r.p.config.Self.ID:          r.hearFate,
		r.root + "cancel":                              r.hearCancel,
		r.root + "source":                              r.hearSource,
		r.root + "bell.>":                              r.bell.hear,
		r.root + "waits":                               r.endings.hearWaits,
		r.root + "ended":                               r.hearEnded,
		r.inbox + ">":                                  r.receive,
	} {
		s, err := r.p.config.Conn().Subscribe(subject, handle)
		if err != nil {
			return err
		}
		made = append(made, s)
	}

	return nil
}

// Leave stops sharing the queues until Join is called again. It returns when ctx ends, or when all
// pops sent by peers have been delivered. The bridge still answers and reports the pops that it
// has.
func (r *Router) Leave(ctx context.Context) {
	if !r.is(phaseHere) {
		return
	}
	r.awaitPromises(ctx)
	r.enter(phaseLeft)
	signal.To(r.helloNow)
}

// leaveTime limits the wait for the promises of peers. A peer that forwards later is itself
// responsible for those pops.
const leaveTime = 2 * peerLife * heartbeat

// awaitPromises returns when all peers have promised to forward nothing more, ctx ends, or
// leaveTime is over.
func (r *Router) awaitPromises(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()

	r.mu.Lock()
	r.mu.awaited = map[string]struct{}{}
	for id, p := range r.mu.peers {
		if !p.leaving {
			r.mu.awaited[id] = struct{}{}
		}
	}

	r.enter(phaseLeaving)
	r.mu.Unlock()

	// The heartbeat is the question. Without a connection nobody would hear it.
	signal.To(r.helloNow)
	if !r.p.muted.Load() {
		r.await(ctx, func() bool { return len(r.mu.awaited) == 0 })
	}
}

// await returns when done, which is called with the lock, returns true, or ctx ends. Without a
// connection nothing will come.
func (r *Router) await(ctx context.Context, done func() bool) {
	for online := r.p.config.Online(); online; {
		r.mu.Lock()
		over := done()
		r.mu.Unlock()
		if over {
			return
		}

		select {
		case <-r.changed:
		case <-ctx.Done():
			return
		}
	}
}

// End waits until peers have answered everything forwarded to them, answers the rest itself when
// ctx ends, and sends the last reports. By then this bridge must have answered everything forwarded
// to it.
func (r *Router) End(ctx context.Context) {
	if r.is(phaseAway) {
		return
	}

	r.await(ctx, func() bool {
		for _, p := range r.mu.peers {
			for _, f := range p.forwards {
				if !p.keepsWaiting(f) {
					return false
				}
			}
		}
		return true
	})

	// From here on no reports are heard, so only this bridge can answer the rest.
	r.stop()
	r.running.Wait()
	for _, s := range *r.subscriptions.Load() {
		_ = s.Unsubscribe() // fails if the connection is closed
	}

	// A peer that lives answers the leases that wait there itself.
	r.mu.Lock()
	var lost []*forward
	for _, p := range r.mu.peers {
		lost = append(lost, p.end(errPeerSilent, func(f *forward) bool {
			return !p.keepsWaiting(f)
		})...)
		lost = append(lost, p.end(errLeaving, func(f *forward) bool { return f.relayed })...)
	}
	r.mu.Unlock()

	r.failLost(lost)
	r.sendReports(true, true)
}

// run sends heartbeats and reports until ctx ends.
func (r *Router) run(ctx context.Context) {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.helloNow:
			r.sendHeartbeat()
		case <-r.reportNow:
			r.sendReports(false, false)
		case <-ticker.C:
			r.failLost(r.agePeers())
			r.bell.waits.beat(r.bell.waiters() > 0)
			r.endings.beat()
			r.sendHeartbeat()
			r.sendReports(true, false)
		}
	}
}

// Dropped returns how many messages from peers the NATS client dropped. It never decreases.
func (r *Router) Dropped() int {
	return wire.Dropped(*r.subscriptions.Load())
}

// Backlog returns what peers have sent over the main connection and no callback has handled yet.
func (r *Router) Backlog() (messages, bytes int) {
	return wire.Backlog(*r.subscriptions.Load())
}
