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
	return &system{
		Env: env, t: t, client: clientOf(env.Conn),
		dashboard: startDashboard(t, append([]string{"--server", env.NATS.URL()}, args...)...),
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
	log  testenv.Transcript
	done chan struct{} // closed when it has exited with err
	err  error
}

var urlLine = regexp.MustCompile(`^pq dashboard: (https?://\S+)$`)

// startDashboard starts pq dashboard and waits until it says where it is.
func startDashboard(t *testing.T, args ...string) *dashboard {
	t.Helper()
	d := runDashboard(t, args...)
	if d.url == "" {
		t.Fatalf("the dashboard ends with %v\n%s", d.err, d.log.String())
	}
	return d
}

// runDashboard starts pq dashboard, and returns when it says where it is, or has ended with an error.
func runDashboard(t *testing.T, args ...string) *dashboard {
	t.Helper()
	d := &dashboard{t: t, done: make(chan struct{})}
	d.cmd = harness.Command(started.pq, append([]string{"dashboard", "--listen", "127.0.0.1:0"}, args...)...)
	d.cmd.Env = environment()
	d.cmd.Stderr = &d.log
	out, err := d.cmd.StdoutPipe()
	must(t, err)
	must(t, d.cmd.Start())

	first := make(chan string, 1)
	go func() {
		defer close(d.done)
		lines := bufio.NewReader(out)
		line, _ := lines.ReadString('\n') // a line without an end is none
		first <- strings.TrimSpace(line)
		_, _ = io.Copy(&d.log, lines) // ends with the process
		d.err = d.cmd.Wait()
	}()
	t.Cleanup(func() {
		d.stop()
		if t.Failed() {
			t.Logf("log of the dashboard:\n%s", d.log.String())
		}
	})

	select {
	case line := <-first:
		if found := urlLine.FindStringSubmatch(line); found != nil {
			d.url = strings.NewReplacer("0.0.0.0", "127.0.0.1", "[::]", "127.0.0.1").Replace(found[1])
		} else {
			<-d.done
		}
	case <-time.After(testenv.Patience):
		t.Fatalf("the dashboard does not start\n%s", d.log.String())
	}
	return d
}

// environment is that of this process, without what would tell pq about other servers.
func environment() (variables []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "NATS_") && !strings.HasPrefix(v, "PQ_") && !strings.HasPrefix(v, "XDG_CONFIG_HOME=") {
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
			if containsAll(line, texts) {
				return nil
			}
		}
		return fmt.Errorf("no line of the log has %q:\n%s", texts, d.log.String())
	})
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// send sends a request as some program does, and returns the answer with its body.
func (d *dashboard) send(r *http.Request) (*http.Response, string) {
	d.t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	c := &http.Client{
		Transport: transport, Timeout: testenv.Patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	reply, err := c.Do(r)
	must(d.t, err)
	body, err := io.ReadAll(reply.Body)
	must(d.t, errors.Join(err, reply.Body.Close()))
	return reply, string(body)
}

// request returns a request to a path of the dashboard, with headers in pairs.
func (d *dashboard) request(method, path, body string, headers ...string) *http.Request {
	d.t.Helper()
	r, err := http.NewRequest(method, d.url+path, strings.NewReader(body))
	must(d.t, err)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		} else {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	return r
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

// bury makes a dead letter of the most urgent item, and returns its id in the dead-letter queue.
func (s *system) bury(queue, reason string) {
	s.t.Helper()
	delivery, err := s.client.PriorityQueue(queue).LeaseMin(s.t.Context())
	must(s.t, err)
	must(s.t, delivery.Term(s.t.Context(), reason))
}

// lengths waits until a queue has that many items: ready, leased, delayed.
func (s *system) lengths(queue string, want ...int64) {
	s.t.Helper()
	testenv.Eventually(s.t, func() error {
		info, err := s.client.PriorityQueue(queue).Info(s.t.Context())
		if err != nil {
			return err
		}
		for i, n := range []int64{info.Ready, info.Leased, info.Delayed} {
			if i < len(want) && n != want[i] {
				return fmt.Errorf("%s has %d ready, %d leased and %d delayed items: want %d", queue, info.Ready, info.Leased, info.Delayed, want)
			}
		}
		return nil
	})
}

// ids returns those of a queue, in order.
func (s *system) ids(queue string) (ids []string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), testenv.Patience)
	defer cancel()
	page, err := s.client.PriorityQueue(queue).Items(ctx, client.ItemsOptions{Limit: 1000, ValueBytes: client.NoValues})
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
