package codec

import (
	"errors"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// A queue with Settings.Source, and only such a queue, has how far it is drawn:
//
//	("k") = JSON of a settings.SourceState
//
// Setting the source writes it, and whoever draws writes it in the transaction that adds the items.
// So each message becomes one item, whoever draws, and however often.

// SourceKey is the key of the state of the queue's source.
func (l *Layout) SourceKey() []byte { return l.Key(KindSource, 0) }

// checkSource returns an error if the queue cannot have the source.
func (l *Layout) checkSource(text string) error {
	if text == "" || !l.Fifo {
		return nil
	}
	if s, err := settings.ParseSource(text); err == nil && s.Priority != nil {
		return errors.New("priority: a FIFO queue has no priorities: want none")
	}
	return nil
}

// NextSource is the state of a source once the setting is changed to the text, nil without one.
func NextSource(state []byte, text string) ([]byte, error) {
	if text == "" {
		return nil, nil
	}
	to, err := settings.ParseSource(text)
	if err != nil {
		return nil, fmt.Errorf("%w: source: %w", ErrSettings, err)
	}
	s, _ := settings.ParseSourceState(state) // what cannot be read starts from the beginning
	s.Set(to)
	return s.JSON(), nil
}
