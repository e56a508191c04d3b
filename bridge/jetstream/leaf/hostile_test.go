package leaf_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

const (
	fakeInfo = `INFO {"server_id":"F","server_name":"fake","version":"2.15.2","headers":true,` +
		`"max_payload":1048576,"client_id":7,"nonce":"n","leafnode_urls":["127.0.0.1:1"],` +
		`"tls_required":false}` + "\r\n"
	fakeTLSInfo = `INFO {"headers":true,"max_payload":1048576,"client_id":7,` +
		`"info_on_connect":true,"tls_required":true}` + "\r\n"
	fakeAnswer = `INFO {"connect_info":true,"remote_account":"A"}` + "\r\nLS+ _INBOX.>\r\n"
)

// withFake runs a test with connections to a fake server. Each function serves one of the first
// connections, and the others are served as by a good server. In the bubble that they share, time
// passes only while everybody waits.
func withFake(
	t *testing.T, limits leaf.Limits, test func(t *testing.T, r *running), serve ...func(*fakeConn),
) {
	synctest.Test(t, func(t *testing.T) {
		served := 0
		limits.Dial = func(context.Context, string) (net.Conn, error) {
			client, server := net.Pipe()
			how := func(c *fakeConn) { c.welcome(); c.stay() }

			if served < len(serve) {
				how = serve[served]
			}

			served++
			go func() {
				how(&fakeConn{server, bufio.NewReader(server)})
				_ = server.Close()
			}()

			return client, nil
		}

		r := runLimited(t, "fake:1", nil, limits)
		test(t, r)
		r.end()
	})
}

// fakeConn is the server's end of a connection. It ignores the errors of a connection that the
// other side has ended.
type fakeConn struct {
	net.Conn
	in *bufio.Reader
}

func (c *fakeConn) say(text string) { _, _ = c.Write([]byte(text)) }

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

// Whatever a server says, at whatever point: the connection ends with a short error that quotes it
// and says what it was waiting for, and another one is made.
func TestHostileServer(t *testing.T) {
	stages := []struct {
		name  string
		until func(*fakeConn)
		where string
	}{
		{"first", func(*fakeConn) {}, "waiting for INFO"},
		{
			"TLS",
			func(c *fakeConn) { c.say(fakeTLSInfo); _, _ = c.in.ReadByte() },
			"waiting for TLS: ",
		},
		{"before the login", func(c *fakeConn) { c.say(fakeInfo) }, "waiting for the login"},
		{
			"after the login",
			func(c *fakeConn) { c.say(fakeInfo); c.hear("PING"); c.say(fakeAnswer + "PONG\r\n") },
			"waiting for the subscriptions",
		},
		{"while connected", (*fakeConn).welcome, ""},
	}

	// After a frame that is incomplete, the server cuts the connection.
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
		{fakeInfo[:70], ""},
		{"PING\r\nPIN", "PIN"},
		{"LMSG a 5\r\nhe", "a 5"},
		{"LMSG a 5\r\nhello\r\nLMSG b ", ""},
	} {
		for _, stage := range stages {
			t.Run(fmt.Sprintf("%.20q %s", frame.said, stage.name), func(t *testing.T) {
				withFake(t, leaf.Limits{}, func(t *testing.T, r *running) {
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

					text := fmt.Sprint(s.Err)
					if !strings.Contains(text, where) || !strings.Contains(text, quoted) ||
						len(text) > 400 {
						t.Errorf("%+v, without %q and %q", s, where, quoted)
					}

					r.waitConnected()
				}, func(c *fakeConn) {
					stage.until(c)
					c.say(frame.said)
				})
			})
		}
	}
}

// The error of a connection to a port for clients, a closed port, or a server that stops in the
// middle of the login says which it is.
func TestWrongPorts(t *testing.T) {
	h := newHub(t, "", "")
	r := run(t, fmt.Sprintf("nats://127.0.0.1:%d", h.clientPort), nil)
	r.wantFailure("it is a port for clients", "use the port of leafnodes { listen }")

	r = run(t, fmt.Sprintf("nats-leaf://127.0.0.1:%d", harness.Port(t)), nil)
	r.wantFailure("connect to 127.0.0.1:", "refused")

	for _, test := range []struct{ said, where, why string }{
		{"", "waiting for INFO: the server is silent", "handshake_first"},
		{fakeInfo[:70], "waiting for INFO: the server is silent", "handshake_first"},
		{fakeTLSInfo, "waiting for TLS: ", "the server is silent"},
		{fakeTLSInfo + "LS+ a\r\n", "waiting for TLS: ", "LS+ a"},
		{fakeInfo, "waiting for the login", "the server is silent"},
		{`INFO {"client_id":1,"info_on_connect":true}` + "\r\n", "", "headers are off: remove " +
			"no_header_support"},
	} {
		withFake(t, leaf.Limits{}, func(t *testing.T, r *running) {
			r.wantFailure(test.where, test.why)
			r.waitConnected()
		}, func(c *fakeConn) { c.say(test.said); c.hear("nothing") })
	}
}
