package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/bench"
	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/process"
)

// both is for peers with requests for one item and for many.
const both = bench.One | bench.Many

// server is the process of a peer.
type server struct {
	*process.Process
	address, version string
	signal           os.Signal // that stops it
	stops            []func()  // in the order they were added
}

// startServer starts a server that listens on a free port. Setup changes the command before.
func startServer(ctx context.Context, dir, name string, signal os.Signal, args func(host, port string) []string, setup ...func(*exec.Cmd)) (*server, error) {
	address, err := process.FreeAddress()
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	s := &server{address: address, signal: signal}
	s.Process, err = process.Start(ctx, filepath.Dir(dir), name, args(host, port), nil, setup...)
	return s, err
}

// awaitVersion waits until ask returns the server's version, and stops the server if that fails.
func (s *server) awaitVersion(ctx context.Context, ask func() (string, error)) error {
	err := s.Await(ctx, func() (err error) {
		s.version, err = ask()
		return err
	})
	if err != nil {
		s.Stop()
	}
	return err
}

func (s *server) Version() string { return s.version }

// onStop adds a function that Stop calls before it stops the process; the last first.
func (s *server) onStop(stop func()) { s.stops = append(s.stops, stop) }

// Stop disconnects the clients and stops the process. It may be called again.
func (s *server) Stop() {
	for _, stop := range slices.Backward(s.stops) {
		stop()
	}
	s.stops = nil
	s.Process.Stop(s.signal)
}

// find returns the path of a program, or else says that it is missing. Folders may be patterns;
// PATH comes last.
func find(program string, folders ...string) (path, missing string) {
	for _, folder := range folders {
		matches, err := filepath.Glob(filepath.Join(folder, program))
		if err == nil && len(matches) > 0 {
			return matches[len(matches)-1], ""
		}
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Sprintf("%s is not in PATH", program)
	}
	return path, ""
}

// library is a client library with the version this program is built with.
func library(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return path
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return path + " " + m.Version
		}
	}
	return path
}

// line returns the rest of the line that begins with prefix.
func line(text, prefix string) string {
	for l := range strings.Lines(text) {
		if rest, found := strings.CutPrefix(l, prefix); found {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}
