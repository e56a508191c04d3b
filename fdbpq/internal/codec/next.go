package codec

import (
	"errors"
	"fmt"
)

// PushesTo reports whether acknowledgements of this queue may be able to push to another one: both
// are of the same kind, and in the same Keyspace.
func (l *Layout) PushesTo(to *Layout) bool {
	return l.List != nil && to.List != nil && l.List.Prefix == to.List.Prefix && l.Fifo == to.Fifo
}

// checkNext returns an error if acknowledgements of the queue cannot push to queues of these names.
func (l *Layout) checkNext(names []string) error {
	if len(names) > 0 && l.List == nil {
		return errors.New("a queue outside a Keyspace cannot name others: want none")
	}
	for _, name := range names {
		if n := len(name); n == 0 || n > MaxQueueName {
			return fmt.Errorf("a name of %d bytes: want 1 to %d", n, MaxQueueName)
		}
	}
	return nil
}
