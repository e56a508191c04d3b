package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDevListensWhereItIsTold: in a container published ports do not lead to 127.0.0.1.
func TestDevListensWhereItIsTold(t *testing.T) {
	t.Parallel()
	const host = "127.0.0.2"
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Skip("this machine has no second loopback address: ", err)
	}
	_ = l.Close()
	c := startDev(t, "PQ_DATA_DIR="+t.TempDir(), "PQ_DEV_NATS_HOST="+host)
	if !strings.HasPrefix(c.nats, "nats://"+host+":") {
		t.Errorf("NATS is at %s: want it at %s", c.nats, host)
	}
	request(t, connect(t, c.nats), "pq.jobs.push", "x")
}

// The commands of the greeting work in another terminal, also if pq was only just built.
func TestGreetingFindsPQ(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("PATH", t.TempDir())
	if got := pathToPQ(folder); got != "" {
		t.Errorf("without a pq there: %q", got)
	}
	must(t, os.WriteFile(filepath.Join(folder, "pq"), nil, 0o755))
	if got, want := pathToPQ(folder), "  export PATH=\""+folder+":$PATH\"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	t.Setenv("PATH", folder)
	if got := pathToPQ(folder); got != "" {
		t.Errorf("with pq in PATH: %q", got)
	}
}

// TestReachable: the greeting shows addresses that people can connect to.
func TestReachable(t *testing.T) {
	for addr, want := range map[string]string{
		"0.0.0.0:8422": "127.0.0.1:8422", "[::]:8422": "127.0.0.1:8422", ":8422": "127.0.0.1:8422",
		"127.0.0.1:1": "127.0.0.1:1", "[::1]:1": "[::1]:1", "host:1": "host:1", "": "",
	} {
		if got := reachable(addr); got != want {
			t.Errorf("reachable(%q) is %q: want %q", addr, got, want)
		}
	}
}
