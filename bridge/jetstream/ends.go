package jetstream

import (
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
)

// sweepPause is how long unsubscribed wildcards are collected.
const sweepPause = 250 * time.Millisecond

// endAll ends the pulls that are meant.
func (f *Face) endAll(e *ending, meant func(*pull) bool) {
	f.pending.mu.Lock()
	defer f.pending.mu.Unlock()
	for _, pulls := range f.pending.inboxes {
		for p := range pulls {
			if meant(p) {
				p.endLocked(e)
			}
		}
	}
}

// dropPulls ends all pulls, because nothing can be sent: clients pull again.
func (f *Face) dropPulls() { f.endAll(&ending{}, func(*pull) bool { return true }) }

// consumerChanged has the pulls of a consumer ask anew if it is not what they asked for.
func (f *Face) consumerChanged(c *consumer) {
	f.pending.mu.Lock()
	defer f.pending.mu.Unlock()
	a := f.pending.accounts[c.key()]
	if a == nil || reflect.DeepEqual(a.consumer.config, c.config) {
		return
	}

	a.consumer = c
	for _, pulls := range f.pending.inboxes {
		for p := range pulls {
			if p.account == a && p.asked > 0 {
				f.config.Dispatcher.Cancel(p.waits)
			}
		}
	}
	a.admitLocked()
}

// consumerDeleted ends the pulls of a consumer that is gone.
func (f *Face) consumerDeleted(k consumerKey) {
	f.endAll(&ending{code: 409, text: "Consumer Deleted"}, func(p *pull) bool { return p.consumer.key() == k })
}

// OwnersChanged ends the pulls of queues that another bridge serves now, and forgets what their consumers
// have outstanding: clients pull again, and acknowledge there.
func (f *Face) OwnersChanged() {
	gone := func(k consumerKey) bool {
		q, err := f.queueOf(k.stream)
		return err == nil && f.config.Owner(q) != f.config.Self
	}
	f.endAll(leaderChanged, func(p *pull) bool { return gone(p.consumer.key()) })

	f.pending.mu.Lock()
	defer f.pending.mu.Unlock()
	maps.DeleteFunc(f.pending.accounts, func(k consumerKey, _ *account) bool { return gone(k) })
}

// endPulls ends all pulls because the bridge stops, and lets none begin.
func (f *Face) endPulls() {
	f.pending.stopped.Store(true)
	f.endAll(errShutdown, func(*pull) bool { return true })
}

// interestGone ends the pulls whose inbox nobody subscribes to any more.
func (f *Face) interestGone(subject string) {
	f.pending.mu.Lock()
	defer f.pending.mu.Unlock()
	if strings.ContainsAny(subject, "*>") { // older clients have one for the inboxes of all their pulls
		f.sweepLocked(sweepPause)
		return
	}
	for p := range f.pending.inboxes[subject] {
		p.endLocked(&ending{})
	}
}

// sweepLocked plans to look for pulls that nobody would hear, unless that is planned.
func (f *Face) sweepLocked(after time.Duration) {
	if !f.pending.sweeping && !f.pending.stopped.Load() {
		f.pending.sweeping = true
		time.AfterFunc(after, f.endDeaf)
	}
}

// endDeaf ends the pulls that nobody would hear. It comes back for those of which that is not known yet.
func (f *Face) endDeaf() {
	now, unheard, again := time.Now(), "", false
	f.endAll(&ending{}, func(p *pull) bool {
		deaf := p.deafLocked(now)
		switch {
		case deaf && p.unheard():
			unheard = p.inbox
		case p.unheard():
			again = true
		}
		return deaf
	})

	if unheard != "" {
		f.config.Warn("pulls end because nobody is seen to subscribe to their inboxes: clients are gone, "+
			"or the leaf node's user may not publish there", "inbox", wire.Shorten(unheard))
	}
	f.pending.mu.Lock()
	defer f.pending.mu.Unlock()
	if f.pending.sweeping = false; again {
		f.sweepLocked(newInterest)
	}
}
