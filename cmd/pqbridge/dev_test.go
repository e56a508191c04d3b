package main

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/testenv"
)

// The server of -dev listens where it is told: published ports of a container do not lead to
// 127.0.0.1.
func TestDevListensWhereItIsTold(t *testing.T) {
	t.Parallel()

	const host = "127.0.0.2"
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Skip("this machine has no second loopback address: ", err)
	}

	_ = l.Close()
	c := startDev(t, "PQ_DATA_DIR="+t.TempDir(), "PQ_DEV_NATS_HOST="+host)
	if !strings.HasPrefix(c.nats, "nats://"+host+":") {
		t.Errorf("NATS is at %s: want it at %s", c.nats, host)
	}

	request(t, connect(t, c.nats), "pq.jobs.push", "x")
}

// The server of -dev has a JetStream of its own, whose streams outlive the process and feed
// sources, and the bridge serves programs written for JetStream beside it.
func TestDevServesJetStream(t *testing.T) {
	t.Parallel()

	data := "PQ_DATA_DIR=" + t.TempDir()
	c := startDev(t, data)
	streams, err := jetstream.New(connect(t, c.nats),
		jetstream.WithDefaultTimeout(testenv.Patience))
	must(t, err)

	_, err = streams.CreateStream(t.Context(),
		jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.*"}})
	must(t, err)
	c.stop(syscall.SIGTERM)
	// Of a busy machine, and of a leaf node that has gone while it wrote:
	busy := regexp.MustCompile(
		`.*(Readloop processing time|took too long|Error flushing|NATS does not answer).*`)

	log := busy.ReplaceAllString(c.stderr.String(), "")
	if strings.Contains(log, "level=WARN") || strings.Contains(log, "level=ERROR") {
		t.Errorf("the log has warnings:\n%s", c.log())
	}

	c = startDev(t, data)
	nc := connect(t, c.nats)
	request(t, nc, "pq.jobs.config", `{"source":{"stream":"ORDERS"}}`)
	streams, err = jetstream.New(nc, jetstream.WithDefaultTimeout(testenv.Patience))
	must(t, err)

	_, err = streams.Publish(t.Context(), "orders.new", []byte("from the stream"))
	must(t, err)

	queues, err := jetstream.NewWithDomain(nc, "pq", jetstream.WithDefaultTimeout(testenv.Patience))
	must(t, err)
	jobs, err := queues.Consumer(t.Context(), "jobs", "min")
	must(t, err)

	job, err := jobs.Next(jetstream.FetchMaxWait(testenv.Patience))
	must(t, err)
	if string(job.Data()) != "from the stream" {
		t.Errorf("%q, want the message of the stream", job.Data())
	}
	must(t, job.DoubleAck(t.Context()))

	c.stop(syscall.SIGTERM)
}

// Prefixes with dots are no domains, and another leaf node port may be given.
func TestDevWithoutTheFace(t *testing.T) {
	for name, test := range map[string]struct {
		variables map[string]string
		want      string // of the leaf node port
	}{
		"dots": {map[string]string{"PQ_SUBJECT_PREFIX": "a.b"}, ""},
		"elsewhere": {
			map[string]string{"PQ_JETSTREAM_LEAF_URL": "nats-leaf://host"},
			"nats-leaf://host",
		},
	} {
		t.Run(name, func(t *testing.T) {
			setenv(t, map[string]string{"PQ_DATA_DIR": t.TempDir(), "PQ_DEV_NATS_PORT": "0"})
			setenv(t, test.variables)
			c, err := loadConfig(true)
			must(t, err)

			server, err := startNATS(c, slog.New(slog.DiscardHandler))
			must(t, err)
			stopNATS(server)

			if c.LeafURL != test.want {
				t.Errorf("the leaf node port is %q, want %q", c.LeafURL, test.want)
			}
		})
	}
}

// The commands of the greeting work in another terminal, also if pq was only just built.
func TestGreetingFindsPQ(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("PATH", t.TempDir())
	if got := pathToPQ(folder); got != "" {
		t.Errorf("without a pq there: %q", got)
	}
	must(t, os.WriteFile(filepath.Join(folder, "pq"), nil, 0o755))

	if got, want := pathToPQ(folder), "  export PATH=\""+folder+":$PATH\"\n"; got != want {
		t.Errorf("with a pq in the folder: %q, want %q", got, want)
	}

	t.Setenv("PATH", folder)
	if got := pathToPQ(folder); got != "" {
		t.Errorf("with pq in PATH: %q", got)
	}
}
