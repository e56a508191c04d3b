package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// pageFailure returns the code and the text of an error, the same as those of a reply over NATS.
func pageFailure(err error) (code int, text string) {
	f := newFailure(err)
	return int(f.Code), f.Text
}

// inspectQueue returns what there is to know of a queue, without adding it to those in use.
func (b *Bridge) inspectQueue(ctx context.Context, kind subjects.Kind, name string) (*fdbpq.Info, time.Time, error) {
	var q fdbpq.Target
	var err error
	if kind == subjects.FIFO {
		q, err = b.keyspace.Queue(name)
	} else {
		q, err = b.keyspace.PriorityQueue(name)
	}
	if err != nil {
		return nil, time.Time{}, err
	}
	return b.inspector.info(ctx, q)
}

// notReady returns why this bridge is not ready. It asks NATS and the store at once.
func (b *Bridge) notReady(ctx context.Context) (reasons []error) {
	store := make(chan error, 1)
	go func() { store <- b.storeReady(ctx) }()

	for _, err := range []error{b.natsReady(ctx), <-store, b.servingReady()} {
		if err != nil {
			reasons = append(reasons, err)
		}
	}
	if b.stopping.Load() {
		reasons = append(reasons, errors.New("shutting down"))
	}
	return reasons
}

// natsReady makes a round trip to the server.
func (b *Bridge) natsReady(ctx context.Context) error {
	if !b.online.Load() {
		return errors.New("nats: not connected")
	}
	if err := b.nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("nats: no answer: %w", err)
	}
	return b.denials.err()
}

func (b *Bridge) storeReady(ctx context.Context) error {
	if err := b.dispatcher.StoreReady(ctx); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}
