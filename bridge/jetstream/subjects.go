package jetstream

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	root      = "$JS."
	apiToken  = ".API."
	ackPrefix = "$JS.ACK."
	// ackTokens is how many tokens the subject of an acknowledgement has. Some clients insist on
	// it.
	ackTokens = 12
	// maxNumber is the largest number in such a subject that JavaScript can represent.
	maxNumber = 1 << 53
)

// domains has the domains by which clients address the queues of each kind.
type domains struct {
	names map[subjects.Kind]string

	// hash identifies the store in the subjects of acknowledgements, in case there is a stream
	// named like a domain.
	hash string
}

// newDomains returns the domains of a store.
func newDomains(names map[subjects.Kind]string, identity string) (domains, error) {
	d := domains{names: map[subjects.Kind]string{}}
	for kind, name := range names {
		if strings.Contains(name, ".") {
			const text = "jetstream: the prefix %s has a dot: a JetStream domain is one token"
			return d, fmt.Errorf(text, name)
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

// subscriptions returns what the face subscribes to, in a queue group.
func (d *domains) subscriptions(group string) (all []leaf.Subscription) {
	for _, kind := range []subjects.Kind{subjects.Priority, subjects.FIFO} {
		if name, ok := d.names[kind]; ok {
			calls, acks := root+name+apiToken+">", ackPrefix+name+"."+d.hash+".>"
			all = append(all, leaf.Subscription{Subject: calls, Queue: group},
				leaf.Subscription{Subject: acks, Queue: group})
		}
	}

	return all
}

// taken returns an error if the NATS server's own JetStream has one of the domains.
func (d *domains) taken(domain string) error {
	if _, is := d.kindOf(domain); !is {
		return nil
	}
	return fmt.Errorf("the JetStream domain of the NATS server itself is %q, "+
		"so it keeps all requests to $JS.%s.API: give the server another jetstream { domain }, "+
		"or this service another PQ_SUBJECT_PREFIX or PQ_FIFO_PREFIX", domain, domain)
}

// kindOf returns the kind of queues in a domain.
func (d *domains) kindOf(domain string) (subjects.Kind, bool) {
	for kind, name := range d.names {
		if name == domain {
			return kind, true
		}
	}
	return 0, false
}

// statusHeader returns the header block of a message with a status, which JetStream sends in place
// of an item. The pairs are names and values of further lines.
func statusHeader(code int, text string, pairs ...string) []byte {
	b := []byte(strings.TrimRight(fmt.Sprintf("NATS/1.0 %d %s", code, text), " "))
	for pair := range slices.Chunk(pairs, 2) {
		b = fmt.Appendf(b, "\r\n%s: %s", pair[0], pair[1])
	}
	return append(b, "\r\n\r\n"...)
}
