package bridge

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// denials are the request subjects that NATS does not let this bridge subscribe to, with the error
// for each.
//
// NATS ends a subscription when an operator revokes the permission, and does not restore it when
// the permission comes back. So the bridge asks again from time to time. A new connection
// subscribes to everything anyway.
type denials struct {
	mu    sync.Mutex
	of    map[string]string
	asked []string // by the last retry
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

// clear forgets everything.
func (d *denials) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of, d.asked = nil, nil
}

// retry returns the denied subjects, to ask for them again, and forgets them. permitted are the
// subjects of the previous retry that NATS has not denied since.
func (d *denials) retry() (denied, permitted []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	denied = slices.Sorted(maps.Keys(d.of))
	again := func(subject string) bool { return slices.Contains(denied, subject) }
	permitted = slices.DeleteFunc(d.asked, again)
	d.of, d.asked = nil, slices.Clone(denied)
	return denied, permitted
}

// err returns an error that says what NATS denied, nil if nothing.
func (d *denials) err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.of) == 0 {
		return nil
	}

	// As NATS has it, without quotes, which JSON would escape, and what its client puts first.
	var texts []string
	for _, subject := range slices.Sorted(maps.Keys(d.of)) {
		text := strings.ReplaceAll(d.of[subject], `"`, "")
		texts = append(texts, strings.TrimPrefix(text, nats.ErrPermissionViolation.Error()+": "))
	}
	return errors.New("nats: " + strings.Join(texts, "; "))
}
