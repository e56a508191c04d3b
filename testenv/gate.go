package testenv

import (
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// Gate as the CustomClientAuthentication of a NATS server decides which users the server lets in:
// all, or all but some. The zero value lets everybody in. It is safe for concurrent use.
type Gate struct {
	mu      sync.Mutex
	refused map[string]int // how often, by user
}

// Check implements server.Authentication.
func (g *Gate) Check(c server.ClientAuthentication) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	user := c.GetOpts().Username

	if _, refuse := g.refused[user]; !refuse {
		return true
	}

	g.refused[user]++
	return false
}

// Refuse refuses these users from now on, and nobody else.
func (g *Gate) Refuse(users ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refused = map[string]int{}

	for _, user := range users {
		g.refused[user] = 0
	}
}

// HasRefused waits until each of the users was refused that often.
func (g *Gate) HasRefused(t testing.TB, times int) {
	t.Helper()
	Eventually(t, func() error {
		g.mu.Lock()
		defer g.mu.Unlock()

		for user, n := range g.refused {
			if n < times {
				return fmt.Errorf("%s was refused %d times, want %d", user, n, times)
			}
		}

		return nil
	})
}
