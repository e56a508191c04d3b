package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.yaml.in/yaml/v3"
)

// composeFile is the part of the Compose file format that our file uses. Anything else,
// typos included, fails the test.
type composeFile struct {
	Name       string
	Services   map[string]composeService
	Volumes    map[string]struct{}
	Extensions map[string]any `yaml:",inline"` // x-...
}

type composeService struct {
	Image       string
	Build       *composeBuild
	Hostname    string
	User        string
	Entrypoint  []string
	Command     []string
	Environment map[string]string
	Ports       []string
	Volumes     []string
	Tmpfs       []string
	DependsOn   map[string]struct{ Condition string } `yaml:"depends_on"`
	Healthcheck *composeHealthcheck
	Restart     string
	NetworkMode string        `yaml:"network_mode"`
	StopGrace   time.Duration `yaml:"stop_grace_period"`
	ReadOnly    bool          `yaml:"read_only"`
	CapDrop     []string      `yaml:"cap_drop"`
	CapAdd      []string      `yaml:"cap_add"`
	SecurityOpt []string      `yaml:"security_opt"`
}

type composeBuild struct {
	Context string
	Args    map[string]string
}

type composeHealthcheck struct {
	Test        []string
	Interval    time.Duration
	Timeout     time.Duration
	Retries     int
	StartPeriod time.Duration `yaml:"start_period"`
}

// Conditions of depends_on.
const (
	isHealthy = "service_healthy"
	isStarted = "service_started"
	isDone    = "service_completed_successfully"
)

func readCompose(t *testing.T) composeFile {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var file composeFile
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	for key := range file.Extensions {
		if !strings.HasPrefix(key, "x-") {
			t.Errorf("%q is not part of the format", key)
		}
	}
	return file
}

// bridges returns the services that are pqbridge.
func (f composeFile) bridges() map[string]composeService {
	return maps.Collect(func(yield func(string, composeService) bool) {
		for name, s := range f.Services {
			if s.Build != nil && !yield(name, s) {
				return
			}
		}
	})
}

// waitedFor returns the condition on which others wait for each service.
func (f composeFile) waitedFor() map[string]string {
	conditions := map[string]string{}
	for _, s := range f.Services {
		for name, dependency := range s.DependsOn {
			if conditions[name] != isDone {
				conditions[name] = dependency.Condition
			}
		}
	}
	return conditions
}

func TestComposeConfiguresBridges(t *testing.T) {
	file := readCompose(t)
	bridges := file.bridges()
	if len(bridges) != 2 {
		t.Errorf("%d bridges: want two", len(bridges))
	}
	for name, s := range bridges {
		t.Run(name, func(t *testing.T) {
			for variable, value := range s.Environment {
				t.Setenv(variable, value)
			}
			c, err := loadConfig(false) // refuses unknown variables
			if err != nil {
				t.Fatal(err)
			}
			if c.Store != storeFDB || !isMounted(s.Volumes, c.FDBClusterFile) {
				t.Errorf("store %s with cluster file %q: want it in one of the volumes %v", c.Store, c.FDBClusterFile, s.Volumes)
			}
			if s.StopGrace <= c.ShutdownTimeout {
				t.Errorf("stop_grace_period %v: want more than the shutdown's %v", s.StopGrace, c.ShutdownTimeout)
			}
			if s.Healthcheck.Timeout <= checkTime {
				t.Errorf("timeout of the health check %v: want more than its own %v", s.Healthcheck.Timeout, checkTime)
			}
			_, port, _ := strings.Cut(c.HTTPAddr, ":")
			if len(s.Ports) != 1 || !strings.HasSuffix(s.Ports[0], ":"+port) {
				t.Errorf("ports %v: want that of PQ_HTTP_ADDR %s", s.Ports, c.HTTPAddr)
			}
			if host, _, _ := strings.Cut(strings.TrimPrefix(c.NATSURL, "nats://"), ":"); file.Services[host].Image == "" {
				t.Errorf("PQ_NATS_URL %s names no service", c.NATSURL)
			}
		})
	}
}

func isMounted(volumes []string, path string) bool {
	return slices.ContainsFunc(volumes, func(v string) bool {
		_, target, _ := strings.Cut(v, ":")
		return strings.HasPrefix(path, target+"/")
	})
}

// pinned is an image with a version of at least two numbers, or a digest.
var pinned = regexp.MustCompile(`^[a-z0-9./-]+(:[a-z-]*\d+\.\d+[\w.-]*(@sha256:[0-9a-f]{64})?|@sha256:[0-9a-f]{64})$`)

func TestComposePinsImages(t *testing.T) {
	file := readCompose(t)
	version := readDockerfile(t).argument("FDB_VERSION")
	for name, s := range file.Services {
		if !pinned.MatchString(s.Image) {
			t.Errorf("%s: image %q is not pinned", name, s.Image)
		}
		if strings.HasPrefix(s.Image, "foundationdb/") && !strings.HasSuffix(s.Image, ":"+version) {
			t.Errorf("%s: image %s, and the client in the Dockerfile is %s", name, s.Image, version)
		}
	}
	for name, s := range file.bridges() {
		if s.Build.Args["FDB_VERSION"] != version {
			t.Errorf("%s: built with %v, and the Dockerfile with %s", name, s.Build.Args, version)
		}
		if sum := s.Build.Args["FDB_CLIENT_SHA256"]; !strings.HasPrefix(sum, "${FDB_CLIENT_SHA256:?") {
			t.Errorf("%s: FDB_CLIENT_SHA256 is %q: want it to be required", name, sum)
		}
	}
}

func TestComposeOrder(t *testing.T) {
	file := readCompose(t)
	waited := file.waitedFor()
	for name, s := range file.Services {
		ends := waited[name] == isDone
		switch {
		case ends && s.Restart != "no":
			t.Errorf("%s ends by itself: want restart: \"no\"", name)
		case !ends && s.Restart != "unless-stopped":
			t.Errorf("%s: restart is %q", name, s.Restart)
		case !ends && (s.Healthcheck == nil || len(s.Healthcheck.Test) < 2 || s.Healthcheck.Retries == 0 ||
			s.Healthcheck.Interval == 0 || s.Healthcheck.Timeout == 0 || s.Healthcheck.StartPeriod == 0):
			t.Errorf("%s: no complete health check: %+v", name, s.Healthcheck)
		}
		for other, dependency := range s.DependsOn {
			if _, ok := file.Services[other]; !ok {
				t.Errorf("%s depends on %s, which is not there", name, other)
			}
			if !slices.Contains([]string{isHealthy, isStarted, isDone}, dependency.Condition) {
				t.Errorf("%s: condition %q", name, dependency.Condition)
			}
		}
		if file.reaches(name, name, map[string]bool{}) {
			t.Errorf("%s waits for itself", name)
		}
	}
	for name, s := range file.bridges() {
		if s.DependsOn["nats"].Condition != isHealthy || s.DependsOn["foundationdb"].Condition != isHealthy ||
			s.DependsOn["foundationdb-configure"].Condition != isDone {
			t.Errorf("%s starts before all it needs is there: %v", name, s.DependsOn)
		}
	}
	// foundationdb is not healthy before foundationdb-configure is done.
	if c := file.Services["foundationdb-configure"].DependsOn["foundationdb"].Condition; c != isStarted {
		t.Errorf("foundationdb-configure waits for %q of foundationdb: want %q", c, isStarted)
	}
}

// reaches reports whether from depends on to, directly or through others.
func (f composeFile) reaches(from, to string, seen map[string]bool) bool {
	for name := range f.Services[from].DependsOn {
		if name == to {
			return true
		}
		if !seen[name] {
			seen[name] = true
			if f.reaches(name, to, seen) {
				return true
			}
		}
	}
	return false
}

func TestComposeConfines(t *testing.T) {
	file := readCompose(t)
	for name, s := range file.Services {
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s is not confined: %+v", name, s)
		}
		if strings.HasPrefix(s.User, "0") && s.NetworkMode != "none" {
			t.Errorf("%s runs as root and has a network", name)
		}
		if s.User == "" && s.Build == nil { // for the bridges the Dockerfile sets it
			t.Errorf("%s: want a user", name)
		}
		for _, port := range s.Ports {
			if !regexp.MustCompile(`^127\.0\.0\.1:\d+:\d+$`).MatchString(port) {
				t.Errorf("%s: port %s is open to other machines", name, port)
			}
		}
		for _, volume := range s.Volumes {
			source, _, _ := strings.Cut(volume, ":")
			if _, ok := file.Volumes[source]; !ok {
				t.Errorf("%s: volume %s is not declared", name, source)
			}
		}
	}
}

func TestComposeStartsNATS(t *testing.T) {
	command := readCompose(t).Services["nats"].Command
	flags := flag.NewFlagSet(command[0], flag.ContinueOnError)
	refuse := func() { t.Error("the command asks for help or the version") }
	o, err := server.ConfigureOptions(flags, command[1:], refuse, refuse, refuse)
	if err != nil {
		t.Fatalf("%v: %v", command, err)
	}
	healthcheck := readCompose(t).Services["nats"].Healthcheck.Test
	if want := fmt.Sprintf("http://127.0.0.1:%d/healthz", o.HTTPPort); healthcheck[len(healthcheck)-1] != want {
		t.Errorf("health check %v: want %s", healthcheck, want)
	}
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
  'configure new single ssd')
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
	service := readCompose(t).Services["foundationdb-configure"]
	script := strings.ReplaceAll(service.Command[0], "$$", "$")
	for state, want := range map[string]string{
		"new":  "configured\n", // no database yet
		"made": "",             // there is one
		"lost": "",             // there may be one, but it does not answer yet
	} {
		t.Run(state, func(t *testing.T) {
			dir := t.TempDir()
			write := func(name, text string) {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			write("fdbcli", fakeFDBCLI)
			write("state", state)
			write("done", "")
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
}
