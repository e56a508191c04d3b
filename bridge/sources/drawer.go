package sources

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// drawer draws for one queue, as one source. What changes belongs to its goroutine.
type drawer struct {
	config   *Config
	slots    chan struct{} // an element for each that is drawn from
	name     fdbpq.QueueName
	queue    *dispatch.Queue
	consumer string // the name of its consumers, or the start of it
	ctx      context.Context
	stop     func()
	ended    sync.WaitGroup
	shown    atomic.Pointer[settings.SourceState] // nil before the first read

	stored []byte // the state
	state  settings.SourceState
	source settings.Source
}

var (
	errChanged = errors.New("somebody else has changed the state of the source")
	errStopped = errors.New("the source has stopped")
)

// text is an error as the state has it.
func text(err error) string { return settings.Cut(err.Error(), 500) }

// do runs operations on the queue and returns the state that there is then.
func (d *drawer) do(ops ...fdbpq.Op) (stored []byte, err error) {
	results, err := d.config.Dispatcher.Do(d.ctx, d.queue, ops)
	if err != nil {
		return nil, err
	}
	return results[0].Source, results[0].Err
}

// read reads the state.
func (d *drawer) read() error {
	stored, err := d.do(fdbpq.Op{Kind: fdbpq.OpSettings})
	if err == nil && stored == nil {
		d.shown.Store(nil)
		err = fdbpq.ErrNoSource
	}
	if err != nil {
		return err
	}
	return d.learn(stored)
}

// learn takes a state that is stored.
func (d *drawer) learn(stored []byte) error {
	state, err := settings.ParseSourceState(stored)
	if err == nil {
		d.source, err = settings.ParseSource(string(state.Source))
	}
	if err != nil {
		return fmt.Errorf("the state of the source cannot be read: %w", err)
	}
	d.stored, d.state = stored, state
	d.shown.Store(&state)
	return nil
}

// commit changes the state together with pushes and dead letters, or nothing, with errChanged, if it is
// another one by now.
func (d *drawer) commit(next *settings.SourceState, pushes []fdbpq.Op, dead []fdbpq.Message) error {
	was, value := d.stored, next.JSON()
	set := fdbpq.Op{Kind: fdbpq.OpSetSource, Dead: dead, Change: func(old []byte) ([]byte, error) {
		if !bytes.Equal(old, was) {
			return nil, errChanged
		}
		return value, nil
	}}
	stored, err := d.do(append([]fdbpq.Op{set}, pushes...)...)
	if err != nil {
		return err
	}
	return d.learn(stored)
}

// note changes the state alone, if that changes it.
func (d *drawer) note(change func(s *settings.SourceState)) error {
	next := d.state
	change(&next)
	if d.stored == nil || bytes.Equal(next.JSON(), d.stored) {
		return nil
	}
	return d.commit(&next, nil, nil)
}

// stopSource stops the source until it is set again.
func (d *drawer) stopSource(why string) error {
	d.config.Warn("a source has stopped", "queue", d.name.Name, "why", why)
	err := d.note(func(s *settings.SourceState) { s.Stopped, s.Waiting = why, "" })
	if err != nil {
		return err
	}
	return errStopped
}

// jetStream returns the API of the domain that the source is in.
func (d *drawer) jetStream() (jetstream.JetStream, error) {
	if d.source.Domain != "" {
		return jetstream.NewWithDomain(d.config.Conn(), d.source.Domain)
	}
	return jetstream.New(d.config.Conn())
}
