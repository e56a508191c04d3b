package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// devStartTime is how long the NATS server may take to start.
const devStartTime = 10 * time.Second

// startNATS starts a NATS server in this process. Port 0 picks a free one.
func startNATS(host string, port int, logger *slog.Logger) (*server.Server, error) {
	// The server itself would only log that the port is in use.
	listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("the NATS server of -dev cannot listen, set PQ_DEV_NATS_PORT to a free port, and PQ_DEV_NATS_HOST to an address of this machine: %w", err)
	}
	if err := listener.Close(); err != nil {
		return nil, err
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}

	s, err := server.NewServer(&server.Options{
		ServerName: "pqbridge-dev", Host: host, Port: port, NoSigs: true,
		WriteDeadline: 2 * time.Second, // a client that does not read can stall the bridge this long
	})
	if err != nil {
		return nil, fmt.Errorf("the NATS server of -dev: %w", err)
	}

	s.SetLogger(natsLog{logger}, false, false)
	s.Start()
	if !s.ReadyForConnections(devStartTime) {
		stopNATS(s)
		return nil, fmt.Errorf("the NATS server of -dev did not start within %v: see the log above", devStartTime)
	}
	return s, nil
}

func stopNATS(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

// natsLog is the log of the NATS server. Its notices only matter to somebody who is
// debugging.
type natsLog struct{ logger *slog.Logger }

func (l natsLog) log(level slog.Level, format string, args []any) {
	if l.logger.Enabled(context.Background(), level) {
		l.logger.Log(context.Background(), level, "nats-server: "+fmt.Sprintf(format, args...))
	}
}

func (l natsLog) Noticef(format string, args ...any) { l.log(slog.LevelDebug, format, args) }
func (l natsLog) Warnf(format string, args ...any)   { l.log(slog.LevelWarn, format, args) }
func (l natsLog) Fatalf(format string, args ...any)  { l.log(slog.LevelError, format, args) }
func (l natsLog) Errorf(format string, args ...any)  { l.log(slog.LevelError, format, args) }
func (l natsLog) Debugf(format string, args ...any)  { l.log(slog.LevelDebug, format, args) }
func (l natsLog) Tracef(format string, args ...any)  { l.log(slog.LevelDebug, format, args) }

// greet waits until the service is ready, if it serves HTTP, and prints what to try.
func greet(ctx context.Context, w io.Writer, c *config, httpAddr string) {
	for httpAddr != "" && checkReady(ctx, httpAddr) != nil {
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
	// It does no harm if nobody can read the greeting.
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
		where += fmt.Sprintf(", health and metrics at http://%s", reachable(httpAddr))
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

// pathToPQ returns the line that lets a shell find the pq in a folder, "" if it finds one anyway,
// or none is there.
func pathToPQ(folder string) string {
	if _, err := exec.LookPath("pq"); err == nil {
		return ""
	}
	if _, err := exec.LookPath(filepath.Join(folder, "pq")); err != nil {
		return ""
	}
	return fmt.Sprintf("  export PATH=\"%s:$PATH\"\n", folder)
}

// reachable returns a host and port to connect to, given those that something listens on.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}
