package sources

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// drawer draws for one queue. Its methods belong to run, unless they say otherwise.
type drawer struct {
	s        *Sources
	name     fdbpq.QueueName
	queue    *dispatch.Queue
	consumer string
	stop     func() // ends run; for anybody
	woken    chan struct{}
	known    atomic.Pointer[settings.SourceState] // nil before it was read; for anybody

	stored []byte // what known was read from
}

var (
	// errChanged ends a session because somebody else has changed the state.
	errChanged = errors.New("the source was changed")
	// errIdle ends a session with which nothing can be drawn until the drawer is told something.
	errIdle = errors.New("stopped")
)

// wake makes run look at the state again. It is for anybody.
func (d *drawer) wake() {
	select {
	case d.woken <- struct{}{}:
	default:
	}
}

// run draws until ctx ends or the queue has no source.
func (d *drawer) run(ctx context.Context) {
	defer d.stop()
	pause := minPause
	for {
		before := d.known.Load()
		err := d.session(ctx)
		if state := d.known.Load(); state != nil && before != nil && state.Sequence > before.Sequence {
			pause = minPause
		}

		switch {
		case ctx.Err() != nil || errors.Is(err, fdbpq.ErrNoSource):
			if d.s.ended(ctx, d) {
				return
			}
		case errors.Is(err, errChanged): // perhaps by a bridge that draws as well
			wait(ctx, nil, minPause)
		case errors.Is(err, errIdle):
			select {
			case <-ctx.Done():
			case <-d.woken:
			}
		default:
			d.s.config.Warn("a source cannot be drawn from; trying again", "queue", d.name.Name, "error", err)
			if pause > minPause {
				_ = d.note(ctx, func(s *settings.SourceState) { s.Waiting = text(err) })
			}
			wait(ctx, d.woken, pause)
			pause = nextPause(pause)
		}
	}
}

// text is an error as the state has it.
func text(err error) string { return settings.Cut(err.Error(), 500) }

// session draws until something ends it, and returns that.
func (d *drawer) session(ctx context.Context) error {
	before := d.known.Load()
	if err := d.read(ctx); err != nil {
		if errors.Is(err, fdbpq.ErrNoSource) {
			d.removeConsumers(ctx, before)
		}
		return err
	}

	state := d.known.Load()
	if before != nil && (before.Stream != state.Stream || before.Domain != state.Domain) {
		d.removeConsumers(ctx, before)
	}
	if state.Stopped != "" {
		return errIdle
	}

	select {
	case d.s.slots <- struct{}{}:
		defer func() { <-d.s.slots }()
	default:
		return fmt.Errorf("this bridge draws from %d sources, which is the most", Max)
	}

	p, err := d.open(ctx)
	if err != nil {
		return err
	}
	return p.draw(ctx)
}

// read reads the state.
func (d *drawer) read(ctx context.Context) error {
	select {
	case <-d.woken:
	default:
	}
	results, err := d.s.config.Dispatcher.Do(ctx, d.queue, []fdbpq.Op{{Kind: fdbpq.OpSource}})
	switch {
	case err != nil:
		return err
	case results[0].Err != nil:
		return results[0].Err
	case results[0].Source == nil:
		return fdbpq.ErrNoSource
	}
	return d.learn(results[0].Source)
}

// learn takes a state that is stored.
func (d *drawer) learn(stored []byte) error {
	state, err := settings.ParseSourceState(stored)
	if err != nil {
		return fmt.Errorf("the state of the source cannot be read: %w", err)
	}
	d.stored = stored
	d.known.Store(&state)
	return nil
}

// commit changes the state in one transaction with pushes and dead letters. It does nothing, and
// returns errChanged, if the state is another one by now.
func (d *drawer) commit(ctx context.Context, next *settings.SourceState, pushes []fdbpq.Op, dead []fdbpq.Message) error {
	value := next.JSON()
	ops := append([]fdbpq.Op{{Kind: fdbpq.OpSetSource, Dead: dead, Change: func(old []byte) ([]byte, error) {
		if !bytes.Equal(old, d.stored) {
			return nil, errChanged
		}
		return value, nil
	}}}, pushes...)

	results, err := d.s.config.Dispatcher.Do(ctx, d.queue, ops)
	if err == nil {
		err = results[0].Err
	}
	if err != nil {
		return err
	}
	return d.learn(value)
}

// note changes what the state says besides how far it has come. Nothing is written without need.
func (d *drawer) note(ctx context.Context, change func(s *settings.SourceState)) error {
	if d.stored == nil {
		return nil
	}
	next := *d.known.Load()
	change(&next)
	if bytes.Equal(next.JSON(), d.stored) {
		return nil
	}
	return d.commit(ctx, &next, nil, nil)
}

// stopSource stops the source for good.
func (d *drawer) stopSource(ctx context.Context, why string) error {
	d.s.config.Warn("a source has stopped", "queue", d.name.Name, "why", why)
	if err := d.note(ctx, func(s *settings.SourceState) { s.Stopped, s.Waiting = why, "" }); err != nil {
		return err
	}
	return errIdle
}

// jetStream returns the API of the domain that a source is in.
func (d *drawer) jetStream(s *settings.SourceState) (jetstream.JetStream, error) {
	if s.Domain != "" {
		return jetstream.NewWithDomain(d.s.config.Conn(), s.Domain)
	}
	return jetstream.New(d.s.config.Conn())
}

// removeConsumers removes the consumers of a source that this queue no longer has, if it can.
func (d *drawer) removeConsumers(ctx context.Context, s *settings.SourceState) {
	if s == nil {
		return
	}
	js, err := d.jetStream(s)
	for _, name := range d.consumers() {
		if err == nil {
			_ = js.DeleteConsumer(ctx, s.Stream, name)
		}
	}
}

// consumers returns the names of the queue's consumers. The second is for streams with interest.
func (d *drawer) consumers() [2]string { return [2]string{d.consumer, d.consumer + "_2"} }

// check compares the stream with the state, and begins a source that is new. It returns why the source
// has to stop, "" if it has not.
func (d *drawer) check(ctx context.Context, info *jetstream.StreamInfo) (why string, err error) {
	s, stream := d.known.Load(), info.State
	if s.Created.IsZero() {
		next := *s
		next.Created, next.Lag = info.Created, stream.Msgs
		switch start := s.Start.Sequence(); {
		case s.Start == settings.StartNew:
			next.Sequence, next.Lag = stream.LastSeq, 0
		case start > stream.LastSeq+1:
			return fmt.Sprintf("start is %d, and the last message of stream %s is %d: set another start", start, s.Stream, stream.LastSeq), nil
		default:
			next.Sequence = max(start, stream.FirstSeq, 1) - 1
		}
		if info.Config.Retention == jetstream.WorkQueuePolicy && next.Sequence >= max(stream.FirstSeq, 1) {
			return fmt.Sprintf("stream %s is a work queue, which can only be drawn from its start: set start to \"all\"", s.Stream), nil
		}
		return "", d.commit(ctx, &next, nil, nil)
	}

	switch {
	case !s.Created.Equal(info.Created):
		return fmt.Sprintf("stream %s was created again, at %s, after %d messages of the former one: remove source and set it again, with the start that you want",
			s.Stream, info.Created.UTC().Format("2006-01-02T15:04:05Z"), s.Sequence), nil
	case stream.LastSeq < s.Sequence:
		return fmt.Sprintf("stream %s ends at %d, and %d was drawn: it was restored or has lost messages: set source with the start that you want",
			s.Stream, stream.LastSeq, s.Sequence), nil
	}
	return lost(s, info, s.Sequence+1), nil
}

// lost returns why the source has to stop if the messages from the one with the sequence on are gone,
// "" if they are not. With a filter, nobody knows whether they were for this source. In streams
// without limits, the messages that were drawn are gone, too.
func lost(s *settings.SourceState, info *jetstream.StreamInfo, from uint64) string {
	if s.Filter != "" || info.Config.Retention != jetstream.LimitsPolicy || info.State.FirstSeq <= from {
		return ""
	}
	return fmt.Sprintf("messages %d to %d of stream %s were removed before they were drawn: set source with \"start\":%d to go on without them",
		from, info.State.FirstSeq-1, s.Stream, info.State.FirstSeq)
}
