package bridge

import (
	"fmt"
	"testing"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
)

// pops notes n pops of one queue in the current period.
func pops(a *affinity, r *dispatch.Rate, subject string, n int) {
	for range n {
		a.note(r, subject)
	}
}

// A bridge without peers does not remember which queues are used.
func TestAffinityForgetsWhenAlone(t *testing.T) {
	a := newTestBridge(t).router.affinity
	for i := range 100 {
		pops(a, new(dispatch.Rate), fmt.Sprintf("pq.jobs-%d.pop.min", i), busyPops)
	}
	if n := len(a.mu.subjects); n != 100 {
		t.Errorf("%d subjects are busy, want 100", n)
	}
	if err := a.adjust(0); err != nil {
		t.Error(err)
	}
	if n := len(a.mu.subjects); n > 0 {
		t.Errorf("%d subjects are remembered", n)
	}
}

// Subjects that are not busy are neither remembered nor subscribed to.
func TestAffinityIgnoresQuietSubjects(t *testing.T) {
	a := newTestBridge(t).router.affinity
	queues := make([]dispatch.Rate, 100)
	for range idleBeats {
		for i := range queues {
			pops(a, &queues[i], fmt.Sprintf("pq.jobs-%d.pop.min", i), busyPops-1)
		}
		if n := len(a.mu.subjects); n > 0 {
			t.Errorf("%d subjects are remembered", n)
		}
		if err := a.adjust(affinityWeight); err != nil {
			t.Error(err)
		}
	}
	if a.mu.connecting {
		t.Error("a connection is being made without need")
	}
}

// A busy subject is subscribed to at once, kept as long as it is used now and then, and
// forgotten when it is idle.
func TestAffinityKeepsUsedSubjects(t *testing.T) {
	const subject = "pq.jobs.pop.min"
	a := newTestBridge(t).router.affinity
	var r dispatch.Rate
	pops(a, &r, subject, busyPops)
	if missing, _, _ := a.survey(affinityWeight); missing[subject] != affinityWeight {
		t.Errorf("subscriptions are missing: %v, want %d", missing, affinityWeight)
	}
	for beat := range 4 * idleBeats {
		if beat%idleBeats == 0 {
			pops(a, &r, subject, usedPops)
		}
		a.survey(affinityWeight)
	}
	if len(a.mu.subjects) != 1 {
		t.Error("a subject in use was forgotten")
	}
	pops(a, &r, subject, usedPops-1)
	a.survey(affinityWeight)
	if len(a.mu.subjects) != 0 {
		t.Error("an idle subject is remembered")
	}
}

// Only a limited number of busy subjects are subscribed to.
func TestAffinityIsBounded(t *testing.T) {
	a := newTestBridge(t).router.affinity
	for i := range 2 * maxBusy {
		pops(a, new(dispatch.Rate), fmt.Sprintf("pq.jobs-%d.pop.min", i), busyPops)
	}
	if missing, _, _ := a.survey(affinityWeight); len(missing) != maxBusy {
		t.Errorf("%d subjects would be subscribed to, want %d", len(missing), maxBusy)
	}
}
