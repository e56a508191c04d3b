package proof_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
	"github.com/pqbridge/pqbridge/subjects"
)

// isGrouped reports whether the items of a queue have groups, which its name tells, and isRated
// whether it has rates.
func isGrouped(queue string) bool {
	return strings.HasPrefix(queue, "g-") || strings.HasPrefix(queue, "fifo-g")
}
func isRated(queue string) bool { return queue == "g-r" || queue == "fifo-gr" }

// groupOf returns the group of an item, which the queue and the value tell; "" for none.
func groupOf(queue, value string) string {
	if !isGrouped(queue) {
		return ""
	}
	return [...]string{"", "x", "y", "z"}[value[len(value)-1]%4]
}

// grouped returns a message with its group. One group has a weight.
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

// configure sets the length of the leases that pulls get in the queues of a round, and limits the
// leases of groups in some.
func (r *rig) configure(queues []string) map[string]int {
	limits := map[string]int{}
	for _, name := range queues {
		s := client.Settings{}
		if books.IsTraced(name) {
			s = settingsOf(name, []string{name})
		}
		s.AckWait = pullWait
		if n := r.random.IntN(4); isGrouped(name) && n > 0 {
			limits[name], s.MaxLeasedPerGroup = n, int64(n)
		}

		c := r.clients[0]
		c.insist("settings", func(ctx context.Context) error {
			_, err := queueOf(c.client, name).Configure(ctx, s)
			return err
		})
	}

	return limits
}

// rates are for queues in accounts. In short runs they are used up soon, too.
func (b *bank) rates() client.Settings {
	if b.target < shortRun {
		return client.Settings{Rate: "5/1s", RatePerGroup: "2/1s"}
	}
	return client.Settings{Rate: "30/1s", RatePerGroup: "12/1s"}
}

// hasUsedUp reports whether a pop that does not wait was refused because of a rate.
func hasUsedUp(op *books.Operation, code subjects.Code) bool {
	return code == subjects.CodeOverloaded && isRated(op.Queue) && op.Kind.Takes() &&
		op.Expires == 0
}
