//go:build !linux

package harness

import (
	"net"
	"testing"
)

// Port returns a port of 127.0.0.1 that was free a moment ago.
func Port(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("a port: %v", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
