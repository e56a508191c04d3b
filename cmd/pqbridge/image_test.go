//go:build image

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// confined are the options of docker run that the documentation recommends.
var confined = []string{
	"--read-only",
	"--cap-drop=ALL",
	"--security-opt=no-new-privileges",
	"--memory=128m",
}

// engine runs a command of docker or podman, whichever PQ_TEST_ENGINE names, and returns
// what it printed.
func engine(t *testing.T, args ...string) string {
	t.Helper()
	out, err := harness.Command(os.Getenv("PQ_TEST_ENGINE"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}

	return strings.TrimSpace(string(out))
}

// container is the image PQ_TEST_IMAGE at work.
type container struct {
	*testing.T
	name string
}

// newVolume returns the name of a volume that goes with the test.
func newVolume(t *testing.T) string {
	name := "pqbridge-test-" + nuid.Next()
	engine(t, "volume", "create", name)
	t.Cleanup(func() { engine(t, "volume", "rm", "--force", name) })
	return name
}

// startContainer starts pqbridge with options for docker run, and with arguments after "--".
func startContainer(t *testing.T, options ...string) *container {
	t.Helper()
	c := &container{t, "pqbridge-test-" + nuid.Next()}
	args := append([]string{"run", "--detach", "--name", c.name}, confined...)
	var arguments []string

	if i := slices.Index(options, "--"); i >= 0 {
		options, arguments = options[:i], options[i+1:]
	}

	args = slices.Concat(args, options, []string{os.Getenv("PQ_TEST_IMAGE")}, arguments)
	t.Cleanup(func() { engine(t, "rm", "--force", "--volumes", c.name) })
	engine(t, args...)

	return c
}

// startDevContainer starts pqbridge -dev on a volume.
func startDevContainer(t *testing.T, volume string, options ...string) *container {
	t.Helper()
	return startContainer(t,
		append(options, "--volume="+volume+":/data", "--publish=127.0.0.1::4222", "--", "-dev")...)
}

// connect returns a client once the service answers.
func (c *container) connect() *client.Client {
	c.Helper()
	return client.New(c.dial())
}

// exec runs a command in the container, and returns what it prints.
func (c *container) exec(command ...string) ([]byte, error) {
	args := append([]string{"exec", c.name}, command...)
	return harness.Command(os.Getenv("PQ_TEST_ENGINE"), args...).CombinedOutput()
}

// dial connects to the NATS server of pqbridge -dev once the service is ready.
func (c *container) dial() *nats.Conn {
	c.Helper()
	var nc *nats.Conn
	testenv.Eventually(c.T, func() (err error) {
		if _, err = c.exec("pqbridge", "-healthcheck"); err != nil {
			return fmt.Errorf("-healthcheck: %w\n%s", err, engine(c.T, "logs", c.name))
		}

		// Another one after a restart.
		address, _, _ := strings.Cut(engine(c.T, "port", c.name, "4222/tcp"), "\n")
		nc, err = nats.Connect("nats://" + address)
		return err
	})

	c.Cleanup(nc.Close)
	return nc
}

// end waits for the container's end and returns its exit code and its log.
func (c *container) end() (code, log string) {
	c.Helper()
	code = engine(c.T, "wait", c.name)
	return code, engine(c.T, "logs", c.name)
}

// stop is docker stop, which kills after ten seconds.
func (c *container) stop() {
	c.Helper()
	began := time.Now()
	engine(c.T, "stop", "--time=10", c.name)
	code, log := c.end()

	if code != "0" {
		c.Errorf("exit code %s after %v: want 0\n%s", code, time.Since(began), log)
	}
	wantWords(c, log, "shutting down", "SIGTERM", "pqbridge has ended")
}

func pushJobs(t *testing.T, pq *client.Client, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		_, err := pq.PriorityQueue("jobs").Push(t.Context(), 0, fmt.Appendf(nil, "job %d", i))
		must(t, err)
	}
}

func popJobs(t *testing.T, pq *client.Client, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		item, err := pq.PriorityQueue("jobs").Pop(t.Context())
		if err != nil {
			t.Fatalf("job %d: %v", i, err)
		}
		if want := fmt.Sprintf("job %d", i); string(item.Value) != want {
			t.Fatalf("popped %q: want %q", item.Value, want)
		}
	}
	if _, err := pq.PriorityQueue("jobs").Pop(t.Context()); !errors.Is(err, client.ErrEmpty) {
		t.Errorf("after all items: %v, want none left", err)
	}
}

// Acknowledged items survive a kill, a restart and a new container on the same volume, which is all
// that is writable.
func TestImageKeepsItems(t *testing.T) {
	volume := newVolume(t)
	c := startDevContainer(t, volume)
	pushJobs(t, c.connect(), 0, 50)
	engine(t, "kill", c.name)
	c.end()
	engine(t, "start", c.name)
	pushJobs(t, c.connect(), 50, 100)
	c.stop()

	next := startDevContainer(t, volume)
	popJobs(t, next.connect(), 0, 100)
	if out := engine(t, "exec", next.name, "pq", "ls"); strings.Contains(out, "error") {
		t.Errorf("pq in the container: %s", out)
	}

	next.stop()
}

// A backup goes to a volume at /backup, and is restored to a new volume, with nothing else
// writable.
func TestImageBacksUp(t *testing.T) {
	data, backups := newVolume(t), newVolume(t)
	c := startDevContainer(t, data, "--volume="+backups+":/backup")
	pushJobs(t, c.connect(), 0, 10)
	made := engine(t, "exec", c.name, "pqbridge", "-backup", "/backup", "-keep", "7")
	c.stop()
	path := strings.TrimSuffix(strings.Fields(made)[2], ",") // backup in PATH, made in 12ms

	restored := newVolume(t)
	run := append([]string{"run", "--rm"}, confined...)
	run = append(run, "--volume="+restored+":/data", "--volume="+backups+":/backup:ro",
		os.Getenv("PQ_TEST_IMAGE"))
	engine(t, append(run, "-restore", path)...)

	popJobs(t, startDevContainer(t, restored).connect(), 0, 10)
}

// Without a volume, a backup would be in the container, and gone with it: it is refused, and leaves
// no time of a last backup.
func TestImageRefusesBackupWithoutVolume(t *testing.T) {
	name := "pqbridge-test-" + nuid.Next()
	// Not read-only, so that only the missing volume is in the way.
	engine(t, "run", "--detach", "--name="+name, os.Getenv("PQ_TEST_IMAGE"), "-dev")
	t.Cleanup(func() { engine(t, "rm", "--force", "--volumes", name) })
	c := &container{t, name}
	c.awaitLog("taking requests")

	out, err := c.exec("pqbridge", "-backup", "/backup", "-keep", "7")
	if err == nil {
		t.Error("a backup was made")
	}

	wantWords(t, string(out), "no volume is mounted at /backup", "-v pq-backup:/backup")
}

// With 128 MiB, clients that push values of 900,000 bytes all at once may be refused, but the
// service is not killed, and no acknowledged value is lost.
func TestImageWithLittleMemory(t *testing.T) {
	const clients, each, size = 64, 2, 900_000
	nats := startDevContainer(t, newVolume(t), "--memory=1g")
	nc := nats.dial()
	c := startContainer(t, "--network=container:"+nats.name,
		"--env=PQ_NATS_URL=nats://127.0.0.1:4222", "--env=PQ_HTTP_ADDR=127.0.0.1:8423",
		"--env=PQ_SUBJECT_PREFIX=small", "--env=PQ_FIFO_PREFIX=small-fifo")
	c.awaitLog("there is little memory")
	c.awaitLog("taking requests")
	grammar, err := subjects.New("small", "small-fifo")
	must(t, err)

	q := client.New(nc, client.WithGrammar(grammar), client.WithTimeout(testenv.Patience)).
		PriorityQueue("jobs")
	ctx, cancel := context.WithTimeout(t.Context(), 4*testenv.Patience)
	defer cancel()

	again := func(err error) bool { // perhaps a second time
		return ctx.Err() == nil &&
			(errors.Is(err, client.ErrOverloaded) || errors.Is(err, client.ErrUnavailable) ||
				errors.Is(err, client.ErrUnknownOutcome))
	}

	var pushing sync.WaitGroup
	for number := range clients {
		pushing.Go(func() {
			for i := range each {
				value := bytes.Repeat([]byte{byte(number*each + i)}, size)
				_, err := q.Push(ctx, 0, value)

				for again(err) {
					_, err = q.Push(ctx, 0, value)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}

	pushing.Wait()
	popped := map[byte]bool{}

	for {
		item, err := q.Pop(ctx)
		if errors.Is(err, client.ErrEmpty) {
			break
		}
		must(t, err)

		if len(item.Value) != size {
			t.Errorf("a value of %d bytes", len(item.Value))
		}

		popped[item.Value[0]] = true
	}
	if len(popped) != clients*each {
		t.Errorf("%d values of %d", len(popped), clients*each)
	}

	state := engine(t, "inspect", "--format={{.State.Running}} {{.State.OOMKilled}}", c.name)
	if state != "true false" {
		t.Errorf("running and killed for memory: %s\n%s", state, engine(t, "logs", c.name))
	}

	c.stop()
}

// The image's pq serves the pages, and the image's health check asks there.
func TestImageServesTheDashboard(t *testing.T) {
	nats := startDevContainer(t, newVolume(t))
	pushJobs(t, nats.connect(), 0, 3)

	c := startContainer(t, "--network=container:"+nats.name, "--entrypoint=pq",
		"--env=PQ_HTTP_ADDR=:8423", "--", "dashboard", "--listen=127.0.0.1:8423")
	testenv.Eventually(t, func() error {
		out, err := c.exec("pqbridge", "-healthcheck")
		if err != nil {
			return fmt.Errorf("-healthcheck: %w\n%s\n%s", err, out, engine(t, "logs", c.name))
		}

		return nil
	})

	engine(t, "stop", "--time=10", c.name)
	code, log := c.end()
	if code != "0" || !strings.Contains(log, "pq dashboard: http://127.0.0.1:8423") {
		t.Errorf("exit code %s: want 0\n%s", code, log)
	}
}

// The image runs as any user with the group 0, which some platforms choose themselves.
func TestImageAsAnyUser(t *testing.T) {
	const user = "--user=1000680000:0" // as OpenShift chooses them
	volume := newVolume(t)
	for round := range 2 {
		c := startDevContainer(t, volume, user)
		pushJobs(t, c.connect(), round, round+1)
		c.stop()
	}

	c := startDevContainer(t, volume, user)
	popJobs(t, c.connect(), 0, 2)
}

// docker stop ends the service in time while nothing answers at NATS's address, and while its name
// is unknown.
func TestImageStopsWithoutNATS(t *testing.T) {
	for _, url := range []string{"nats://192.0.2.1:4222", "nats://nats.invalid:4222"} {
		t.Run(url, func(t *testing.T) {
			c := startContainer(t, "--env=PQ_NATS_URL="+url)
			c.awaitLog("a new store")
			c.stop()
		})
	}
}

func (c *container) awaitLog(words string) {
	c.Helper()
	testenv.Eventually(c.T, func() error {
		if log := engine(c.T, "logs", c.name); !strings.Contains(log, words) {
			return fmt.Errorf("%q is not in the log:\n%s", words, log)
		}
		return nil
	})
}

// A start that cannot succeed ends at once, with the reason.
func TestImageRefuses(t *testing.T) {
	for variable, want := range map[string]string{
		"PQ_STORE=fdb":                           "FoundationDB",
		"PQ_SERVICE_HOSTS=10.0.0.1":              "not a variable",
		"PQ_NATS_TOKEN_FILE=/run/secrets/absent": "no such file",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
		defer cancel()
		args := append(append([]string{"run", "--rm"}, confined...), "--env="+variable,
			os.Getenv("PQ_TEST_IMAGE"))
		out, err := harness.CommandContext(ctx, os.Getenv("PQ_TEST_ENGINE"), args...).
			CombinedOutput()

		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), want) {
			t.Errorf("with %s: %v, want exit code 1 and %q\n%s", variable, err, want, out)
		}
		if strings.Contains(string(out), "cluster file") {
			t.Errorf("with %s: the image has no FoundationDB, and asks for its cluster file\n%s",
				variable, out)
		}
	}
}
