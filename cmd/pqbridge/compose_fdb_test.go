package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestComposeLimitsFoundationDB: fdbserver ends by itself, with a line in its log, before
// the container's limit has it killed; and each server of a cluster has a name of its own.
func TestComposeLimitsFoundationDB(t *testing.T) {
	forEachCompose(t, func(t *testing.T, file composeFile, servers []string) {
		var coordinators []string
		for _, name := range servers {
			s := file.Services[name]
			if s.MemLimit != "3g" || !strings.Contains(strings.Join(s.Command, " "), "--memory=2500MiB") {
				t.Errorf("%s: mem_limit %s with %v: want --memory below it", name, s.MemLimit, s.Command)
			}
			if s.Hostname != name {
				t.Errorf("%s: hostname is %q", name, s.Hostname)
			}
			coordinators = append(coordinators, name+":4500")
		}
		script := file.Services["foundationdb-volumes"].Command[0]
		if want := "@" + strings.Join(coordinators, ",") + "'"; !strings.Contains(script, want) {
			t.Errorf("the cluster file that %q makes does not name %s", script, want)
		}
	})
}

// fakeFDBCLI stands in for fdbcli. It keeps the state of the database, and what was done
// to it, in the folder of the test.
const fakeFDBCLI = `#!/bin/bash
state=$(cat state)
case "${@: -1}" in
  'status minimal')
    case $state in
      made) echo 'The database is available.' ;;
      lost) if test -e asked; then echo made > state; else echo > asked; fi; exit 1 ;;
      *) echo "The database is unavailable." ;;
    esac ;;
  'status json')
    if test "$state" = new; then echo '"name" : "configuration_never_created",'; else exit 1; fi ;;
  'configure new single ssd' | 'configure new double ssd')
    echo configured >> done; echo made > state ;;
esac
`

// TestComposeConfiguresFoundationDBOnce runs the script of the service against
// a stand-in for fdbcli.
func TestComposeConfiguresFoundationDBOnce(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("the script needs bash, which is not installed here")
	}
	forEachCompose(t, func(t *testing.T, file composeFile, _ []string) {
		service := file.Services["foundationdb-configure"]
		script := strings.ReplaceAll(service.Command[0], "$$", "$")
		for state, want := range map[string]string{
			"new":  "configured\n", // no database yet
			"made": "",             // there is one
			"lost": "",             // there may be one, but it does not answer yet
		} {
			t.Run(state, func(t *testing.T) {
				dir := t.TempDir()
				for name, text := range map[string]string{"fdbcli": fakeFDBCLI, "state": state, "done": ""} {
					must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
				}
				cmd := exec.Command(bash, append(service.Entrypoint[1:], script)...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				if done, err := os.ReadFile(filepath.Join(dir, "done")); err != nil || string(done) != want {
					t.Errorf("done %q (%v): want %q", done, err, want)
				}
			})
		}
	})
}
