package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/nats-io/nats.go"
)

// Connect connects to NATS as a service should. It waits for a server, and logs a warning once a
// minute meanwhile. Afterwards the connection reconnects indefinitely, even while the server
// refuses the login, and notices within a minute that the machine of the server is gone. The URL
// and the options are as for nats.Connect; options come after nats.MaxReconnects(-1),
// nats.IgnoreAuthErrorAbort() and nats.PingInterval(20*time.Second).
//
// Errors: whatever nats.Connect returns if waiting cannot help, such as nats.ErrAuthorization for a
// wrong password; and the error of ctx.
func Connect(ctx context.Context, url string, options ...nats.Option) (*nats.Conn, error) {
	options = append([]nats.Option{
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // an operator may correct the server's accounts
		nats.PingInterval(20 * time.Second),
	}, options...)

	var told time.Time
	for p := new(pause); ; p.wait(ctx) {
		nc, err := nats.Connect(url, options...)
		if err == nil || !isAbsent(err) {
			return nc, err
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w: %w", endOf(ctx), err)
		}

		if time.Since(told) >= time.Minute {
			told = time.Now()
			slog.Warn("no connection to NATS, trying again", "error", err)
		}
	}
}

// isAbsent reports whether an attempt to connect failed because no server is there yet.
func isAbsent(err error) bool {
	var op *net.OpError
	isTLS := errors.As(err, &op) && op.Op == "remote error" // as crypto/tls has it
	return isAny(err, nats.ErrNoServers, nats.ErrTimeout, io.EOF) || op != nil && !isTLS
}
