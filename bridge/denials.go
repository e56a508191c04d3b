package bridge

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// denials are the subjects of requests that NATS does not let this bridge subscribe to, with what
// it says.
//
// NATS ends a subscription when an operator takes the permission away, and does not make it again
// when the permission comes back. So the bridge asks again from time to time. On a new connection
// it subscribes to everything anyway.
type denials struct {
	mu sync.Mutex
	of map[string]string
}

// deniedRetry is the time between two attempts.
const deniedRetry = 10 * time.Second

func (d *denials) add(subject, text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of = map[string]string{}
	}
	d.of[subject] = text
}

// takeAll returns the subjects, and forgets them.
func (d *denials) takeAll() []string {
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
