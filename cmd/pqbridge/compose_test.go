package main

import (
	"flag"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"go.yaml.in/yaml/v3"
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
	MemLimit    string        `yaml:"mem_limit"`
	PullPolicy  string        `yaml:"pull_policy"`
	Logging     struct {
		Driver  string
		Options map[string]string
	}
	SecurityOpt []string `yaml:"security_opt"`
}

type composeBuild struct {
	Context string
	Target  string
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

// composeFiles are our files, and the servers of FoundationDB that each starts.
var composeFiles = map[string][]string{
	"docker-compose.yml":         {"foundationdb"},
	"docker-compose.cluster.yml": {"foundationdb-1", "foundationdb-2", "foundationdb-3"},
}

// forEachCompose runs a test of each of our files.
func forEachCompose(t *testing.T, test func(t *testing.T, file composeFile, foundationdb []string)) {
	for name, servers := range composeFiles {
		t.Run(name, func(t *testing.T) { test(t, readCompose(t, name), servers) })
	}
}

func readCompose(t *testing.T, name string) composeFile {
	t.Helper()
	var file composeFile
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

// ours returns the services that run our image: the bridges and the dashboard.
func (f composeFile) ours() map[string]composeService {
	ours := maps.Clone(f.Services)
	maps.DeleteFunc(ours, func(_ string, s composeService) bool { return !strings.HasPrefix(s.Image, "pqbridge:") })
	return ours
}

// bridges returns the services that are pqbridge.
func (f composeFile) bridges() map[string]composeService {
	bridges := f.ours()
	maps.DeleteFunc(bridges, func(_ string, s composeService) bool { return s.Entrypoint != nil })
	return bridges
}

// ends reports whether others wait for the end of a service.
func (f composeFile) ends(name string) bool {
	for _, s := range f.Services {
		if s.DependsOn[name].Condition == isDone {
			return true
		}
	}
	return false
}

func TestComposeConfiguresBridges(t *testing.T) {
	forEachCompose(t, func(t *testing.T, file composeFile, _ []string) {
		bridges := file.bridges()
		if len(bridges) != 2 {
			t.Errorf("%d bridges: want two", len(bridges))
		}
		for name, s := range bridges {
			t.Run(name, func(t *testing.T) { testComposeBridge(t, file, s) })
		}
	})
}

// TestComposeConfiguresTheDashboard: cmd/pq parses its command line.
func TestComposeConfiguresTheDashboard(t *testing.T) {
	forEachCompose(t, func(t *testing.T, file composeFile, _ []string) {
		s := file.Services["dashboard"]
		setenv(t, s.Environment)
		c, err := loadConfig(false)
		must(t, err)

		command := strings.Join(s.Command, " ")
		_, port, _ := strings.Cut(c.HTTPAddr, ":") // which the health check asks
		if !strings.Contains(command, "--listen 0.0.0.0:"+port+" ") || len(s.Ports) != 1 || !strings.HasSuffix(s.Ports[0], ":"+port) {
			t.Errorf("%s, with the health check at %s and ports %v: want one port", command, c.HTTPAddr, s.Ports)
		}
		if _, token, ok := strings.Cut(command, "--token-file "); !ok || !isMounted(s.Volumes, token) {
			t.Errorf("%s: want a token in one of the volumes %v", command, s.Volumes)
		}

		for _, bridge := range file.bridges() {
			if s.Image != bridge.Image || s.Environment["NATS_URL"] != bridge.Environment["NATS_URL"] || slices.Equal(s.Ports, bridge.Ports) {
				t.Errorf("%+v: want the image and the servers of %+v, and another port", s, bridge)
			}
		}
		for url := range strings.SplitSeq(s.Environment["NATS_URL"], ",") {
			host, _, _ := strings.Cut(strings.TrimPrefix(url, "nats://"), ":")
			if s.DependsOn[host].Condition != isHealthy {
				t.Errorf("NATS_URL %s: no service %s that the dashboard waits for", url, host)
			}
		}
	})
}

func testComposeBridge(t *testing.T, file composeFile, s composeService) {
	setenv(t, s.Environment)
	c, err := loadConfig(false) // refuses unknown variables
	must(t, err)
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
	for url := range strings.SplitSeq(c.NATSURL, ",") {
		host, _, _ := strings.Cut(strings.TrimPrefix(url, "nats://"), ":")
		if file.Services[host].Image == "" || s.DependsOn[host].Condition != isHealthy {
			t.Errorf("PQ_NATS_URL %s: no service %s that the bridge waits for", c.NATSURL, host)
		}
	}
	if s.Environment["NATS_URL"] != c.NATSURL {
		t.Errorf("NATS_URL is %q: want that of the bridge, for pq in its container", s.Environment["NATS_URL"])
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
	version := readDockerfile(t).argument("FDB_VERSION")
	forEachCompose(t, func(t *testing.T, file composeFile, _ []string) {
		for name, s := range file.Services {
			if !pinned.MatchString(s.Image) {
				t.Errorf("%s: image %q is not pinned", name, s.Image)
			}
			if strings.HasPrefix(s.Image, "foundationdb/") && !strings.HasSuffix(s.Image, ":"+version) {
				t.Errorf("%s: image %s, and the client in the Dockerfile is %s", name, s.Image, version)
			}
		}
	})
}

// TestComposeBuildsOnce: two services that build and export the same tag at once make
// docker compose fail by chance.
func TestComposeBuildsOnce(t *testing.T) {
	dockerfile := readDockerfile(t)
	forEachCompose(t, func(t *testing.T, file composeFile, _ []string) {
		var builds []composeBuild
		for name, s := range file.ours() {
			switch {
			case s.Build != nil:
				builds = append(builds, *s.Build)
			case s.PullPolicy != "never":
				t.Errorf("%s: pull_policy is %q: want never, because no registry has the image", name, s.PullPolicy)
			}
		}
		if len(builds) != 1 {
			t.Fatalf("%d services build the image: want one", len(builds))
		}
		version := dockerfile.argument("FDB_VERSION")
		if build := builds[0]; build.Target != "fdb" || build.Args["FDB_VERSION"] != version {
			t.Errorf("built with %+v: want the target fdb with FoundationDB %s", build, version)
		}
		for name, value := range builds[0].Args {
			if value == "" && dockerfile.argument(name) == "" { // taken from the environment if it is set there
				t.Errorf("build argument %s has no default in the Dockerfile", name)
			}
		}
	})
}

func TestComposeOrder(t *testing.T) {
	forEachCompose(t, func(t *testing.T, file composeFile, foundationdb []string) {
		for name, s := range file.Services {
			if file.reaches(name, name, map[string]bool{}) {
				t.Errorf("%s waits for itself", name)
			}
			for other, dependency := range s.DependsOn {
				if _, ok := file.Services[other]; !ok {
					t.Errorf("%s depends on %s, which is not there", name, other)
				}
				if !slices.Contains([]string{isHealthy, isStarted, isDone}, dependency.Condition) {
					t.Errorf("%s: condition %q", name, dependency.Condition)
				}
			}
			if file.ends(name) {
				if s.Restart != "no" && s.Restart != "on-failure" {
					t.Errorf("%s ends by itself: restart is %q", name, s.Restart)
				}
				continue
			}
			if s.Restart != "unless-stopped" {
				t.Errorf("%s: restart is %q", name, s.Restart)
			}
			if h := s.Healthcheck; h == nil || len(h.Test) < 2 || h.Retries == 0 || h.Interval == 0 || h.Timeout == 0 || h.StartPeriod == 0 {
				t.Errorf("%s: no complete health check: %+v", name, h)
			}
		}
		for bridge, s := range file.bridges() {
			if s.DependsOn["foundationdb-configure"].Condition != isDone {
				t.Errorf("%s starts before there is a database: %v", bridge, s.DependsOn)
			}
			for _, name := range foundationdb {
				if s.DependsOn[name].Condition == "" {
					t.Errorf("%s does not have %s started", bridge, name)
				}
			}
		}
		for _, name := range foundationdb {
			// They are not healthy before foundationdb-configure is done, and podman starts
			// nothing that depends on an ended container that depends on a running one.
			if c, ok := file.Services["foundationdb-configure"].DependsOn[name]; ok {
				t.Errorf("foundationdb-configure waits for %q of %s", c.Condition, name)
			}
		}
		if restart := file.Services["foundationdb-configure"].Restart; restart != "on-failure" {
			t.Errorf("foundationdb-configure: restart is %q: want it to go on until there is a database", restart)
		}
	})
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
	forEachCompose(t, func(t *testing.T, file composeFile, _ []string) {
		for name, s := range file.Services {
			if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
				t.Errorf("%s is not confined: %+v", name, s)
			}
			if strings.HasPrefix(s.User, "0") && s.NetworkMode != "none" {
				t.Errorf("%s runs as root and has a network", name)
			}
			if s.User == "" && !strings.HasPrefix(s.Image, "pqbridge:") { // for these the Dockerfile sets it
				t.Errorf("%s: want a user", name)
			}
			if s.MemLimit == "" {
				t.Errorf("%s may take all memory of the machine", name)
			}
			if s.Logging.Driver != "json-file" || s.Logging.Options["max-size"] == "" || s.Logging.Options["max-file"] == "" {
				t.Errorf("%s: its log may fill the disk: %+v", name, s.Logging)
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
	})
}

// imageVolumes are the folders that images declare as volumes, by the beginnings of their names:
// that of FoundationDB as its release 7.3 has it. That of nats has none.
var imageVolumes = map[string][]string{"foundationdb/foundationdb:": {"/var/fdb/data"}, "nats:": nil}

// TestComposeLeavesNoVolumes: a volume of an image without a mount there gets a new, nameless
// volume at each start, which stays when the container goes.
func TestComposeLeavesNoVolumes(t *testing.T) {
	declared := maps.Clone(imageVolumes)
	declared["pqbridge:"] = readDockerfile(t).all("VOLUME")
	if len(declared["pqbridge:"]) == 0 {
		t.Error("the Dockerfile declares no volume: does the test still see it?")
	}
	forEachCompose(t, func(t *testing.T, file composeFile, _ []string) {
		for name, s := range file.Services {
			image, _, _ := strings.Cut(s.Image, ":")
			folders, known := declared[image+":"]
			if !known {
				t.Errorf("%s: the test does not know which volumes %s declares", name, s.Image)
			}
			for _, folder := range folders {
				if !slices.Contains(s.Tmpfs, folder) && !isMounted(s.Volumes, folder+"/") {
					t.Errorf("%s mounts nothing at %s, which its image declares as a volume: %v, tmpfs %v", name, folder, s.Volumes, s.Tmpfs)
				}
			}
		}
	})
}

func TestComposeStartsNATS(t *testing.T) {
	forEachCompose(t, func(t *testing.T, file composeFile, _ []string) {
		for name, s := range file.Services {
			if !strings.HasPrefix(s.Image, "nats:") {
				continue
			}
			flags := flag.NewFlagSet(s.Command[0], flag.ContinueOnError)
			refuse := func() { t.Error("the command asks for help or the version") }
			o, err := server.ConfigureOptions(flags, s.Command[1:], refuse, refuse, refuse)
			if err != nil {
				t.Fatalf("%s: %v: %v", name, s.Command, err)
			}
			if want := fmt.Sprintf("http://127.0.0.1:%d/healthz", o.HTTPPort); s.Healthcheck.Test[len(s.Healthcheck.Test)-1] != want {
				t.Errorf("%s: health check %v: want %s", name, s.Healthcheck.Test, want)
			}
			for _, route := range o.Routes {
				if other := file.Services[route.Hostname()]; !strings.HasPrefix(other.Image, "nats:") || route.Hostname() == name {
					t.Errorf("%s: the route %s leads to no other server", name, route)
				}
			}
		}
	})
}
