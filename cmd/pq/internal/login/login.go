// Package login finds out how to reach NATS: from flags, the environment and the contexts of the
// nats tool. Its errors tell what to do.
package login

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/flags"
)

// Connection says how to reach the NATS server. Each flag except the prefixes has an environment
// variable, the same as for the nats command line tool. A context of that tool may have the rest.
type Connection struct {
	Server                 string
	Timeout                time.Duration // of requests
	creds, nkey            string
	user, password, token  string
	tlsCA, tlsCert, tlsKey string
	inboxPrefix            string

	// context names a context of the nats tool. The rest has only a context.
	context  string
	userOnly bool // and no password, though it is not a token
	tlsFirst bool
}

// connectTimeout bounds the attempt to connect to one server, so that a wrong address is noticed
// early: 5 s, or half of a --timeout that is longer than usual.
func (c *Connection) connectTimeout() time.Duration {
	return min(c.Timeout, max(5*time.Second, c.Timeout/2))
}

// Variables maps flags to the variables that set them when the flag is not given.
var Variables = [...]struct{ Flag, Variable string }{
	{"context", "NATS_CONTEXT"},
	{"server", "NATS_URL"},
	{"creds", "NATS_CREDS"},
	{"nkey", "NATS_NKEY"},
	{"user", "NATS_USER"},
	{"password", "NATS_PASSWORD"},
	{"token", "NATS_TOKEN"},
	{"tlsca", "NATS_CA"},
	{"tlscert", "NATS_CERT"},
	{"tlskey", "NATS_KEY"},
	{"timeout", "NATS_TIMEOUT"},
}

// AddFlags adds the flags of a connection to a set.
func (c *Connection) AddFlags(set *pflag.FlagSet) {
	set.StringVar(&c.context, "context", "", "`NAME` of a context of the nats tool")
	set.StringVarP(&c.Server, "server", "s", "", "`URL` of the server, or URL,URL")
	set.StringVar(&c.creds, "creds", "", "credentials `FILE`")
	set.StringVar(&c.nkey, "nkey", "", "`FILE` with an nkey seed")
	set.StringVar(&c.user, "user", "", "user `NAME`; without a password a token")
	set.StringVar(&c.password, "password", "", "`PASSWORD`")
	set.StringVar(&c.token, "token", "", "`TOKEN`")
	set.StringVar(&c.tlsCA, "tlsca", "", "`FILE` with the authorities to trust")
	set.StringVar(&c.tlsCert, "tlscert", "", "`FILE` with the TLS client certificate")
	set.StringVar(&c.tlsKey, "tlskey", "", "`FILE` with its key")
	set.StringVar(&c.inboxPrefix, "inbox-prefix", "",
		"subject `PREFIX` of replies, _INBOX by default")
	flags.Duration(set, &c.Timeout, "timeout", 10*time.Second, "`DURATION` for a reply")

	for _, e := range Variables {
		set.Lookup(e.Flag).Usage += " (" + e.Variable + ")"
	}

}

// FromEnv sets the flags that were not given from the environment, and checks
// the result.
func (c *Connection) FromEnv(set *pflag.FlagSet) error {
	for _, e := range Variables {
		value := os.Getenv(e.Variable)
		if value == "" || set.Changed(e.Flag) {
			continue
		}
		if err := set.Set(e.Flag, value); err != nil {
			return exit.Error{Err: fmt.Errorf("%s: %w", e.Variable, flags.Explain(err))}
		}
	}

	if err := c.useContext(set); err != nil {
		return exit.Error{Err: err}
	}

	c.Server = cmp.Or(c.Server, nats.DefaultURL)
	if (c.tlsCert == "") != (c.tlsKey == "") {
		return errors.New("--tlscert and --tlskey go together")
	}

	if c.Timeout <= 0 {
		return fmt.Errorf("--timeout is %v: want a duration above zero, such as 5s", c.Timeout)
	}

	return nil
}

// Options returns the options for nats.Connect.
func (c *Connection) Options() ([]nats.Option, error) {
	// What the server refuses fails the request, and is not for standard error as well.
	ignored := func(*nats.Conn, *nats.Subscription, error) {}
	options := []nats.Option{
		nats.Name("pq"), nats.Timeout(c.connectTimeout()), nats.ErrorHandler(ignored),
		// A server whose machine is gone is noticed at the third ping, within a minute.
		nats.PingInterval(20 * time.Second), nats.MaxPingsOutstanding(2),
	}

	add := func(is bool, option nats.Option) {
		if is {
			options = append(options, option)
		}
	}

	add(c.creds != "", nats.UserCredentials(c.creds))
	if c.nkey != "" {
		nkey, err := nats.NkeyOptionFromSeed(c.nkey)
		if err != nil {
			return nil, exit.Error{Err: fmt.Errorf("the file with the nkey: %w", err)}
		}
		options = append(options, nkey)
	}

	isUser := c.password != "" || c.user != "" && (c.userOnly || c.token != "")
	add(isUser, nats.UserInfo(c.user, c.password))
	add(c.user != "" && !isUser, nats.Token(c.user)) // as the nats tool has it
	add(c.token != "", nats.Token(c.token))
	add(c.tlsCA != "", nats.RootCAs(c.tlsCA))
	add(c.tlsCert != "", nats.ClientCert(c.tlsCert, c.tlsKey))
	add(c.inboxPrefix != "", nats.CustomInboxPrefix(c.inboxPrefix))
	add(c.tlsFirst, nats.TLSHandshakeFirst())
	return options, c.checkOptions(options)
}

// connect returns a connection that can receive replies. Without that permission
// requests would still be carried out, and popped items lost.
func (c *Connection) Connect(options []nats.Option) (*nats.Conn, error) {
	nc, err := c.ConnectAny(options)
	if err != nil {
		return nil, err
	}

	sub, err := nc.SubscribeSync(nc.NewInbox() + ".*") // as the client subscribes for replies
	if err == nil {
		err = nc.FlushTimeout(c.Timeout)
	}

	if refused := nc.LastError(); err == nil && errors.Is(refused, nats.ErrPermissionViolation) {
		err = fmt.Errorf("%w: allow that, "+
			"or name the prefix that this user may subscribe to with --inbox-prefix", refused)
	}

	if err == nil {
		err = sub.Unsubscribe()
	}

	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("cannot receive replies from NATS at %s: %w", c.Server, err)
	}

	return nc, nil
}
