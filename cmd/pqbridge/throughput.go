package main

import (
	"context"
	"log/slog"
	"time"
)

// throughput gives the process's threads the class of the scheduler that is meant for throughput
// while the process has much to do. A thread of that class interrupts nobody when it wakes up: the
// NATS server and the clients on the same machine come further first, so that more requests share
// each wake-up. With little to do that would only add latency if other programs keep the processors
// busy.
type throughput struct {
	used func() (time.Duration, error) // processor time of the process so far
	set  func(batch bool) error        // of all threads, also those to come
	now  func() time.Time
	log  *slog.Logger

	batch    bool
	lastUsed time.Duration
	last     time.Time // of lastUsed
	lastBusy time.Time
}

const (
	// throughputInterval is the time between two looks at how busy the process is.
	throughputInterval = 250 * time.Millisecond
	// busyShare is the part of one processor from which on the process is busy.
	busyShare = 0.25
	// calmTime is how long it has not been busy when the threads go back to their class.
	calmTime = 5 * time.Second
)

func newThroughput(log *slog.Logger) *throughput {
	return &throughput{used: processorTime, set: setBatchClass, now: time.Now, log: log}
}

// run returns when ctx ends, or at once where there are no such classes, or the operator has chosen
// one.
func (t *throughput) run(ctx context.Context) {
	if !normalClass() {
		return
	}

	ticker := time.NewTicker(throughputInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := t.look(); err != nil {
				t.log.Debug("cannot choose a class of the scheduler", "error", err)
				return
			}
		}
	}
}

// look changes the class if it is time.
func (t *throughput) look() error {
	used, err := t.used()
	if err != nil {
		return err
	}

	now := t.now()
	if !t.last.IsZero() && float64(used-t.lastUsed) >= busyShare*float64(now.Sub(t.last)) {
		t.lastBusy = now
	}
	t.last, t.lastUsed = now, used

	batch := !t.lastBusy.IsZero() && now.Sub(t.lastBusy) < calmTime
	if batch == t.batch {
		return nil
	}
	t.batch = batch
	return t.set(batch)
}
