//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// script copies a script of .ci into a folder of its own, with other files, and returns what runs
// it there.
func script(
	t *testing.T, name string, files map[string]string,
) func(env []string, args ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, ".ci", name)
	files[filepath.Join(".ci", name)] = readFile(t, ".ci", name)
	for file, text := range files {
		file = filepath.Join(dir, file)
		must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must(t, os.WriteFile(file, []byte(text), 0o755))
	}

	return func(env []string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "stub")+":"+os.Getenv("PATH"))
		cmd.Env = append(cmd.Env, env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

// A release has notes only if the newest section of the changelog is its own, and has its day.
func TestChangelogSection(t *testing.T) {
	const rest = "\n### Added\n\n- Queues.\n\n## [0.0.9] - 2026-01-01\n\n- Less.\n"
	for _, m := range []struct {
		heading, prints string
		fails           bool
	}{
		{"## [0.1.0] - 2026-12-01", "\n### Added\n\n- Queues.\n", false},
		{"## [0.1.0] - 2026-12-01\n[a](SECURITY.md#b), [c](docs/pq.md), [e](https://f.test/#g)",
			"[a](https://github.com/pqbridge/pqbridge/blob/v0.1.0/SECURITY.md#b), " +
				"[c](https://github.com/pqbridge/pqbridge/blob/v0.1.0/docs/pq.md), " +
				"[e](https://f.test/#g)", false},
		{"## [0.1.0] - unreleased", `begins with "## [0.1.0] - unreleased": want the day of ` +
			`the release, as in ## [0.1.0] - 2`, true},
		{"## [0.1.0]", `want the day of the release`, true},
		{"## [0.1.1] - 2026-12-01", "does not begin with a section ## [0.1.0]", true},
		{"## [0.1.0] - 2026-12-01\n\n## [0.0.10] - 2026-01-02", "is empty", true},
	} {
		text := "# Changelog\n\n" + m.heading + "\n" + rest
		run := script(t, "changelog-section", map[string]string{"CHANGELOG.md": text})
		out, err := run(nil, "v0.1.0")
		if (err != nil) != m.fails || !strings.Contains(out, m.prints) ||
			strings.Contains(out, "Less") {
			t.Errorf("%s: it printed %q, %v, want %q", m.heading, out, err, m.prints)
		}
	}
}

// Parts begin until minute 16 and end within 20 minutes, another one first after each commit. What
// has to wait is named.
func TestCIRunTakesTurns(t *testing.T) {
	const stub = "#!/bin/sh\n"
	files := map[string]string{
		".ci/pythons": stub, "client/pqotel/go.mod": "", "client/javascript/dist/index.js": "",
		"client/java/driver/target/driver.jar": "", "bin/python/installed": "",
		"stub/git": stub + "echo $TURN\n",
	}
	for _, program := range []string{"make", "go", "gcc", "npm", "chromium", "redis-server"} {
		files["stub/"+program] = stub
	}
	files["stub/gcc"] = stub + "cat >/dev/null\n" // its input is a pipe, which must not break
	run := script(t, "run", files)

	for _, m := range []struct {
		turn, seconds string
		begins, waits string // without fdb, which this machine may have or not
	}{
		{"0", "0", "race pqotel clients javascript python celery java packages browser", ""},
		{"20", "0", "race pqotel clients javascript python celery java packages browser", ""},
		{"3", "0", "javascript python celery java packages browser race pqotel clients", ""},
		{"0", "850", "race pqotel javascript celery browser", "clients python java packages"},
		{"7", "830", "packages browser race pqotel clients javascript celery java", "python"},
		{"0", "1000", "", "race pqotel clients javascript python celery java packages browser"},
	} {
		out, err := run([]string{"TURN=" + m.turn, "SECONDS=" + m.seconds, "CC=gcc"})
		must(t, err)
		var begins []string
		waits := ""
		for line := range strings.Lines(out) {
			part, _, isPart := strings.Cut(line, ", after ")
			_, named, isLast := strings.Cut(line, "waiting for the next run, because ")
			switch {
			case isLast:
				_, named, _ = strings.Cut(named, ": ")
				waits, _, _ = strings.Cut(named, ";")
			case isPart && part != "fdb":
				begins = append(begins, part)
			}
		}

		waits = strings.Join(strings.Fields(strings.ReplaceAll(waits, "fdb", "")), " ")
		if got := strings.Join(begins, " "); got != m.begins || waits != m.waits {
			t.Errorf("turn %s, after %s s: begins %q, waits %q, want %q and %q\n%s", m.turn,
				m.seconds, got, waits, m.begins, m.waits, out)
		}
	}
}
