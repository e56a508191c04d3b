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
		{"pq.*.push", "pq.*.push", true, true},
		{"pq.jobs.push", "pq.*.push", false, true},
		{"pq.*.push", "pq.>", false, true},
		{"pq.*", "pq.>", false, true},
		{"pq.jobs.push", "pq.jobs.pop", false, false},
		{"pq.jobs", "pq.jobs.push", false, false},
		{"pq.jobs.push", "pq.jobs", false, false},
		{"pq.jobs.>", "pq.jobs", false, false},
	} {
		if got := covers(m.pattern, m.other); got != m.covers {
			t.Errorf("%s covers %s: %v", m.pattern, m.other, got)
		}
		if got := overlap(m.pattern, m.other); got != m.overlap {
			t.Errorf("%s overlaps with %s: %v", m.pattern, m.other, got)
		}
		if got := overlap(m.other, m.pattern); got != m.overlap {
			t.Errorf("%s overlaps with %s: %v", m.other, m.pattern, got)
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
