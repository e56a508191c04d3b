package peers

import (
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

// A bridge that starts waits for one that is frozen. Only others that may be in the way make that shorter: not those
// with other subjects, and not those that leave.
func TestWhoIsAStranger(t *testing.T) {
	m := newTest(t).Members
	m.mu.self.Subjects = []string{subjects.DefaultPriorityPrefix + ".>"}
	for _, step := range []struct {
		id, subjects string
		state        State
		want         time.Duration
	}{
		{"unrelated", "other.>", Serving, silenceTime},
		{"leaving", subjects.DefaultPriorityPrefix + ".>", gone, silenceTime},
		{"there", subjects.DefaultPriorityPrefix + ".>", Starting, strangersTime},
	} {
		m.enroll(announcement{ID: step.id, Subjects: []string{step.subjects}, State: step.state})
		if got := m.waitTime(); got != step.want {
			t.Errorf("%s: it waits %v, want %v", step.id, got, step.want)
		}
	}
}
