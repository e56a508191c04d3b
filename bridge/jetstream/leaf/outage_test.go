package leaf_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
)

// A server that comes back is found again, and what is subscribed to there. Of several servers the
// next one is.
func TestRestart(t *testing.T) {
	h, other := newHub(t, "", ""), newHub(t, "", "")
	r := run(t, h.leafURL(), func(c *leaf.Config) {
		c.URLs = []string{fmt.Sprintf("127.0.0.1:%d", port(t)), h.leafURL()}
		c.Subjects = []leaf.Subscription{{Subject: "a"}}
	})
	if s := r.connected(); s.Server != "hub" || !strings.Contains(h.leafURL(), s.Address) {
		t.Errorf("connected to %+v", s)
	}
	subscribe(t, h.client(), "_INBOX.a")
	r.interest("_INBOX.a", true)

	h.stop()
	r.fails("closed the connection")
	if r.HasInterest("_INBOX.a") || len(r.gone) > 0 {
		t.Error("interest is not forgotten, or reported as gone")
	}
	if err := r.Publish(&leaf.Message{Subject: "a"}); !errors.Is(err, leaf.ErrOffline) {
		t.Error(err)
	}
	if err := r.Flush(context.Background()); !errors.Is(err, leaf.ErrOffline) {
		t.Error(err)
	}
	h.start()
	r.connected()
	if r.HasInterest("_INBOX.a") {
		t.Error("interest of the last connection is kept")
	}
	if err := h.client().Publish("a", nil); err != nil {
		t.Fatal(err)
	}
	next(t, r.received)

	both := run(t, "", func(c *leaf.Config) { c.URLs = []string{h.leafURL(), other.leafURL()} })
	first := both.connected()
	if gone := h; strings.Contains(gone.leafURL(), first.Address) {
		gone.stop()
		defer gone.start() // for its cleanup
	} else {
		other.stop()
		defer other.start()
	}
	if second := both.connected(); second.Address == first.Address {
		t.Errorf("connected to %+v", second)
	}
}

// A server in lame duck mode, of which it does not tell leaf nodes, gets what was published, and
// another one is found.
func TestLameDuck(t *testing.T) {
	h, other := newHub(t, "lame_duck_grace_period: 1ms", ""), newHub(t, "", "")
	r := run(t, h.leafURL(), nil)
	r.connected()
	subscribe(t, h.client(), "_INBOX.a")
	r.interest("_INBOX.a", true)
	const messages = 1000
	for range messages {
		r.publish(&leaf.Message{Subject: "_INBOX.a"})
	}
	r.flush()
	h.lameDuck()
	r.fails("the server closed the connection")
	if s := r.Stats(); s.Dropped != 0 {
		t.Errorf("%+v", s)
	}
	r.end()

	r = run(t, "", func(c *leaf.Config) { c.URLs = []string{h.leafURL(), other.leafURL()} })
	if s := r.connected(); !strings.Contains(other.leafURL(), s.Address) {
		t.Errorf("connected to %+v", s)
	}
}

// A server that is stopped, or a network that swallows everything, is noticed, and left. Nobody who
// publishes or flushes meanwhile waits for longer than he says.
func TestSilentServer(t *testing.T) {
	silent := true
	f := newFake(t, func(c *fakeConn) {
		c.welcome()
		if silent {
			silent = false
			c.hear("nothing") // it reads
			return
		}
		c.stay()
	})
	r := runLimited(t, f.url(), nil, leaf.Limits{Ping: 10 * time.Millisecond})
	r.connected()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := r.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	flushed := make(chan error, 1)
	go func() { flushed <- r.Flush(context.Background()) }()
	r.fails("the server is silent: no answer to 3 pings")
	if err := next(t, flushed); !errors.Is(err, leaf.ErrOffline) {
		t.Error(err)
	}
	r.connected()
	r.flush()
}

// A server that reads nothing is left; until then as much is taken as may wait.
func TestServerReadsNothing(t *testing.T) {
	t.Parallel()
	deaf, ended := true, make(chan struct{})
	end := sync.OnceFunc(func() { close(ended) })
	f := newFake(t, func(c *fakeConn) {
		c.welcome()
		if deaf {
			deaf = false
			<-ended
			return
		}
		c.stay()
	})
	t.Cleanup(end)
	r := runLimited(t, f.url(), nil, leaf.Limits{Pending: 4 << 20, Write: 200 * time.Millisecond})
	r.connected()
	m := &leaf.Message{Subject: "a", Payload: make([]byte, 1<<20)}
	taken, refused := uint64(0), 0
	for pause := time.NewTicker(time.Millisecond); len(r.states) == 0; <-pause.C {
		if err := r.Publish(m); err == nil {
			taken++
		} else if refused++; !errors.Is(err, leaf.ErrPending) && !errors.Is(err, leaf.ErrOffline) {
			t.Fatal(err)
		}
	}
	if taken < 4 || taken > 100 || refused == 0 {
		t.Errorf("%d messages were taken, %d refused", taken, refused)
	}
	r.fails("the server is silent: it has not read for 200ms")
	end()
	r.connected()
	if s := r.Stats(); s.OutMessages != taken || s.Dropped == 0 || s.Dropped > taken {
		t.Errorf("%+v, and %d were taken", s, taken)
	}
}

// A server that reads slowly is not left while it does.
func TestServerReadsSlowly(t *testing.T) {
	t.Parallel()
	const messages, size = 32, 1 << 20
	got := make(chan int64)
	f := newFake(t, func(c *fakeConn) {
		c.welcome()
		var read int64
		for pause := time.NewTicker(50 * time.Millisecond); read < messages*size; <-pause.C {
			n, err := io.CopyN(io.Discard, c.in, size)
			if read += n; err != nil {
				break
			}
		}
		got <- read
		c.stay()
	})
	r := runLimited(t, f.url(), nil, leaf.Limits{Write: time.Second})
	r.connected()
	for range messages {
		r.publish(&leaf.Message{Subject: "a", Payload: make([]byte, size)})
	}
	if read := next(t, got); read < messages*size || len(r.states) > 0 {
		t.Errorf("it read %d bytes", read)
	}
	r.flush()
}

// When the network swallows a connection, the server does not know. The next one replaces it there, so
// that no request goes to the dead one.
func TestHalfOpen(t *testing.T) {
	h := newHub(t, "", "")
	freeze := make(chan struct{})
	var dead net.Conn // to the server
	proxy := newFake(t, func(c *fakeConn) {
		up, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", h.leafPort))
		if err != nil {
			return
		}
		first := dead == nil
		if first {
			dead = up
		}
		var copies sync.WaitGroup
		copies.Go(func() { _, _ = io.Copy(c, up) })
		copies.Go(func() {
			if _, _ = io.Copy(up, c); !first {
				_ = up.Close() // it has ended
			}
		})
		if first {
			<-freeze
			// The copies end, and nothing else does at the server.
			_, _ = up.SetDeadline(time.Now()), c.SetDeadline(time.Now())
		}
		copies.Wait()
	})
	r := runLimited(t, proxy.url(), func(c *leaf.Config) { c.Subjects = []leaf.Subscription{{Subject: "a", Queue: "q"}} },
		leaf.Limits{Ping: 20 * time.Millisecond})
	r.connected()
	close(freeze)
	next(t, r.states) // silent, or closed by the proxy
	r.connected()

	nc := h.client()
	const requests = 200
	for range requests {
		if err := nc.Publish("a", nil); err != nil {
			t.Fatal(err)
		}
	}
	flushed(t, nc)
	r.flush()
	if len(r.received) != requests {
		t.Errorf("%d requests of %d came", len(r.received), requests)
	}
	r.end()
	_ = dead.Close() // the server has closed it
}
