package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// throughputInterval is the time between two measurements of how busy the process is.
	throughputInterval = 250 * time.Millisecond
	// busyTime is how much processor time in that makes it busy: a quarter of a processor.
	busyTime = throughputInterval / 4
	// calmTime is how long the class stays after that. Loads with pauses would wait for the class
	// again after each: pushes in turns of a second were 5 % slower without it.
	calmTime = 5 * time.Second

	// threadsDir lists the threads of this process.
	threadsDir = "/proc/self/task"
)

// chooseClass puts the process's threads into SCHED_BATCH, the scheduling class for throughput,
// while the process is busy. A thread of that class interrupts nobody when it wakes up. So the NATS
// server and the clients on the same machine get further first, and more requests share each
// wake-up. A process that is not busy would only get slower where other programs keep the
// processors busy.
//
// It returns when ctx ends, or at once if the operator has chosen a class.
func chooseClass(ctx context.Context, logger *slog.Logger) {
	attr, err := unix.SchedGetAttr(0, 0)
	if err != nil || attr.Policy != unix.SCHED_NORMAL {
		return
	}

	ticker := time.NewTicker(throughputInterval)
	defer ticker.Stop()
	class, used := uint32(unix.SCHED_NORMAL), processorTime()
	var until, now time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now = <-ticker.C:
		}

		want, before := uint32(unix.SCHED_NORMAL), used
		if used = processorTime(); used-before >= busyTime {
			until = now.Add(calmTime)
		}
		if now.Before(until) {
			want = unix.SCHED_BATCH
		}
		if want == class {
			continue
		}
		if err := setClass(want); err != nil {
			logger.Debug("cannot choose a class of the scheduler", "error", err)
			return
		}
		class = want
	}
}

// processorTime returns the processor time that the process has used so far.
func processorTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // always works
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// setClass puts all threads into a class. A new thread has the class of the thread that starts it,
// so setClass repeats until it finds none to change.
func setClass(class uint32) error {
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

			attr, err := unix.SchedGetAttr(id, 0)
			if err == nil && attr.Policy != class {
				attr.Policy = class
				err = unix.SchedSetAttr(id, attr, 0)
				changed = true
			}
			if err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
				return fmt.Errorf("set the class of the scheduler: %w", err)
			}
		}
	}
	return nil
}
