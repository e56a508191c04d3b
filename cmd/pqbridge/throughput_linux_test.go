package main

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

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

func TestBusyness(t *testing.T) {
	now, used := time.Unix(1000, 0), time.Hour // of before
	var b busyness
	// look goes on by that much time, of which the process computed a share.
	look := func(what string, passed time.Duration, share float64, want bool) {
		t.Helper()
		now = now.Add(passed)
		used += time.Duration(share * float64(passed))
		if got := b.look(now, used); got != want {
			t.Errorf("%s: busy %v, want %v", what, got, want)
		}
	}

	look("the first look knows nothing", throughputInterval, 0, false)
	look("not busy", throughputInterval, 0.2, false)
	look("busy", throughputInterval, 0.3, true)
	look("still busy", throughputInterval, 1.9, true)
	for range int(calmTime/throughputInterval) - 1 {
		look("calm, but not for long", throughputInterval, 0.1, true)
	}
	look("calm", throughputInterval, 0.1, false)
	look("calm for an hour", time.Hour, 0.24, false)
	look("busy again", throughputInterval, 0.25, true)

	for before := processorTime(); processorTime() == before; { // it goes on
	}
}
