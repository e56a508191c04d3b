package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

const (
	// peakMemory is the memory that the process has, in MiB.
	peakMemory = 256
	peakValue  = 1_000_000 // bytes of an item
)

// The requests that read or return the most fit into a service with 256 MiB of memory. The log has
// the peak of each.
//
// PQ_TEST_PEAK=1000 runs it with as many items, PQ_TEST_PEAK_MEMORY=448 with other memory:
// docs/measured.md has the results.
func TestPeakMemory(t *testing.T) {
	items := peakSetting(t, "PQ_TEST_PEAK", 200)
	p := startPeak(t, items, peakSetting(t, "PQ_TEST_PEAK_MEMORY", peakMemory)<<20)
	defer p.watchOthers()()

	p.row("push, 16 at once", p.fill)
	p.row("pops for nobody, of each item at once", p.popForNobody)
	batch := `"batch":1000`

	for _, options := range []string{
		`"no_wait":true`,
		`"frames":true`,
		`"max_bytes":1000000`,
		`"expires":"1s","no_wait":true`,
	} {
		p.row("pop {"+batch+","+options+"}",
			func() int { return p.take("{"+batch+","+options+"}", nil) })
	}

	var tokens []string
	for _, options := range []string{
		`"ack_wait":"1h"`,
		`"ack_wait":"1h","frames":true`,
		`"ack_wait":"1h","max_bytes":1000000`,
	} {
		p.row("lease {"+batch+","+options+"}",
			func() int { return p.take("{"+batch+","+options+"}", &tokens) })
	}

	p.atOnce("lease {"+batch+"}, 32 at once", 32,
		func(int) int { return p.take(`{"batch":1000,"ack_wait":"1h"}`, &tokens) })
	p.row("+NXT with also and {"+batch+"}", func() int { return p.next(&tokens) })

	p.row("lease all but a third", func() int {
		n := 0
		for got := 1; len(tokens) < items/2 && got > 0; n += got {
			got = p.take(`{"batch":1000,"ack_wait":"1h"}`, &tokens)
		}

		return n
	})

	p.atOnce("+WPI of each lease, at once", len(tokens),
		func(i int) int { return p.one(tokens[i], "+WPI") })
	p.row("+ACK with also", func() int {
		return len(tokens) / 2 * p.one(settle(tokens[:len(tokens)/2], subjects.Ack{}))
	})
	rest := tokens[len(tokens)/2:]
	p.atOnce("-NAK of each lease, at once", len(rest),
		func(i int) int { return p.one(rest[i], "-NAK") })
	p.atOnce("peek, 100 at once", 100, func(int) int { return p.one("pq.jobs.peek.max", "") })
	p.atOnce("get, of each item at once", len(p.ids),
		func(i int) int { return p.one("pq.jobs.get", `{"id":"`+p.ids[i]+`"}`) })
	p.atOnce("rank, of each item at once", len(p.ids),
		func(i int) int { return p.one("pq.jobs.rank", `{"id":"`+p.ids[i]+`"}`) })
	p.atOnce("info, 100 at once", 100, func(int) int { return p.one("pq.jobs.info", "") })
	p.atOnce("move, 100 at once", 100, func(i int) int {
		return p.one("pq.jobs.move", `{"id":"`+p.ids[len(p.ids)-1-i]+`","priority":7}`)
	})

	p.row("+TERM of leases, at once", func() int {
		var doomed []string
		for range 10 {
			p.take(`{"batch":1000,"ack_wait":"1h"}`, &doomed)
		}

		return p.together(len(doomed), func(i int) int { return p.one(doomed[i], "+TERM") })
	})

	p.row("redrive", func() int { return p.one("pq.jobs-dead.redrive", "{}") })
	p.atOnce("pop of single items, 100 at once", 100,
		func(int) int { return p.one("pq.jobs.pop.min", "") })
	p.row("/queues, /queues/pq/jobs and /metrics", p.pages)

	p.row("config with max_items and discard", func() int {
		return p.one("pq.jobs.config", `{"max_items":3,"discard":"old"}`) +
			p.one("pq.jobs.push.0", "x")
	})

	p.row("purge", func() int { return p.one("pq.jobs.purge", "{}") })
	p.atOnce("push.batch of 7 items, 8 at once", 8, p.pushBatch)
	p.row("pop of as many queues with 90,000 bytes, at once", p.manyQueues)
}

func peakSetting(t *testing.T, name string, otherwise int) int {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}

	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}

	return n
}

// peak is a service with little memory, and its clients.
type peak struct {
	*command
	nc     *nats.Conn
	memory int // bytes that the service has
	items  int
	ids    []string

	longest atomic.Int64 // nanoseconds that a request of another queue took since the last row
}

// startPeak starts the service, with more variables than its memory and where it stores. Where
// nothing can be measured, it skips the test.
func startPeak(t *testing.T, items, memory int, more ...string) *peak {
	t.Helper()
	harness.OnlyNightly(t)
	if harness.Race {
		t.Skip("the race detector takes several times as much memory")
	}

	if _, err := os.Stat("/proc/self/clear_refs"); err != nil {
		t.Skip("without /proc, nothing says what a process took at most")
	}

	large := func(o *server.Options) { o.MaxPayload, o.MaxPending = 8<<20, 256<<20 }
	ns := testenv.New(t, testenv.Options{Stopped: true, NATS: large}).NATS
	ns.Start()

	more = append(
		more,
		"PQ_NATS_URL="+ns.URL(),
		"PQ_DATA_DIR="+t.TempDir(),
		// It may be slow.
		fmt.Sprintf("PQ_REQUEST_TIMEOUT=%v", testenv.Patience),
		fmt.Sprintf("PQ_HTTP_TIMEOUT=%v", testenv.Patience),
	)

	c := newCommand(t, more)
	if memory < enoughMemory && !harness.LimitMemory(t, c.cmd, int64(memory)) {
		c.cmd.Env = append(c.cmd.Env, fmt.Sprintf("GOMEMLIMIT=%d", memory))
	}

	c.nats = ns.URL()
	c.start()
	t.Cleanup(func() { c.stop(syscall.SIGTERM) })
	c.says("taking requests")
	c.http = regexp.MustCompile(`http=(\S+)`).FindStringSubmatch(c.stderr.String())[1]

	return &peak{command: c, nc: connect(t, c.nats), memory: memory, items: items}
}

// atOnce is row for n requests at once.
func (p *peak) atOnce(name string, n int, do func(i int) int) {
	p.t.Helper()
	p.row(name, func() int { return p.together(n, do) })
}

// row runs a request, or several, and checks what the process took at most meanwhile. do returns
// how many items the replies were about, or how many replies there were: at least one. The log
// also says how long the longest request of another queue took meanwhile.
func (p *peak) row(name string, do func() int) {
	p.t.Helper()
	err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.cmd.Process.Pid), []byte("5"), 0o600)
	if err != nil {
		p.t.Fatal(err) // the peak begins anew
	}

	p.longest.Store(0)
	began := time.Now()
	n := do()
	took, longest := time.Since(began), time.Duration(p.longest.Load())
	most := p.highWater()
	p.t.Logf("| %-55s | %5d | %4d MiB | %6d ms | %4d ms |",
		name, n, most>>20, took.Milliseconds(), longest.Milliseconds())

	if n == 0 {
		p.t.Fatalf("%s: nothing came back\n%s", name, p.log())
	}
	if most > p.memory {
		p.t.Errorf("%s: the process took %d MiB, and has %d", name, most>>20, p.memory>>20)
	}
}

// highWater is the most memory that the process has taken.
func (p *peak) highWater() int {
	p.t.Helper()
	most := testenv.PeakMemory(p.cmd.Process.Pid)
	if most == 0 {
		p.t.Fatal("nothing says how much memory the process has taken")
	}
	return int(most)
}

// watchOthers pushes to another queue and pops from it, again and again, until end is called.
func (p *peak) watchOthers() (end func()) {
	nc := connect(p.t, p.nats)
	stop, ended := make(chan struct{}), make(chan struct{})

	go func() {
		defer close(ended)
		for {
			for _, subject := range []string{"pq.other.push.0", "pq.other.pop.min"} {
				began := time.Now()
				if _, err := nc.Request(subject, nil, testenv.Patience); err != nil {
					p.t.Errorf("%s: %v", subject, err)
					return
				}

				p.longest.Store(max(p.longest.Load(), int64(time.Since(began))))
			}
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()

	return func() {
		close(stop)
		<-ended
	}
}
