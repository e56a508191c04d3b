package jetstream

import (
	"context"
	"sync"
	"time"
)

// maxTasks run at a time, and maxWaitingTasks of them wait.
const maxTasks, maxWaitingTasks = 16, 1000

// tasks are calls of the API, and what else waits for the store.
type tasks struct {
	slots   chan struct{} // an element for each that runs
	ctx     context.Context
	cancel  context.CancelFunc
	timeout time.Duration // of each

	mu struct {
		sync.Mutex
		waiting int // that wait or run
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
	return t.behind(maxTasks+maxWaitingTasks, run)
}

// behind is later for another limit.
func (t *tasks) behind(most int, run func(ctx context.Context)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.ended || t.mu.waiting >= most {
		return false
	}

	t.mu.waiting++
	t.running.Go(func() {
		ctx, cancel := context.WithTimeout(t.ctx, t.timeout)
		defer cancel()
		t.slots <- struct{}{}
		run(ctx)
		<-t.slots

		t.mu.Lock()
		t.mu.waiting--
		t.mu.Unlock()
	})
	return true
}

// end waits for the tasks, and cancels them when ctx ends.
func (t *tasks) end(ctx context.Context) {
	t.mu.Lock()
	t.mu.ended = true
	t.mu.Unlock()

	defer context.AfterFunc(ctx, t.cancel)()
	t.running.Wait()
	t.cancel()
}
