package dashboard

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// MinToken is the least length of a token, in bytes.
const MinToken = 16

// Options say what to serve, and to whom.
type Options struct {
	// Listen is the address, such as 127.0.0.1:8423. Port 0 is any.
	Listen string
	// Token is what people log in with, "" if they need not.
	Token string
	// ProxyUser is the header in which a proxy says who is there, "" without a proxy. With one,
	// nobody but the proxy must be able to reach the address.
	ProxyUser string
	// Hosts are names that browsers may know the dashboard by, besides localhost and addresses.
	Hosts []string
	// HideValues keeps values and headers of items from being shown.
	HideValues bool

	// Conn is the connection to NATS, which stays open.
	Conn *nats.Conn
	// Away returns why Conn is not connected, without secrets: anybody may read it at /readyz. It
	// returns nil if that is not known.
	Away func() error
	// Grammar has the subjects of the bridges.
	Grammar subjects.Grammar
	// Timeout is how long a request to a bridge may take.
	Timeout time.Duration
	// Log gets a line for each action.
	Log *slog.Logger
}

// Errors of New.
var (
	// ErrOptions says that the options are not as they should be.
	ErrOptions = errors.New("bad options")
	// ErrOpen is for an address that others can reach, where nobody has to log in.
	ErrOpen = fmt.Errorf("%w: whoever can reach this address could act as the NATS user: "+
		"add --token-file or --trust-proxy-user, or listen on 127.0.0.1", ErrOptions)
)

var headerName = regexp.MustCompile("^[A-Za-z0-9-]*$")

// check returns the mistake in options, in the words of the command line.
func (o *Options) check() error {
	switch {
	case o.Token != "" && o.ProxyUser != "":
		return errors.New("--token-file and --trust-proxy-user exclude each other: leave out one")
	case o.Token != "" && len(o.Token) < MinToken:
		return fmt.Errorf("--token-file has a token of %d bytes: want at least %d",
			len(o.Token), MinToken)
	case !headerName.MatchString(o.ProxyUser):
		return fmt.Errorf("--trust-proxy-user is %q: "+
			"want the name of a header, such as X-Forwarded-User", o.ProxyUser)
	}

	for _, host := range o.Hosts {
		if host == "" || strings.ContainsAny(host, "/ *@") {
			return fmt.Errorf("--host is %q: want a name, such as pq.example.com, or with a port",
				host)
		}
	}

	return nil
}
