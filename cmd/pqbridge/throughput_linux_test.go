package main

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// The class of the scheduler reaches all threads, and threads that start later.
func TestSetClass(t *testing.T) {
	if attr, err := unix.SchedGetAttr(0, 0); err != nil || attr.Policy != unix.SCHED_NORMAL {
		t.Skip("skipped: somebody has chosen a class of the scheduler for this test")
	}
	defer func() {
		if err := setClass(unix.SCHED_NORMAL); err != nil {
			t.Error(err)
		}
		expectClass(t, unix.SCHED_NORMAL)
	}()

	end := startThreads(4)
	defer end()
	must(t, setClass(unix.SCHED_BATCH))
	defer startThreads(4)() // new ones have it, too
	expectClass(t, unix.SCHED_BATCH)
}

// startThreads starts goroutines that have a thread each, until the function that it returns is
// called.
func startThreads(n int) (end func()) {
	stop := make(chan struct{})
	var started, ended sync.WaitGroup
	started.Add(n)

	for range n {
		ended.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			started.Done()
			<-stop
		})
	}

	started.Wait()
	return func() {
		close(stop)
		ended.Wait()
	}
}

func expectClass(t *testing.T, want uint32) {
	t.Helper()
	threads, err := os.ReadDir(threadsDir)
	must(t, err)
	seen := 0

	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		must(t, err)
		attr, err := unix.SchedGetAttr(id, 0)
		if err != nil {
			continue // it has ended
		}

		seen++
		if attr.Policy != want {
			t.Errorf("thread %d has class %d, want %d", id, attr.Policy, want)
		}
	}
	if seen < 4 {
		t.Errorf("looked at %d threads, want at least the four of this test", seen)
	}
}
