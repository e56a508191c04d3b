package main

import (
	"flag"
	"fmt"
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

	"github.com/pqbridge/pqbridge/cmd/internal/ready"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// composeFile is the part of the Compose file format that our files use. Anything else,
// typos included, fails the test.
type composeFile struct {
	Name       string
	Services   map[string]composeService
	Volumes    map[string]struct{}
	Extensions map[string]any `yaml:",inline"` // x-...
}

type composeService struct {
	Image, Hostname, User, Restart string
	Build                          *struct {
		Context, Target string
		Args            map[string]string
	}
	Entrypoint, Command   []string
	Environment           map[string]string
	Ports, Volumes, Tmpfs []string
	Profiles              []string
	DependsOn             map[string]struct{ Condition string } `yaml:"depends_on"`
	Healthcheck           struct {
		Test              []string
		Interval, Timeout time.Duration
		Retries           int
		StartPeriod       time.Duration `yaml:"start_period"`
	}
	NetworkMode string        `yaml:"network_mode"`
	StopGrace   time.Duration `yaml:"stop_grace_period"`
	ReadOnly    bool          `yaml:"read_only"`
	CapDrop     []string      `yaml:"cap_drop"`
	CapAdd      []string      `yaml:"cap_add"`
	MemLimit    string        `yaml:"mem_limit"`
	PullPolicy  string        `yaml:"pull_policy"`
	SecurityOpt []string      `yaml:"security_opt"`
	Logging     struct {
		Driver  string
		Options map[string]string
	}
}

// composeFiles are our files, and the servers of FoundationDB that each starts.
var composeFiles = map[string][]string{
	"docker-compose.yml":         {"foundationdb"},
	"docker-compose.cluster.yml": {"foundationdb-1", "foundationdb-2", "foundationdb-3"},
}

// forEachService runs a test of each service of our files.
func forEachService(t *testing.T, test func(t *testing.T, file composeFile, s composeService)) {
	for name := range composeFiles {
		file := readCompose(t, name)
		for service, s := range file.Services {
			t.Run(name+" "+service, func(t *testing.T) { test(t, file, s) })
		}
	}
}

func readCompose(t *testing.T, name string) (file composeFile) {
	t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(readFile(t, name)))
	decoder.KnownFields(true)
	must(t, decoder.Decode(&file))

	for key := range file.Extensions {
		if !strings.HasPrefix(key, "x-") {
			t.Errorf("%q is not part of the format", key)
		}
	}

	return file
}

// ours reports whether the service runs our image: a bridge or the dashboard.
func (s composeService) ours() bool { return strings.HasPrefix(s.Image, "pqbridge:") }

// Bridges and the dashboard start with their variables, at the ports that are published, with files
// that are mounted, and after the servers that they connect to.
func TestComposeConfigures(t *testing.T) {
	forEachService(t, func(t *testing.T, file composeFile, s composeService) {
		if !s.ours() {
			return
		}

		setenv(t, s.Environment)
		c, err := loadConfig(false) // refuses unknown variables
		must(t, err)

		listens, check := c.HTTPAddr, []string{"CMD", "/usr/local/bin/pqbridge", "-healthcheck"}
		if s.Entrypoint != nil { // the dashboard, whose command line cmd/pq parses
			_, rest, _ := strings.Cut(strings.Join(s.Command, " "), "--listen ")
			listens, _, _ = strings.Cut(rest, " ")
			check = []string{
				"CMD", s.Entrypoint[0], "dashboard", "--healthcheck", "--listen", listens,
			}
		}
		if !slices.Equal(s.Healthcheck.Test, check) {
			t.Errorf("health check %q: want one of its own, %q", s.Healthcheck.Test, check)
		}

		port, all := strings.CutPrefix(listens, "0.0.0.0:")
		if !all || len(s.Ports) != 1 || !strings.HasSuffix(s.Ports[0], ":"+port) {
			t.Errorf("ports %v, and it listens on %s", s.Ports, listens)
		}
		if s.Healthcheck.Timeout <= ready.Time {
			t.Errorf("health check of %v: want more than its own %v",
				s.Healthcheck.Timeout, ready.Time)
		}

		secret, urls := c.FDBClusterFile, s.Environment["NATS_URL"]
		if s.Entrypoint != nil {
			_, secret, _ = strings.Cut(strings.Join(s.Command, " "), "--token-file ")
		} else if c.Store != storeFDB || s.StopGrace <= c.ShutdownTimeout || urls != c.NATSURL {
			t.Errorf("store %s, killed after %v, pq in the container uses %s: want FoundationDB, "+
				"more than the shutdown's %v, and %s",
				c.Store, s.StopGrace, urls, c.ShutdownTimeout, c.NATSURL)
		}
		if !isMounted(s.Volumes, secret) {
			t.Errorf("%q is in none of the volumes %v", secret, s.Volumes)
		}

		for url := range strings.SplitSeq(urls, ",") {
			host, _, _ := strings.Cut(strings.TrimPrefix(url, "nats://"), ":")
			if s.DependsOn[host].Condition != "service_healthy" {
				t.Errorf("%s: no service %s that it waits for", url, host)
			}
		}
	})
}

func isMounted(volumes []string, path string) bool {
	return slices.ContainsFunc(volumes, func(v string) bool {
		_, target, _ := strings.Cut(v, ":")
		return strings.HasPrefix(path, target+"/")
	})
}

// pinned is an image with its version, for people, and the digest that is pulled. Our own image has
// no digest before it is built, and for NATS we know none yet.
var pinned = regexp.MustCompile(`^([a-z0-9./-]+:\d+\.\d+[\w.-]*@sha256:[0-9a-f]{64}|` +
	`pqbridge:[a-z-]*\d+\.\d+[\w.-]*|nats:\d+\.\d+\.\d+-alpine)$`)

// Images are pinned, services can write to volumes alone, none that leaves a nameless one behind,
// and others can connect only from this machine.
func TestComposeConfines(t *testing.T) {
	d := readDockerfile(t)
	// What images declare as volumes: a new one at each start where nothing is mounted.
	declared := map[string][]string{
		"foundationdb/foundationdb": {"/var/fdb/data"}, "nats": nil, "pqbridge": d["VOLUME"],
	}
	version := d.argument("FDB_VERSION")

	forEachService(t, func(t *testing.T, file composeFile, s composeService) {
		image, tag, _ := strings.Cut(s.Image, ":")
		tag, _, _ = strings.Cut(tag, "@")

		folders, known := declared[image]
		if !known || !pinned.MatchString(s.Image) ||
			image != "nats" && !strings.HasSuffix(tag, version) {
			t.Errorf("image %q is not known, not pinned, or of another release than %s",
				s.Image, version)
		}

		for _, folder := range folders {
			if !slices.Contains(s.Tmpfs, folder) && !isMounted(s.Volumes, folder+"/") {
				t.Errorf("nothing is mounted at %s: %v, tmpfs %v", folder, s.Volumes, s.Tmpfs)
			}
		}
		if !s.ReadOnly || !slices.Contains(s.CapDrop, "ALL") || s.MemLimit == "" ||
			!slices.Contains(s.SecurityOpt,
				"no-new-privileges:true") || s.Logging.Options["max-size"] == "" ||
			!s.ours() && s.User == "" || strings.HasPrefix(s.User, "0") && s.NetworkMode != "none" {
			t.Errorf("it is not confined: %+v", s)
		}

		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("port %s is open to other machines", port)
			}
		}

		for _, volume := range s.Volumes {
			source, _, _ := strings.Cut(volume, ":")
			if _, ok := file.Volumes[source]; !ok {
				t.Errorf("volume %s is not declared", source)
			}
		}
	})
}

// Backups have a volume that the agent may write to, in the place where the documents say. Only who
// asks for the agent gets it.
func TestComposeBacksUp(t *testing.T) {
	document := readFile(t, "docs", "cluster.md")
	for name := range composeFiles {
		services := readCompose(t, name).Services
		agent, volumes := services["backup-agent"], services["foundationdb-volumes"]

		if !slices.Equal(agent.Profiles, []string{"backup"}) {
			t.Errorf("%s: the agent has the profiles %q", name, agent.Profiles)
		}

		for _, service := range []composeService{agent, volumes} {
			if !slices.Contains(service.Volumes, "backup:/backup") {
				t.Errorf("%s: volumes %q have none at /backup", name, service.Volumes)
			}
		}
		chown := regexp.MustCompile(`chown ` + agent.User + ` .* /backup\n`)
		if !chown.MatchString(volumes.Command[0]) {
			t.Errorf("%s: nobody gives /backup to %s", name, agent.User)
		}
	}
	wantWords(t, document, "fdbbackup start -d file:///backup ",
		"--profile backup up -d backup-agent")

	// Nothing is deleted before the present state is kept, no backup runs, and the one to restore
	// is complete.
	restore := `fdbbackup start [^\n]* -w &&\n` +
		`[^\n]* fdbrestore start [^\n]* --dryrun &&\n` +
		`[^\n]* clearrange "" [^\n]* &&\n` +
		`[^\n]* fdbrestore start [^\n]* -w &&\n`
	if !regexp.MustCompile(restore).MatchString(document) ||
		strings.Count(document, `clearrange "" `) != 1 {
		t.Error("the restore deletes before it is known that there is something to restore")
	}
}

// No two services build the same tag: docker compose would fail by chance.
func TestComposeBuildsOnce(t *testing.T) {
	d := readDockerfile(t)
	for name := range composeFiles {
		builds := 0
		for service, s := range readCompose(t, name).Services {
			if s.Build == nil {
				if s.ours() && s.PullPolicy != "never" {
					t.Errorf("%s: pull_policy of %s is %q, and no registry has the image",
						name, service, s.PullPolicy)
				}
				continue
			}

			builds++
			if s.Build.Target != "fdb" || s.Build.Args["FDB_VERSION"] != d.argument("FDB_VERSION") {
				t.Errorf("%s: built with %+v", name, s.Build)
			}

			for arg, value := range s.Build.Args {
				// Taken from the environment if it is set there.
				if value == "" && d.argument(arg) == "" {
					t.Errorf("%s: build argument %s has no default in the Dockerfile", name, arg)
				}
			}
		}
		if builds != 1 {
			t.Errorf("%s: %d services build the image, want one", name, builds)
		}
	}
}

// Bridges wait for a database, and foundationdb-configure for no server: these are not healthy
// before it is done, and podman starts nothing that depends on an ended container that depends on a
// running one. fdbserver ends by itself, with a line in its log, before the container's limit has
// it killed; each server of a cluster has a name of its own, which the cluster file has.
func TestComposeOrder(t *testing.T) {
	for name, servers := range composeFiles {
		file := readCompose(t, name)
		for _, server := range servers {
			s := file.Services[server]
			if s.MemLimit != "3g" || s.Hostname != server {
				t.Errorf("%s: %s has %s and the name %s", name, server, s.MemLimit, s.Hostname)
			}
			wantWords(t, strings.Join(s.Command, " "), "--memory=2500MiB")
		}

		coordinators := "@" + strings.Join(servers, ":4500,") + ":4500'"
		wantWords(t, file.Services["foundationdb-volumes"].Command[0], coordinators)

		for service, s := range file.Services {
			for _, server := range servers {
				waited := s.DependsOn[server].Condition != ""
				if s.ours() && s.Entrypoint == nil && !waited {
					t.Errorf("%s: %s does not have %s started", name, service, server)
				} else if service == "foundationdb-configure" && waited {
					t.Errorf("%s: %s waits for %s", name, service, server)
				}
			}

			condition := s.DependsOn["foundationdb-configure"].Condition
			configured := condition == "service_completed_successfully"
			if s.ours() && s.Entrypoint == nil && !configured {
				t.Errorf("%s: %s starts before there is a database: %v", name, service, s.DependsOn)
			}
		}
		if restart := file.Services["foundationdb-configure"].Restart; restart != "on-failure" {
			t.Errorf("%s: foundationdb-configure ends before there is a database: restart is %q",
				name, restart)
		}
	}
}

// nats-server accepts the command of each NATS service, and the health check asks its port.
func TestComposeStartsNATS(t *testing.T) {
	forEachService(t, func(t *testing.T, file composeFile, s composeService) {
		if !strings.HasPrefix(s.Image, "nats:") {
			return
		}

		flags := flag.NewFlagSet(s.Command[0], flag.ContinueOnError)
		refuse := func() { t.Error("the command asks for help or the version") }
		o, err := server.ConfigureOptions(flags, s.Command[1:], refuse, refuse, refuse)
		must(t, err)

		want := fmt.Sprintf("http://127.0.0.1:%d/healthz", o.HTTPPort)
		wantWords(t, strings.Join(s.Healthcheck.Test, " "), want)

		for _, route := range o.Routes {
			host := route.Hostname()
			if !strings.HasPrefix(file.Services[host].Image, "nats:") || host == o.ServerName {
				t.Errorf("the route %s leads to no other server", route)
			}
		}
	})
}

// fakeFDBCLI stands in for fdbcli. It keeps the state of the database, and a list of its changes,
// in the folder of the test.
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

// The script of the service configures a new database once, and never an existing one. A stand-in
// for fdbcli says what it did.
func TestComposeConfiguresFoundationDBOnce(t *testing.T) {
	harness.OnlyClients(t)
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("the script needs bash, which is not installed here")
	}

	for name := range composeFiles {
		service := readCompose(t, name).Services["foundationdb-configure"]
		script := strings.ReplaceAll(service.Command[0], "$$", "$")

		for state, want := range map[string]string{
			"new":  "configured\n", // no database yet
			"made": "",             // there is one
			"lost": "",             // there may be one, but it does not answer yet
		} {
			t.Run(name+" "+state, func(t *testing.T) {
				dir := t.TempDir()
				for name, text := range map[string]string{
					"fdbcli": fakeFDBCLI,
					"state":  state,
					"done":   "",
				} {
					must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
				}

				cmd := harness.Command(bash, append(service.Entrypoint[1:], script)...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(),
					"PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))

				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}

				done, err := os.ReadFile(filepath.Join(dir, "done"))
				if err != nil || string(done) != want {
					t.Errorf("done %q (%v): want %q", done, err, want)
				}
			})
		}
	}
}
