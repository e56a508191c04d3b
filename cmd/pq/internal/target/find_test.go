package target

import (
	"context"
	"errors"
	"testing"

	"github.com/pqbridge/pqbridge/client"
)

// A search without time has not asked all queues, and does not say that none has the job. Nor does
// one with an answer that is none.
func TestFindThatCannotAskAll(t *testing.T) {
	none := func(context.Context, Place) ([]client.StoredItem, error) { return nil, nil }
	over, stop := context.WithCancel(t.Context())
	stop()

	at, err := Find(over, []Place{{Queue: "jobs"}}, none)
	if at != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("without time: %v, %v", at, err)
	}
	at, err = Find(t.Context(), []Place{{Queue: "jobs"}}, none)
	if at != nil || !errors.Is(err, client.ErrBadReply) {
		t.Errorf("with a reply that has no item: %v, %v", at, err)
	}
}
