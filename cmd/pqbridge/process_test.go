package main

import (
	"context"
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

// TestKill9DuringLoad kills the process while many clients push, each to a queue of its
// own. After a restart every acknowledged item is there once and in order, and nothing
// else but the push each client was waiting for.
func TestKill9DuringLoad(t *testing.T) {
	t.Parallel()
	const clients = 16
	enough := int64(harness.Times(300, 2000)) // pushes, by at most 16 at a time: dozens of transactions
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

		c = startDev(t, data)
		for number := range clients {
			all := append(acknowledged[number], unknown[number])
			popAll(t, queueOf(t, c, number, round), all, len(all)-1)
			acknowledged[number] = nil
		}
		c.stop(syscall.SIGTERM)
	}
}

// popAll pops until the queue is empty, and checks that it held these values in order: all, or at least that many.
func popAll(t *testing.T, q *client.PriorityQueue, values []string, least int) {
	t.Helper()
	for i := 0; ; i++ {
		item, err := q.PopMin(t.Context())
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
func queueOf(t *testing.T, c *command, number, round int) *client.PriorityQueue {
	t.Helper()
	cl := client.New(connect(t, c.nats), client.WithTimeout(testenv.Patience))
	return cl.PriorityQueue(fmt.Sprintf("queue-%d-%d", number, round))
}

// TestOrderlyEnd: what was pushed is kept, and the log says when and why a shutdown begins, and when
// it is over.
func TestOrderlyEnd(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			data := "PQ_DATA_DIR=" + t.TempDir()
			c := startDev(t, data)
			request(t, connect(t, c.nats), "pq.jobs.push", "kept")
			c.stop(signal)
			log := c.stderr.String()
			reason := map[syscall.Signal]string{syscall.SIGTERM: "SIGTERM", syscall.SIGINT: "SIGINT"}[signal]
			for _, line := range []string{
				`msg="shutting down" reason=` + reason, `msg="no more requests are served" answered=`, ` left=0 `, `msg="pqbridge has ended"`,
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

func TestHealthcheck(t *testing.T) {
	t.Parallel()
	c := startDev(t, "PQ_DATA_DIR="+t.TempDir())
	testenv.Eventually(t, func() error { // it waits for five seconds only
		_, _, err := runCommand(t, []string{"-healthcheck"}, []string{"PQ_HTTP_ADDR=" + c.http})
		return err
	})
	c.stop(syscall.SIGTERM)
	refuses(t, []string{"-healthcheck"}, []string{"PQ_HTTP_ADDR=" + c.http}) // a service that is not there
	if err := checkReady(context.Background(), httpOff); err == nil {
		t.Error("without HTTP: no error")
	}
}

// TestStartsWithoutNATS: the service starts, is alive but not ready, and says why.
func TestStartsWithoutNATS(t *testing.T) {
	server := testenv.New(t, testenv.Options{Stopped: true}).NATS
	t.Setenv("PQ_LOG_FORMAT", "json")
	s := startService(t, server.URL())
	var first struct{ Level, Msg, HTTP string }
	testenv.Eventually(t, func() error {
		line, _, _ := strings.Cut(s.log.String(), "\n")
		return json.Unmarshal([]byte(line), &first)
	})
	if first.Level != "INFO" || first.Msg != "pqbridge starts" {
		t.Errorf("first line of the log: %+v", first)
	}
	testenv.Eventually(t, func() error {
		err := checkReady(t.Context(), first.HTTP)
		if err == nil || !strings.Contains(err.Error(), "nats: not connected") {
			return fmt.Errorf("not ready yet, or for another reason: %w", err)
		}
		return nil
	})
	server.Start()
	testenv.Eventually(t, func() error { return checkReady(t.Context(), first.HTTP) })
	s.end()
}
