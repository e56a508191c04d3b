package bridge_test

import (
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv"
)

// pipelined is a shared store that claims to pipeline, as no engine does today.
type pipelined struct{ kv.Database }

func (pipelined) Traits() kv.Traits { return kv.Traits{Pipelines: true, Shared: true} }

// Bridges look for each other because their store is shared, whatever its other traits.
func TestSharedStoreThatPipelines(t *testing.T) {
	e := testenv.New(t, testenv.Options{Wrap: func(db kv.Database) kv.Database { return pipelined{db} }})
	second := e.StartBridge()
	together(t, e.Bridge, second)
}
