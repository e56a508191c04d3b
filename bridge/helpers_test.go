package bridge_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/testenv"
)

// metricIs returns an error unless the series has the value.
func metricIs(b *testenv.Bridge, series string, want float64) error {
	got, err := metric(b, series)
	if err == nil && got != want {
		err = fmt.Errorf("%s is %v, want %v", series, got, want)
	}
	return err
}

func metric(b *testenv.Bridge, series string) (float64, error) {
	_, body, err := b.Get("/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(body)) {
		if value, found := strings.CutPrefix(line, series+" "); found {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("no series %s", series)
}

func wantMetric(t *testing.T, b *testenv.Bridge, series string, want float64) {
	t.Helper()
	// A counter may still be on its way when the reply is there.
	testenv.Eventually(t, func() error { return metricIs(b, series, want) })
}

// rawRequest makes a request without a client library, and returns the headers
// and the payload of the reply as they came.
func rawRequest(t *testing.T, e *testenv.Env, subject, headers, payload string) string {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(e.NATS.URL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(testenv.Patience)); err != nil {
		t.Fatal(err)
	}
	_, err = fmt.Fprintf(conn, "CONNECT {\"verbose\":false,\"headers\":true}\r\nSUB raw 1\r\nHPUB %s raw %d %d\r\n%s%s\r\n",
		subject, len(headers), len(headers)+len(payload), headers, payload)
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("no reply: %v", err)
		}
		fields := strings.Fields(line)
		if fields[0] != "MSG" && fields[0] != "HMSG" {
			continue
		}
		size, err := strconv.Atoi(fields[len(fields)-1])
		if err != nil {
			t.Fatal(err)
		}
		body := make([]byte, size)
		if _, err := io.ReadFull(in, body); err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
}
