package dashboard

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// system is a NATS server, a bridge, a client and a dashboard.
type system struct {
	*testenv.Env
	t      *testing.T
	client *client.Client
	*dashboard
}

// newSystem starts all of it. The arguments are for pq dashboard.
func newSystem(t *testing.T, args ...string) *system {
	t.Helper()
	return systemIn(t, testenv.New(t, testenv.Options{}), args...)
}

func systemIn(t *testing.T, env *testenv.Env, args ...string) *system {
	t.Helper()
	args = append([]string{"--server", env.NATS.URL()}, args...)
	return &system{
		Env:       env,
		t:         t,
		client:    clientOf(env.Conn),
		dashboard: startDashboard(t, args...),
	}
}

func clientOf(nc *nats.Conn) *client.Client {
	return client.New(nc, client.WithTimeout(testenv.Patience))
}

// dashboard is a process of pq dashboard.
type dashboard struct {
	t    *testing.T
	cmd  *exec.Cmd
	url  string
	log  harness.Transcript
	done chan struct{} // closed when it has exited with err
	err  error
}

var urlLine = regexp.MustCompile(`^pq dashboard: (https?://\S+)$`)

// startDashboard starts pq dashboard and waits until it says where it is.
func startDashboard(t *testing.T, args ...string) *dashboard {
	t.Helper()
	d := &dashboard{t: t, done: make(chan struct{})}
	first := []string{
		"dashboard", "--listen", "127.0.0.1:0", "--timeout", testenv.Patience.String(),
	}
	d.cmd = harness.Command(started.pq, append(first, args...)...)
	d.cmd.Env = environment()
	d.cmd.Stderr = &d.log
	out, err := d.cmd.StdoutPipe()
	must(t, err)
	must(t, d.cmd.Start())

	said := make(chan string, 1)
	go func() {
		defer close(d.done)
		lines := bufio.NewReader(out)
		line, _ := lines.ReadString('\n') // a line without an end is none
		said <- strings.TrimSpace(line)
		_, _ = io.Copy(&d.log, lines) // ends with the process
		d.err = d.cmd.Wait()
	}()

	t.Cleanup(func() {
		d.stop()
		if t.Failed() {
			t.Log(harness.Shorten("dashboard", d.log.String()))
		}
	})

	select {
	case line := <-said:
		found := urlLine.FindStringSubmatch(line)
		if found == nil {
			<-d.done
			t.Fatalf("the dashboard ends with %v\n%s", d.err, d.log.String())
		}

		d.url = found[1]
	case <-time.After(testenv.Patience):
		t.Fatalf("the dashboard does not start\n%s", d.log.String())
	}

	return d
}

// environment is the environment of this process, without variables that name other servers.
func environment() (variables []string) {
	for _, v := range os.Environ() {
		isAbout := func(prefix string) bool { return strings.HasPrefix(v, prefix) }
		if !slices.ContainsFunc([]string{"NATS_", "PQ_", "XDG_CONFIG_HOME="}, isAbout) {
			variables = append(variables, v)
		}
	}
	return append(variables, "XDG_CONFIG_HOME=/nonexistent")
}

// stop ends the process as docker stop does, and fails the test unless that is quick and in order.
func (d *dashboard) stop() {
	d.t.Helper()
	select {
	case <-d.done:
		return // ended already
	default:
	}

	_ = d.cmd.Process.Signal(syscall.SIGTERM) // fails only if it has exited
	select {
	case <-d.done:
		if d.err != nil {
			d.t.Errorf("the dashboard ended with %v\n%s", d.err, d.log.String())
		}
	case <-time.After(testenv.Patience):
		_ = d.cmd.Process.Kill()
		<-d.done
		d.t.Errorf("the dashboard does not end\n%s", d.log.String())
	}
}

// logged waits until the log has all of these texts in one line.
func (d *dashboard) logged(texts ...string) {
	d.t.Helper()
	testenv.Eventually(d.t, func() error {
		for line := range strings.Lines(d.log.String()) {
			isMissing := func(text string) bool { return !strings.Contains(line, text) }
			if !slices.ContainsFunc(texts, isMissing) {
				return nil
			}
		}
		return fmt.Errorf("no line of the log has %q:\n%s", texts, d.log.String())
	})
}

// send sends a request as some program does, with headers in pairs, and returns the answer with its
// body.
func (d *dashboard) send(method, path, body string, headers ...string) (*http.Response, string) {
	d.t.Helper()
	r, err := http.NewRequest(method, d.url+path, strings.NewReader(body))
	must(d.t, err)

	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}

	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	reply, err := (&http.Client{Transport: transport, Timeout: testenv.Patience}).Do(r)
	must(d.t, err)

	text, err := io.ReadAll(reply.Body)
	must(d.t, errors.Join(err, reply.Body.Close()))
	return reply, string(text)
}

// push pushes items with one priority each.
func (s *system) push(queue string, priority int64, values ...string) (ids []string) {
	s.t.Helper()
	for _, value := range values {
		ack, err := s.client.PriorityQueue(queue).Push(s.t.Context(), priority, []byte(value))
		must(s.t, err)
		ids = append(ids, ack.ID)
	}

	return ids
}

// lease leases the most urgent item, for longer than any test takes.
func (s *system) lease(queue string) *client.Delivery {
	s.t.Helper()
	delivery, err := s.client.PriorityQueue(queue).Lease(s.t.Context(),
		client.AckWait(12*time.Hour))
	must(s.t, err)

	return delivery
}

// bury makes a dead letter of the most urgent item.
func (s *system) bury(queue, reason string) {
	s.t.Helper()
	must(s.t, s.lease(queue).Term(s.t.Context(), reason))
}

// lengths waits until a queue has that many items: ready, leased, delayed.
func (s *system) lengths(queue string, want ...int64) {
	s.t.Helper()
	testenv.Eventually(s.t, func() error {
		info, err := s.client.PriorityQueue(queue).Info(s.t.Context())
		if err != nil {
			return err
		}

		has := []int64{info.Ready, info.Leased, info.Delayed}
		if !slices.Equal(has[:len(want)], want) {
			return fmt.Errorf("%s has %d items, ready, leased and delayed: want %d", queue, has,
				want)
		}

		return nil
	})
}

// ids returns the ids of a queue's items, in order.
func (s *system) ids(queue string) (ids []string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), testenv.Patience)
	defer cancel()
	all := client.ItemsOptions{Limit: 1000, ValueBytes: client.NoValues}
	page, err := s.client.PriorityQueue(queue).Items(ctx, all)
	must(s.t, err)

	for _, item := range page.Items {
		ids = append(ids, item.ID)
	}

	return ids
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
