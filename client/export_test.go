package client

import "time"

// Waiting is how many jobs wait for the next request that acknowledges several.
func (w *Worker) Waiting() int {
	w.acks.mu.Lock()
	defer w.acks.mu.Unlock()
	return len(w.acks.waiting)
}

// SetSlow sets after how long a shared request counts as slow.
func (w *Worker) SetSlow(d time.Duration) { w.acks.slow = d }

// SetHeartbeat sets how often the bridge confirms that the worker waits for a job.
func (w *Worker) SetHeartbeat(d time.Duration) { w.heartbeat = d }
