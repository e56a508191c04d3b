package codec

import (
	"errors"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// A queue with Settings.Source has the JSON of a settings.SourceState in ("k"), and one that had it until
// the consumer of that is removed. Whoever draws changes it in the transaction that adds the items, and checks that it is the one that
// it knows. So each message becomes one item, whoever draws, and however often.

func (l *Layout) SourceKey() []byte { return l.Key("k", 0) }

// checkSource returns an error if a queue cannot have the source because it is a FIFO queue.
func (l *Layout) checkSource(text string) error {
	if s, err := settings.ParseSource(text); l.Fifo && err == nil && s.Priority != nil {
		return errors.New("priority: a FIFO queue has none: leave it out")
	}
	return nil
}
