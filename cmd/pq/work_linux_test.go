package main

import (
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/testenv"
)

// Nobody is left to end the command of a pq work that is killed, and somebody else gets its item.
func TestCommandDiesWithPQ(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "push", "jobs", "a")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p := c.start(func(cmd *exec.Cmd) { cmd.Stdout = w }, "work", "jobs", "--", "sh", "-c", "echo begun; exec sleep 1000")
	_ = w.Close() // the child has its own
	if _, err := io.ReadFull(r, make([]byte, len("begun\n"))); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Now().Add(testenv.Patience)); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the command has not ended: %d, %v", n, err)
	}
}
