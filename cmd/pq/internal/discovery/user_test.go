package discovery

import "testing"

func TestPermissionsOfPatterns(t *testing.T) {
	for _, m := range []struct {
		pattern, other  string
		covers, overlap bool
	}{
		{"pq.jobs.push", "pq.jobs.push", true, true},
		{"pq.*.push", "pq.jobs.push", true, true},
		{"pq.>", "pq.*.push", true, true},
		{">", "pq.>", true, true},
		{"pq.jobs.push", "pq.*.push", false, true},
		{"pq.*", "pq.>", false, true},
		{"pq.jobs.push", "pq.jobs.pop", false, false},
		{"pq.jobs", "pq.jobs.push", false, false},
		{"pq.jobs.>", "pq.jobs", false, false},
	} {
		within, one, other := covers(m.pattern, m.other), overlap(m.pattern, m.other), overlap(m.other, m.pattern)
		if within != m.covers || one != m.overlap || other != m.overlap {
			t.Errorf("%s and %s: covers %v, overlap %v and %v", m.pattern, m.other, within, one, other)
		}
	}
	p := Permissions{Allow: []string{"pq.>"}, Deny: []string{"pq.jobs.purge"}}
	for subject, want := range map[string]bool{"pq.*.push": true, "pq.*.purge": false, "pq.mail.purge": true, "q.*.peek": false} {
		if p.Allows(subject) != want {
			t.Errorf("%s is allowed: %v", subject, !want)
		}
	}
	if !(&Permissions{}).Allows("pq.*.push") {
		t.Error("without permissions not everything is allowed")
	}
}
