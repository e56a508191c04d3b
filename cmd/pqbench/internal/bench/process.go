package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// stopTime is how long a process may take to exit after a signal.
const stopTime = 15 * time.Second

// process is a running child.
type process struct {
	name   string
	cmd    *exec.Cmd
	log    string        // file with its output
	exited chan struct{} // closed when it has exited
	err    error         // of the exit; set before exited is closed
}

// start runs a program with extra environment variables and its output in a file in dir.
// When ctx ends the child gets SIGTERM, and is killed if it does not exit.
func start(ctx context.Context, dir, name string, args, env []string, stdout io.Writer) (*process, error) {
	p := &process{name: name, exited: make(chan struct{})}
	log, err := os.CreateTemp(dir, name+"-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own handle
	p.log = log.Name()
	p.cmd = exec.CommandContext(ctx, args[0], args[1:]...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if stdout != nil {
		p.cmd.Stdout = stdout
	}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = stopTime
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// stop sends sig and waits until the process has exited.
func (p *process) stop(sig os.Signal) {
	_ = p.cmd.Process.Signal(sig) // fails only if it has exited
	timer := time.NewTimer(stopTime)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// failure describes a process that exited, with the last of its output.
func (p *process) failure() error {
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

// await calls ready every few milliseconds until it returns nil.
func (p *process) await(ctx context.Context, ready func() error) error {
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return p.failure()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", p.name, errors.Join(context.Cause(ctx), err))
		case <-ticker.C:
		}
	}
}

// usage is what a process has used so far. Without /proc it is unknown.
type usage struct {
	known    bool
	cpu      time.Duration
	peak     int64 // most bytes of memory at any time
	resident int64 // bytes of memory now
}

// add adds what was used between before and after.
func (u *usage) add(before, after usage) {
	u.known = u.known && before.known && after.known
	u.cpu += after.cpu - before.cpu
	u.peak = after.peak
}

// used returns the usage of the process.
func (p *process) used() usage {
	if p == nil {
		return usage{}
	}
	return usedBy(p.cmd.Process.Pid)
}

// usedBy returns the usage of the process pid.
func usedBy(pid int) usage {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	cpu, err := cpuTime(filepath.Join(proc, "stat"))
	if err != nil {
		return usage{}
	}
	peak, resident, err := memory(filepath.Join(proc, "status"))
	if err != nil {
		return usage{}
	}
	return usage{known: true, cpu: cpu, peak: peak, resident: resident}
}

// cpuTime reads user and system time, fields 14 and 15 of /proc/PID/stat. They are in
// ticks; Linux reports 100 a second on every machine. The second field is the program's
// name in parentheses, which may contain spaces.
func cpuTime(file string) (time.Duration, error) {
	const tick = time.Second / 100
	stat, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("%s has %d fields after the name: want 13", file, len(fields))
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick, err
}

// memory reads VmHWM and VmRSS, in kB, from /proc/PID/status.
func memory(file string) (peak, resident int64, err error) {
	status, err := os.ReadFile(file)
	if err != nil {
		return 0, 0, err
	}
	found := 0
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		bytes := map[string]*int64{"VmHWM": &peak, "VmRSS": &resident}[name]
		if bytes == nil {
			continue
		}
		kB, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %w", file, err)
		}
		*bytes = kB * 1024
		found++
	}
	if found != 2 {
		return 0, 0, fmt.Errorf("%s: want lines VmHWM and VmRSS", file)
	}
	return peak, resident, nil
}

// freeAddress returns a loopback address with a port that nothing listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
