package requests

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/subjects"
)

// Waits has the requests that wait on this bridge under an id, and ends them when their clients
// cancel.
//
// A cancel may overtake its request, which takes another way if it is forwarded. So a bridge
// remembers cancels of requests that it does not have, for a while.
type Waits struct {
	dispatcher *dispatch.Dispatcher

	mu struct {
		sync.Mutex
		of    map[string]*cancellable // by key
		early []*cancellable          // of requests that are not here, oldest first
	}
}

const (
	// earlyLife and maxEarly limit how long such cancels are remembered, and how many.
	earlyLife = 5 * time.Second
	maxEarly  = 4096
)

func newWaits(d *dispatch.Dispatcher) *Waits {
	w := &Waits{dispatcher: d}
	w.mu.of = map[string]*cancellable{}
	return w
}

// waitKey names a request that waits. No part of it has blanks.
func waitKey(r *subjects.Request, id string) string {
	return r.Kind.String() + " " + r.Queue + " " + id
}

// cancellable is a request with an id.
type cancellable struct {
	waits   *Waits
	key     string
	waiting dispatch.WaitHandle
	until   time.Time // when it is forgotten, if it was cancelled before it came

	cancelled atomic.Bool
}

// add adds a request, which is about to be submitted. Its replier removes it at its end. The error
// says that it was cancelled already, or that its id is in use.
func (w *Waits) add(r *dispatch.Request, parsed *subjects.Request) (*cancellable, error) {
	c := &cancellable{waits: w, key: waitKey(parsed, r.Wait.ID), waiting: r.WaitHandle()}

	w.mu.Lock()
	defer w.mu.Unlock()
	w.expireLocked()
	if other := w.mu.of[c.key]; other != nil && !other.until.IsZero() {
		return nil, errCancelled
	} else if other != nil {
		return nil, badRequest("another request waits with this id: " +
			"want a different id for each request")
	}

	w.mu.of[c.key] = c
	return c, nil
}

// End ends the request with that key. A client has asked this bridge or a peer to cancel it.
func (w *Waits) End(key string) {
	w.mu.Lock()
	c := w.mu.of[key]
	if c == nil { // it may still come
		w.expireLocked()
		c = &cancellable{key: key, until: time.Now().Add(earlyLife)}
		w.mu.of[key] = c
		w.mu.early = append(w.mu.early, c)
	}

	w.mu.Unlock()

	c.cancelled.Store(true)
	w.dispatcher.Cancel(c.waiting)
}

// expireLocked removes cancels that are old, or too many.
func (w *Waits) expireLocked() {
	for len(w.mu.early) > 0 {
		oldest := w.mu.early[0]
		if len(w.mu.early) < maxEarly && !time.Now().After(oldest.until) {
			return
		}
		delete(w.mu.of, oldest.key)
		w.mu.early = w.mu.early[1:]
	}
}

// remove removes a request that has ended.
func (c *cancellable) remove() {
	w := c.waits
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.of[c.key] == c {
		delete(w.mu.of, c.key)
	}
}

// why returns the error of a request that ends with err, as its client hears it.
func (c *cancellable) why(err error) error {
	if c.cancelled.Load() && errors.Is(err, dispatch.ErrCancelled) {
		return errCancelled
	}
	return err
}
