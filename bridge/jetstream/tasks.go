package jetstream

import (
	"context"
	"sync"
	"time"
)

// Up to maxTasks tasks run at a time, and up to maxWaitingTasks wait.
const maxTasks, maxWaitingTasks = 16, 1000

// tasks runs calls of the API, and what else waits for the store.
type tasks struct {
	slots   chan struct{} // an element for each task that runs
	ctx     context.Context
	cancel  context.CancelFunc
	timeout time.Duration // of each

	mu struct {
		sync.Mutex
		pending int // tasks that wait or run
		ended   bool
	}
	running sync.WaitGroup
}

func newTasks(timeout time.Duration) *tasks {
	t := &tasks{slots: make(chan struct{}, maxTasks), timeout: timeout}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// later runs a task when there is a slot for it. It returns false if too many wait, or the face has
// ended.
func (t *tasks) later(run func(ctx context.Context)) bool {
	return t.runTask(maxTasks+maxWaitingTasks, run)
}

// runTask is later with another limit.
func (t *tasks) runTask(limit int, run func(ctx context.Context)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.mu.ended || t.mu.pending >= limit {
		return false
	}

	t.mu.pending++
	t.running.Go(func() {
		ctx, cancel := context.WithTimeout(t.ctx, t.timeout)
		defer cancel()
		t.slots <- struct{}{}
		run(ctx)
		<-t.slots

		t.mu.Lock()
		t.mu.pending--
		t.mu.Unlock()
	})
	return true
}

// end waits for the tasks. When ctx ends it cancels them. No further ones begin.
func (t *tasks) end(ctx context.Context) {
	t.mu.Lock()
	t.mu.ended = true
	t.mu.Unlock()

	defer context.AfterFunc(ctx, t.cancel)()
	t.running.Wait()
	t.cancel()
}
