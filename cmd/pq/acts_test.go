package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// The bridge logs who did what with pq: user, machine and process, as pq itself says.
func TestBridgesLogWhoUsesPq(t *testing.T) {
	t.Parallel()

	var log harness.Transcript
	c, _ := newCLIOn(t, testenv.Options{Bridge: func(o *bridge.Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	}})
	host, err := os.Hostname()
	must(t, err)

	by := fmt.Sprintf(`%s pid %d pq" `, host, os.Getpid())
	if me, err := user.Current(); err == nil { // a container may have no names of users
		by = me.Username + "@" + by
	}

	by = ` client="` + by
	id := strings.TrimSpace(c.ok("", "push", "jobs", "a"))
	c.ok("", "push", "jobs", "b")

	for _, m := range []struct{ args, want string }{
		{"pause jobs", "action=config queue=pq.jobs request="},
		{"resume jobs", "action=config queue=pq.jobs request="},
		{"rm jobs " + id, "action=remove queue=pq.jobs items=1"},
		{"purge jobs --yes", "action=purge queue=pq.jobs items=1"},
		{"schedule add jobs nightly --cron @daily", "action=schedule queue=pq.jobs request="},
		{"schedule pause jobs nightly", "action=schedule queue=pq.jobs request="},
	} {
		before := len(log.String())
		c.ok("", strings.Fields(m.args)...)

		text := log.String()[before:]
		if !strings.Contains(text, m.want) || !strings.Contains(text, by) {
			t.Errorf("pq %s: logged %q, want %s and%s", m.args, text, m.want, by)
		}
	}
}
