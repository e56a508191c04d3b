package bridge

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
)

// denials are the subjects of requests that NATS does not let this bridge subscribe to, with what it says.
//
// NATS ends a subscription when an operator takes the permission away, and does not make it again when the permission
// comes back. So the bridge asks again from time to time. On a new connection it subscribes to everything anyway.
type denials struct {
	mu sync.Mutex
	of map[string]string
}

// deniedRetry is the time between two attempts.
const deniedRetry = 10 * time.Second

func (d *denials) note(subject, text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of = map[string]string{}
	}
	d.of[subject] = text
}

// take returns the subjects, and forgets them.
func (d *denials) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	subjects := slices.Sorted(maps.Keys(d.of))
	d.of = nil
	return subjects
}

// err returns an error that says what NATS denied, nil if nothing.
func (d *denials) err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, subject := range slices.Sorted(maps.Keys(d.of)) {
		errs = append(errs, fmt.Errorf("nats: %s", d.of[subject]))
	}
	return errors.Join(errs...)
}

// askAgain subscribes again to what NATS denied. If it still does, it says so again.
func (b *Bridge) askAgain() {
	if !b.online.Load() {
		return // the next connection asks
	}
	for _, subject := range b.denials.take() {
		if err := b.requestAgain(subject); err != nil {
			b.denials.note(subject, err.Error())
		}
	}
	b.outbox.ListenAgain()
}

// requestAgain replaces the subscription to requests on a subject. What it has received is still handled.
func (b *Bridge) requestAgain(subject string) error {
	again, err := b.subscribeTo(subject) // without the lock, because NATS may block
	if err != nil {
		return err
	}
	b.serving.mu.Lock()
	old := again
	if i := slices.IndexFunc(b.serving.subscriptions, func(s *nats.Subscription) bool { return s.Subject == subject }); i >= 0 {
		old, b.serving.subscriptions[i] = b.serving.subscriptions[i], again
	} // else this bridge has stopped serving
	ended := []*nats.Subscription{old}
	b.serving.dropped += wire.Dropped(ended)
	b.serving.ending = slices.DeleteFunc(b.serving.ending, func(s *nats.Subscription) bool { return !s.IsValid() })
	b.serving.ending = append(b.serving.ending, old)
	b.serving.mu.Unlock()
	wire.Drain(ended)
	return nil
}
