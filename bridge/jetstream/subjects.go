package jetstream

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	root      = "$JS."
	apiToken  = ".API."
	ackPrefix = "$JS.ACK."
	// ackTokens is how many tokens the subject of an acknowledgement has. Clients in other languages
	// want that many.
	ackTokens = 12
	// maxNumber is the largest number in such a subject that JavaScript can hold.
	maxNumber = 1 << 53
)

// errAck is for subjects under ackPrefix that no bridge has made.
var errAck = errors.New("not the subject of an acknowledgement")

// domains has the names by which clients address the queues of each kind.
type domains struct {
	names map[subjects.Kind]string
	hash  string // tells the acknowledgements of this store from those of a stream named like a domain
}

// newDomains returns the domains of a store. A domain is one token.
func newDomains(names map[subjects.Kind]string, identity string) (domains, error) {
	d := domains{names: map[subjects.Kind]string{}}
	for kind, name := range names {
		if strings.Contains(name, ".") {
			return d, fmt.Errorf("jetstream: the prefix %s has a dot: a JetStream domain is one token", name)
		}
		d.names[kind] = name
	}
	if len(d.names) == 0 {
		return d, errors.New("jetstream: no domain")
	}

	sum := sha256.Sum256([]byte(identity))
	d.hash = strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5]))
	return d, nil
}

// subscriptions returns what the face listens to.
func (d *domains) subscriptions(group string) (all []leaf.Subscription) {
	for _, kind := range []subjects.Kind{subjects.Priority, subjects.FIFO} {
		if name, ok := d.names[kind]; ok {
			all = append(all, leaf.Subscription{Subject: root + name + apiToken + ">", Queue: group},
				leaf.Subscription{Subject: ackPrefix + name + "." + d.hash + ".>", Queue: group})
		}
	}
	return all
}

// taken returns an error if one of these is the domain of the NATS server's own JetStream.
func (d *domains) taken(domain string) error {
	if _, is := d.kindOf(domain); !is {
		return nil
	}
	return fmt.Errorf("the JetStream domain of the NATS server itself is %q, so it keeps all requests to $JS.%s.API: give the server "+
		"another jetstream { domain }, or this service another PQ_SUBJECT_PREFIX or PQ_FIFO_PREFIX", domain, domain)
}

// kindOf returns the kind of queues that a domain has.
func (d *domains) kindOf(domain string) (subjects.Kind, bool) {
	for kind, name := range d.names {
		if name == domain {
			return kind, true
		}
	}
	return 0, false
}

// leaseAck is what the subject of an acknowledgement says.
type leaseAck struct {
	key   consumerKey
	token fdbpq.Token
}

// parseAck takes the subject of an acknowledgement apart. Errors wrap errAck or fdbpq.ErrToken.
func (d *domains) parseAck(subject string) (a leaseAck, err error) {
	var tokens [ackTokens]string // a slice would be one more for each acknowledgement
	n := 0
	for token := range strings.SplitSeq(subject, ".") {
		if n++; n > ackTokens {
			return a, errAck
		}
		tokens[n-1] = token
	}
	kind, ok := d.kindOf(tokens[2])
	if n != ackTokens || !strings.HasPrefix(subject, ackPrefix) || !ok || tokens[3] != d.hash ||
		subjects.ValidateQueueName(tokens[4]) != nil {
		return a, errAck
	}

	a.key = consumerKey{stream{kind, tokens[4]}, tokens[5]}
	a.token, err = fdbpq.ParseToken(tokens[ackTokens-1])
	return a, err
}

// statusHeader returns the header block of a message with a status, as JetStream sends in place of
// messages: the pairs are names and values of further lines.
func statusHeader(code int, text string, pairs ...string) []byte {
	b := []byte(strings.TrimRight(fmt.Sprintf("NATS/1.0 %d %s", code, text), " "))
	for pair := range slices.Chunk(pairs, 2) {
		b = fmt.Appendf(b, "\r\n%s: %s", pair[0], pair[1])
	}
	return append(b, "\r\n\r\n"...)
}
