package bridge

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	clientName    = "pqbridge"
	reconnectWait = 500 * time.Millisecond

	// What the NATS client may hold for the callbacks of a subscription before it
	// drops messages: much more than intake lets it have, and any single message.
	backlogMessages = 4 * intakeMessages
	backlogBytes    = 2*intakeBytes + maxNATSPayload
	// maxNATSPayload is the largest max_payload of a NATS server.
	maxNATSPayload = 64 << 20
)

// connect opens the connection. NATS need not be there. Once ctx has ended connect
// does not wait for NATS.
func (b *Bridge) connect(ctx context.Context) error {
	options := append([]nats.Option{
		nats.Name(clientName),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.IgnoreAuthErrorAbort(), // a mistake in the server's accounts may be put right
	}, b.options.NATSOptions...)
	options = append(options,
		nats.ConnectHandler(b.connected),
		nats.ReconnectHandler(b.connected),
		nats.DisconnectErrHandler(b.disconnected),
		nats.ReconnectErrHandler(b.notConnected),
		nats.ErrorHandler(b.asyncError),
		nats.ClosedHandler(func(*nats.Conn) { close(b.closed) }),
		b.line.option,
		(&intake{backlog: b.backlog}).option,
	)
	release := context.AfterFunc(ctx, b.line.cut)
	nc, err := nats.Connect(b.options.NATSURL, options...)
	release()
	if err != nil {
		return fmt.Errorf("bridge: NATS at %s: %w", redacted(b.options.NATSURL), err)
	}
	b.nc = nc
	b.online.Store(nc.IsConnected())
	return nil
}

// requestsOn takes the requests on a subject, sharing them with other bridges and
// the room for those that wait with so many other subscriptions.
func (b *Bridge) requestsOn(nc *nats.Conn, subject string, share int) (*nats.Subscription, error) {
	subscription, err := nc.QueueSubscribe(subject, b.options.QueueGroup, newHandler(b).handle)
	if err != nil {
		return nil, fmt.Errorf("bridge: subscribe to %s: %w", subject, err)
	}
	if err := subscription.SetPendingLimits(backlogMessages/share, backlogBytes); err != nil {
		return nil, fmt.Errorf("bridge: subscription to %s: %w", subject, err)
	}
	return subscription, nil
}

func (b *Bridge) connected(nc *nats.Conn) {
	// Every connection subscribes anew, and NATS says again if it refuses.
	b.online.Store(true)
	b.denied.Store(nil)
	b.mayTalk()
	b.options.Logger.Info("connected to NATS", "url", nc.ConnectedUrlRedacted(), "server", nc.ConnectedServerName())
}

func (b *Bridge) disconnected(_ *nats.Conn, err error) {
	b.online.Store(false)
	if !b.stopping.Load() {
		b.options.Logger.Warn("disconnected from NATS; trying again for ever", "error", err)
	}
}

func (b *Bridge) notConnected(_ *nats.Conn, err error) {
	if b.line.whole.Err() == nil {
		b.quiet.nats.warn("NATS cannot be reached; trying again", "error", err)
	}
}

// asyncError hears of what goes wrong outside of calls: permissions, messages
// dropped, headers that are not readable. None of it ends the service.
func (b *Bridge) asyncError(_ *nats.Conn, s *nats.Subscription, err error) {
	defer b.outbox.hear(err)
	b.metrics.natsErrors.Inc()
	if to, ok := refusedSubject(err); ok && !strings.HasPrefix(to, internalRoot) {
		b.metrics.replyFailures.Inc()
		b.quiet.replies.warn("NATS refused a reply: its subject, which the client chose, is not one that this service may publish to",
			"subject", shorten(to))
		b.outbox.refused(to)
		return
	}
	subject := ""
	if s != nil {
		subject = s.Subject
	}
	b.quiet.nats.warn("NATS reports an error", "error", shorten(err.Error()), "subject", subject)
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	// Not a reply subject of a client's that has these words somewhere inside.
	if strings.Contains(err.Error(), `to "`+internalRoot) {
		b.mayNotTalk()
	}
	for _, wildcard := range b.grammar.Wildcards() {
		// The client hands over the server's words and no subscription.
		if strings.Contains(err.Error(), fmt.Sprintf("Subscription to %q", wildcard)) {
			text := err.Error()
			b.denied.Store(&text)
		}
	}
}

// refusedSubject returns the subject that the server did not let the bridge publish
// to, if that is what the error says.
func refusedSubject(err error) (subject string, ok bool) {
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
