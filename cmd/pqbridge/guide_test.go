package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// block is a block of a document: its language and the comment <!-- test: ... --> before it, if
// there is one, and its text. A block of sh without a comment is commands, and one of text after
// it what they print.
type block struct{ kind, text string }

// blocksOf returns the blocks of a document that a test follows.
func blocksOf(t *testing.T, document string) (blocks []block) {
	t.Helper()
	pattern := regexp.MustCompile("(?s)(?:<!-- test: ([^\n]*) -->\n)?```([a-z]+)\n(.*?)```")
	for _, m := range pattern.FindAllStringSubmatch(readFile(t, "docs", document), -1) {
		blocks = append(blocks, block{strings.TrimSpace(m[2] + " " + m[1]), m[3]})
	}
	if len(blocks) == 0 {
		t.Fatalf("%s has no blocks: does the test still see them?", document)
	}

	return blocks
}

// blockOf returns the only block of a kind in a document.
func blockOf(t *testing.T, document, kind string) string {
	t.Helper()
	blocks := slices.DeleteFunc(blocksOf(t, document), func(b block) bool { return b.kind != kind })
	if len(blocks) != 1 {
		t.Fatalf("%s has %d blocks %q, want one", document, len(blocks), kind)
	}

	return blocks[0].text
}

// Programs that documents show are parts of the examples, which their own tests run, whatever
// their indentation.
func TestDocumentsShowTheExamples(t *testing.T) {
	indent := regexp.MustCompile(`(?m)^\s+`)
	flat := func(text string) string { return indent.ReplaceAllString(text, "") }
	examples := map[string]string{
		"js": flat(readFile(t, "docs", "example", "javascript", "jetstream.js") +
			readFile(t, "client", "javascript", "README.md")),
		"python": flat(readFile(t, "client", "python", "README.md")),
	}
	programs, err := filepath.Glob(filepath.Join(root, "docs", "example", "*", "main*.go"))
	must(t, err)

	programs = append(programs, filepath.Join(root, "docs", "example", "example_test.go"))
	for _, name := range programs {
		program, err := os.ReadFile(name)
		must(t, err)
		examples["go"] += flat(string(program))
	}

	for _, document := range []string{"guide.md", "jetstream.md", "foundationdb.md"} {
		for _, b := range blocksOf(t, document) {
			example, shown := examples[b.kind]
			if shown && !strings.Contains(example, flat(b.text)) {
				t.Errorf("%s: no program has these lines:\n%s", document, b.text)
			}
		}
	}
}

// Everything in docs/guide.md works, in its order and with its programs. It takes as long as the
// guide waits for slow jobs and leases.
func TestGuide(t *testing.T) {
	harness.OnlyNightly(t)
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
}

// follow does what a document says. Kinds of blocks that it does not know are left to others,
// with what the next block says is printed.
func (g *guide) follow(document string, others func(b block, want string)) {
	g.Helper()
	blocks := blocksOf(g.T, document)

	for i, b := range blocks {
		want := ""
		if i+1 < len(blocks) && blocks[i+1].kind == "text" {
			want = blocks[i+1].text
		}

		switch b.kind {
		case "text", "go", "js", "python", "sh the system is running":
		case "sh":
			if got := g.sh(b.text); !same(got, want) {
				g.Errorf("%s\nprinted %q, want %q", b.text, got, want)
			}
		case "sh third terminal":
			g.start(b.text)
		case "text third terminal":
			g.prints(b.text, "")
		default:
			others(b, want)
		}

		if g.Failed() {
			g.FailNow() // the rest depends on it
		}
	}
	g.stop()
}

// guide is a reader of the guide.
type guide struct {
	*testing.T
	variables []string // of the system
	system    *command
	bin       string
	env       []string

	terminal *exec.Cmd // the third one; nil if nothing runs there
	printed  chan string
}

func newGuide(t *testing.T) *guide {
	port := strconv.Itoa(harness.Port(t))
	g := &guide{
		T:         t,
		bin:       t.TempDir(),
		variables: []string{"PQ_DATA_DIR=" + t.TempDir(), "PQ_DEV_NATS_PORT=" + port},
	}

	g.system = startDev(t, g.variables...)
	g.env = append(os.Environ(), "NATS_URL="+g.system.nats, "TMPDIR="+t.TempDir())
	g.sh("go build -o bin/ ./cmd/pq\n")
	t.Cleanup(g.kill)

	return g
}

// bash returns a command that runs lines of the guide, in the root of the repository but with
// another folder bin.
func (g *guide) bash(code string) *exec.Cmd {
	code = strings.NewReplacer(
		"$PWD/bin", g.bin,
		" bin/", " "+g.bin+"/",
		"\nbin/", "\nexec "+g.bin+"/",
		"\npq work", "\nexec pq work",
		" &\n", "\n",
	).Replace("\n" + code)

	cmd := harness.CommandContext(g.Context(), "bash", "-e", "-o", "pipefail", "-c",
		"PATH="+g.bin+":$PATH"+code)
	cmd.Dir, cmd.Env = root, g.env
	return cmd
}

func (g *guide) sh(code string) string {
	g.Helper()
	out, err := g.try(code)
	must(g, err)
	return out
}

// eventually repeats commands until they print what they should, or nothing new for too long: a
// thousand jobs take their time on a busy machine.
func (g *guide) eventually(code, want string) {
	g.Helper()
	var last string

	for changed := time.Now(); ; {
		got, err := g.try(code)
		switch {
		case err == nil && same(got, want):
			return
		case got != last:
			last, changed = got, time.Now()
		case time.Since(changed) > testenv.Patience:
			g.Fatalf("%s\nprints %q, want %q: %v", code, got, want, err)
		}

		<-time.After(50 * time.Millisecond) // what is waited for needs the processors, too
	}
}

func (g *guide) try(code string) (string, error) {
	cmd := g.bash(code)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s%w\n%s", code, err, &stderr)
	}

	return string(out), err
}

// start runs a program in the third terminal, the last command of a block.
func (g *guide) start(code string) {
	g.Helper()
	g.stop()
	g.terminal = g.bash(code)
	out, err := g.terminal.StdoutPipe()
	if err == nil {
		err = g.terminal.Start()
	}
	must(g, err)
	g.printed = make(chan string, 10_000)

	go func() {
		defer close(g.printed)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			g.printed <- lines.Text()
		}
	}()
}

// prints waits for lines in the third terminal, and skips lines that do not begin with about.
func (g *guide) prints(text, about string) {
	g.Helper()
	for want := range strings.Lines(text) {
		for printed := false; !printed; {
			select {
			case got := <-g.printed:
				if printed = same(got, want); !printed && strings.HasPrefix(got, about) {
					g.Fatalf("the third terminal printed %q, want %q", got, want)
				}
			case <-time.After(testenv.Patience):
				g.Fatalf("the third terminal does not print %q", want)
			}
		}
	}
}

// stop ends what runs in the third terminal as a container would. It must end well.
func (g *guide) stop() {
	g.Helper()
	if err := g.end(syscall.SIGTERM); err != nil {
		g.Errorf("after SIGTERM: %v", err)
	}
}

func (g *guide) kill() { _ = g.end(syscall.SIGKILL) }

// end sends a signal to what runs in the third terminal, and returns how that ended.
func (g *guide) end(signal os.Signal) error {
	if g.terminal == nil {
		return nil
	}

	_ = g.terminal.Process.Signal(signal) // unless it has ended
	for range g.printed {
	}
	err := g.terminal.Wait()
	g.terminal = nil
	return err
}

// same reports whether a command printed what the guide says. An ellipsis there stands for the rest
// of the line.
func same(got, want string) bool {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(want)), "…", ".*")
	return regexp.MustCompile("^" + pattern + "$").MatchString(strings.TrimSpace(got))
}
