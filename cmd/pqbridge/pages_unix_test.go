//go:build unix

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

// Everything in docs/guide.md works, in its order and with its programs, and so do the walks of the
// pages for other languages after it, on the same service: no page leaves a program or a setting
// that changes the next one. It takes as long as the pages wait for slow jobs and leases.
func TestGuide(t *testing.T) {
	if !harness.Clients {
		harness.OnlyNightly(t)
	}
	g := newGuide(t)

	g.follow("guide.md", func(b block, want string) {
		switch b.kind {
		case "sh eventually":
			g.eventually(b.text, want)
		case "text third terminal, among others":
			about, _, _ := strings.Cut(b.text, ",")
			g.prints(b.text, about)
		case "sh kill the third terminal", "sh kill the system":
			if b.text != "kill -9 %%\n" { // by name, it would be whatever else has that name too
				t.Errorf("the guide kills with %q, want the job of the terminal only", b.text)
			} else if b.kind == "sh kill the system" {
				g.system.kill()
			} else {
				g.kill()
			}
		case "sh start the system":
			g.system = startDev(t, g.variables...)
		default:
			t.Errorf("what is %q?", b.kind)
		}
	})
	if g.terminal != nil {
		t.Fatal("the guide leaves a program in the third terminal")
	}

	if !harness.Clients {
		t.Log("left out: make test-clients goes on with the pages for other languages")
		return
	}

	checkout, err := filepath.Abs(root)
	must(t, err)
	folder, clients := t.TempDir(), checkout+"/client"
	must(t, os.Symlink(g.bin, folder+"/bin"))
	python := cmp.Or(os.Getenv("PQ_TEST_PYTHON"), checkout+"/bin/python/bin/python")
	java := cmp.Or(os.Getenv("PQ_TEST_JAVA"), "java")
	jars := clients + "/java/driver/target/lib/"
	modules := clients + "/javascript/node_modules/@nats-io"

	must(t, os.MkdirAll(folder+"/node_modules/@pqbridge", 0o755))
	must(t, os.Symlink(clients+"/javascript", folder+"/node_modules/@pqbridge/client"))
	must(t, os.Symlink(modules, folder+"/node_modules/@nats-io"))
	must(t, os.WriteFile(folder+"/package.json", []byte(`{"type": "module"}`), 0o644))

	built := clients + "/javascript/dist/index.js"
	g.walk("javascript.md", folder, []string{"node", built, modules})
	g.walk("python.md", folder, []string{python})
	jackson := jars + "pqbridge-jackson-*.jar"
	g.walk("java.md", folder, []string{java, jackson}, "CLASSPATH="+jars+"*")
}

// walk pastes the commands of the first walk of a page into a shell, as its reader does. They print
// what the page says, and leave no program. The page needs a program, whose folder comes first in
// PATH, and files.
func (g *guide) walk(page, folder string, needs []string, variables ...string) {
	g.Run(page, func(t *testing.T) {
		program := wantThere(t, needs)
		_, chapter, _ := strings.Cut(readFile(t, "docs", page),
			"\n## A worker that survives a kill\n")
		chapter, _, _ = strings.Cut(chapter, "\n## ")
		saved := regexp.MustCompile("(?s)as `(\\S+)`:\n\n```[a-z]+\n(.*?)```")
		for _, m := range saved.FindAllStringSubmatch(chapter, -1) {
			must(t, os.WriteFile(filepath.Join(folder, m[1]), []byte(m[2]), 0o644))
		}

		shell := harness.Command("bash")
		shell.Dir, shell.Env = folder, append(g.env, variables...)
		shell.Env = append(shell.Env, "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
		leadsGroup(shell)
		log, err := os.Create(filepath.Join(folder, page+".log"))
		must(t, err)
		shell.Stderr = log // a file, so that Wait does not wait for what else writes there
		commands, err := shell.StdinPipe()
		must(t, err)

		terminal := &guide{T: t}
		terminal.run(shell)
		t.Cleanup(func() {
			_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) // fails if all have ended
			if said, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
				t.Log(harness.Shorten(page, string(said)))
			}
		})

		blocks := append(blocksIn(t, chapter),
			block{"sh", "wait; echo all have ended; exit\n"}, block{"text", "all have ended\n"})
		for _, b := range blocks {
			switch b.kind {
			case "sh":
				_, err := io.WriteString(commands, b.text)
				must(t, err)
			case "text":
				terminal.prints(b.text, "")
			}
		}
		must(t, shell.Wait())
	})
}

// wantThere returns the path of the program that is the first name. It skips the test if that or a
// file is missing, or fails it with PQ_TEST_CLIENTS=all.
func wantThere(t *testing.T, names []string) (program string) {
	t.Helper()
	program, err := exec.LookPath(names[0])
	for _, name := range names[1:] {
		if found, _ := filepath.Glob(name); found == nil {
			err = errors.Join(err, fmt.Errorf("no %s", name))
		}
	}

	switch {
	case err != nil && harness.AllClients:
		t.Fatalf("%v: make test-clients builds it if it can", err)
	case err != nil:
		t.Skipf("skipped: %v: make test-clients builds it if it can", err)
	}
	return program
}
