package requests

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

// An action that is repeated a thousand times has two lines in the log: the first at once, and one
// for the rest when its window ends. If it goes on, each further window has one line. Different
// actions have lines of their own, up to a hundred. Beyond that the log has a line for each action,
// with the sums; but no change of settings takes the line of a purge.
func TestManyActsAreFewLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text harness.Transcript
		noTime := func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		}

		handler := slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: noTime})
		l := newAuditLog(slog.New(handler))
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { l.Run(ctx) })
		purge := auditEntry{on: auditItems, action: "purge", queue: "pq.jobs", client: "ann"}

		var want string
		// logged checks that the log goes on with these actions, and no others.
		logged := func(actions ...string) {
			t.Helper()
			synctest.Wait()
			for _, action := range actions {
				want += "msg=action action=" + action + "\n"
			}
			if text.String() != want {
				t.Fatalf("logged\n%swant\n%s", text.String(), want)
			}
		}

		time.Sleep(auditWindow / 2) // no note falls on the end of a window
		for range 1000 {
			l.note(purge, 1000)
		}

		logged("purge queue=pq.jobs items=1000 client=ann")
		time.Sleep(auditWindow)
		logged("purge queue=pq.jobs items=999000 requests=999 client=ann")
		l.note(purge, 7)
		time.Sleep(auditWindow)
		logged("purge queue=pq.jobs items=7 requests=1 client=ann")

		// Once a window is over without it, it begins anew.
		time.Sleep(2 * auditWindow)
		for range 2 {
			l.note(purge, 8)
			l.note(auditEntry{on: auditItems, action: "purge", queue: "pq.jobs", client: "bob"}, 9)
		}

		logged("purge queue=pq.jobs items=8 client=ann", "purge queue=pq.jobs items=9 client=bob")

		time.Sleep(3 * auditWindow)
		want = text.String()

		for i := range 10_000 {
			l.note(auditEntry{on: auditSettings, action: "config", queue: fmt.Sprint("pq.", i)}, 0)
		}

		for i := range maxAudited {
			want += fmt.Sprintf("msg=action action=config queue=pq.%d\n", i)
		}

		logged()
		l.note(purge, 1000)
		l.note(auditEntry{on: auditItems, action: "purge", queue: "pq.jobs", outcome: "unknown"}, 0)
		logged("purge queue=pq.jobs items=1000 client=ann", "purge queue=pq.jobs outcome=unknown")

		for i := range maxAudited - 1 {
			l.note(auditEntry{on: auditItems, action: "remove", queue: fmt.Sprint("pq.", i)}, 2)
			if i < maxAudited-2 {
				want += fmt.Sprintf("msg=action action=remove queue=pq.%d items=2\n", i)
			}
		}

		l.note(auditEntry{on: auditItems, action: "purge", queue: "pq.mail"}, 50)
		time.Sleep(auditWindow)

		for _, rest := range []string{
			"config items=0 requests=9900",
			"purge items=50 requests=1",
			"remove items=2 requests=1",
		} {
			want += "msg=\"too many actions to log each of them; these are left out\" action=" +
				rest + "\n"
		}

		logged()

		// The end leaves nothing out.
		l.note(purge, 3)
		l.note(purge, 4)
		stop()
		running.Wait()
		l.EndWindow()
		logged("purge queue=pq.jobs items=3 client=ann",
			"purge queue=pq.jobs items=4 requests=1 client=ann")
	})
}
