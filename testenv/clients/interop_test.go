package clients_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// A job that is pushed from Python and fails in JavaScript is found by its id in Go, is sent back
// by pq, and is done in Java. JavaScript reads its result. What Java then pushes is done in Python,
// and Go reads that result.
func TestInterop(t *testing.T) {
	harness.OnlyClients(t)
	for _, l := range []language{inJavaScript, inPython, inJava} {
		l.mustRun(t)
	}
	t.Parallel()

	pq := filepath.Join(t.TempDir(), "pq")
	build := exec.Command("go", "build", "-o", pq, "../../cmd/pq")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}

	s := &story{T: t, language: inGo}
	s.configure(client.Settings{MaxDeliver: 1, Keep: time.Hour})
	python := s.start(inPython).isReady()
	javaScript := s.start(inJavaScript).isReady()
	java := s.start(inJava).isReady()
	const priority = "9007199254740993"
	value := do(step{"wait", "1s"}, step{"return", b64("größer ✓")})

	python.pushes("job1", in{"priority": priority, "value": value, "type": "größer"})

	javaScript.answers("work", in{"jobTimeout": "100ms", "types": []string{"größer"}}, `null`)
	javaScript.hears("start job1 1 type größer handler größer", "end job1 timeout")
	s.holds("jobs-dead", "job1 "+priority+" ready 0 timed out")
	javaScript.answers("stop", nil, `null`)

	const headers = `"headers":[["Type","größer"]],"state":"ready"`
	s.driver().answers("look", in{"what": "get", "id": "job1"},
		strings.Replace(item("job1", priority, value), `"headers":[]`, headers, 1))

	redrive := exec.Command(pq, "--server", s.env.NATS.URL(),
		"redrive", "jobs-dead", s.idOf("job1"))
	if out, err := redrive.CombinedOutput(); err != nil {
		t.Fatalf("pq redrive: %v\n%s", err, out)
	}
	s.holds("jobs", "job1 "+priority+" ready 0")

	waits := javaScript.ask("result", in{"id": "job1", "wait": "1m"})
	java.answers("work", nil, `null`)
	java.hears("start job1 1 type größer", "end job1 done")
	waits.answers(done(b64("größer ✓")))
	java.answers("stop", nil, `null`)

	java.pushes("job2", in{"value": value, "type": "größer", "group": "Müller & Söhne"})
	python.answers("work", in{"types": []string{"größer"}}, `null`)
	python.hears("start job2 1 type größer handler größer", "end job2 done")
	s.driver().answers("result", in{"id": "job2", "wait": "1m"}, done(b64("größer ✓")))
	s.kept("jobs", "job2 0 done 1", "job1 "+priority+" done 1")
	s.end()
}
