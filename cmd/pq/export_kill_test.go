package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// bridgeVariable makes the test binary a bridge of the NATS server that it names, with the embedded
// store in the folder of folderVariable, or with the FoundationDB of clusterVariable's file.
const (
	bridgeVariable  = "TEST_BRIDGE"
	folderVariable  = "TEST_FOLDER"
	clusterVariable = "TEST_CLUSTER"
)

// openStore opens the store that the environment names.
func openStore() (kv.Database, error) {
	if file := os.Getenv(clusterVariable); file != "" {
		return fdbkv.Open(fdbkv.Options{ClusterFile: file, TransactionTimeout: testenv.Patience})
	}
	return pebblekv.Open(os.Getenv(folderVariable), pebblekv.Options{})
}

// serveBridge serves until it is killed.
func serveBridge() error {
	db, err := openStore()
	if err != nil {
		return err
	}
	priority, fifo := subjects.DefaultPriorityPrefix, subjects.DefaultFIFOPrefix
	keyspace, err := fdbpq.NewKeyspace(priority, fifo, fdbpq.RawValues)
	if err != nil {
		return err
	}
	grammar, err := subjects.New(priority, fifo)
	if err != nil {
		return err
	}

	b, err := bridge.New(bridge.Options{
		NATSURL: os.Getenv(bridgeVariable), DB: db, Keyspace: keyspace, Grammar: grammar,
		Version: "0.0.1", Limits: dispatch.Limits{RequestTimeout: testenv.Patience},
	})
	if err != nil {
		return err
	}
	return b.Run(context.Background())
}

// mortal is a bridge in a process of its own.
type mortal struct {
	t     *testing.T
	relay *relay
	store string // folderVariable or clusterVariable, with its value
	cmd   *exec.Cmd
	log   harness.Transcript
}

// start starts the bridge, and waits until it answers.
func (m *mortal) start() {
	m.t.Helper()
	m.cmd = harness.Command(os.Args[0])
	m.cmd.Env = append(os.Environ(), bridgeVariable+"="+m.relay.env.NATS.URL(), m.store)
	m.cmd.Stdout, m.cmd.Stderr = &m.log, &m.log
	must(m.t, m.cmd.Start())
	testenv.Eventually(m.t, func() error {
		_, err := m.relay.env.Conn.Request("pq.jobs.len", nil, nats.DefaultTimeout)
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, m.log.String())
		}
		return err
	})
}

// kill is kill -9. It returns once NATS has noticed.
func (m *mortal) kill() {
	m.t.Helper()
	must(m.t, m.cmd.Process.Kill())
	_ = m.cmd.Wait() // says that it was killed
	testenv.Eventually(m.t, func() error {
		_, err := m.relay.env.Conn.Request("pq.jobs.len", nil, nats.DefaultTimeout)
		if errors.Is(err, nats.ErrNoResponders) {
			return nil
		}
		return fmt.Errorf("a bridge that was killed is there: %w", err)
	})
}

// dies runs pq with a request that kills the bridge, the one after so many others: it arrives, and
// the reply is lost, or it does not arrive. pq must fail. dies returns what it printed, and false
// if there were no more requests, so that pq has succeeded.
func (m *mortal) dies(
	c *cli, after int, arrives bool, stdin string, args ...string,
) (printed string, died bool) {
	m.t.Helper()
	var stdout bytes.Buffer
	var stderr string
	code, ended := 0, make(chan struct{})
	go func() {
		defer close(ended)
		args = append(args, "--prefix", "relay")
		stderr, code = c.runOn(io.NopCloser(strings.NewReader(stdin)), &stdout, args...)
	}()

	dead := false
	for n := 0; ; n++ {
		var request *nats.Msg
		select {
		case <-ended:
			if dead && code != exitError || !dead && code != exitOK {
				m.t.Fatalf("request %d killed the bridge (%v), and pq ended with %d\n%s", after,
					dead, code, stderr)
			}
			return stdout.String(), dead
		case request = <-m.relay.requests:
		}

		switch {
		case n < after:
			m.relay.forward(request)
		case n == after && arrives:
			subject := subjects.DefaultPriorityPrefix + strings.TrimPrefix(request.Subject, "relay")
			done := &nats.Msg{Subject: subject, Header: request.Header, Data: request.Data}
			_, err := m.relay.env.Conn.RequestMsg(done, testenv.Patience)
			must(m.t, err)
			m.kill()
			m.relay.fail(request, true)
			dead = true
		default:
			if n == after {
				m.kill()
			}
			m.relay.fail(request, false) // as another bridge would that is about to end
			dead = true
		}
	}
}

// The bridge is killed (kill -9) at each request of an export, and at each of an import, before it
// has it or after it has done it. The next ones are whole: the same digest, and no item twice.
func TestExportAndImportUnderKills(t *testing.T) {
	t.Parallel()
	t.Run("pebble", func(t *testing.T) {
		t.Parallel()
		exportUnderKills(t, folderVariable+"="+t.TempDir())
	})
	t.Run("fdb", func(t *testing.T) {
		t.Parallel()
		file, _, _ := testenv.StartFDBCluster(t, "unset")
		exportUnderKills(t, clusterVariable+"="+file)
	})
}

// newMortal starts a bridge that has its store where the variable says.
func newMortal(t *testing.T, store string) (*cli, *mortal) {
	t.Helper()
	env := testenv.New(t, testenv.Options{Stopped: true})
	env.NATS.Start()
	env.Conn = env.Connect()
	m := &mortal{t: t, store: store}
	m.relay = &relay{t: t, env: env, requests: make(chan *nats.Msg, 100)}
	_, err := env.Conn.ChanSubscribe("relay.>", m.relay.requests)
	must(t, err)
	m.start()
	t.Cleanup(func() { m.kill() })
	return &cli{t: t, server: env.NATS.URL()}, m
}

// An import into a queue in use, whose bridge is killed at any request, so that nobody can give the
// queue its settings back: it has its limits all the while, and each of its items.
func TestImportIntoQueueInUseUnderKills(t *testing.T) {
	t.Parallel()
	c, m := newMortal(t, folderVariable+"="+t.TempDir())
	c.ok("a\nb\n", "push", "old", "--lines")
	c.ok("", "config", "old", "ack_wait=1m")
	want := c.export(false, "old")
	limits := []string{"ttl=1h0m0s", "max_items=10"}

	for after := 0; ; after++ {
		queue := fmt.Sprint("jobs-", after)
		c.ok("", append([]string{"config", queue, "discard=old"}, limits...)...)
		c.ok("", "push", queue, "mine", "--priority", "9")

		_, died := m.dies(c, after, after%2 == 1, want.text, "import", queue, "--yes")
		if !died {
			if after < 5 {
				t.Errorf("an import has %d requests", after)
			}
			return
		}

		m.start()
		settings := c.ok("", "config", queue)
		replaced := strings.Contains(settings, "ack_wait=1m0s")
		if replaced && c.ok("", "len", queue) != "3\n" {
			t.Errorf("killed at request %d: settings %q before the items", after, settings)
		}
		for _, limit := range limits {
			if !replaced && !strings.Contains(settings, limit) {
				t.Errorf("killed at request %d: settings %q, want %s", after, settings, limit)
			}
		}
		c.imports(want, queue, "--yes")
		c.prints("ack_wait=1m0s\n", "config", queue)
		c.prints("a\nb\nmine\n", "pop", queue, "--all")
	}
}

func exportUnderKills(t *testing.T, store string) {
	c, m := newMortal(t, store)
	env := m.relay.env
	q := client.New(env.Conn).PriorityQueue("jobs")
	const n = 1500 // in some pages, and some batches
	list := make([]client.PushItem, n)
	for i := range list {
		list[i].Priority, list[i].Value = int64(i%7), fmt.Appendf(nil, "%01000d", i)
	}
	_, err := q.PushMany(t.Context(), list)
	must(t, err)
	c.ok("", "pause", "jobs")
	c.ok("", "schedule", "add", "jobs", "nightly", "--cron", "0 3 * * *")
	want := c.export(false, "jobs")

	for after := 0; ; after++ {
		text, died := m.dies(c, after, after%2 == 1, "", "export", "jobs")
		if !died {
			if after < 5 {
				t.Errorf("an export of %d items has %d requests", n, after)
			}
			break
		}
		if strings.Contains(text, `"end"`) {
			t.Errorf("killed at request %d, the export has an end", after)
		}

		m.start()
		if got := c.export(false, "jobs"); !reflect.DeepEqual(got.items, want.items) {
			t.Errorf("killed at request %d: %+v, want %+v", after, got.end, want.end)
		}
	}

	repeated := int64(0)
	for after := 0; ; after++ {
		for _, arrives := range []bool{false, true} {
			queue := fmt.Sprintf("new-%d-%v", after, arrives)
			_, died := m.dies(c, after, arrives, want.text, "import", queue)
			if !died {
				if after < 5 {
					t.Errorf("an import of %d items has %d requests", n, after)
				}
				if repeated == 0 {
					t.Error("no import was killed with items in the queue")
				}
				return
			}

			m.start()
			sum := c.imports(want, queue, "--yes")
			repeated += sum.Repeated
			got := c.export(false, queue)
			if !reflect.DeepEqual(got.inGroups(), want.inGroups()) || got.end.Items != n {
				t.Errorf("killed at request %d (done: %v), then %+v: %+v, want %+v", after,
					arrives, sum, got.end, want.end)
			}
		}
	}
}
