package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/cmd/internal/sigonce"
	"github.com/pqbridge/pqbridge/testenv"
)

// onNATS returns pqbridge, which has not begun, on a NATS server in this process.
func onNATS(t *testing.T) (*command, *testenv.Server) {
	t.Helper()
	server := testenv.New(t, testenv.Options{Stopped: true}).NATS
	server.Start()
	c := newCommand(t, []string{"PQ_NATS_URL=" + server.URL(), "PQ_DATA_DIR=" + t.TempDir()})
	c.nats = server.URL()

	return c, server
}

// With a NATS server that is gone the shutdown still succeeds.
func TestStopWithoutNATS(t *testing.T) {
	t.Parallel()

	c, server := onNATS(t)
	c.start()
	c.says("taking requests")
	server.Stop()
	c.says("disconnected from NATS")
	c.stop(syscall.SIGTERM)
	c.says("NATS is unreachable")
	c.says("pqbridge has ended")
}

// SIGHUP does not stop the service, except with -dev.
func TestHangup(t *testing.T) {
	t.Parallel()

	// Under nohup SIGHUP is ignored, also by the processes that this one starts, unless it is
	// caught here.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	c, _ := onNATS(t)
	c.start()
	c.says("taking requests")
	must(t, c.cmd.Process.Signal(syscall.SIGHUP))

	nc := connect(t, c.nats)
	request(t, nc, "pq.jobs.push", "x")
	nc.Close()
	c.stop(syscall.SIGTERM)

	// With -dev it means that the terminal was closed.
	dev := startDev(t, "PQ_DATA_DIR="+t.TempDir())
	dev.stop(syscall.SIGHUP)
	dev.says("reason=SIGHUP")
}

// The service goes on when nobody reads its log and output any more.
func TestLogPipeIsClosed(t *testing.T) {
	t.Parallel()

	reader, writer, err := os.Pipe()
	must(t, err)
	c, _ := onNATS(t)
	c.cmd.Stdout, c.cmd.Stderr = writer, writer
	c.start()
	_ = writer.Close()
	lines := bufio.NewScanner(reader)

	for lines.Scan() && !strings.Contains(lines.Text(), "taking requests") {
	}
	_ = reader.Close()

	nc := connect(t, c.nats)
	request(t, nc, "pq.jobs.push", "x")

	for range 20 { // more than the log shows one by one
		// Without a reply subject, which is logged.
		if err := nc.Publish("pq.jobs.pop.min", nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := request(t, nc, "pq.jobs.len", ""); !strings.Contains(string(got.Data), `"len":1`) {
		t.Errorf("length %s", got.Data)
	}

	nc.Close()
	c.stop(syscall.SIGTERM)
}

// A log pipe that is held open but not read blocks the service, but not its shutdown.
func TestLogPipeIsFull(t *testing.T) {
	t.Parallel()

	reader, writer, err := os.Pipe()
	must(t, err)
	defer reader.Close()

	for written := 0; written == 0; { // what the pipe has room for is written at once
		must(t, writer.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
		written, _ = writer.Write(make([]byte, 1<<20))
	}

	data := filepath.Join(t.TempDir(), "data")
	cmd := newCommand(t, []string{"PQ_NATS_URL=nats://127.0.0.1:1", "PQ_DATA_DIR=" + data}).cmd
	cmd.Stderr = writer
	err = cmd.Start()
	_ = writer.Close()
	must(t, err)

	// The signal handlers are installed.
	testenv.Eventually(t, func() error { _, err := os.Stat(data); return err })

	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	for {
		err := cmd.Process.Signal(syscall.SIGTERM)
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}

		select {
		case err := <-ended:
			if cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("%v: want exit code 1", err)
			}
			return
		case <-time.After(100 * time.Millisecond): // signals may merge
		}
	}
}

// A second signal right after the first, as timeout(1) sends it to a child and to its process
// group, does not cut the shutdown short. A later one does.
func TestSignalThatComesTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, supervised := make(chan os.Signal), make(chan error)
		ctx, stop := context.WithCancelCause(t.Context())
		go func() { supervised <- superviseRun(nil, signals, stop) }()

		signals <- syscall.SIGTERM
		<-ctx.Done()

		for range 3 {
			time.Sleep(sigonce.Window / 4) // on the clock of synctest
			select {
			case signals <- os.Interrupt:
			case err := <-supervised:
				t.Fatalf("the shutdown was cut short: %v", err)
			}
		}

		time.Sleep(sigonce.Window / 4)
		signals <- os.Interrupt
		if err := <-supervised; !errors.Is(err, signalErrors[os.Interrupt]) {
			t.Errorf("after a later signal: %v, want %v", err, signalErrors[os.Interrupt])
		}
	})
}

// A store that cannot be closed does not keep the process from exiting.
func TestShutdownThatHangs(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	hangs, over := make(chan struct{}), make(chan struct{})

	err := endWithin(ctx, time.Millisecond, func() error {
		defer close(over)
		<-hangs
		return nil
	})
	if !errors.Is(err, errStuck) {
		t.Errorf("a shutdown that hangs: %v, want %v", err, errStuck)
	}

	close(hangs)
	<-over

	failure := errors.New("failure")
	if err := endWithin(ctx, time.Hour, func() error { return failure }); !errors.Is(err, failure) {
		t.Errorf("a shutdown that fails: %v, want %v", err, failure)
	}
}
