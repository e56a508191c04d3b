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

// says waits until the process has logged words.
func (c *command) says(words string) {
	c.t.Helper()
	testenv.Eventually(c.t, func() error {
		if log := c.stderr.String(); !strings.Contains(log, words) {
			return errors.New("not in the log: " + words + "\n" + log)
		}
		return nil
	})
}

// beside returns pqbridge on another one's NATS server, with other subjects.
func beside(t *testing.T, other *command) *command {
	c := newCommand(t, []string{"PQ_NATS_URL=" + other.nats, "PQ_DATA_DIR=" + t.TempDir(), "PQ_SUBJECT_PREFIX=other", "PQ_FIFO_PREFIX=others"})
	c.nats = other.nats
	return c
}

func startOn(t *testing.T, other *command) *command {
	t.Helper()
	c := beside(t, other)
	c.start()
	c.says("taking requests")
	return c
}

// TestStopWithoutAnswerFromNATS: with a NATS server that is frozen or gone the shutdown
// still succeeds within the 10 seconds that docker stop waits.
func TestStopWithoutAnswerFromNATS(t *testing.T) {
	tests := map[string]struct {
		harm func(nats, c *command)
		says string
	}{
		"frozen": {func(nats, _ *command) { nats.freeze() }, "NATS does not answer"},
		"gone":   {func(nats, c *command) { nats.kill(); c.says("disconnected from NATS") }, "NATS is away"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			nats := startDev(t, "PQ_DATA_DIR="+t.TempDir())
			c := startOn(t, nats)
			test.harm(nats, c)
			began := time.Now()
			c.stop(syscall.SIGTERM)
			if took := time.Since(began); took > 8*time.Second {
				t.Errorf("it took %v: want at most the default of PQ_SHUTDOWN_TIMEOUT", took)
			}
			c.says(test.says)
			c.says("pqbridge has ended")
		})
	}
}

// freeze stops the process with SIGSTOP and waits until it has stopped.
func (c *command) freeze() {
	c.t.Helper()
	must(c.t, c.cmd.Process.Signal(syscall.SIGSTOP))
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(c.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		c.t.Fatalf("not stopped: %v, status %v", err, status)
	}
}

// TestHangup: SIGHUP does not stop the service, except with -dev.
func TestHangup(t *testing.T) {
	// Under nohup SIGHUP is ignored, also by the processes that this one starts, unless it is
	// caught here.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	dev := startDev(t, "PQ_DATA_DIR="+t.TempDir())
	c := startOn(t, dev)
	must(t, c.cmd.Process.Signal(syscall.SIGHUP))
	c.says("SIGHUP changes nothing")
	nc := connect(t, c.nats)
	request(t, nc, "other.jobs.push", "x")
	nc.Close()
	c.stop(syscall.SIGTERM)

	// With -dev it means that the terminal was closed.
	dev.stop(syscall.SIGHUP)
	dev.says("reason=SIGHUP")
}

// TestLogPipeIsClosed: the service goes on when nobody reads its log and output any more.
func TestLogPipeIsClosed(t *testing.T) {
	reader, writer, err := os.Pipe()
	must(t, err)
	dev := startDev(t, "PQ_DATA_DIR="+t.TempDir())
	c := beside(t, dev)
	c.cmd.Stdout, c.cmd.Stderr = writer, writer
	c.start()
	_ = writer.Close()
	lines := bufio.NewScanner(reader)
	for lines.Scan() && !strings.Contains(lines.Text(), "taking requests") {
	}
	_ = reader.Close()

	nc := connect(t, dev.nats)
	request(t, nc, "other.jobs.push", "x")
	for range 20 { // more than the log shows one by one
		if err := nc.Publish("other.jobs.pop.min", nil); err != nil { // without a reply subject, which is logged
			t.Fatal(err)
		}
	}
	if got := request(t, nc, "other.jobs.len", ""); !strings.Contains(string(got.Data), `"len":1`) {
		t.Errorf("length %s", got.Data)
	}
	nc.Close()
	c.stop(syscall.SIGTERM)
}

// TestLogPipeIsFull: a log pipe that is held open but not read blocks the service, but not
// its shutdown.
func TestLogPipeIsFull(t *testing.T) {
	reader, writer, err := os.Pipe()
	must(t, err)
	defer reader.Close()
	must(t, writer.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	for err == nil {
		_, err = writer.Write(make([]byte, 512))
	}
	data := filepath.Join(t.TempDir(), "data")
	cmd := newCommand(t, []string{"PQ_NATS_URL=nats://127.0.0.1:1", "PQ_DATA_DIR=" + data}).cmd
	cmd.Stderr = writer
	err = cmd.Start()
	_ = writer.Close()
	must(t, err)
	testenv.Eventually(t, func() error { _, err := os.Stat(data); return err }) // the signal handlers are installed
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
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

// TestSignalThatComesTwice: a second signal right after the first, as timeout(1) sends it to a
// child and to its process group, does not cut the shutdown short. A later one does.
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
		if err := <-supervised; !errors.Is(err, signalError{os.Interrupt}) {
			t.Errorf("error %v", err)
		}
	})
}

// TestShutdownThatHangs: a store that cannot be closed does not keep the process from exiting.
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
		t.Errorf("error %v", err)
	}
	close(hangs)
	<-over
	failure := errors.New("failure")
	if err := endWithin(ctx, time.Hour, func() error { return failure }); !errors.Is(err, failure) {
		t.Errorf("error %v", err)
	}
}
