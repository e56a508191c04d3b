package client

import (
	"strings"

	"github.com/pqbridge/pqbridge/subjects"
)

// token returns the token of the lease. Clients of another account than the bridge's may have none.
func (d *Delivery) token() (token string, ok bool) {
	i := strings.LastIndex(d.ack, ackInfix)
	if i < 0 || strings.Contains(d.ack[i+len(ackInfix):], ".") {
		return "", false
	}
	return d.ack[i+len(ackInfix):], true
}

// ackInfix stands before the token in the subject of acknowledgements.
const ackInfix = ".ack."

// tokens returns the tokens of deliveries that have one.
func tokens(list []*Delivery) []string {
	texts := make([]string, len(list))
	for i, d := range list {
		texts[i], _ = d.token()
	}
	return texts
}

// mostTogether is how many leases one request can acknowledge.
func (c *Client) mostTogether() int {
	const each, rest = 84, 1024 // at most, in bytes
	return int(min(max((c.maxPayload()-rest)/each, 1), subjects.MaxAlso+1))
}
