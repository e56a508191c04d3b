package sources

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects/settings"
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

	state     settings.SourceState
	source    settings.Source                      // of the state
	stored    []byte                               // the state as it is in the store
	status    atomic.Pointer[settings.SourceState] // for Each; nil before the first read
	cleanedAt time.Time                            // when it last tried to remove former consumers
	lookAfter time.Time                            // when it may look at a silent consumer again
}

var (
	errChanged = errors.New("somebody else has changed the state of the source")
	errStopped = errors.New("the source has stopped")
)

// text is an error as the state has it, without the name of a package, which nobody knows there.
func text(err error) string {
	return settings.Cut(strings.ReplaceAll(err.Error(), "fdbpq: ", ""), 500)
}

// do runs operations on the queue, beginning with an OpSetSource, and returns the state that there
// is then.
func (d *drawer) do(ops ...fdbpq.Op) (stored []byte, err error) {
	results, err := d.config.Dispatcher.Do(d.ctx, d.queue, ops)
	if err != nil {
		return nil, err
	}
	return results[0].Source, results[0].Err
}

// read reads the state. ErrNoSource says that there is none. OpSettings does not return a state
// that has only former sources.
func (d *drawer) read() error {
	stored, err := d.do(fdbpq.Op{Kind: fdbpq.OpSetSource})
	if err != nil && !errors.Is(err, fdbpq.ErrNoSource) {
		return err
	}

	return d.setState(stored)
}

// setState makes a stored state the drawer's, nil for none.
func (d *drawer) setState(stored []byte) (err error) {
	if stored == nil {
		d.status.Store(nil)
		return fdbpq.ErrNoSource
	}

	var source settings.Source
	state, err := settings.ParseSourceState(stored)
	if err == nil && len(state.Source) > 0 {
		source, err = settings.ParseSource(string(state.Source))
	}

	if err != nil {
		return fmt.Errorf("the state of the source cannot be read: %w", err)
	}

	d.stored, d.state, d.source = stored, state, source
	d.status.Store(nil)
	if source.Stream != "" {
		d.status.Store(&state)
	}

	return nil
}

// commit changes the state together with pushes and dead letters. If it is another one by now, it
// changes nothing and returns errChanged.
func (d *drawer) commit(
	next *settings.SourceState, pushes []fdbpq.Op, dead []fdbpq.Message,
) error {
	was, value := d.stored, next.JSON()
	set := fdbpq.Op{
		Kind: fdbpq.OpSetSource, Dead: dead,
		Change: func(old []byte, _ time.Time) ([]byte, error) {
			if !bytes.Equal(old, was) {
				return nil, errChanged
			}
			return value, nil
		},
	}

	stored, err := d.do(append([]fdbpq.Op{set}, pushes...)...)
	if err != nil {
		return err
	}

	return d.setState(stored)
}

// change changes the state without drawing anything. It writes nothing if that leaves the state as
// it is.
func (d *drawer) change(change func(s *settings.SourceState)) error {
	next := d.state
	change(&next)
	if bytes.Equal(next.JSON(), d.stored) {
		return nil
	}
	return d.commit(&next, nil, nil)
}

// stopSource stops the source until it is set again. It returns errStopped once the state says so.
func (d *drawer) stopSource(why string) error {
	d.config.Warn("a source has stopped", "queue", d.name.Name, "why", why)
	err := d.change(func(s *settings.SourceState) { s.Stopped, s.Waiting = why, "" })
	return cmp.Or(err, errStopped)
}

// jetStream returns the API of a domain.
func (d *drawer) jetStream(domain string) (jetstream.JetStream, error) {
	if domain != "" {
		return jetstream.NewWithDomain(d.config.Conn(), domain)
	}
	return jetstream.New(d.config.Conn())
}
