package leaf

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync/atomic"
	"time"
)

// session is one connection, from dialing to its end.
type session struct {
	conn     *Conn
	url      *url.URL
	raw, net net.Conn // net is raw, or TLS on top of it
	parser   *parser
	interest *interest
	info     info
	account  string
	imports  *permissions // what may be subscribed to
	stage    string       // what the server must do next, for errors; "" once connected

	ctx   context.Context         // ends with the connection
	abort context.CancelCauseFunc // closes the connection; the first cause counts
	login *time.Timer             // aborts if the server takes too long until it is connected
	spoke atomic.Bool             // the server said something since the last ping
	heard time.Time               // when the ping was sent that was answered last; for the reader
	outgoing
}

// maxLag is how many pings long the server may take to answer one before messages count as old.
const maxLag = 3

// info is what matters of the server's INFO. The first INFO comes before everything else. The
// second answers CONNECT, with the account and its permissions. Later ones report changes.
type info struct {
	Name       string       `json:"server_name"`
	Version    string       `json:"version"`
	Nonce      string       `json:"nonce"`
	Headers    bool         `json:"headers"`
	TLS        bool         `json:"tls_required"`
	MaxPayload int          `json:"max_payload"`
	ClientID   uint64       `json:"client_id"`
	URLs       []string     `json:"leafnode_urls"`
	Leaf       bool         `json:"info_on_connect"`
	JetStream  bool         `json:"jetstream"`
	Domain     string       `json:"domain"`
	Gateway    string       `json:"gateway"`
	Answer     bool         `json:"connect_info"`
	Account    string       `json:"remote_account"`
	Import     *permissions `json:"import"` // what may be subscribed to
	Export     *permissions `json:"export"` // what may be published
}

// connect makes a connection, serves it until it ends, and returns why it ended.
func (c *Conn) connect(ctx context.Context, u *url.URL) error {
	raw, err := c.dial(ctx, u.Host)
	if err != nil {
		return fmt.Errorf("leaf: connect to %s: %w", u.Host, err)
	}

	ctx, abort := context.WithCancelCause(ctx)
	closed := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = raw.Close() // its data is lost or has been confirmed
	})
	s := &session{
		conn: c, url: u, raw: raw, net: raw,
		parser: newParser(raw), interest: newInterest(c.limits.maxInterest),
		ctx: ctx, abort: abort, login: time.AfterFunc(c.limits.login, func() { abort(errSilent) }),
		outgoing: outgoing{wake: make(chan struct{}, 1), written: make(chan struct{})},
	}

	err = s.greet()
	if err == nil {
		err = s.logIn()
	}

	// This goroutine reads, and another one writes, until the connection ends.
	if err == nil {
		go s.write()
		err = s.read()
	} else {
		close(s.written)
	}

	// If this side closed the connection, the error of the read does not say why.
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	abort(err)
	s.login.Stop()
	c.online.CompareAndSwap(s, nil)
	<-closed
	<-s.written
	return s.explain(err)
}

// greet reads the server's INFO and starts TLS.
func (s *session) greet() error {
	s.stage = "INFO"
	f, err := s.parser.next()
	switch {
	case err != nil:
		return err
	case f.op == "-ERR":
		return serverError(f.text)
	case f.op != "INFO":
		return fmt.Errorf("%w: it begins with %s instead of INFO", errProtocol, f.op)
	}

	if s.info, err = parseInfo(f.text); err != nil {
		return err
	}

	// nats-server checks the same: only leaf node ports say these.
	if s.info.ClientID == 0 || s.info.Gateway != "" || s.info.URLs == nil && !s.info.Leaf {
		return errors.New("it is a port for clients, routes or gateways: " +
			"use the port of leafnodes { listen }")
	}
	if !s.info.Headers {
		return errors.New("headers are off: remove no_header_support")
	}

	// A limit of the account or the user may be lower. Only a refused message tells.
	s.parser.maxPayload = min(max(s.info.MaxPayload, 0), maxMessage)
	if s.conn.refused > 0 {
		s.parser.maxPayload = min(s.parser.maxPayload, s.conn.refused-1)
	}
	return s.startTLS()
}

func parseInfo(text []byte) (i info, err error) {
	if err = json.Unmarshal(text, &i); err != nil {
		err = fmt.Errorf("%w: INFO %s: %w", errProtocol, snippet(text), err)
	}
	return i, err
}

func (s *session) startTLS() error {
	wanted := s.conn.config.TLS != nil || s.url.Scheme == "tls"
	switch {
	case wanted && !s.info.TLS:
		return errors.New("TLS is demanded, but the server has none: " +
			"give its leafnodes block a tls block, or use nats-leaf://")
	case !s.info.TLS:
		return nil
	}

	// TLS must see all that follows INFO, so the parser must not have read any of it.
	s.stage = "TLS"
	if n := s.parser.in.Buffered(); n > 0 {
		more, _ := s.parser.in.Peek(n) // cannot fail
		return fmt.Errorf("%w: the server says more than INFO: %s", errProtocol, snippet(more))
	}

	config := new(tls.Config)
	if s.conn.config.TLS != nil {
		given, err := s.conn.config.TLS()
		if err != nil {
			return err
		}
		config = given.Clone()
	}

	if config.ServerName == "" {
		config.ServerName = s.url.Hostname()
	}
	encrypted := tls.Client(s.raw, config)
	if err := encrypted.HandshakeContext(s.ctx); err != nil {
		return err
	}

	s.net = encrypted
	s.parser.in.Reset(encrypted)
	return nil
}

func (s *session) logIn() error {
	s.stage = "the login"
	config := &s.conn.config
	hello := connect{
		Version: s.info.Version, // this side speaks the server's protocol
		Name:    config.Name, ID: s.conn.id, Cluster: s.conn.id, RemoteAccount: s.conn.id,
		Headers: true, TLSRequired: s.net != s.raw,
	}
	if err := hello.logIn(config.Login.of(s.url), s.info.Nonce); err != nil {
		return err
	}

	text, err := json.Marshal(hello)
	if err != nil {
		return err
	}

	s.command("CONNECT ", string(text))

	// The server answers with INFO and its interest. The PONG comes last.
	s.ping(s.loggedIn)
	return nil
}

// loggedIn sends the subscriptions. From here on messages can be published, because the first
// requests need answers.
func (s *session) loggedIn() error {
	s.stage, s.heard = "the subscriptions", time.Now()
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()

	for _, sub := range s.conn.subjects {
		if !s.imports.subscribe(sub.Subject) {
			const text = "%w: allow the leaf node's user to subscribe to %s"
			return fmt.Errorf(text, ErrDenied, snippet(sub.Subject))
		}
		s.command(sub.line("LS+"))
	}

	s.conn.online.Store(s)
	s.ping(s.subscribed)
	return nil
}

// subscribed reports that the subscriptions are in force.
func (s *session) subscribed() error {
	s.stage = ""
	s.login.Stop()

	state := State{Connected: true, Address: s.url.Host, Server: s.info.Name, Account: s.account}
	if s.info.JetStream {
		state.Domain = s.info.Domain
	}
	s.conn.config.Changed(state)
	return nil
}

// read handles what the server says until the connection ends.
func (s *session) read() error {
	for {
		f, err := s.parser.next()
		if err != nil {
			return err
		}
		if !s.spoke.Load() { // a write for each frame would cost more
			s.spoke.Store(true)
		}

		switch f.op {
		case "LMSG":
			if silence := time.Since(s.heard); silence > maxLag*s.conn.limits.ping {
				f.message.Waited = silence
			}
			s.conn.config.Receive(f.message)
		// Publish does not reach queue groups, so their interest does not count.
		case "LS+":
			if f.queue == "" {
				s.interest.add(f.subject)
			}
		case "LS-":
			if f.queue == "" && s.interest.remove(f.subject) {
				s.conn.config.InterestGone(f.subject)
			}
		case "PING":
			s.command("PONG")
		case "PONG":
			err = s.answered()
		case "INFO":
			err = s.update(f.text)
		case "-ERR":
			// The next connection refuses such a message by itself: see greet.
			if err = serverError(f.text); errors.Is(err, errTooLarge) {
				s.mu.Lock()
				s.conn.refused = s.biggest
				s.mu.Unlock()
			}
		}

		if err != nil {
			return err
		}
	}
}

// update reads a later INFO.
func (s *session) update(text []byte) error {
	i, err := parseInfo(text)
	if err != nil {
		return err
	}
	if i.Answer {
		s.mu.Lock()
		s.account, s.imports, s.exports = i.Account, i.Import, i.Export
		s.mu.Unlock()
	}

	return nil
}

// explain adds to an error at what stage the connection ended, and what may be done about it.
func (s *session) explain(err error) error {
	where := "leaf: " + s.url.Host
	if s.stage != "" {
		where += ": waiting for " + s.stage
	}
	switch {
	case errors.Is(err, errSilent) && s.stage == "INFO":
		return fmt.Errorf("%s: %w: it hangs, is not a leaf node port, "+
			"or has handshake_first, which is not supported", where, err)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%s: the server closed the connection; its log says why", where)
	case s.stage == "the login":
		return fmt.Errorf("%s with %v: %w", where, s.conn.config.Login.of(s.url), err)
	}

	return fmt.Errorf("%s: %w", where, err)
}
