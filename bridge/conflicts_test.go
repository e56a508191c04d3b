package bridge_test

import (
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/testenv"
)

// TestConflictsAreCounted counts repeated attempts, and none for a batch that failed once for another reason.
func TestConflictsAreCounted(t *testing.T) {
	var faults *faultkv.DB
	e := testenv.New(t, testenv.Options{
		Engine: testenv.Mem(),
		Wrap: func(db kv.Database) kv.Database {
			faults = faultkv.New(db, faultkv.Options{})
			return faults
		},
	})
	wantMetric(t, e.Bridge, "pq_conflicts_total", 0)
	faults.Next(faultkv.Conflict, faultkv.Conflict, faultkv.TooOld)
	e.Request("pq.jobs.push", nil, nil)
	wantMetric(t, e.Bridge, "pq_conflicts_total", 2)
}
