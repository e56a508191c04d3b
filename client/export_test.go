package client

// Waiting is how many jobs wait for the next request that acknowledges several.
func (w *Worker) Waiting() int {
	w.shared.mu.Lock()
	defer w.shared.mu.Unlock()
	return len(w.shared.waiting)
}
