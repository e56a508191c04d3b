package main

import (
	"net"
	"strings"
	"testing"
)

// TestDevListensWhereItIsTold: in a container published ports do not lead to 127.0.0.1.
func TestDevListensWhereItIsTold(t *testing.T) {
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
