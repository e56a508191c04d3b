package discovery

import "testing"

// A subject is allowed if a pattern allows it and none denies it.
func TestPermissions(t *testing.T) {
	p := Permissions{
		Allow: []string{"pq.>", "q.*.peek"},
		Deny:  []string{"pq.jobs.purge", "pq.*.rm"},
	}

	for subject, want := range map[string]bool{
		"pq.jobs.push":  true,
		"pq":            false,
		"pq.jobs.purge": false,
		"pq.mail.purge": true,
		"pq.mail.rm":    false,
		"q.mail.peek":   true,
		"q.mail":        false,
		"q.mail.peek.x": false,
		"q.mail.pop":    false,
	} {
		if p.Allows(subject) != want {
			t.Errorf("%s is allowed: %v", subject, !want)
		}
	}
	if !(&Permissions{}).Allows("pq.jobs.push") {
		t.Error("without permissions not everything is allowed")
	}
}
