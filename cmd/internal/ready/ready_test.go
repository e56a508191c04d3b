package ready

import "testing"

// An address to listen on becomes one to connect to.
func TestReachable(t *testing.T) {
	for addr, want := range map[string]string{
		"0.0.0.0:8422": "127.0.0.1:8422",
		"[::]:8422":    "127.0.0.1:8422",
		":8422":        "127.0.0.1:8422",
		"127.0.0.1:1":  "127.0.0.1:1",
		"[::1]:1":      "[::1]:1",
		"host:1":       "host:1",
		"":             "",
	} {
		if got := Reachable(addr); got != want {
			t.Errorf("Reachable(%q) is %q: want %q", addr, got, want)
		}
	}
}
