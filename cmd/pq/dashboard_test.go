package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/testenv"
)

// pq dashboard prints where it is, serves its pages there, and ends without an error.
func TestDashboard(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "push", "jobs", "hello")

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out, in := io.Pipe()
	done := make(chan error, 1)
	var problems strings.Builder

	go func() {
		done <- execute(ctx, []string{"--server", c.server, "dashboard", "--listen", "127.0.0.1:0"},
			strings.NewReader(""), in, &problems)
		_ = in.Close() // never returns an error
	}()

	line, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	url := strings.TrimSpace(strings.TrimPrefix(line, "pq dashboard: "))

	browser := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	testenv.Eventually(t, func() error { // it may not be connected yet
		reply, err := browser.Get(url + "/queue/pq/jobs/items")
		must(t, err)
		defer reply.Body.Close()
		page, err := io.ReadAll(reply.Body)

		if err == nil &&
			(reply.StatusCode != http.StatusOK || !strings.Contains(string(page), "hello")) {
			err = fmt.Errorf("status %d: %s", reply.StatusCode, page)
		}

		return err
	})

	cancel()
	if err := <-done; err != nil || problems.Len() > 0 {
		t.Errorf("ended with %v, %s", err, problems.String())
	}
}

// The address that is printed is the one to listen on, and not a guess of how others reach it: a
// container's port may be published as another.
func TestDashboardPrintsWhatItListensOn(t *testing.T) {
	c := newNATS(t, nil)
	token := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(token, []byte("correct horse battery staple\n"), 0o600))

	for listen, want := range map[string]string{
		"127.0.0.1:0": "pq dashboard: http://127.0.0.1:",
		"0.0.0.0:0":   "pq dashboard: http://0.0.0.0:",
		":0":          "pq dashboard: http://0.0.0.0:",
		"[::1]:0":     "pq dashboard: http://[::1]:",
	} {
		board := c.start(nil, "dashboard", "--listen", listen, "--token-file", token)
		board.sees(&board.stdout, "\n")
		if line := board.stdout.String(); !strings.HasPrefix(line, want) {
			t.Errorf("--listen %s prints %q, want %q", listen, line, want)
		}

		board.stop()
	}
}

// The health check needs nothing of the dashboard but its address, and fails when nobody is there.
func TestDashboardHealthcheck(t *testing.T) {
	c := newNATS(t, nil)
	board := c.start(nil, "dashboard", "--listen", "127.0.0.1:0")
	board.sees(&board.stdout, "\n")

	_, addr, _ := strings.Cut(strings.TrimSpace(board.stdout.String()), "http://")

	testenv.Eventually(t, func() error { // it may not be connected yet
		_, stderr, code := c.run("", "dashboard", "--healthcheck", "--listen", addr)
		if code != exitOK {
			return fmt.Errorf("exit code %d: %s", code, stderr)
		}

		return nil
	})

	board.stop()

	c.fails(exitError, "not ready", "dashboard", "--healthcheck", "--listen", addr)
}

// Mistakes are noticed before anything is served.
func TestDashboardMistakes(t *testing.T) {
	c := newNATS(t, nil)
	short, long := filepath.Join(t.TempDir(), "token"), filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(short, []byte("secret\n"), 0o600))
	must(t, os.WriteFile(long, []byte("correct horse battery staple\n"), 0o600))

	c.fails(exitUsage, "--token-file or --trust-proxy-user", "dashboard", "--listen", "0.0.0.0:0")
	c.fails(exitUsage, "want at least 16", "dashboard", "--listen", "127.0.0.1:0", "--token-file",
		short)
	c.fails(exitUsage, "no such file", "dashboard", "--token-file", short+"x")
	c.fails(exitUsage, "exclude each other", "dashboard", "--token-file", long,
		"--trust-proxy-user", "X-User")
	c.fails(exitError, "cannot serve the dashboard", "dashboard", "--listen", "127.0.0.1:99999")
}
