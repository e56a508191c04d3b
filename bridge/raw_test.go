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

// rawConn is a client without a client library, which can send what libraries would
// not.
type rawConn struct {
	net.Conn
	t       testing.TB
	in      *bufio.Reader
	replies int // numbers the reply subjects
}

// rawMsg is a message as received.
type rawMsg struct{ subject, headers, payload string }

// dialRaw connects and subscribes to raw.>.
func dialRaw(t testing.TB, e *testenv.Env) *rawConn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(e.NATS.URL(), "nats://"))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	c := &rawConn{Conn: conn, t: t, in: bufio.NewReader(conn)}
	c.write("CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true}\r\nSUB raw.> 1\r\n")
	return c
}

// write sends bytes of the protocol; a failure fails the test.
func (c *rawConn) write(text string) {
	c.t.Helper()
	if err := c.SetDeadline(time.Now().Add(testenv.Patience)); err != nil {
		c.t.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

// message returns the protocol for one message. Headers are a whole block with its
// first line and its end, or empty for none.
func message(subject, reply, headers, payload string) string {
	if headers == "" {
		return fmt.Sprintf("PUB %s %s %d\r\n%s\r\n", subject, reply, len(payload), payload)
	}
	return fmt.Sprintf("HPUB %s %s %d %d\r\n%s%s\r\n", subject, reply, len(headers), len(headers)+len(payload), headers, payload)
}

// request sends a request and returns the reply. It skips other messages that come
// first.
func (c *rawConn) request(subject, headers, payload string) rawMsg {
	c.t.Helper()
	c.replies++
	reply := "raw." + strconv.Itoa(c.replies)
	c.write(message(subject, reply, headers, payload))
	for {
		if m := c.next(); m.subject == reply {
			return m
		}
	}
}

// next returns the next message.
func (c *rawConn) next() rawMsg {
	c.t.Helper()
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			c.t.Fatalf("no message: %v", err)
		}
		fields := strings.Fields(line)
		switch fields[0] {
		case "-ERR":
			c.t.Fatalf("NATS says %s", line)
		case "PING":
			c.write("PONG\r\n")
		case "MSG", "HMSG":
			return c.body(fields)
		}
	}
}

func (c *rawConn) body(fields []string) rawMsg {
	c.t.Helper()
	size, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil {
		c.t.Fatal(err)
	}
	headers := 0
	if fields[0] == "HMSG" {
		if headers, err = strconv.Atoi(fields[len(fields)-2]); err != nil {
			c.t.Fatal(err)
		}
	}
	body := make([]byte, size+len("\r\n"))
	if _, err := io.ReadFull(c.in, body); err != nil {
		c.t.Fatal(err)
	}
	return rawMsg{fields[1], string(body[:headers]), string(body[headers:size])}
}

// rawRequest makes one request without a client library, and returns the headers and
// the payload of the reply as received.
func rawRequest(t *testing.T, e *testenv.Env, subject, headers, payload string) string {
	t.Helper()
	m := dialRaw(t, e).request(subject, headers, payload)
	return m.headers + m.payload
}
