package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/pqbridge/pqbridge/cmd/internal/ready"
)

// devStartTime is how long the NATS server may take to start.
const devStartTime = 10 * time.Second

// startNATS starts the NATS server of -dev in this process, and sets the URLs in c that lead to it.
//
// Its JetStream is below PQ_DATA_DIR, which this process must have locked already: nats-server does
// not. So with FoundationDB, which locks no folder, there is none. The bridge serves JetStream's
// programs through the leaf node port, unless PQ_JETSTREAM_LEAF_URL leads elsewhere.
func startNATS(c *config, logger *slog.Logger) (*server.Server, error) {
	// The server itself would only log that the port is in use.
	address := net.JoinHostPort(c.DevNATSHost, strconv.Itoa(c.DevNATSPort))
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("the NATS server of -dev cannot listen, "+
			"set PQ_DEV_NATS_PORT to a free port, "+
			"and PQ_DEV_NATS_HOST to an address of this machine: %w", err)
	}

	if err := listener.Close(); err != nil {
		return nil, err
	}

	o := &server.Options{
		ServerName: "pqbridge-dev",
		Host:       c.DevNATSHost,
		Port:       cmp.Or(c.DevNATSPort, server.RANDOM_PORT),
		NoSigs:     true,
		// A client that does not read can stall the bridge this long.
		WriteDeadline: 2 * time.Second,

		JetStream:          c.Store == storeEmbedded,
		StoreDir:           c.DataDir,
		JetStreamMaxMemory: devHeap / 2,
	}

	// Only this process connects to it, so any port will do.
	o.LeafNode.Host, o.LeafNode.Port = "127.0.0.1", server.RANDOM_PORT
	s, err := server.NewServer(o)
	if err != nil {
		return nil, fmt.Errorf("the NATS server of -dev: %w", err)
	}

	log := &natsLog{logger: logger}
	s.SetLogger(log, false, false)
	s.Start()
	if why := log.fatal.Load(); why != nil {
		stopNATS(s)
		folder := filepath.Join(c.DataDir, server.JetStreamStoreDir)
		return nil, fmt.Errorf("the NATS server of -dev, with its streams in %s: %s; "+
			"move that folder away to start without them", folder, *why)
	}

	if !s.ReadyForConnections(devStartTime) {
		stopNATS(s)
		return nil, fmt.Errorf("the NATS server of -dev did not start within %v: see the log above",
			devStartTime)
	}

	c.NATSURL = "nats://" + ready.Reachable(s.Addr().String())
	if c.LeafURL == "" && c.prefixesAreDomains() {
		c.LeafURL = fmt.Sprintf("nats-leaf://127.0.0.1:%d", o.LeafNode.Port)
	}
	return s, nil
}

func stopNATS(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// natsLog is the log of the NATS server. Its notices are debug messages here.
type natsLog struct {
	logger *slog.Logger
	fatal  atomic.Pointer[string] // why the server cannot run, or nil
}

func (l *natsLog) log(level slog.Level, format string, args []any) {
	if l.logger.Enabled(context.Background(), level) {
		l.logger.Log(context.Background(), level, "nats-server: "+fmt.Sprintf(format, args...))
	}
}

func (l *natsLog) Noticef(format string, args ...any) { l.log(slog.LevelDebug, format, args) }
func (l *natsLog) Warnf(format string, args ...any)   { l.log(slog.LevelWarn, format, args) }
func (l *natsLog) Errorf(format string, args ...any)  { l.log(slog.LevelError, format, args) }
func (l *natsLog) Debugf(format string, args ...any)  { l.log(slog.LevelDebug, format, args) }
func (l *natsLog) Tracef(format string, args ...any)  { l.log(slog.LevelDebug, format, args) }

// Fatalf records the reason. The server then returns from Start.
func (l *natsLog) Fatalf(format string, args ...any) {
	why := fmt.Sprintf(format, args...)
	l.fatal.CompareAndSwap(nil, &why)
}

// greet waits until the service is ready, if it serves HTTP, and prints what to try.
func greet(ctx context.Context, w io.Writer, c *config, httpAddr string) {
	for httpAddr != "" && ready.Check(ctx, httpAddr) != nil {
		select {
		case <-ctx.Done():
			return // the service ended first, and says why itself
		case <-time.After(20 * time.Millisecond):
		}
	}

	path := ""
	if self, err := os.Executable(); err == nil {
		path = pathToPQ(filepath.Dir(self))
	}

	_, _ = io.WriteString(w, greeting(c, httpAddr, path))
}

// greeting says where the service is and what to try, after the line path.
func greeting(c *config, httpAddr, path string) string {
	server := ""
	if c.NATSURL != "nats://127.0.0.1:4222" {
		server = " --server " + c.NATSURL
	}

	where := fmt.Sprintf("Ready. NATS is at %s", c.NATSURL)
	if httpAddr != "" {
		where += fmt.Sprintf(", health and metrics at http://%s", ready.Reachable(httpAddr))
	}
	return fmt.Sprintf(`
%[1]s.
Try, in another terminal:

%[3]s  pq%[2]s push jobs "write the report" --priority 5
  pq%[2]s push jobs "put out the fire" --priority 1
  pq%[2]s pop jobs

or with the NATS command line tool:

  nats%[2]s request pq.jobs.push.1 "put out the fire"
  nats%[2]s request pq.jobs.pop.min ""

Ctrl-C stops it; queued items stay.
`, where, server, path)
}

// pathToPQ returns the line that lets a shell find the pq in a folder. It returns "" if the shell
// already finds one, or the folder has none.
func pathToPQ(folder string) string {
	if _, err := exec.LookPath("pq"); err == nil {
		return ""
	}
	if _, err := exec.LookPath(filepath.Join(folder, "pq")); err != nil {
		return ""
	}
	return fmt.Sprintf("  export PATH=\"%s:$PATH\"\n", folder)
}
