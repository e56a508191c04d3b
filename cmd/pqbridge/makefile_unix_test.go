//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// shells run our Makefile on some system: sh is dash on Debian, bash on macOS.
func shells(t *testing.T) (found []string) {
	t.Helper()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("make is not installed here")
	}

	for _, name := range []string{"sh", "bash", "dash"} {
		if path, err := exec.LookPath(name); err == nil {
			found = append(found, path)
		}
	}

	return found
}

// patiently runs a command as make run and make test run the compiler, in a process group of its
// own, with a report after each interval of seconds.
func patiently(t *testing.T, shell, every, command string) *exec.Cmd {
	t.Helper()
	makefile := filepath.Join(t.TempDir(), "Makefile")
	text := "include Makefile\nprobe:\n\t@$(call patiently,compiling," + command + ")\n"
	must(t, os.WriteFile(makefile, []byte(text), 0o644))

	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	t.Cleanup(cancel)
	cmd := harness.CommandContext(ctx, "make", "-s", "--no-print-directory", "-f", makefile,
		"SHELL="+shell, "EVERY="+every, "probe")
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Dir = root
	leadsGroup(cmd)
	return cmd
}

// leadsGroup gives a command a process group of its own.
func leadsGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

// wantNoneLeft waits until a process group has no processes.
func wantNoneLeft(t *testing.T, group int) {
	t.Helper()
	testenv.Eventually(t, func() error {
		if err := syscall.Kill(-group, 0); !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("processes of the group are left: %v", err)
		}
		return nil
	})
}

// While the compiler is silent, make says that it works. The reports end with the compiler, and
// make returns its exit code.
func TestMakeSaysThatItCompiles(t *testing.T) {
	t.Parallel()
	for _, shell := range shells(t) {
		t.Run(filepath.Base(shell), func(t *testing.T) {
			t.Parallel()

			compiled := filepath.Join(t.TempDir(), "compiled")
			cmd := patiently(t, shell, "1",
				"until [ -e "+compiled+" ]; do sleep 0.05; done; echo done; exit 3")
			out, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())

			var lines []string
			for scanner := bufio.NewScanner(out); scanner.Scan(); {
				if lines = append(lines, scanner.Text()); len(lines) == 2 {
					must(t, os.WriteFile(compiled, nil, 0o644))
				}
			}

			err = cmd.Wait()

			text := strings.Join(lines, "\n")
			if !strings.HasPrefix(text, "compiling: 1 s so far\ncompiling: 2 s so far\n") ||
				!strings.HasSuffix(text, "\ndone") {
				t.Errorf("it printed %q", lines)
			}
			if err == nil {
				t.Error("a command that failed made no target fail")
			}
			wantNoneLeft(t, cmd.Process.Pid)
		})
	}
}

// A command that is quick prints nothing more, and Ctrl-C and kill end all of it.
func TestMakeLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, shell := range shells(t) {
		t.Run(filepath.Base(shell), func(t *testing.T) {
			t.Parallel()

			quick := patiently(t, shell, "30", "echo done")
			out, err := quick.CombinedOutput()
			if err != nil || string(out) != "done\n" {
				t.Errorf("%v, printed %q", err, out)
			}
			wantNoneLeft(t, quick.Process.Pid)

			for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
				slow := patiently(t, shell, "30", "sh -c 'echo began; exec sleep 600'")
				began, err := slow.StdoutPipe()
				must(t, err)
				must(t, slow.Start())

				if line, err := bufio.NewReader(began).ReadString('\n'); err != nil {
					t.Fatalf("the command printed %q and then ended: %v", line, err)
				}

				// To all of the group, as a terminal does.
				must(t, syscall.Kill(-slow.Process.Pid, signal))

				if err := slow.Wait(); err == nil {
					t.Errorf("%v: make succeeded", signal)
				}
				wantNoneLeft(t, slow.Process.Pid)
			}
		})
	}
}

// make verify hands its variables to the test, which takes an hour unless told otherwise, and needs
// no program that an unpacked archive or macOS may lack.
func TestMakeVerifyNeedsOnlyGo(t *testing.T) {
	t.Parallel()
	shells(t) // skips without make

	for asked, want := range map[string][]string{
		"":                             {"'^TestVerify$' ", " -duration 60m"},
		"MINUTES=2 SEED=7 KEEP=kept.x": {" -duration 2m ", " -seed 7 ", "/kept.x\n"},
	} {
		cmd := harness.CommandContext(t.Context(), "make", "-s", "-n", "--no-print-directory")
		cmd.Args = append(append(cmd.Args, "verify"), strings.Fields(asked)...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		must(t, err)

		for _, part := range want {
			if !strings.Contains(string(out), part) {
				t.Errorf("make verify %s lacks %q: %s", asked, part, out)
			}
		}
		for _, word := range strings.Fields(string(out)) {
			if slices.Contains([]string{"git", "bash", "shuf", "sed"}, word) {
				t.Errorf("make verify %s needs %s: %s", asked, word, out)
			}
		}
	}
}
