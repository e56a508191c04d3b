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

// Config configures a Conn. All fields but TLS, Login, Subjects and Memory are required.
type Config struct {
	// URLs are the leaf node ports of servers: nats-leaf://, nats:// or tls:// with host and port.
	// The default port is 7422. User and password in a URL, or a token alone, count if Login is
	// empty.
	URLs []string
	// Name is what the server's leafz shows. Connections may share a name.
	Name string
	// TLS, unless nil, demands TLS, as does a URL with tls://. Otherwise TLS is used if the server
	// wants it. It is called at each connect, so that files may be replaced. TLS before INFO
	// (handshake_first) is not supported.
	TLS   func() (*tls.Config, error)
	Login Login
	// Subjects are subscribed to at each connect. They must be valid.
	Subjects []Subscription

	// Memory is about how many bytes the connection takes at most: half for the subscriptions of
	// others, half for what waits to be written. The default and maximum is MostMemory.
	Memory int

	// Receive takes each message, and owns it with its memory. One goroutine calls it. It must not
	// block, because nothing else is read meanwhile.
	Receive func(*Message)
	// Changed is called after each connect, disconnect and failed attempt, by the same goroutine.
	Changed func(State)
	// InterestGone is told of a subject that nobody subscribes to any more, not even by a wildcard,
	// unless it was a wildcard that ended last. A lost connection is not reported here. By the same
	// goroutine.
	InterestGone func(subject string)
}

// limits are limits that tests lower, to save time and memory.
type limits struct {
	pending     int           // bytes that may wait to be written
	login       time.Duration // timeout for connecting, and for logging in
	write       time.Duration // timeout for a server that reads nothing
	ping        time.Duration // between pings; see maxSilent
	minPause    time.Duration // before the first attempt to connect again
	maxInterest int           // bytes for the table of interest
}

func defaultLimits() limits {
	return limits{
		pending: mostPending, maxInterest: mostInterest, minPause: 50 * time.Millisecond,
		login: 5 * time.Second, write: 10 * time.Second, ping: time.Second,
	}
}

// Bytes that a connection has a use for at most. MostMemory is the default of Config.Memory.
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

// Message is one message. Header is empty or the whole header block: the line "NATS/1.0", which may
// have a status, further lines, and an empty line, each ended by CR LF. For a Reply of the form
// $JS.ACK.<...>@<subject>, clients see <subject> as the subject and the part before the @ as the
// reply.
type Message struct {
	Subject, Reply  string
	Header, Payload []byte

	// Waited is how long a received message may have waited to be read; 0 as long as the server's
	// answers to pings come in time. A process that stood still finds old messages in its socket.
	Waited time.Duration
}

// State is the state of the connection after a change.
type State struct {
	// Connected says that the subscriptions are in force and the server's interest is known.
	Connected bool
	// Address is the host and port, Server the server's name, Account the account there, if known.
	Address, Server, Account string
	// Domain is where the server's own JetStream is, "" if it has none.
	Domain string
	// Err is why the connection ended or was not made. It holds no secrets.
	Err error
}

// check returns the parsed URLs, or everything that is wrong with them.
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

// parseURL parses a URL, and adds the default port. Its errors do not repeat the text, which may
// have a password.
func parseURL(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "nats-leaf://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return nil, errors.New("leaf: a URL is not of the form nats-leaf://host:port")
	}
	if !slices.Contains([]string{"nats-leaf", "nats", "tls"}, u.Scheme) {
		const text = "leaf: %s://%s: the scheme is not nats-leaf, nats or tls"
		return nil, fmt.Errorf(text, u.Scheme, u.Host)
	}

	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), defaultPort)
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 {
		return nil, fmt.Errorf("leaf: %s://%s: the port is not 1 to 65535", u.Scheme, u.Host)
	}
	return u, nil
}
