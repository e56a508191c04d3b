package leaf

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const defaultPort = "7422"

// Config is what a Conn is made of. All but TLS, Login, Subjects and Memory is required.
type Config struct {
	// URLs are the leaf node ports of servers: nats-leaf://, nats:// or tls:// with host and port;
	// without a port, 7422. User and password in a URL, or a token alone, are the Login if that is
	// empty.
	URLs []string
	// Name is shown by the server's leafz. It may be used by several connections.
	Name string
	// TLS demands TLS, as does a URL with tls://. Without it, TLS is used if the server wants it.
	// TLS before INFO (handshake_first) is not supported.
	TLS   *tls.Config
	Login Login
	// Subjects, which have to be valid, are subscribed to at each connect.
	Subjects []Subscription

	// Memory is about how many bytes the connection takes at most, half of them for what others
	// subscribe to, half for what waits to be written. It takes no more than MostMemory, which is
	// also what 0 means.
	Memory int

	// Receive takes each message. It is called by one goroutine and must not block: nothing else is
	// read meanwhile. The message and its memory belong to it.
	Receive func(*Message)
	// Changed is told of each connect and disconnect, and of each attempt that failed, by the same
	// goroutine.
	Changed func(State)
	// InterestGone is told of a subject that nobody subscribes to any more, not even by a wildcard, unless
	// it was a wildcard that ended last. A lost connection is not reported here. By the same goroutine.
	InterestGone func(subject string)
}

// limits are what tests may not have the patience or the memory for.
type limits struct {
	pending     int           // bytes that may wait to be written
	login       time.Duration // for connecting, and for logging in
	write       time.Duration // after which a server that reads nothing is given up
	ping        time.Duration // between pings; a server that is silent for three is given up
	minPause    time.Duration // before the first attempt to connect again
	maxInterest int           // bytes for the table of interest
}

func defaultLimits() limits {
	return limits{
		pending: mostPending, login: 5 * time.Second, write: 10 * time.Second, ping: 10 * time.Second,
		minPause: 50 * time.Millisecond, maxInterest: mostInterest,
	}
}

// The most memory that a connection has a use for.
const (
	mostPending, mostInterest = 64 << 20, 256 << 20
	MostMemory                = mostPending + mostInterest
)

// limits returns the limits for the memory that there is.
func (c *Config) limits() limits {
	l := defaultLimits()
	if c.Memory > 0 {
		l.pending = min(l.pending, c.Memory/2)
		l.maxInterest = min(l.maxInterest, c.Memory-l.pending)
	}
	return l
}

// Subscription is a subject, with or without wildcards, and the queue group, if any.
type Subscription struct{ Subject, Queue string }

// Message is one message. Header is empty or the whole header block: the line "NATS/1.0", with a
// status or without, further lines, and an empty line, each ended by CR LF. A Reply of the form
// $JS.ACK.<...>@<subject> makes the server show clients <subject> and the part before the @.
type Message struct {
	Subject, Reply  string
	Header, Payload []byte
}

// State is what becomes of the connection.
type State struct {
	// Connected says that the subscriptions are in force and the server's interest is known.
	Connected bool
	// Address is the host and port, Server the server's name, Account the account there, if known.
	Address, Server, Account string
	// Domain is that of the server's own JetStream, "" if it has none.
	Domain string
	// Err is why the connection ended or was not made. It holds no secrets.
	Err error
}

// check returns the addresses of the URLs, or all that is wrong.
func (c *Config) check() ([]*url.URL, error) {
	var problems []error
	var urls []*url.URL
	for _, text := range c.URLs {
		u, err := parseURL(text)
		urls, problems = append(urls, u), append(problems, err)
	}
	if len(c.URLs) == 0 {
		problems = append(problems, errors.New("leaf: no URL"))
	}
	return urls, errors.Join(problems...)
}

// parseURL returns a URL with a port. Its errors do not repeat the text, which may have a password.
func parseURL(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "nats-leaf://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return nil, errors.New("leaf: a URL is not of the form nats-leaf://host:port")
	}
	if !slices.Contains([]string{"nats-leaf", "nats", "tls"}, u.Scheme) {
		return nil, fmt.Errorf("leaf: %s://%s: the scheme is not nats-leaf, nats or tls", u.Scheme, u.Host)
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && (err != nil || port == 0) {
		return nil, fmt.Errorf("leaf: %s://%s: the port is not 1 to 65535", u.Scheme, u.Host)
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), defaultPort)
	}
	return u, nil
}
