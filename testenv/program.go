package testenv

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/procfs"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

// StartProgram starts a pqbridge of any revision in a process of its own, for tests that measure,
// and returns its id when it answers. The store is embedded and empty, and all subjects and keys
// begin with the prefix, unless the environment says otherwise. It ends with the test.
func (e *Env) StartProgram(program, prefix string, environment ...string) (pid int) {
	e.t.Helper()
	cmd := harness.Command(program)
	cmd.Env = append(append(os.Environ(),
		"PQ_NATS_URL="+e.NATS.URL(), "PQ_HTTP_ADDR=off", "PQ_DATA_DIR="+e.t.TempDir(),
		"PQ_SUBJECT_PREFIX="+prefix, "PQ_FIFO_PREFIX="+prefix+"-fifo",
		"PQ_KEY_PREFIX="+prefix, "PQ_FIFO_KEY_PREFIX="+prefix+"-fifo"), environment...)
	var log harness.Transcript
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		e.t.Fatalf("testenv: %v", err)
	}

	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	e.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // fails only if it has exited
		_, meant := e.killed.Load(cmd.Process.Pid)
		if err := <-exited; err != nil && !meant {
			tail := harness.Shorten("pqbridge", log.String())
			e.t.Errorf("testenv: %s: %v\n%s", program, err, tail)
		}
	})

	nc := e.Connect()
	defer nc.Close()
	Eventually(e.t, func() error {
		select {
		case err := <-exited:
			exited <- err
			e.t.Fatalf("testenv: %s has ended: %v", program, err)
		default:
		}
		_, err := nc.Request(prefix+".any.len", nil, nats.DefaultTimeout)
		return err
	})

	return cmd.Process.Pid
}

// KillProgram kills what StartProgram has started, as kill -9 does, and waits until it is gone.
func (e *Env) KillProgram(pid int) {
	e.t.Helper()
	e.killed.Store(pid, true)
	process, err := os.FindProcess(pid)
	if err == nil {
		err = process.Kill()
	}
	if err != nil {
		e.t.Fatalf("testenv: %v", err)
	}
	Eventually(e.t, func() error {
		if process.Signal(syscall.Signal(0)) == nil {
			return fmt.Errorf("process %d still runs", pid)
		}
		return nil
	})
}

// Memory returns the bytes that a process has in memory, 0 where the system does not say.
func Memory(pid int) uint64 { return memory(pid).VmRSS }

// PeakMemory returns the most bytes that a process has had in memory so far, 0 where the system
// does not say.
func PeakMemory(pid int) uint64 { return memory(pid).VmHWM }

func memory(pid int) (status procfs.ProcStatus) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return status
	}
	status, _ = process.NewStatus() // zero if it fails
	return status
}

// ProcessorTime returns what a process has taken so far, 0 where the system does not say.
func ProcessorTime(pid int) time.Duration {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}

	stat, err := process.Stat()
	if err != nil {
		return 0
	}

	return time.Duration(stat.CPUTime() * float64(time.Second))
}
