package web

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pqbridge/pqbridge/bridge/web/connlimit"
	"github.com/pqbridge/pqbridge/subjects"
)

// pipes is a listener whose connections have the clock of a bubble.
type pipes struct {
	net.Listener // nil
	accepted     chan net.Conn
}

func (p *pipes) Accept() (net.Conn, error) {
	conn, ok := <-p.accepted
	if !ok {
		return nil, http.ErrServerClosed
	}

	return conn, nil
}

func (p *pipes) Close() error   { return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A client that sends or reads slowly, or not at all, loses its connection within a stated time.
func TestSlowHTTPClients(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: a\r\n"
	for _, test := range []struct {
		name   string
		client func(c net.Conn) // until the connection fails
		within time.Duration
	}{
		{"headers", func(c net.Conn) {
			_, err := c.Write([]byte(get))
			for err == nil {
				time.Sleep(time.Second)
				_, err = c.Write([]byte("X-A: b\r\n"))
			}
		}, 6 * time.Second},
		{"body", func(c net.Conn) {
			go func() { _, _ = io.Copy(io.Discard, c) }()
			_, err := c.Write([]byte(get + "Content-Length: 100000\r\n\r\n"))

			for err == nil {
				time.Sleep(time.Second)
				_, err = c.Write([]byte("a"))
			}
		}, 7 * time.Second},
		{"reads nothing", func(c net.Conn) {
			_, _ = c.Write([]byte(get + "\r\n"))
			time.Sleep(time.Minute)

			for { // what the server had written before it gave up
				if _, err := c.Read(make([]byte, 1)); err != nil {
					return
				}
			}
		}, time.Minute},
		{"reads slowly", func(c net.Conn) {
			_, _ = c.Write([]byte(get + "\r\n"))
			for {
				if _, err := c.Read(make([]byte, 100)); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}, time.Minute},
		{"idle", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, 2 * time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_, _ = w.Write(bytes.Repeat([]byte("a"), 100_000))
				}), time.Second, connlimit.New(maxConnections))
				listener := &pipes{accepted: make(chan net.Conn)}
				served := make(chan error, 1)
				go func() { served <- server.Serve(listener) }()

				client, conn := net.Pipe()
				began := time.Now()
				listener.accepted <- conn
				over := make(chan struct{})

				go func() {
					defer close(over)
					test.client(client)
				}()

				select {
				case <-over:
				case <-time.After(time.Hour):
					t.Error("the connection is still there after an hour")
				}
				if took := time.Since(began); took > test.within {
					t.Errorf("it took %v", took)
				}

				_ = client.Close()
				<-over
				close(listener.accepted)

				if err := <-served; !errors.Is(err, http.ErrServerClosed) {
					t.Error(err)
				}

				_ = server.Close()
			})
		})
	}
}

// fullProcess is a listener of a process that has no file descriptors left.
type fullProcess struct{ net.Listener }

func (fullProcess) Accept() (net.Conn, error) {
	return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
}

func (fullProcess) Close() error { return nil }

// While no connection can be accepted, the server tries again, and warns in the log of the bridge.
func TestNoFileDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		warned := make(chan string, 1)
		s := &Server{
			config: Config{
				Registry: prometheus.NewRegistry(),
				Warn: func(message string, args ...any) {
					warned <- fmt.Sprint(message, args)
				},
			},
			listener:    fullProcess{},
			connections: connlimit.New(maxConnections),
			endScrapes:  func() {},
		}

		failed := make(chan error, 1)
		s.Start(failed)
		for range 10 {
			var line string
			select {
			case line = <-warned:
			case <-time.After(time.Hour):
			}
			if !strings.Contains(line, "HTTP") || !strings.Contains(line, "too many open files") ||
				strings.Contains(line, "\n") {
				t.Errorf("logged %q", line)
			}
		}
		s.Stop()

		if len(failed) > 0 {
			t.Error(<-failed)
		}
	})
}

// Clients that do not read /metrics, or nothing of any page, keep nobody from it, whether they come
// again or not. They take a limited number of connections and of scrapes.
func TestClientsThatDoNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		for i := range 1000 { // more than the server keeps until somebody reads
			registry.MustRegister(
				prometheus.NewGauge(prometheus.GaugeOpts{Name: fmt.Sprintf("gauge_%d", i)}))
		}

		s := &Server{
			config: Config{
				Registry: registry,
				Timeout:  time.Second,
				Warn:     func(string, ...any) {},
			},
			connections: connlimit.New(maxConnections),
		}

		server := newServer(s.routes(), time.Second, s.connections)
		listener := &pipes{accepted: make(chan net.Conn)}
		served := make(chan error, 1)
		var open atomic.Int32 // as the server sees it
		note := server.ConnState

		server.ConnState = func(c net.Conn, state http.ConnState) {
			note(c, state)
			switch state {
			case http.StateNew:
				open.Add(1)
			case http.StateClosed:
				open.Add(-1)
			}
		}

		go func() { served <- server.Serve(listener) }()
		connect := func(request string) net.Conn {
			client, conn := net.Pipe()
			listener.accepted <- conn
			if _, err := io.WriteString(client, request); err != nil {
				t.Fatal(err)
			}

			synctest.Wait()
			return client
		}

		const get = "GET %s HTTP/1.1\r\nHost: a\r\n\r\n"
		reachable := func(page string) {
			t.Helper()
			client := connect(fmt.Sprintf(get, page))
			defer func() { _ = client.Close() }()
			answer, err := http.ReadResponse(bufio.NewReader(client), nil)
			if err != nil {
				t.Fatal(err)
			}

			if _, err := io.Copy(io.Discard, answer.Body); err != nil ||
				answer.StatusCode != http.StatusOK {
				t.Errorf("%s: %s, %v", page, answer.Status, err)
			}
		}

		began := time.Now()
		for _, request := range []string{
			fmt.Sprintf(get, "/metrics"), fmt.Sprintf(get, "/healthz"), "",
		} {
			for range 3 * maxConnections {
				client := connect(request)
				defer func() { _ = client.Close() }()
				if n := open.Load(); n > maxConnections {
					t.Fatalf("%d connections", n)
				}
			}

			reachable("/metrics")
			reachable("/healthz")
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}

		close(listener.accepted)
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}

		_ = server.Close()
	})
}

// The address itself answers with a page whose links exist, and that says how to get the dashboard.
func TestIndex(t *testing.T) {
	s := &Server{config: Config{
		Registry: prometheus.NewRegistry(),
		Timeout:  time.Minute,
		Ready:    func(context.Context) []error { return nil },
		Queues: func(
			context.Context, subjects.Kind, subjects.ListOptions,
		) (subjects.QueueList, error) {
			return subjects.QueueList{}, nil
		},
	}}
	routes := s.routes()
	get := func(path string) *httptest.ResponseRecorder {
		answer := httptest.NewRecorder()
		routes.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		return answer
	}

	page := get("/")
	links := regexp.MustCompile(`href="(\w+)"`).FindAllStringSubmatch(page.Body.String(), -1)
	if page.Code != http.StatusOK || len(links) != 4 ||
		!strings.Contains(page.Body.String(), "pq dashboard") {
		t.Errorf("the page is %d with %s", page.Code, page.Body)
	}
	for _, link := range links {
		if answer := get("/" + link[1]); answer.Code != http.StatusOK {
			t.Errorf("%s answers %d", link[1], answer.Code)
		}
	}
	if answer := get("/nothing"); answer.Code != http.StatusNotFound {
		t.Errorf("a page that is not there answers %d", answer.Code)
	}
}
