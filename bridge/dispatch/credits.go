package dispatch

// Credits bound how many items the requests of one queue that share them may have at a time: each
// item that one gets takes a credit, which Dispatcher.AddCredits gives back. A request that waits
// while there are none keeps its place in line, and nobody behind it waits for that.
type Credits struct {
	// The lock of the queue's lane guards these.
	left   int
	parked int // requests that share them, in line and in no batch
}

// NewCredits returns n credits.
func NewCredits(n int) *Credits { return &Credits{left: n} }

// AddCredits adds credits of requests of a queue, or takes them away if n is negative.
func (d *Dispatcher) AddCredits(q *Queue, c *Credits, n int) {
	l := q.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.lineLocked(q)
	before := c.left
	c.addLocked(ln, n)
	if before <= 0 && c.left > 0 && c.parked > 0 {
		l.wakeLineLocked(ln, c.left)
	}
}

// addLocked changes what is left. The line is that of the queue, nil if nobody waits.
func (c *Credits) addLocked(ln *line, n int) {
	before := c.left
	c.left += n
	switch {
	case before > 0 && c.left <= 0 && c.parked > 0:
		ln.blocked += c.parked
	case before <= 0 && c.left > 0 && c.parked > 0:
		ln.blocked -= c.parked
	}
}

// countLocked counts a request that parks, or ends that.
func (c *Credits) countLocked(ln *line, parks bool) {
	n := -1
	if parks {
		n = 1
	}
	c.parked += n
	if c.left <= 0 {
		ln.blocked += n
	}
}

// credits are those of the request, nil if nothing bounds it.
func (w *waiter) credits() *Credits {
	if w.waits() {
		return w.request.Wait.Credits
	}
	return nil
}

// blocked reports whether the request may get nothing now for lack of credits.
func (w *waiter) blocked() bool {
	c := w.credits()
	return c != nil && c.left <= 0
}

// chargeLocked takes credits for up to n pops of an attempt, and returns for how many.
func (w *waiter) chargeLocked(n int) int {
	if c := w.credits(); c != nil {
		n = min(n, c.left)
		w.charged = n
		c.addLocked(w.line, -n)
	}
	return n
}

// refundLocked gives back the credits of an attempt that got no items.
func (w *waiter) refundLocked() {
	if c := w.credits(); c != nil {
		c.addLocked(w.line, w.charged)
		w.charged = 0
	}
}
