//go:build fdb

// Package fdbserver starts private FoundationDB clusters of one process, for
// tests and benchmarks. It needs the build tag fdb, and fdbserver and fdbcli
// installed.
package fdbserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
)

// Patience bounds the start of a server and every wait for a cluster.
const Patience = time.Minute

// Storage is a storage engine of FoundationDB.
type Storage string

// Storage engines. Both write to disk before they answer.
const (
	Memory Storage = "memory"
	SSD    Storage = "ssd"
)

// Server is a private FoundationDB cluster of one process on the loopback interface,
// with its data in a temporary folder. Only one goroutine may use it at a time. If the
// process that started it ends without Stop, in whatever way, the server ends and its
// folder is removed too.
type Server struct {
	dir     string
	address string
	process *os.Process
	exited  chan struct{} // closed when process is gone
	janitor *janitor
}

// Program returns the path of one of FoundationDB's programs. Packages put
// the server where only root's PATH finds it.
func Program(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		if path, err := exec.LookPath(filepath.Join("/usr/sbin", name)); err == nil {
			return path, nil
		}
	}
	return path, err
}

// Start starts a server with its data in a temporary folder, created in dir or, if that
// is empty, in the system's folder for temporary files. It returns when the server
// answers.
func Start(dir string, storage Storage) (*Server, error) {
	dir, err := os.MkdirTemp(dir, "pq-fdb-")
	if err != nil {
		return nil, err
	}
	janitor, err := startJanitor(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &Server{dir: dir, janitor: janitor}
	if err := s.create(storage); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// create starts the server for the first time and makes a database in it.
func (s *Server) create(storage Storage) error {
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
func (s *Server) configure(storage Storage) error {
	program, err := Program("fdbcli")
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
func (s *Server) launch() error {
	program, err := Program("fdbserver")
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
	// A group of its own, so that an interrupt of the tests does not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.process, s.exited = cmd.Process, make(chan struct{})
	go s.wait(cmd, s.exited)
	return s.janitor.watch(cmd.Process.Pid)
}

func (s *Server) wait(cmd *exec.Cmd, exited chan<- struct{}) {
	cmd.Wait() // its output says how it ended
	close(exited)
}

// whileRunning returns a context that ends when the server does, or after Patience.
func (s *Server) whileRunning() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
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
func (s *Server) await() error {
	ctx, cancel := s.whileRunning()
	defer cancel()
	if err := Await(ctx, s.ClusterFile()); err != nil {
		return s.describe(fmt.Errorf("waiting for fdbserver: %w", err))
	}
	return nil
}

// Await waits until the cluster has answered a read.
func Await(ctx context.Context, clusterFile string) error {
	db, err := fdbkv.Open(fdbkv.Options{ClusterFile: clusterFile, TransactionTimeout: Patience})
	if err != nil {
		return err
	}
	defer db.Close()
	return kv.View(ctx, db, func(r kv.Reader) error {
		_, err := r.Get([]byte("pqtest")).Get()
		return err
	})
}

// describe adds what the server printed to err.
func (s *Server) describe(err error) error {
	output, _ := os.ReadFile(s.outputFile())
	return fmt.Errorf("%w\nfdbserver printed: %s", err, output)
}

func (s *Server) outputFile() string { return filepath.Join(s.dir, "output") }

// Stop kills the server and removes its files.
func (s *Server) Stop() error {
	err := s.janitor.finish()
	if s.process != nil {
		<-s.exited
	}
	return err
}

// ClusterFile returns the path of the cluster file.
func (s *Server) ClusterFile() string { return filepath.Join(s.dir, "fdb.cluster") }

// Running reports whether the process is running.
func (s *Server) Running() bool {
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// Kill ends the process as kill -9 does and returns when it is gone.
func (s *Server) Kill() error {
	if err := s.process.Kill(); err != nil {
		return fmt.Errorf("fdbserver: kill: %w", err)
	}
	<-s.exited
	return s.janitor.watch(0)
}

// Restart starts a killed server with its address and data, and returns when
// it answers.
func (s *Server) Restart() error {
	if err := s.launch(); err != nil {
		return err
	}
	return s.await()
}

// Pause freezes the process: its connections stay open and nothing answers.
func (s *Server) Pause() error { return s.process.Signal(syscall.SIGSTOP) }

// Resume lets a paused process continue.
func (s *Server) Resume() error { return s.process.Signal(syscall.SIGCONT) }
