package client

import "time"

// Waiting is how many jobs wait for the next request that acknowledges several.
func (w *Worker) Waiting() int {
	w.shared.mu.Lock()
	defer w.shared.mu.Unlock()
	return len(w.shared.waiting)
}

// SetSlow sets after how long a shared request counts as slow.
func (w *Worker) SetSlow(d time.Duration) { w.shared.slow = d }

// WaitingPops is how many pops of all ends wait for the next request, and lines how many queues and ends have any requests under way.
func (q *PriorityQueue) WaitingPops() (waiting, lines int) {
	s := &q.q.client.pops
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.lines {
		waiting += len(line.waiting)
	}
	return waiting, len(s.lines)
}

// BusyPops is how many requests of pops are under way that are not slow.
func (q *PriorityQueue) BusyPops() (busy int) {
	s := &q.q.client.pops
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.lines {
		busy += line.busy
	}
	return busy
}

// SetSlowPops sets after how long a request of pops counts as slow.
func (q *PriorityQueue) SetSlowPops(d time.Duration) { q.q.client.pops.slow = d }
