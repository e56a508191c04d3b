package client

import (
	"context"
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

const (
	// settingsAge is how old the settings may be that a job is told, while the worker is not idle.
	settingsAge = time.Minute

	// settingsTime is how long Run waits for settings that it can do without.
	settingsTime = time.Second

	// maxUnanswered is after how many requests without an answer a worker asks no more: NATS does not
	// answer clients that may not ask.
	maxUnanswered = 2
)

// findSettings asks for the settings of the queue, until they say how long leases are unless that is
// given.
func (s *source) findSettings() error {
	if s.ackWait != 0 {
		_, _ = s.askSettings(settingsTime) // else jobs are not told max_deliver
		return nil
	}

	s.ackWait = settings.DefaultLease
	for p := new(pause); s.stopping.Err() == nil; p.wait(s.stopping) {
		set, err := s.askSettings(s.patience())
		switch {
		case err == nil:
			s.ackWait = set.LeaseWait()
			return nil
		case s.stopping.Err() != nil:
			return nil
		case isHopeless(err):
			return err
		}
		s.log.Warn("cannot read the settings of the queue", "error", err)

		if s.unanswered.Load() == maxUnanswered {
			s.log.Warn("takes the default length of leases, since the settings of the queue cannot be read: is it allowed to?", "ack_wait", s.ackWait)
			return nil
		}
	}
	return nil
}

// refreshSettings asks for the settings again if they are old, without waiting for the answer. Only
// those who begin a job call it, so that idle workers cost nothing.
func (s *source) refreshSettings() {
	last, now := s.asked.Load(), time.Now()
	if now.Sub(time.Unix(0, last)) < s.settingsAge || s.unanswered.Load() >= maxUnanswered ||
		!s.asked.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	s.background.Go(func() { _, _ = s.askSettings(s.patience()) })
}

// askSettings makes one attempt to read the settings. After one that fails, the next job tries again.
func (s *source) askSettings(timeout time.Duration) (Settings, error) {
	ctx, cancel := context.WithTimeout(s.stopping, timeout)
	defer cancel()
	s.asked.Store(time.Now().UnixNano())
	set, err := s.queue.Settings(ctx)

	if err == nil {
		s.unanswered.Store(0)
		s.maxDeliver.Store(set.MaxDeliver)
		return set, nil
	}
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrNotSent) {
		s.unanswered.Add(1)
	}
	if s.stopping.Err() == nil {
		s.log.Debug("cannot read the settings of the queue", "error", err)
	}
	s.asked.Store(0)
	return Settings{}, err
}
