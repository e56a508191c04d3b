// Package process runs the programs that a benchmark measures, as children with their output in
// files.
package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// stopTime is how long a process may take to exit after a signal.
const stopTime = 15 * time.Second

// Process is a running child.
type Process struct {
	name   string
	cmd    *exec.Cmd
	log    string        // file with its output
	Exited chan struct{} // closed when it has exited
	err    error         // of the exit; set before Exited is closed
}

// Start runs a program with extra environment variables and its output in a file in dir. When ctx
// ends the child gets SIGTERM, and is killed if it does not exit. Each setup changes the command
// before it starts.
func Start(ctx context.Context, dir, name string, args, env []string, setup ...func(*exec.Cmd)) (*Process, error) {
	p := &Process{name: name, Exited: make(chan struct{})}
	log, err := os.CreateTemp(dir, name+"-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own handle
	p.log = log.Name()

	p.cmd = exec.CommandContext(ctx, args[0], args[1:]...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = stopTime
	for _, change := range setup {
		change(p.cmd)
	}

	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}

	go func() {
		p.err = p.cmd.Wait()
		close(p.Exited)
	}()
	return p, nil
}

// Stop sends sig and waits until the process has exited.
func (p *Process) Stop(sig os.Signal) {
	_ = p.cmd.Process.Signal(sig) // fails only if it has exited
	timer := time.NewTimer(stopTime)
	defer timer.Stop()
	select {
	case <-p.Exited:
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.Exited
	}
}

// PID returns the id of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Succeeded reports whether the process, which has exited, says that all went well.
func (p *Process) Succeeded() bool { return p.err == nil }

// Failure describes a process that exited, with the last of its output.
func (p *Process) Failure() error {
	const tail = 2000
	output, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Errorf("%s exited: %w", p.name, errors.Join(p.err, err))
	}
	if len(output) > tail {
		output = output[len(output)-tail:]
	}
	return fmt.Errorf("%s exited: %w\n%s", p.name, p.err, strings.TrimSpace(string(output)))
}

// Await calls ready every few milliseconds until it returns nil.
func (p *Process) Await(ctx context.Context, ready func() error) error {
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()

	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-p.Exited:
			return p.Failure()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", p.name, errors.Join(context.Cause(ctx), err))
		case <-ticker.C:
		}
	}
}

// AwaitListening waits until something listens on a TCP address.
func (p *Process) AwaitListening(ctx context.Context, address string) error {
	return p.Await(ctx, func() error {
		c, err := net.Dial("tcp", address)
		if err == nil {
			err = c.Close()
		}
		return err
	})
}

// Usage is what a process has used so far. Without /proc it is unknown.
type Usage struct {
	Known bool
	CPU   time.Duration
	Peak  int64 // most bytes of memory at any time

	Resident int64 // bytes of memory now
}

// Add adds what was used between before and after.
func (u *Usage) Add(before, after Usage) {
	u.Known = u.Known && before.Known && after.Known
	u.CPU += after.CPU - before.CPU
	u.Peak = after.Peak
}

// Used returns the usage of the process.
func (p *Process) Used() Usage {
	if p == nil {
		return Usage{}
	}
	return UsedBy(p.cmd.Process.Pid)
}

// UsedBy returns the usage of the process pid.
func UsedBy(pid int) Usage {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return Usage{}
	}
	stat, err1 := p.Stat()
	status, err2 := p.NewStatus()
	if errors.Join(err1, err2) != nil {
		return Usage{}
	}
	return Usage{Known: true, CPU: seconds(stat.CPUTime()), Peak: int64(status.VmHWM), Resident: int64(status.VmRSS)}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Machine is the processor time of all processors of this machine since it started, and how much of
// that the host of a virtual machine gave to others. Both are 0 where that is not known.
type Machine struct{ All, Stolen time.Duration }

// MachineTime reads it from /proc/stat.
func MachineTime() Machine {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return Machine{}
	}
	stat, err := fs.Stat()
	if err != nil {
		return Machine{}
	}
	c := stat.CPUTotal // whose time of guests is part of the user's
	all := c.User + c.Nice + c.System + c.Idle + c.Iowait + c.IRQ + c.SoftIRQ + c.Steal
	return Machine{All: seconds(all), Stolen: seconds(c.Steal)}
}

// Add adds what passed between two readings.
func (m *Machine) Add(before, after Machine) {
	m.All += after.All - before.All
	m.Stolen += after.Stolen - before.Stolen
}

// FreeAddress returns a loopback address with a port that nothing listens on.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
