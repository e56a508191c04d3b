package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"
)

// connection says how to reach the NATS server. Each flag but the prefixes has
// an environment variable, the one the nats command line tool uses.
type connection struct {
	server, creds, nkey    string
	user, password, token  string
	tlsCA, tlsCert, tlsKey string
	timeout                time.Duration
}

// connectionEnv maps flags to the variables that set them when the flag is not given.
var connectionEnv = [...]struct{ flag, variable string }{
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

func (c *connection) addFlags(flags *pflag.FlagSet) {
	flags.StringVarP(&c.server, "server", "s", nats.DefaultURL, "NATS `urls`, comma separated (env NATS_URL)")
	flags.StringVar(&c.creds, "creds", "", "NATS credentials `file` (env NATS_CREDS)")
	flags.StringVar(&c.nkey, "nkey", "", "NATS nkey seed `file` (env NATS_NKEY)")
	flags.StringVar(&c.user, "user", "", "NATS user `name` (env NATS_USER)")
	flags.StringVar(&c.password, "password", "", "NATS `password` (env NATS_PASSWORD)")
	flags.StringVar(&c.token, "token", "", "NATS `token` (env NATS_TOKEN)")
	flags.StringVar(&c.tlsCA, "tlsca", "", "`file` of the authorities to trust (env NATS_CA)")
	flags.StringVar(&c.tlsCert, "tlscert", "", "TLS client certificate `file` (env NATS_CERT)")
	flags.StringVar(&c.tlsKey, "tlskey", "", "TLS client key `file` (env NATS_KEY)")
	flags.DurationVar(&c.timeout, "timeout", 10*time.Second, "longest wait for one reply; longer than the service itself waits (env NATS_TIMEOUT)")
}

// fromEnv sets the flags that were not given from the environment, and checks
// what belongs together.
func (c *connection) fromEnv(flags *pflag.FlagSet) error {
	for _, e := range connectionEnv {
		value := os.Getenv(e.variable)
		if value == "" || flags.Changed(e.flag) {
			continue
		}
		if err := flags.Set(e.flag, value); err != nil {
			return fmt.Errorf("%s: %w", e.variable, err)
		}
	}
	if (c.tlsCert == "") != (c.tlsKey == "") {
		return errors.New("--tlscert and --tlskey are needed together")
	}
	if c.timeout <= 0 {
		return fmt.Errorf("--timeout is %v: want a duration above zero, such as 5s", c.timeout)
	}
	return nil
}

// options returns the options for nats.Connect.
func (c *connection) options() ([]nats.Option, error) {
	options := []nats.Option{nats.Name("pq"), nats.Timeout(c.timeout)}
	if c.creds != "" {
		options = append(options, nats.UserCredentials(c.creds))
	}
	if c.nkey != "" {
		nkey, err := nats.NkeyOptionFromSeed(c.nkey)
		if err != nil {
			return nil, fmt.Errorf("--nkey: %w", err)
		}
		options = append(options, nkey)
	}
	if c.user != "" || c.password != "" {
		options = append(options, nats.UserInfo(c.user, c.password))
	}
	if c.token != "" {
		options = append(options, nats.Token(c.token))
	}
	if c.tlsCA != "" {
		options = append(options, nats.RootCAs(c.tlsCA))
	}
	if c.tlsCert != "" {
		options = append(options, nats.ClientCert(c.tlsCert, c.tlsKey))
	}
	return options, nil
}

// dial connects, unless ctx ends first. What the server refuses later, for want
// of permission, ends the requests under way: see client.
func (c *connection) dial(ctx context.Context) (*client, error) {
	options, err := c.options()
	if err != nil {
		return nil, err
	}
	usable, broken := context.WithCancelCause(context.Background())
	options = append(options, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		broken(err)
	}))
	nc, err := await(ctx, func() (*nats.Conn, error) { return c.connect(options) })
	if err != nil {
		broken(err)
		return nil, err
	}
	return &client{nc: nc, timeout: c.timeout, usable: usable, broken: broken}, nil
}

// connect returns a connection that can receive replies. Without the permission
// for that, requests would be carried out all the same, and what they pop be lost.
func (c *connection) connect(options []nats.Option) (*nats.Conn, error) {
	nc, err := nats.Connect(c.server, options...)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to NATS at %s: %w", c.server, err)
	}
	sub, err := nc.SubscribeSync(nc.NewInbox() + ".*") // as the client subscribes for replies
	if err == nil {
		err = nc.FlushTimeout(c.timeout)
	}
	if refused := nc.LastError(); err == nil && errors.Is(refused, nats.ErrPermissionViolation) {
		err = refused
	}
	if err == nil {
		err = sub.Unsubscribe()
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("cannot receive replies from NATS at %s: %w", c.server, err)
	}
	return nc, nil
}
