package jetstream

import "maps"

// endAll ends the pulls that are meant.
func (f *pulls) endAll(e *ending, meant func(*pull) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, pulls := range f.inboxes {
		for p := range pulls {
			if meant(p) {
				p.endLocked(e)
			}
		}
	}
}

// dropPulls ends all pulls, because nothing can be sent: clients pull again.
func (f *pulls) dropPulls() { f.endAll(silent, func(*pull) bool { return true }) }

// consumerChanged has the pulls of a consumer ask anew if it is not what they asked for.
func (f *pulls) consumerChanged(c *consumer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.byConsumer[c.key()]
	if a == nil || !f.updateLocked(a, c) {
		return
	}
	for _, pulls := range f.inboxes {
		for p := range pulls {
			if p.account == a {
				f.config.Dispatcher.Cancel(p.waits)
			}
		}
	}
}

// consumerDeleted ends the pulls of a consumer that is gone.
func (f *pulls) consumerDeleted(k consumerKey) {
	f.endAll(deleted, func(p *pull) bool { return p.consumer.key() == k })
}

// endForeign ends the pulls of queues that another bridge serves now, and forgets what their consumers
// have outstanding: clients pull again, and acknowledge there.
func (f *pulls) endForeign() {
	gone := func(k consumerKey) bool {
		q, err := f.queueOf(k.stream)
		return err == nil && f.config.Owner(q) != f.config.Self
	}
	f.endAll(leaderChanged, func(p *pull) bool { return gone(p.consumer.key()) })

	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.byConsumer, func(k consumerKey, _ *account) bool { return gone(k) })
}

// endPulls ends all pulls because the bridge stops, and lets none begin.
func (f *pulls) endPulls() {
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	f.endAll(errShutdown, func(*pull) bool { return true })
}

// interestGone ends the pulls whose inbox nobody subscribes to any more. Those that listen by a
// wildcard end with their next heartbeat.
func (f *pulls) interestGone(subject string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p := range f.inboxes[subject] {
		p.endLocked(silent)
	}
}
