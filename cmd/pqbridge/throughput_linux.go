package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// threadsDir lists the threads of this process.
const threadsDir = "/proc/self/task"

func processorTime() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("read the processor time: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// normalClass reports whether this thread has the class that threads have unless somebody chose
// another.
func normalClass() bool {
	attr, err := unix.SchedGetAttr(0, 0)
	return err == nil && attr.Policy == unix.SCHED_NORMAL
}

// setBatchClass gives all threads the class SCHED_BATCH, or SCHED_NORMAL again. New threads have
// the class of the one that starts them, so it goes over them until it finds none left to change.
func setBatchClass(batch bool) error {
	want := uint32(unix.SCHED_NORMAL)
	if batch {
		want = unix.SCHED_BATCH
	}

	for changed := true; changed; {
		changed = false
		threads, err := os.ReadDir(threadsDir)
		if err != nil {
			return err
		}
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil {
				return err
			}
			did, err := setClass(id, want)
			if err != nil {
				return err
			}
			changed = changed || did
		}
	}
	return nil
}

// setClass reports whether the thread had another class.
func setClass(thread int, want uint32) (bool, error) {
	attr, err := unix.SchedGetAttr(thread, 0)
	if err == nil && attr.Policy != want {
		attr.Policy = want
		err = unix.SchedSetAttr(thread, attr, 0)
		if err == nil {
			return true, nil
		}
	}

	if errors.Is(err, unix.ESRCH) { // it has ended
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("set the class of the scheduler: %w", err)
	}
	return false, nil
}
