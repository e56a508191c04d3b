package dispatch

import (
	"container/heap"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// task is a queue that the sweeper looks at, at a certain time.
type task struct {
	queue fdbpq.QueueName
	at    time.Time // by the clock by which items fall due
	found bool      // in the list of queues, so its owner knows of it; else by a batch of this process
	late  bool      // its owner has had its time
	swept bool      // something was removed or brought back
	alone bool      // in a batch of its own, because beside others there was no room

	index int // in the heap
}

// agenda is the tasks, at most one for each queue.
type agenda struct {
	byQueue map[fdbpq.QueueName]*task
	heap    taskHeap
	limit   int
}

// maxTasks limits the tasks, to about 60 MB. Beyond it, the sweeper goes through the list of queues
// again and again.
const maxTasks = 1 << 18

func newAgenda(limit int) agenda {
	return agenda{byQueue: map[fdbpq.QueueName]*task{}, limit: limit}
}

// add adds a task, unless the agenda has one for the queue that is no later. It returns false if
// there is no room.
func (a *agenda) add(t task) bool {
	known := a.byQueue[t.queue]
	switch {
	case known == nil && len(a.heap) >= a.limit:
		return false
	case known == nil:
		known = new(task)
		*known = t
		a.byQueue[t.queue] = known
		heap.Push(&a.heap, known)
	case t.at.Before(known.at):
		t.index, t.found, t.swept, t.alone = known.index, t.found && known.found, t.swept || known.swept, t.alone || known.alone
		*known = t
		heap.Fix(&a.heap, known.index)
	default:
		known.found, known.alone = known.found && t.found, known.alone || t.alone
	}
	return true
}

// takeDue takes up to limit tasks that are to be done by now, the earliest first.
func (a *agenda) takeDue(now time.Time, limit int) (tasks []task) {
	for len(tasks) < limit && len(a.heap) > 0 && !a.heap[0].at.After(now) {
		t := heap.Pop(&a.heap).(*task)
		delete(a.byQueue, t.queue)
		tasks = append(tasks, *t)
	}
	if len(a.heap) == 0 {
		*a = newAgenda(a.limit) // neither shrinks
	}
	return tasks
}

// isDue reports whether there is a task to be done by now.
func (a *agenda) isDue(now time.Time) bool { return len(a.heap) > 0 && !a.heap[0].at.After(now) }

type taskHeap []*task

// Len implements heap.Interface.
func (h taskHeap) Len() int { return len(h) }

// Less implements heap.Interface.
func (h taskHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

// Swap implements heap.Interface.
func (h taskHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *taskHeap) Push(t any) {
	t.(*task).index = len(*h)
	*h = append(*h, t.(*task))
}

// Pop implements heap.Interface.
func (h *taskHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return t
}
