//go:build fdb

package proof_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// frozenQueues is how many queues a round of TestFrozen has. Each bridge owns about half of them.
const frozenQueues = 100

// How long a bridge may take for a request in TestFrozen, and how long clients wait for it: a bit
// longer, so that the stopped bridge knows that they have given up.
const (
	frozenTimeout = 5 * time.Second
	frozenWait    = frozenTimeout + time.Second
)

// A bridge that is stopped (SIGSTOP), and goes on once all clients have given up, runs none of the
// requests that waited: no item is lost or doubled, and no old setting comes back.
func TestFrozen(t *testing.T) {
	server := testenv.StartFDB(t, testenv.FDBMemory)
	e := testenv.New(t, testenv.Options{Stopped: true})
	e.NATS.Start()
	nc := e.Connect()

	config := serviceConfig{
		NATS: e.NATS.URL(), ClusterFile: server.ClusterFile(), RequestTimeout: frozenTimeout,
	}
	right := func() clock { return clock{} }
	first, victim := newService(t, config, right), newService(t, config, right)
	f := &frozen{t: t, nc: nc}
	f.awaitBoth()

	for round := range harness.Times(2, 20) {
		f.round(victim, round)
	}

	first.stop()
	victim.stop()
}

// frozen makes the rounds of TestFrozen.
type frozen struct {
	t  *testing.T
	nc *nats.Conn
}

// awaitBoth returns when both bridges have answered, and each has had time to hear of the other.
func (f *frozen) awaitBoth() {
	f.t.Helper()
	testenv.Eventually(f.t, func() error {
		for i := range frozenQueues {
			if _, err := f.ask(fmt.Sprintf("pq.any-%d.pop.min", i), "", patience); err != nil {
				return err
			}
		}
		return nil
	})
}

// ask makes a request. An error of the service is no error here: see the message.
func (f *frozen) ask(subject, payload string, timeout time.Duration) (*nats.Msg, error) {
	return f.nc.Request(subject, []byte(payload), timeout)
}

// done makes a request again until it succeeds.
func (f *frozen) done(subject, payload string) (m *nats.Msg) {
	f.t.Helper()
	testenv.Eventually(f.t, func() (err error) {
		if m, err = f.ask(subject, payload, time.Second); err != nil {
			return err
		}

		if told := subjects.ErrorFromHeaders(m.Header); told != nil {
			return told
		}

		return nil
	})

	return m
}

// each calls do with the name of each queue of the round, all at once.
func (f *frozen) each(round int, do func(queue string)) {
	var running sync.WaitGroup
	for i := range frozenQueues {
		running.Go(func() { do(fmt.Sprintf("pq.frozen-%d-%d", round, i)) })
	}

	running.Wait()
}

// round stops the victim with requests under way, lets it go on, and checks what became of the
// items and settings.
func (f *frozen) round(victim *service, round int) {
	f.t.Helper()
	f.each(round, func(queue string) { f.done(queue+".push", queue) })

	must(f.t, victim.cmd.Process.Signal(syscall.SIGSTOP))
	var mu sync.Mutex
	seen := map[string]int{}
	gaveUp := 0

	take := func(queue string, timeout time.Duration) error {
		m, err := f.ask(queue+".pop.min", "", timeout)
		mu.Lock()
		defer mu.Unlock()

		switch {
		case errors.Is(err, nats.ErrTimeout),
			err == nil && subjects.ErrorFromHeaders(m.Header) != nil:
			gaveUp++
			return nats.ErrTimeout
		case err != nil:
			return err
		}

		seen[string(m.Data)]++
		return nil
	}

	// All clients give up what the victim has, and then make another setting.
	f.each(round, func(queue string) {
		_, _ = f.ask(queue+".config", `{"max_deliver":7}`, frozenWait)
	})
	f.each(round, func(queue string) { _ = take(queue, frozenWait) })
	f.each(round, func(queue string) { f.done(queue+".config", `{"max_deliver":9}`) })

	if gaveUp == 0 {
		f.t.Error("nobody had to give up")
	}

	must(f.t, victim.cmd.Process.Signal(syscall.SIGCONT))
	f.awaitBoth()
	testenv.Eventually(f.t, func() error {
		f.each(round, func(queue string) { _ = take(queue, patience) })
		mu.Lock()
		defer mu.Unlock()

		if len(seen) < frozenQueues {
			return fmt.Errorf("%d of %d items came", len(seen), frozenQueues)
		}

		return nil
	})

	for item, times := range seen {
		if times != 1 {
			f.t.Errorf("%s came %d times", item, times)
		}
	}

	f.each(round, func(queue string) {
		now := string(f.done(queue+".config", "").Data)
		if !strings.Contains(now, `"max_deliver":9`) {
			f.t.Errorf("%s: an old setting undid a later one: %s", queue, now)
		}
	})
}
