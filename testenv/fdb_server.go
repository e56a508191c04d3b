//go:build fdb

package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// FDBStorage is a storage engine of FoundationDB.
type FDBStorage string

// Storage engines. Both write to disk before they answer.
const (
	FDBMemory FDBStorage = "memory"
	FDBSSD    FDBStorage = "ssd"
)

// FDBServer is a private FoundationDB cluster of one process on the loopback
// interface, with its data in a temporary folder. It is used by one goroutine
// at a time.
type FDBServer struct {
	dir     string
	address string
	process *os.Process
	exited  chan struct{} // closed when process is gone
	janitor *fdbJanitor
}

// StartFDB starts a server for one test, for tests that disturb it; others
// share one through FDB. It ends with the test, or with the process if the
// test does not get to its end. Where FoundationDB is not installed the test
// fails if PQ_TEST_FDB=1, and is skipped otherwise.
func StartFDB(tb testing.TB, storage FDBStorage) *FDBServer {
	tb.Helper()
	requireFDBInstalled(tb)
	server, err := startFDB(storage)
	if err != nil {
		tb.Fatalf("FoundationDB: %v", err)
	}
	tb.Cleanup(func() {
		if err := server.stop(); err != nil {
			tb.Errorf("FoundationDB: %v", err)
		}
	})
	return server
}

func requireFDBInstalled(tb testing.TB) {
	tb.Helper()
	for _, name := range []string{"fdbserver", "fdbcli"} {
		if _, err := fdbProgram(name); err != nil {
			noFDB(tb, fmt.Sprintf("%s is not installed: %v", name, err))
		}
	}
}

// fdbProgram returns the path of one of FoundationDB's programs. Packages put
// the server where only root's PATH finds it.
func fdbProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		if path, err := exec.LookPath(filepath.Join("/usr/sbin", name)); err == nil {
			return path, nil
		}
	}
	return path, err
}

func startFDB(storage FDBStorage) (*FDBServer, error) {
	dir, err := os.MkdirTemp("", "pq-fdb-")
	if err != nil {
		return nil, err
	}
	janitor, err := startFDBJanitor(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &FDBServer{dir: dir, janitor: janitor}
	if err := s.create(storage); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// create starts the server for the first time and makes a database in it.
func (s *FDBServer) create(storage FDBStorage) error {
	var err error
	// Another process may take the port in between, so try again.
	for range 5 {
		if s.address, err = freeAddress(); err != nil {
			return err
		}
		if err = os.WriteFile(s.ClusterFile(), []byte("pqtest:pqtest@"+s.address), 0o600); err != nil {
			return err
		}
		if err = s.launch(); err != nil {
			return err
		}
		if err = s.configure(storage); err == nil {
			return s.await()
		}
		if s.Running() {
			return err
		}
	}
	return err
}

// configure makes the database. fdbcli waits for the server.
func (s *FDBServer) configure(storage FDBStorage) error {
	program, err := fdbProgram("fdbcli")
	if err != nil {
		return err
	}
	ctx, cancel := s.whileRunning()
	defer cancel()
	out, err := exec.CommandContext(ctx, program, "-C", s.ClusterFile(), "--timeout", "60",
		"--exec", "configure new single "+string(storage)).CombinedOutput()
	if err != nil {
		return s.describe(fmt.Errorf("fdbcli: %w: %s", err, out))
	}
	return nil
}

// freeAddress returns a loopback address that was free a moment ago.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

// launch starts the process and does not wait for it to answer.
func (s *FDBServer) launch() error {
	program, err := fdbProgram("fdbserver")
	if err != nil {
		return err
	}
	output, err := os.OpenFile(s.outputFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	cmd := exec.Command(program, "--public-address", s.address, "--cluster-file", s.ClusterFile(),
		"--datadir", filepath.Join(s.dir, "data"), "--logdir", filepath.Join(s.dir, "log"),
		"--memory", "4GiB", "--cache-memory", "256MiB", "--storage-memory", "1GiB")
	cmd.Stdout, cmd.Stderr = output, output
	// A group of its own, so that an interrupt of the tests is theirs to handle.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.process, s.exited = cmd.Process, make(chan struct{})
	go s.wait(cmd, s.exited)
	return s.janitor.watch(cmd.Process.Pid)
}

func (s *FDBServer) wait(cmd *exec.Cmd, exited chan<- struct{}) {
	cmd.Wait() // how it ended is seen by what it printed
	close(exited)
}

// whileRunning returns a context that ends when the server does, or when
// patience does.
func (s *FDBServer) whileRunning() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), fdbPatience)
	go func(exited <-chan struct{}) {
		select {
		case <-exited:
			cancel()
		case <-ctx.Done():
		}
	}(s.exited)
	return ctx, cancel
}

// await waits until the server answers.
func (s *FDBServer) await() error {
	ctx, cancel := s.whileRunning()
	defer cancel()
	if err := awaitFDB(ctx, s.ClusterFile()); err != nil {
		return s.describe(fmt.Errorf("waiting for fdbserver: %w", err))
	}
	return nil
}

// describe adds what the server printed to err.
func (s *FDBServer) describe(err error) error {
	output, _ := os.ReadFile(s.outputFile())
	return fmt.Errorf("%w\nfdbserver printed: %s", err, output)
}

func (s *FDBServer) outputFile() string { return filepath.Join(s.dir, "output") }

// stop kills the server and removes its files.
func (s *FDBServer) stop() error {
	err := s.janitor.finish()
	if s.process != nil {
		<-s.exited
	}
	return err
}

// ClusterFile returns the path of the cluster file.
func (s *FDBServer) ClusterFile() string { return filepath.Join(s.dir, "fdb.cluster") }

// Running reports whether the process is there.
func (s *FDBServer) Running() bool {
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// Kill ends the process as kill -9 does and returns when it is gone.
func (s *FDBServer) Kill() error {
	if err := s.process.Kill(); err != nil {
		return fmt.Errorf("fdbserver: kill: %w", err)
	}
	<-s.exited
	return s.janitor.watch(0)
}

// Restart starts a killed server with its address and data, and returns when
// it answers.
func (s *FDBServer) Restart() error {
	if err := s.launch(); err != nil {
		return err
	}
	return s.await()
}

// Pause stops the process in its tracks: its connections stay open and nothing
// answers.
func (s *FDBServer) Pause() error { return s.process.Signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (s *FDBServer) Resume() error { return s.process.Signal(syscall.SIGCONT) }
