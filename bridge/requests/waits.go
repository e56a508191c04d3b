package requests

import (
	"errors"
	"hash/maphash"
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
// remembers cancels of requests that it does not have, for a while. Most of these have ended, or
// wait on another bridge, which it cannot tell: so a cancel takes little memory.
type Waits struct {
	dispatcher *dispatch.Dispatcher
	seed       maphash.Seed

	mu struct {
		sync.Mutex
		of    map[string]*cancellable // by key
		early map[uint64]struct{}     // hashes of the keys of cancels
		order []earlyCancel           // the same, oldest first
	}
}

// earlyCancel is a cancel of a request that is not here.
type earlyCancel struct {
	hash  uint64 // of its key
	until time.Time
}

const (
	// earlyLife and maxEarly limit how long such cancels are remembered, and how many: 5 MB.
	earlyLife = 5 * time.Second
	maxEarly  = 1 << 16
)

func newWaits(d *dispatch.Dispatcher) *Waits {
	w := &Waits{dispatcher: d, seed: maphash.MakeSeed()}
	w.mu.of = map[string]*cancellable{}
	w.mu.early = map[uint64]struct{}{}
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

	cancelled atomic.Bool
}

// add adds a request, which is about to be submitted. Its replier removes it at its end. The error
// says that it was cancelled already, or that its id is in use.
func (w *Waits) add(r *dispatch.Request, parsed *subjects.Request) (*cancellable, error) {
	c := &cancellable{waits: w, key: waitKey(parsed, r.Wait.ID), waiting: r.WaitHandle()}

	w.mu.Lock()
	defer w.mu.Unlock()
	w.expireLocked()
	if _, early := w.mu.early[maphash.String(w.seed, c.key)]; early {
		return nil, errCancelled
	}
	if w.mu.of[c.key] != nil {
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
	if c == nil {
		w.addEarlyLocked(maphash.String(w.seed, key))
	}
	w.mu.Unlock()

	if c != nil {
		c.cancelled.Store(true)
		w.dispatcher.Cancel(c.waiting)
	}
}

// addEarlyLocked remembers a cancel, because its request may still come.
func (w *Waits) addEarlyLocked(hash uint64) {
	w.expireLocked()
	if _, known := w.mu.early[hash]; !known {
		w.mu.early[hash] = struct{}{}
		w.mu.order = append(w.mu.order, earlyCancel{hash, time.Now().Add(earlyLife)})
	}
}

// expireLocked removes cancels that are old, or too many.
func (w *Waits) expireLocked() {
	for len(w.mu.order) > 0 {
		oldest := w.mu.order[0]
		if len(w.mu.order) < maxEarly && !time.Now().After(oldest.until) {
			return
		}
		delete(w.mu.early, oldest.hash)
		w.mu.order = w.mu.order[1:]
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
