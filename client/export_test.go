package client

import "time"

// Waiting is how many jobs wait for the next request that acknowledges several.
func (w *Worker) Waiting() int {
	w.sources[0].acks.mu.Lock()
	defer w.sources[0].acks.mu.Unlock()
	return len(w.sources[0].acks.waiting)
}

// SetSlow sets after how long a shared request counts as slow.
func (w *Worker) SetSlow(d time.Duration) { w.sources[0].acks.slow = d }

// SetHeartbeat sets how often the bridge confirms that the worker waits for a job.
func (w *Worker) SetHeartbeat(d time.Duration) { w.heartbeat = d }

// Stopping is closed when the worker leases no more.
func (w *Worker) Stopping() <-chan struct{} { return w.stopping.Done() }
