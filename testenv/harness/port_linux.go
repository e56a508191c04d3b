package harness

import (
	"syscall"
	"testing"
)

// Port returns a port of 127.0.0.1 that the system has picked and gives to nobody else until the
// test ends. A server may listen on it, stop, and listen again. It is bound by a socket that does
// not listen, which Linux lets a listener share.
func Port(t testing.TB) int {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("a port: %v", err)
	}

	t.Cleanup(func() { _ = syscall.Close(fd) })
	err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}

	var address syscall.Sockaddr
	if err == nil {
		address, err = syscall.Getsockname(fd)
	}
	if err != nil {
		t.Fatalf("a port: %v", err)
	}

	return address.(*syscall.SockaddrInet4).Port
}
