package faultkv

import (
	"context"
	"sync"
)

// detached is a context that ends with its parent, unless it is detached before: then
// it never ends. Transactions of the store use it, because a commit that is made later
// must not end with its caller.
type detached struct {
	context.Context // the parent's values
	stop            func() bool
	done            chan struct{}

	mu  sync.Mutex
	err error
}

func detachable(parent context.Context) *detached {
	d := &detached{Context: context.WithoutCancel(parent), done: make(chan struct{})}
	d.stop = context.AfterFunc(parent, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.err = parent.Err()
		close(d.done)
	})
	return d
}

// detach detaches from the parent and reports whether that was before the parent
// ended.
func (d *detached) detach() bool { return d.stop() }

// Done implements context.Context.
func (d *detached) Done() <-chan struct{} { return d.done }

// Err implements context.Context.
func (d *detached) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}
