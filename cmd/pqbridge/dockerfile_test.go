package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// dockerfile has the arguments of the instructions of the Dockerfile, each joined into one line,
// by their names.
type dockerfile map[string][]string

func readDockerfile(t *testing.T) dockerfile {
	t.Helper()
	text := regexp.MustCompile(`(?m)^\s*#.*\n`).ReplaceAllString(readFile(t, "Dockerfile"), "")
	d := dockerfile{}

	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		if name, rest, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			d[name] = append(d[name], strings.TrimSpace(rest))
		}
	}

	return d
}

// argument returns the default of an ARG, or "".
func (d dockerfile) argument(name string) string {
	for _, a := range d["ARG"] {
		if value, ok := strings.CutPrefix(a, name+"="); ok {
			return value
		}
	}
	return ""
}

// Images have versions, and FoundationDB's package is checked before it is unpacked. The suites on
// FoundationDB run with the same package, and with pinned ones of the server.
func TestDockerfilePinsWhatItFetches(t *testing.T) {
	d := readDockerfile(t)
	stages := []string{"scratch"}

	for _, from := range d["FROM"] {
		image, stage, _ := strings.Cut(strings.TrimPrefix(from, "--platform=$BUILDPLATFORM "),
			" AS ")
		if name, ok := strings.CutPrefix(image, "${"); ok {
			image = d.argument(strings.TrimSuffix(name, "}"))
		}
		if !slices.Contains(stages, image) && !pinned.MatchString(image) {
			t.Errorf("FROM %s: %q is not pinned", from, image)
		}

		stages = append(stages, stage)
	}

	ci := readFile(t, ".github", "workflows", "ci.yml")
	const sums = `\n +client: ([0-9a-f]{64})\n +server: [0-9a-f]{64}\n`

	for argument, pattern := range map[string]string{
		"FDB_VERSION":             `FDB_VERSION: (\d+\.\d+\.\d+)\n`,
		"FDB_CLIENT_SHA256_AMD64": `arch: amd64` + sums,
		"FDB_CLIENT_SHA256_ARM64": `arch: aarch64` + sums,
	} {
		want := d.argument(argument)
		found := regexp.MustCompile(pattern).FindStringSubmatch(ci)
		if found == nil || found[1] != want {
			t.Errorf("%s in ci.yml is %q, and in the Dockerfile %s", pattern, found, want)
		}
	}

	isFetch := func(r string) bool { return strings.Contains(r, "foundationdb-clients_") }
	fetch := d["RUN"][slices.IndexFunc(d["RUN"], isFetch)]

	checked, unpacked := strings.Index(fetch, "sha256sum -c"), strings.Index(fetch, "dpkg-deb -x")
	if checked < 0 || unpacked < checked || !strings.Contains(fetch, "set -e") {
		t.Errorf("the package is not checked before it is unpacked: %s", fetch)
	}
	wantWords(t, fetch, "--build-arg FDB_WEBSITE=", // for those who cannot reach it
		"--build-arg FDB_SOURCE=", `/ACKNOWLEDGEMENTS" "$FDB_ACKNOWLEDGEMENTS_SHA256"`)
}

// Images, archives and the tests of all modules are built by one version of Go.
func TestOneToolchain(t *testing.T) {
	line := regexp.MustCompile(`\ntoolchain go1\.\d+\.\d+\n`)
	want := line.FindString(readFile(t, "go.mod"))
	stage := regexp.MustCompile(`(?m)^FROM .*\$\{GO_IMAGE\}.*\n(.*)`)
	modules, stages := 0, 0

	for _, path := range testenv.Files(t, root) {
		text := readFile(t, path[len(root):])
		switch filepath.Base(path) {
		case "go.mod":
			modules++
			if got := line.FindString(text); got != want || want == "" {
				t.Errorf("%s has the line %q, go.mod %q", path, got, want)
			}
		case "Dockerfile":
			for _, next := range stage.FindAllStringSubmatch(text, -1) {
				stages++
				if next[1] != "ENV GOTOOLCHAIN=auto" {
					t.Errorf("%s: %q: does it build with the Go of go.mod?", path, next[0])
				}
			}
		}
	}
	if modules < 5 || stages < 3 {
		t.Errorf("%d modules and %d stages: does the test still see them?", modules, stages)
	}

	for _, path := range testenv.Files(t, filepath.Join(root, ".github", "workflows")) {
		text := readFile(t, path[len(root):])
		uses := strings.Count(text, "/setup-go@")
		reads := strings.Count(text, "go-version-file: go.mod\n")
		if uses != reads {
			t.Errorf("%s: %d of %d jobs take the Go that go.mod names", path, reads, uses)
		}
	}
}

// The image needs no shell and no root to run, and is configured for its port and volume.
func TestDockerfileRuns(t *testing.T) {
	d := readDockerfile(t)
	user := d["USER"]
	if len(user) != 1 || !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(user[0]) {
		t.Errorf("USER %v: want one, by number, that is not root", user)
	}

	var entrypoint, check []string // lists, or else they need a shell
	must(t, json.Unmarshal([]byte(d["ENTRYPOINT"][0]), &entrypoint))
	_, command, _ := strings.Cut(d["HEALTHCHECK"][0], " CMD ")
	must(t, json.Unmarshal([]byte(command), &check))

	if want := []string{entrypoint[0], "-healthcheck"}; !slices.Equal(check, want) {
		t.Errorf("HEALTHCHECK %s: want %v", check, want)
	}

	wantWords(t, strings.Join(d["RUN"], " "), " -tags fdb", "-X main.version=", "./cmd/pq;",
		"./cmd/pqbridge")

	// Docker gives a new volume the owner of the image's folder. Root's could not be written to.
	for _, folder := range []string{"/data", "/backup"} {
		wantWords(t, strings.Join(d["RUN"], " "), "install -d -m 2770 -o 65532 -g 0 /image"+folder)
	}

	// Files outside of a volume go with the container.
	if n := strings.Count(strings.Join(d["RUN"], " "), "-X main.inImage=yes"); n != 2 {
		t.Errorf("%d of the two images know that they are images", n)
	}

	variable := regexp.MustCompile(`(PQ_\w+)=(\S+)`)
	for _, pair := range variable.FindAllStringSubmatch(strings.Join(d["ENV"], " "), -1) {
		t.Setenv(pair[1], pair[2])
	}

	c, err := loadConfig(false)
	must(t, err)
	if !slices.Contains(d["VOLUME"], c.DataDir) ||
		!strings.HasSuffix(c.HTTPAddr, ":"+d["EXPOSE"][0]) {
		t.Errorf("VOLUME %v, EXPOSE %v: want %s and the port of %s",
			d["VOLUME"], d["EXPOSE"], c.DataDir, c.HTTPAddr)
	}
}

// No build compiles the zstd in C that Pebble brings with cgo: it takes a minute, and the store
// never uses it.
func TestBuildsLeaveOutZstdInC(t *testing.T) {
	wantWords(t, readFile(t, "Makefile"), "TAG_FLAGS  := -tags $(TAGS:%=%,)pebblegozstd\n")
	for _, tags := range regexp.MustCompile(`-tags \S*fdb\S*`).
		FindAllString(readFile(t, "Dockerfile"), -1) {
		wantWords(t, tags, "pebblegozstd")
	}

	list := harness.Command("go", "list", "-deps", "-tags", "fdb,pebblegozstd",
		"./cmd/pqbridge", "./cmd/pq")
	list.Dir, list.Env = root, append(os.Environ(), "CGO_ENABLED=1")
	packages, err := list.Output()
	must(t, err)
	if !strings.Contains(string(packages), "/pebble/") ||
		strings.Contains(string(packages), "DataDog/zstd") {
		t.Errorf("with the tag, the programs are built from\n%s", packages)
	}
}
