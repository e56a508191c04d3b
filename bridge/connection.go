package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
	"github.com/pqbridge/pqbridge/bridge/outage"
	"github.com/pqbridge/pqbridge/bridge/peers"
)

const (
	reconnectWait = 500 * time.Millisecond

	// A NATS server that stands still counts as gone after three of these, which is a loss of the
	// connection for pq_nats_connected and the log. The NATS client's default takes minutes. It is
	// not shorter, because a busy server may answer late.
	pingInterval = 10 * time.Second

	// The NATS client drops messages when a subscription's callback is this far behind:
	// much more than intake admits, and more than any single message.
	backlogMessages = 4 * intakeMessages
	backlogBytes    = 2*intakeBytes + maxNATSPayload
	// maxNATSPayload is the largest max_payload of a NATS server.
	maxNATSPayload = 64 << 20
)

// connect opens the connection. NATS may be unavailable. connect stops waiting for it when ctx
// ends.
func (b *Bridge) connect(ctx context.Context) error {
	options := append([]nats.Option{
		nats.Name(clientName),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.PingInterval(pingInterval),
		nats.IgnoreAuthErrorAbort(), // an operator may correct the server's accounts
	}, b.options.NATSOptions...)

	// After the others: the cable takes over what those say about dialing. A bridge must hear its
	// own heartbeats, and shutdown waits for a callback.
	options = append(options,
		nats.ConnectHandler(b.connected),
		nats.ReconnectHandler(b.connected),
		nats.DisconnectErrHandler(b.disconnected),
		nats.ErrorHandler(b.asyncError),
		nats.ClosedHandler(func(*nats.Conn) { close(b.closed) }),
		b.cable.option,
		outage.Hear(b.notConnected),
		func(o *nats.Options) error {
			o.NoEcho, o.NoCallbacksAfterClientClose = false, false
			return nil
		},
	)

	release := context.AfterFunc(ctx, b.cable.cut)
	nc, err := nats.Connect(b.options.NATSURL, options...)
	release()
	if err != nil {
		return fmt.Errorf("bridge: NATS at %s: %w", redacted(b.options.NATSURL), err)
	}

	b.nc = nc
	if err := b.outbox.Listen(nc); err != nil {
		return err
	}

	b.online.Store(nc.IsConnected())
	return nil
}

// subscribeTo subscribes to requests on a subject as a member of the queue group.
func (b *Bridge) subscribeTo(subject string) (*nats.Subscription, error) {
	receive := func(m *nats.Msg) { b.handler.Receive(m, peers.Origin{}) }
	subscription, err := b.nc.QueueSubscribe(subject, b.options.QueueGroup, receive)
	if err == nil {
		err = subscription.SetPendingLimits(backlogMessages, backlogBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("bridge: subscribe to %s: %w", subject, err)
	}
	return subscription, nil
}

func (b *Bridge) connected(nc *nats.Conn) {
	// Each new connection subscribes again, and NATS reports any denial again.
	b.denials.clear()
	b.outbox.Connected()
	b.away.Store(nil)
	b.online.Store(true)
	b.peers.Connected()
	b.quiet.log(slog.LevelInfo, "connected to NATS",
		"url", nc.ConnectedUrlRedacted(), "server", nc.ConnectedServerName())
}

func (b *Bridge) disconnected(nc *nats.Conn, err error) {
	b.online.Store(false)
	b.peers.Disconnected(nc)
	if !b.stopping.Load() {
		b.quiet.warn("disconnected from NATS; trying to reconnect", "error", err)
	}
}

// notConnected notes why an attempt to connect failed.
func (b *Bridge) notConnected(err error) {
	if b.cable.whole.Err() != nil {
		return // shutdown has ended the attempt
	}

	what := "NATS cannot be reached"
	switch {
	case outage.IsRefused(err):
		what = "NATS refuses the login"
	case outage.IsTLS(err):
		what = "TLS with NATS is refused"
	}

	why := what + ": " + err.Error()
	b.away.Store(&why)
	b.quiet.warn(what+"; trying again", "error", err)
}

// asyncError handles errors that no call returns: missing permissions, dropped
// messages, unreadable headers. None of them ends the service.
func (b *Bridge) asyncError(_ *nats.Conn, s *nats.Subscription, err error) {
	defer b.outbox.Heard(err)
	b.metrics.natsErrors.Inc()
	if outage.IsRefused(err) && !b.online.Load() {
		return // notConnected is told, as before the first connection
	}

	// Messages of sources to JetStream, and between bridges, are no replies.
	to, denied := deniedSubject(err)
	if denied && !strings.HasPrefix(to, peers.Root) && !strings.HasPrefix(to, "$JS.") {
		b.metrics.replyFailures.Inc()
		b.quiet.warn("NATS refused a reply: this service may not publish to the subject "+
			"that the client chose", "subject", wire.Shorten(to))
		b.outbox.NoteDenied(to)
		return
	}

	if errors.Is(err, nats.ErrPermissionViolation) && b.outbox.NoteDeaf(err) {
		return
	}

	subject := ""
	if s != nil {
		subject = s.Subject
	}

	text := err.Error()
	b.quiet.warn("NATS reports an error", "error", wire.Shorten(text), "subject", subject)
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}

	// Until the next reconnect this bridge acts as if there were no others. The opening quote
	// excludes reply subjects of clients that contain peers.Root further on.
	if strings.Contains(text, `to "`+peers.Root) {
		b.peers.Mute()
		b.quiet.warn("NATS does not permit messages between bridges: allow this user to " +
			"publish and subscribe to " + peers.Root + ">; otherwise a bridge that serves the " +
			"same subjects from another store goes unnoticed, and bridges that pop from the same " +
			"queue conflict")
	}

	// The subscription is nil, so the server's text must tell which one it was.
	for _, wildcard := range b.options.Grammar.Wildcards() {
		if strings.Contains(text, fmt.Sprintf("Subscription to %q", wildcard)) {
			b.denials.add(wildcard, text)
		}
	}
}

// deniedSubject returns the subject of a publish that the server denied, if that is
// what the error reports.
func deniedSubject(err error) (subject string, ok bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return "", false
	}

	_, quoted, ok := strings.Cut(err.Error(), "Permissions Violation for Publish to ")
	if !ok {
		return "", false
	}

	subject, err = strconv.Unquote(quoted)
	return subject, err == nil
}

// backlog returns what NATS has delivered over b.nc and no callback has handled yet.
func (b *Bridge) backlog() (messages, bytes int) {
	b.serving.mu.Lock()
	messages, bytes = wire.Backlog(b.serving.subscriptions)
	b.serving.mu.Unlock()
	for _, backlog := range []func() (int, int){b.peers.Router.Backlog, b.outbox.Backlog} {
		m, n := backlog()
		messages, bytes = messages+m, bytes+n
	}
	return messages, bytes
}

// dropped returns how many messages the NATS client dropped because the bridge fell
// behind.
func (b *Bridge) dropped() int64 {
	b.serving.mu.Lock()
	total := b.serving.dropped + wire.Dropped(b.serving.subscriptions)
	b.serving.mu.Unlock()
	return int64(total + b.peers.Router.Dropped())
}
