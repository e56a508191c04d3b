package peers

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
)

// A bridge takes messages for new while it hears itself, and after that for as old as the last time
// that it did. Where it cannot hear itself, all messages are new.
func TestSelfEcho(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTest(t)
		p.selfEcho = newSelfEcho(true)
		nc := new(nats.Conn) // without subscriptions
		p.config.Conn = func() *nats.Conn { return nc }

		waited := func(when string, want time.Duration) {
			t.Helper()
			if got := p.Waited(); got != want {
				t.Errorf("%s: messages waited %v, want %v", when, got, want)
			}
		}

		time.Sleep(time.Hour)
		waited("before the first echo", 0)

		p.hear(p.selfEcho.now())
		p.hear("nonsense")
		time.Sleep(maxSilence)
		waited("an echo is late", 0)
		time.Sleep(time.Second)
		waited("nothing was heard for longer", maxSilence+time.Second)

		said := p.selfEcho.now()
		time.Sleep(time.Minute)
		p.hear(said)
		waited("the echo comes after the freeze", time.Minute)

		p.muted.Store(true)
		waited("NATS does not permit it", 0)
		p.muted.Store(false)
		p.Disconnected(nc)
		waited("the connection is new", 0)
	})
}

// A forwarded request may be run while this bridge hears itself without a gap.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTest(t)
		p.selfEcho = newSelfEcho(true)
		nc := new(nats.Conn)
		p.config.Conn = func() *nats.Conn { return nc }
		beat := func() { p.hear(p.selfEcho.now()) }
		beat()

		for _, step := range []struct {
			when   string
			during func()
			want   bool
		}{
			{"no time passes", func() {}, false},
			{"it hears itself", func() {
				time.Sleep(maxSilence)
				beat()
				time.Sleep(maxSilence)
				beat()
			}, false},
			{"it does not", func() { time.Sleep(maxSilence + 1) }, true},
			{"it does again", func() {
				time.Sleep(2 * maxSilence)
				beat()
			}, true},
			{"it hears much at once, because its line stood still", func() {
				var said []string
				for range 2 * peerLife {
					time.Sleep(heartbeat)
					said = append(said, p.selfEcho.now())
				}
				for _, at := range said {
					p.hear(at)
				}
			}, true},
			{"another connection", func() { p.Disconnected(nc) }, true},
			{"the first echo there", beat, false},
		} {
			outOfTouch := p.Watch()
			step.during()
			if got := outOfTouch(); got != step.want {
				t.Errorf("%s: out of touch: %t, want %t", step.when, got, step.want)
			}

			beat()
		}
	})
}
