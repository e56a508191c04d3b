package client

import (
	"fmt"
	"os"
	"strings"
	"unicode"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

// Holder is the name of who takes a lease, which Items, pq busy and the dashboard show: up to 128
// bytes of UTF-8 without control characters. "", the default, is no name. The lease of a
// [Delivery.Next] keeps the name of the lease before.
type Holder string

func (h Holder) apply(o *subjects.PopOptions) { o.Holder = string(h) }

// DefaultHolder names this process: its host, its process id and, if nc has one, the name of the
// connection (nats.Name). nc may be nil.
func DefaultHolder(nc *nats.Conn) Holder {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	name := fmt.Sprintf("%s pid %d", host, os.Getpid())
	if nc != nil && nc.Opts.Name != "" {
		name += " " + nc.Opts.Name
	}

	// The names of hosts and connections may contain anything.
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(name, "\uFFFD"))
	return Holder(settings.Cut(name, settings.MaxHolder))
}
