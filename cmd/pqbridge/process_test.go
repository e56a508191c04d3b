package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/internal/ready"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

func connect(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, nats.NoReconnect(), nats.Timeout(testenv.Patience))
	must(t, err)
	t.Cleanup(nc.Close)

	return nc
}

func request(t *testing.T, nc *nats.Conn, subject, payload string) *nats.Msg {
	t.Helper()
	reply, err := nc.Request(subject, []byte(payload), testenv.Patience)
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	if failure := subjects.ErrorFromHeaders(reply.Header); failure != nil {
		t.Fatalf("%s: %v", subject, failure)
	}

	return reply
}

// pops checks the value that a request returns.
func pops(t *testing.T, nc *nats.Conn, subject, want string) {
	t.Helper()
	if got := request(t, nc, subject, ""); string(got.Data) != want {
		t.Errorf("%s returned %q, want %q", subject, got.Data, want)
	}
}

// After kill -9 during pushes of many clients, each to a queue of its own, every acknowledged item
// is there once and in order, and nothing else but the push each client was waiting for.
func TestKill9DuringLoad(t *testing.T) {
	t.Parallel()

	const clients = 16
	enough := int64(harness.Times(300, 2000)) // pushes, clients at a time: dozens of transactions
	data := "PQ_DATA_DIR=" + t.TempDir()
	var acknowledged [clients][]string // values by queue, in order
	var unknown [clients]string        // pushed last, may be stored

	for round := range harness.Times(1, 3) {
		c := startDev(t, data)
		var total atomic.Int64
		under := make(chan struct{})
		var running sync.WaitGroup

		for number := range clients {
			q := queueOf(t, c, number, round)
			running.Go(func() {
				for i := 0; ; i++ {
					value := fmt.Sprintf("%d-%d-%d", number, round, i)
					unknown[number] = value
					_, err := q.Push(t.Context(), 0, []byte(value))

					var reply *client.Error
					if errors.As(err, &reply) {
						t.Errorf("push %s: %v", value, err)
					}
					if err != nil {
						return // killed
					}

					acknowledged[number] = append(acknowledged[number], value)
					if total.Add(1) == enough {
						close(under)
					}
				}
			})
		}

		<-under
		c.kill()
		running.Wait()

		// A new process finds all acknowledged items, and at most one more of each client.
		c = startDev(t, data)
		for number := range clients {
			all := append(acknowledged[number], unknown[number])
			popAll(t, queueOf(t, c, number, round), all, len(all)-1)
			acknowledged[number] = nil
		}

		c.stop(syscall.SIGTERM)
	}
}

// popAll pops until the queue is empty, and checks that it held these values in order: all, or at
// least that many.
func popAll(t *testing.T, q *client.Queue, values []string, least int) {
	t.Helper()
	for i := 0; ; i++ {
		item, err := q.Pop(t.Context())
		if errors.Is(err, client.ErrEmpty) {
			if i < least {
				t.Errorf("%d items, and there were %d", i, least)
			}
			return
		}
		must(t, err)

		if i == len(values) || string(item.Value) != values[i] {
			t.Fatalf("item %d is %q, of %d in %q", i, item.Value, least, values)
		}
	}
}

// queueOf returns the queue of a client in a round, over a connection of its own.
func queueOf(t *testing.T, c *command, number, round int) *client.Queue {
	t.Helper()
	cl := client.New(connect(t, c.nats), client.WithTimeout(testenv.Patience))
	return cl.PriorityQueue(fmt.Sprintf("queue-%d-%d", number, round))
}

// An orderly end keeps every item, and the log says when and why it begins and when it is over.
func TestOrderlyEnd(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()

			data := "PQ_DATA_DIR=" + t.TempDir()
			c := startDev(t, data)
			request(t, connect(t, c.nats), "pq.jobs.push", "kept")
			c.stop(signal)
			log := c.stderr.String()

			reason := map[syscall.Signal]string{
				syscall.SIGTERM: "SIGTERM",
				syscall.SIGINT:  "SIGINT",
			}[signal]

			for _, line := range []string{
				`msg="shutting down" reason=` + reason,
				`msg="no more requests are served" answered=`,
				` left=0 `,
				`msg="pqbridge has ended"`,
			} {
				var found bool
				if _, log, found = strings.Cut(log, line); !found {
					t.Errorf("not in the log, or not in this order: %s\n%s", line, c.log())
				}
			}

			c = startDev(t, data)
			pops(t, connect(t, c.nats), "pq.jobs.pop.min", "kept")
			c.stop(signal)
		})
	}
}

// -healthcheck succeeds while the service is ready, and fails once it is gone.
func TestHealthcheck(t *testing.T) {
	t.Parallel()

	c := startDev(t, "PQ_DATA_DIR="+t.TempDir())
	testenv.Eventually(t, func() error { // it waits for five seconds only
		_, _, err := runCommand(t, []string{"-healthcheck"}, []string{"PQ_HTTP_ADDR=" + c.http})
		return err
	})

	c.stop(syscall.SIGTERM)
	// A service that is not there.
	refuses(t, []string{"-healthcheck"}, []string{"PQ_HTTP_ADDR=" + c.http})
}

// Without NATS the service starts, is not ready, and says why. Once NATS is there, it is ready, and
// known by the id with which its log begins.
func TestStartsWithoutNATS(t *testing.T) {
	server := testenv.New(t, testenv.Options{Stopped: true}).NATS
	t.Setenv("PQ_LOG_FORMAT", "json")
	s := startService(t, server.URL())

	var first struct{ Level, Msg, ID, HTTP string }
	testenv.Eventually(t, func() error {
		line, _, _ := strings.Cut(s.log.String(), "\n")
		return json.Unmarshal([]byte(line), &first)
	})
	if first.Level != "INFO" || first.Msg != "pqbridge starts" {
		t.Errorf("first line of the log: %+v", first)
	}
	testenv.Eventually(t, func() error {
		err := ready.Check(t.Context(), first.HTTP)
		if err == nil || !strings.Contains(err.Error(), "nats: not connected") {
			return fmt.Errorf("not ready yet, or for another reason: %w", err)
		}

		return nil
	})

	server.Start()
	testenv.Eventually(t, func() error { return ready.Check(t.Context(), first.HTTP) })

	// The log begins with the id by which others know the bridge.
	nc, err := nats.Connect(server.URL())
	must(t, err)
	defer nc.Close()
	reply, err := nc.Request("$SRV.PING.pqbridge."+first.ID, nil, testenv.Patience)
	must(t, err)

	if !strings.Contains(string(reply.Data), `"id":"`+first.ID+`"`) {
		t.Errorf("the bridge says %s, its log the id %q", reply.Data, first.ID)
	}

	s.end()
}
