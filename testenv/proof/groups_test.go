package proof_test

import (
	"fmt"
	"strings"

	"github.com/pqbridge/pqbridge/client"
)

// groupOf returns the group of an item, which the queue and the value tell; "" for none.
func groupOf(queue, value string) string {
	if !strings.HasPrefix(queue, "g-") && !strings.HasPrefix(queue, "fifo-g") {
		return ""
	}
	return [...]string{"", "x", "y", "z"}[value[len(value)-1]%4]
}

// grouped returns a message with its group. Those of one group have a weight.
func grouped(m client.Message, queue, value string) client.Message {
	group := groupOf(queue, value)
	if group == "" {
		return m
	}
	if group == "z" {
		m = m.With(client.Weight(3))
	}
	return m.With(client.Group(group))
}

// checkGroup returns an error unless an item has the group that it was pushed with.
func checkGroup(queue, value string, item *client.Item) error {
	if want := groupOf(queue, value); item.Group != want && item.ID != "" {
		return fmt.Errorf("%w %q with the group %q, want %q", errTorn, value, item.Group, want)
	}
	return nil
}
