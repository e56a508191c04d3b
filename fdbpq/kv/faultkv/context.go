package faultkv

import (
	"context"
	"sync"
)

// detached is a context that ends with its parent until it is detached, and
// then never. It is what a transaction of the store gets, because a commit that
// is made later must not end with its caller.
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

// detach lets go of the parent and reports whether it came before the parent's
// end.
func (d *detached) detach() bool { return d.stop() }

// Done implements context.Context.
func (d *detached) Done() <-chan struct{} { return d.done }

// Err implements context.Context.
func (d *detached) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}
