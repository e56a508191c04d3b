package main

import (
	"io"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/testenv"
)

// Nobody is left to end the command of a pq work that is killed, and somebody else gets its item.
func TestCommandDiesWithPQ(t *testing.T) {
	c, _ := newCLI(t)
	c.ok("", "push", "jobs", "a")
	p, r := c.startPiped("work", "jobs", "--", "sh", "-c", "echo begun; exec sleep 1000")
	defer r.Close()
	_, err := io.ReadFull(r, make([]byte, len("begun\n")))
	must(t, err)
	must(t, p.cmd.Process.Kill())
	must(t, r.SetReadDeadline(time.Now().Add(testenv.Patience)))
	if n, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the command has not ended: %d, %v", n, err)
	}
}
