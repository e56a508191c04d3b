package sources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge/internal/signal"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// A drawer is always in one of these states. The error that a state ends with says which is next.
//
//	state      who           ends when                                  next
//	reading    read          the state of the source is known           cleaning
//	                         the queue has none: ErrNoSource            over
//	cleaning   removeFormer  consumers of former sources are gone, or   opening
//	                         cannot be removed from another stream
//	                         there is no source besides former ones     pausing
//	                         the state says stopped: errStopped         over
//	opening    open          the stream has a consumer                  drawing
//	                         messages may be missing                    stopping
//	drawing    drawNext      the queue is full                          full
//	                         a message is bad, or some are missing      stopping
//	                         a delivery was lost: errLost               pausing
//	                         the connection to NATS was lost            pausing
//	                         messages do not come: errSilent            pausing
//	                         another bridge has drawn: errChanged       pausing
//	full       drawAll       there is room                              drawing
//	stopping   stopSource    the state says stopped: errStopped         over
//	pausing    run           the pause is over                          reading
//	over                     the setting changes: Sources.Tell          reading, in a new drawer
//
// Any other error, of JetStream or of the store, leads to pausing, and so does errChanged from
// every state that changes the state in the store. When Tell or the bridge ends the drawer, it is
// over.

// run draws until the drawer or the source is stopped, or the queue has no source.
func (d *drawer) run() {
	defer d.stop()
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		before := d.state.Sequence
		err := d.drawOnce()
		if d.state.Sequence > before {
			pause = minPause
		}

		switch {
		case d.ctx.Err() != nil || errors.Is(err, errStopped) || errors.Is(err, fdbpq.ErrNoSource):
			return
		case !errors.Is(err, errChanged):
			d.config.Warn("a source cannot be drawn from; trying again",
				"queue", d.name.Name, "error", err)

			// The state shows no problem that lasts only a moment, nor one that only this bridge
			// has, because its peers go on.
			lasts := errors.Is(err, errNotAcked) || errors.Is(err, errSilent) ||
				errors.Is(err, jetstream.ErrNoHeartbeat)
			if lasts || pause > minPause && !errors.Is(err, nats.ErrDisconnected) {
				_ = d.change(func(s *settings.SourceState) { s.Waiting = text(err) })
			}
		}
		signal.Pause(d.ctx, pause)
	}
}

// drawOnce reads the state and draws until something ends that, and returns it.
func (d *drawer) drawOnce() error {
	if err := d.read(); err != nil {
		return err
	}

	if err := d.removeFormer(); err != nil {
		changed := errors.Is(err, errChanged) || errors.Is(err, fdbpq.ErrNoSource)
		if changed || slices.ContainsFunc(d.state.Former, d.sameStream) {
			return err
		}
		d.config.Warn("a former source of a queue has left a consumer behind; trying again",
			"queue", d.name.Name, "error", err)
	}

	if len(d.state.Source) == 0 { // only former sources are left
		signal.Pause(d.ctx, cleanEvery)
		return errChanged
	}

	if d.state.Stopped != "" {
		return errStopped
	}

	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	default:
		return fmt.Errorf("this bridge draws from %d sources already, which is the most", Max)
	}

	return d.draw()
}

// draw runs a session. It ends with the connection to NATS: what the server has sent over a
// connection that is lost comes again late, and other messages before it.
func (d *drawer) draw() error {
	nc := d.config.Conn()
	parted := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	defer nc.RemoveStatusListener(parted)
	if !nc.IsConnected() {
		return nats.ErrDisconnected
	}

	connected, cancel := context.WithCancel(d.ctx)
	defer cancel()
	d.ended.Go(func() {
		select {
		case <-parted:
			cancel()
		case <-connected.Done():
		}
	})

	s := &session{
		drawer: d, connected: connected, maxPayload: nc.MaxPayload(), batchSize: maxMessages,
		quietSince: time.Now(),
	}
	switch err := s.open(); {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("stream %s: no answer from JetStream: is it there, and does this bridge "+
			"have the rights that sources need? (%w)", d.source.Stream, err)
	case errors.Is(err, nats.ErrNoResponders) && d.source.Domain == "":
		return fmt.Errorf("stream %s: this NATS server has no JetStream (%w)", d.source.Stream, err)
	case err != nil:
		return fmt.Errorf("stream %s: %w", d.source.Stream, err)
	}

	messages, err := newPuller(nc, s.source.Domain, s.consumer.CachedInfo())
	if err != nil {
		return err
	}

	defer messages.stop()
	for err == nil {
		err = s.drawNext(messages)
	}

	switch {
	case connected.Err() != nil:
		return nats.ErrDisconnected
	case errors.Is(err, jetstream.ErrNoHeartbeat):
		return fmt.Errorf("JetStream delivers nothing: has this bridge the right to ask for "+
			"messages? (%w)", err)
	}

	return err
}
