//go:build fdb

package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// Storage engines. Both write to disk before they answer.
const (
	FDBMemory = "memory"
	FDBSSD    = "ssd"
)

// FDBServer is a process of a private FoundationDB cluster on the loopback interface, usually its
// only one, with its data in a temporary folder. Only one goroutine may use it at a time. It ends
// with the process that started it.
type FDBServer struct {
	dir     string
	address string // under which others know it
	listen  string // where it listens
	zone    string // with which it fails
	class   string // of fdbserver: what it prefers to do
	process *os.Process
	exited  chan struct{} // closed when process is gone
}

// StartFDB starts a server for one test that disturbs it; other tests share one through
// FDB. It ends with the test, or with the process if the test does not finish. Where
// FoundationDB is not installed, the test fails if PQ_TEST_FDB=1 and is skipped
// otherwise.
func StartFDB(tb testing.TB, storage string) *FDBServer {
	tb.Helper()
	requireFDBInstalled(tb)
	server, err := startFDB(harness.Port(tb), storage)
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
		if _, err := exec.LookPath(fdbProgram(name)); err != nil {
			noFDB(tb, fmt.Sprintf("%s is not installed: %v", name, err))
		}
	}
}

// fdbProgram returns the path of one of FoundationDB's programs. Packages put
// the server where only root's PATH finds it.
func fdbProgram(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	return filepath.Join("/usr/sbin", name)
}

// StartFDBCluster starts a cluster with a process of each of these classes of fdbserver and the
// ssd engine, for a test or benchmark, with which it ends. It returns the cluster file, and the ids
// and ports of the processes.
func StartFDBCluster(tb testing.TB, classes ...string) (file string, pids, ports []int) {
	tb.Helper()
	requireFDBInstalled(tb)
	var servers []*FDBServer
	for _, class := range classes {
		ports = append(ports, harness.Port(tb))
		s, err := launchFDB(ports[len(ports)-1], ports[0], class)
		if err != nil {
			tb.Fatalf("FoundationDB: %v", err)
		}
		servers, pids = append(servers, s), append(pids, s.process.Pid)
		tb.Cleanup(func() { _ = s.stop() }) // its files are temporary
	}

	first := servers[0]
	if err := first.create("single", FDBSSD); err != nil {
		tb.Fatalf("FoundationDB: %v", err)
	}
	return first.ClusterFile(), pids, ports
}

// StartFDBCopies starts a cluster of three servers with the ssd engine, each with its own disk and
// coordinator, that keep two copies of everything, for a test that disturbs them. It ends with the
// test. public returns under which address others know the server that listens at an address.
func StartFDBCopies(tb testing.TB, public func(listen string) string) (servers []*FDBServer) {
	tb.Helper()
	requireFDBInstalled(tb)
	var addresses []string
	for n := range 3 {
		listen := loopback(harness.Port(tb))
		s := &FDBServer{
			address: public(listen), listen: listen, zone: strconv.Itoa(n), class: "unset",
		}
		servers, addresses = append(servers, s), append(addresses, s.address)
	}

	for _, s := range servers {
		tb.Cleanup(func() { _ = s.stop() }) // its files are temporary
		if err := s.begin(addresses...); err != nil {
			tb.Fatalf("FoundationDB: %v", err)
		}
	}
	if err := servers[0].create("double", FDBSSD); err != nil {
		tb.Fatalf("FoundationDB: %v", err)
	}
	return servers
}

func loopback(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

// launchFDB starts a server on a port, in the cluster whose coordinator is at another one.
func launchFDB(port, coordinator int, class string) (*FDBServer, error) {
	address := loopback(port)
	s := &FDBServer{address: address, listen: address, class: class}
	if err := s.begin(loopback(coordinator)); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// begin starts the server for the first time, in the cluster with these coordinators.
func (s *FDBServer) begin(coordinators ...string) (err error) {
	if s.dir, err = os.MkdirTemp("", "pq-fdb-"); err != nil {
		return err
	}

	cluster := "pqtest:pqtest@" + strings.Join(coordinators, ",")
	err = os.WriteFile(s.ClusterFile(), []byte(cluster), 0o600)
	if err == nil {
		// Without it, fdbserver tries again and again.
		err = os.Mkdir(filepath.Join(s.dir, "log"), 0o700)
	}
	if err == nil {
		err = s.launch()
	}
	return err
}

// Join adds a process on a port to the cluster, which may take over roles, but keeps no data. leave
// kills it.
func (s *FDBServer) Join(port int) (leave func() error, err error) {
	_, coordinator, _ := strings.Cut(s.address, ":")
	at, err := strconv.Atoi(coordinator)
	if err != nil {
		return nil, err
	}

	joined, err := launchFDB(port, at, "stateless")
	if err != nil {
		return nil, err
	}
	return joined.stop, nil
}

// startFDB starts a server on a port. It returns when the server answers.
func startFDB(port int, storage string) (*FDBServer, error) {
	s, err := launchFDB(port, port, "unset")
	if err != nil {
		return nil, err
	}

	if err = s.create("single", storage); err != nil {
		return nil, errors.Join(err, s.stop())
	}

	return s, nil
}

// create makes the database, and waits until it answers. fdbcli waits for the servers, two minutes
// at most.
func (s *FDBServer) create(redundancy, storage string) error {
	out, err := exec.Command(fdbProgram("fdbcli"), "-C", s.ClusterFile(), "--timeout", "120",
		"--exec", "configure new "+redundancy+" "+storage).CombinedOutput()
	if err != nil {
		return s.describe(fmt.Errorf("fdbcli: %w: %s", err, out))
	}

	return s.await()
}

// launch starts the process and does not wait for it to answer.
func (s *FDBServer) launch() error {
	output, err := os.OpenFile(s.outputFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	cmd := harness.Command(fdbProgram("fdbserver"),
		"--public-address", s.address, "--listen-address", s.listen, "--class", s.class,
		"--cluster-file", s.ClusterFile(),
		"--datadir", filepath.Join(s.dir, "data"), "--logdir", filepath.Join(s.dir, "log"),
		"--memory", "4GiB", "--cache-memory", "256MiB", "--storage-memory", "1GiB",
		"--knob_min_available_space_ratio=0.001") // it slows down below 5 % of the disk
	if s.zone != "" {
		cmd.Args = append(cmd.Args, "--locality-zoneid", s.zone, "--locality-machineid", s.zone)
	}
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		return err
	}

	s.process, s.exited = cmd.Process, make(chan struct{})
	go s.wait(cmd, s.exited)
	return nil
}

func (s *FDBServer) wait(cmd *exec.Cmd, exited chan<- struct{}) {
	cmd.Wait() // its output says how it ended
	close(exited)
}

// await waits until the server answers.
func (s *FDBServer) await() error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	db, err := fdbkv.Open(fdbkv.Options{ClusterFile: s.ClusterFile(), TransactionTimeout: Patience})
	if err != nil {
		return err
	}
	defer db.Close()
	err = kv.View(ctx, db, func(r kv.Reader) error {
		_, err := r.Get([]byte("pqtest")).Get()
		return err
	})
	if err != nil {
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
	var err error
	if s.process != nil && s.Running() {
		err = s.Kill()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// ClusterFile returns the path of the cluster file.
func (s *FDBServer) ClusterFile() string { return filepath.Join(s.dir, "fdb.cluster") }

// Running reports whether the process is running.
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
	return nil
}

// Restart starts a killed server with its address and data, and returns when
// it answers.
func (s *FDBServer) Restart() error {
	if err := s.launch(); err != nil {
		return err
	}
	return s.await()
}

// Pause freezes the process: its connections stay open and nothing answers.
func (s *FDBServer) Pause() error { return s.process.Signal(syscall.SIGSTOP) }

// Resume lets a paused process continue.
func (s *FDBServer) Resume() error { return s.process.Signal(syscall.SIGCONT) }
