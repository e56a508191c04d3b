package leaf_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
)

const (
	fakeInfo = `INFO {"server_id":"F","server_name":"fake","version":"2.15.2","headers":true,"max_payload":1048576,"client_id":7,` +
		`"nonce":"n","leafnode_urls":["127.0.0.1:1"],"tls_required":false}` + "\r\n"
	fakeTLSInfo = `INFO {"headers":true,"max_payload":1048576,"client_id":7,"info_on_connect":true,"tls_required":true}` + "\r\n"
	fakeAnswer  = `INFO {"connect_info":true,"remote_account":"A"}` + "\r\nLS+ _INBOX.>\r\n"
)

// fakeServer is a server that does what a test wants with each connection.
type fakeServer struct {
	t        testing.TB
	listener net.Listener
}

func newFake(t testing.TB, serve func(*fakeConn)) *fakeServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeServer{t, l}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.SetDeadline(time.Now().Add(patience)) // or it fails below
			serve(&fakeConn{conn, bufio.NewReader(conn)})
			_ = conn.Close() // the test is over, or wants it
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-ended })
	return f
}

func (f *fakeServer) url() string { return "nats-leaf://" + f.listener.Addr().String() }

// fakeConn is the server's end of a connection. Its errors are those of a connection that the other
// side has ended.
type fakeConn struct {
	net.Conn
	in *bufio.Reader
}

func (c *fakeConn) say(text string) { _, _ = c.Write([]byte(text)) }

// sayBytes says it byte by byte. Without a delay they may still travel together.
func (c *fakeConn) sayBytes(text string) {
	for i := range len(text) {
		c.say(text[i : i+1])
	}
}

// hear reads until a line begins with a word, and returns it; it is empty at the end.
func (c *fakeConn) hear(word string) string {
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return ""
		}
		if strings.HasPrefix(line, word) {
			return strings.TrimSpace(line)
		}
	}
}

// welcome lets the connection log in and subscribe.
func (c *fakeConn) welcome() {
	c.say(fakeInfo)
	c.hear("PING")
	c.say(fakeAnswer + "PONG\r\n")
	c.hear("PING")
	c.say("PONG\r\n")
}

// stay answers until the other side ends the connection.
func (c *fakeConn) stay() {
	for c.hear("PING") != "" {
		c.say("PONG\r\n")
	}
}

// Whatever a server says, at whatever point: the connection ends with an error that quotes it, and
// another one is made.
func TestHostileServer(t *testing.T) {
	stages := []struct {
		name  string
		until func(*fakeConn)
		where string
	}{
		{"first", func(*fakeConn) {}, "waiting for INFO"},
		{"TLS", func(c *fakeConn) { c.say(fakeTLSInfo); _, _ = c.in.ReadByte() }, "waiting for TLS: "},
		{"before the login", func(c *fakeConn) { c.say(fakeInfo) }, "waiting for the login"},
		{"after the login", func(c *fakeConn) { c.say(fakeInfo); c.hear("PING"); c.say(fakeAnswer + "PONG\r\n") }, "waiting for the subscriptions"},
		{"while connected", (*fakeConn).welcome, ""},
	}
	for _, frame := range []struct {
		said, quoted string
	}{
		{"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP/1.1 400 Bad Request"},
		{"\x15\x03\x01\x00\x02\x02\x16\n", "\x15\x03\x01\x00\x02\x02\x16"}, // a TLS alert
		{"\r\n", ""},
		{"+OK\r\n", "+OK"},
		{"MSG a 1 1\r\nx\r\n", "MSG a 1 1"},
		{"LMSG\r\n", ""},
		{"LMSG a -1\r\n", "a -1"},
		{"LMSG a b c 1\r\nx\r\n", "a b c 1"},
		{"LMSG a 99999999999999999999\r\n", "a 99999999999999999999"},
		{"LMSG a 1500000\r\n", "a 1500000"},
		{"LMSG a 3\r\nxxxyyy\r\n", "a 3"},
		{"HMSG a 3\r\nxxx\r\n", "a 3"},
		{"HMSG a 4 3\r\nxxx\r\n", "a 4 3"},
		{"LS+ a b\r\n", "a b"},
		{"LS- a b 1\r\n", "a b 1"},
		{"INFO {\r\n", "{"},
		{"INFO {\"export\":{\"allow\":7}}\r\n", `{"export":{"allow":7}}`},
		{"-ERR 'Some Reason'\r\n", "Some Reason"},
		{strings.Repeat("long ", 20_000), "long long long "},
		{"INFO {\"server_id\":\"" + strings.Repeat("x", 70_000), `INFO {"server_id":"xxx`},
		{"PING\r\nPIN", "PIN"},               // and cut
		{"LMSG a 5\r\nhe", "a 5"},            // and cut
		{"LMSG a 5\r\nhello\r\nLMSG b ", ""}, // and cut
	} {
		for _, stage := range stages {
			for _, slow := range []bool{false, true} {
				if slow && len(frame.said) > 1000 {
					continue
				}
				t.Run(fmt.Sprintf("%.20q %s %t", frame.said, stage.name, slow), func(t *testing.T) {
					t.Parallel()
					bad := true
					f := newFake(t, func(c *fakeConn) {
						if !bad {
							c.welcome()
							c.stay()
							return
						}
						bad = false
						stage.until(c)
						if slow {
							c.sayBytes(frame.said)
						} else {
							c.say(frame.said)
						}
						_ = c.Conn.(*net.TCPConn).CloseWrite() // cut what is not whole
						c.hear("nothing")
					})
					r := run(t, f.url(), nil)
					s := next(t, r.states)
					if s.Connected && stage.where == "" {
						s = next(t, r.states)
					}
					where, quoted := stage.where, strings.Trim(strconv.Quote(frame.quoted), `"`)
					switch {
					case stage.name == "TLS":
						quoted = ""
					case stage.name == "first" && strings.HasPrefix(frame.said, "PING"):
						quoted = "PING instead of INFO"
					}
					if s.Err == nil || !strings.Contains(s.Err.Error(), where) || !strings.Contains(s.Err.Error(), quoted) || len(s.Err.Error()) > 400 {
						t.Errorf("%+v, without %q and %q", s, where, quoted)
					}
					r.connected()
				})
			}
		}
	}
}

// A server that ends the connection at any point of a dialogue leaves nothing behind.
func TestHostileCuts(t *testing.T) {
	for n := 0; n < len(fakeInfo); n += 13 {
		cut := fakeInfo[:n]
		first := true
		f := newFake(t, func(c *fakeConn) {
			if first {
				first = false
				c.say(cut)
				return
			}
			c.welcome()
			c.stay()
		})
		r := run(t, f.url(), nil)
		r.fails("waiting for INFO")
		r.connected()
		r.end()
	}
}

// What is not a leaf node port is told apart, and a server that says nothing is given up.
func TestWrongPorts(t *testing.T) {
	h := newHub(t, "", "")
	r := run(t, fmt.Sprintf("nats://127.0.0.1:%d", h.clientPort), nil)
	r.fails("it is a port for clients", "use the port of leafnodes { listen }")

	silent := newFake(t, func(c *fakeConn) { c.hear("nothing") })
	r = runLimited(t, silent.url(), nil, leaf.Limits{Login: 20 * time.Millisecond})
	r.fails("waiting for INFO", "the server is silent", "handshake_first")

	afterTLS := newFake(t, func(c *fakeConn) { c.say(fakeTLSInfo); c.hear("nothing") })
	r = runLimited(t, afterTLS.url(), nil, leaf.Limits{Login: 20 * time.Millisecond})
	r.fails("waiting for TLS", "the server is silent")

	early := newFake(t, func(c *fakeConn) { c.say(fakeTLSInfo + "LS+ a\r\n"); c.hear("nothing") })
	r = run(t, early.url(), nil)
	r.fails("waiting for TLS", "LS+ a")

	afterInfo := newFake(t, func(c *fakeConn) { c.say(fakeInfo); c.hear("nothing") })
	r = runLimited(t, afterInfo.url(), nil, leaf.Limits{Login: 20 * time.Millisecond})
	r.fails("waiting for the login", "the server is silent")

	headers, err := json.Marshal(map[string]any{"client_id": 1, "info_on_connect": true})
	if err != nil {
		t.Fatal(err)
	}
	noHeaders := newFake(t, func(c *fakeConn) { c.say("INFO " + string(headers) + "\r\n"); c.hear("nothing") })
	r = run(t, noHeaders.url(), nil)
	r.fails("headers are off: remove no_header_support")

	r = run(t, fmt.Sprintf("nats-leaf://127.0.0.1:%d", port(t)), nil)
	r.fails("connect to 127.0.0.1:", "refused")
}
