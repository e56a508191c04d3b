package clients_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// celeryApp has one task, which says in a file that it ran.
const celeryApp = `
import os
import celery
import pqbridge.celery

app = celery.Celery("app", broker=os.environ["BROKER"])


@app.task(name="note", ignore_result=True)
def note(text):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(text)


if __name__ == "__main__":
    note.apply_async(("due",), countdown=24 * 3600)
`

// A task of Celery with a countdown of 24 hours survives three ends of the worker, the NATS server,
// the bridge and its store, and runs once the bridge's clock says that it is due.
func TestCeleryCountdown(t *testing.T) {
	harness.OnlyClients(t)
	inPython.mustRun(t)
	if out, err := harness.Command(python, "-c", "import celery").CombinedOutput(); err != nil {
		t.Skipf("skipped: Celery is not installed for %s: %s", python, out)
	}
	t.Parallel()

	folder := t.TempDir()
	notes := filepath.Join(folder, "notes")
	if err := os.WriteFile(filepath.Join(folder, "app.py"), []byte(celeryApp), 0o600); err != nil {
		t.Fatal(err)
	}

	hours := []time.Duration{0, 8 * time.Hour, 16 * time.Hour, 24*time.Hour + time.Minute}
	for n, passed := range hours {
		t.Run(passed.String(), func(t *testing.T) {
			env := testenv.New(t, celeryOptions(folder, passed))
			queue := client.New(env.Conn).PriorityQueue("celery")
			variables := []string{
				"BROKER=" + strings.Replace(env.NATS.URL(), "nats://", "pqbridge://", 1),
				"NOTES=" + notes,
			}
			run := func(args ...string) (log *harness.Transcript, kill func()) {
				cmd, log := harness.Command(python, args...), &harness.Transcript{}
				cmd.Dir, cmd.Env = folder, append(os.Environ(), variables...)
				cmd.Stdout, cmd.Stderr = log, log
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				return log, func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
			}

			if n == 0 {
				log, kill := run("app.py")
				defer kill()
				defer func() { t.Logf("the sender:\n%s", log) }()
			}
			log, kill := run("-m", "celery", "-A", "app", "worker", "-P", "solo", "-l", "INFO")
			defer kill()
			testenv.Eventually(t, func() error {
				info, err := queue.Info(t.Context())
				said, _ := os.ReadFile(notes) // without it there is nothing
				due := n == 3
				switch {
				case err != nil:
					return err
				case !strings.Contains(log.String(), "ready."):
					return fmt.Errorf("the worker is not ready:\n%s", log)
				case (string(said) == "due") != due, (info.Delayed == 0) != due, info.Leased > 0:
					return fmt.Errorf("noted %q, with %d delayed and %d leased:\n%s",
						said, info.Delayed, info.Leased, log)
				}
				return nil
			})
		})
	}
}

// celeryOptions has the store in a folder, and a bridge whose clock is ahead by what has passed.
func celeryOptions(folder string, passed time.Duration) testenv.Options {
	open := func(t testing.TB) kv.Database {
		options := pebblekv.Options{Logger: harness.Logger(t, slog.LevelWarn)}
		db, err := pebblekv.Open(filepath.Join(folder, "store"), options)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() }) // the next one tells if it is not
		return db
	}
	return testenv.Options{
		Engine: testenv.Engine{Name: "pebble", Open: open},
		Bridge: func(o *bridge.Options) {
			o.Now = func() time.Time { return time.Now().Add(passed) }
		},
	}
}
