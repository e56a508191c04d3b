package main

import (
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSetBatchClass(t *testing.T) {
	if !normalClass() {
		t.Skip("skipped: somebody has chosen a class of the scheduler for this test")
	}
	defer func() {
		if err := setBatchClass(false); err != nil {
			t.Error(err)
		}
		expectClass(t, unix.SCHED_NORMAL)
	}()
	end := startThreads(4)
	defer end()
	if err := setBatchClass(true); err != nil {
		t.Fatal(err)
	}
	defer startThreads(4)() // new ones have it, too
	expectClass(t, unix.SCHED_BATCH)
	if normalClass() {
		t.Error("normalClass says yes of a thread with another class")
	}
}

// startThreads starts goroutines that have a thread each, until the function that it returns is
// called.
func startThreads(n int) (end func()) {
	stop, started, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	for range n {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			started <- struct{}{}
			<-stop
			ended <- struct{}{}
		}()
	}
	for range n {
		<-started
	}
	return func() {
		close(stop)
		for range n {
			<-ended
		}
	}
}

func expectClass(t *testing.T, want uint32) {
	t.Helper()
	threads, err := os.ReadDir(threadsDir)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			t.Fatal(err)
		}
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

func TestProcessorTime(t *testing.T) {
	before, err := processorTime()
	if err != nil {
		t.Fatal(err)
	}
	for {
		after, err := processorTime()
		if err != nil {
			t.Fatal(err)
		}
		if after > before {
			return
		}
	}
}
